"""What an error of ours means over HTTP: one table for every API.

=============================  ======  ===================================================
error                          status  why
=============================  ======  ===================================================
SubscriptionNotFoundError      404     make it again
ReceiptError                   400     not ours, or changed
ContentError, UsageError       400     the caller can mend it
DefinitionError                400     of a pipeline; each problem is told
UnknownPipelineError           404     commit it, activate it
TransactionNotFoundError       404     or it is somebody else's
DuplicateError                 409     the external id belongs to another transaction
TransactionEndedError          409     not in this state
AuthRejected                   401     no credential (403 where the DSPS API says so)
                               403     a bad one, or not for this
                               503     whether it is good could not be found out
StoreFullError, MISCONF        507     nothing was written
store or way to it is down     503     with Retry-After; repeating a publish is safe
CommandError                   503     the server says that it cannot now (LOADING, READONLY, …)
                               409     the stream or key is not what was expected
=============================  ======  ===================================================

Everything else is a fault of ours: 500, and a line in the log. Nothing here knows how an API words it.
"""

from __future__ import annotations

from typing import Final

from penstock.client.policies import Remedy, classify_error
from penstock.client.resending import is_outage
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    ContentError,
    DefinitionError,
    DuplicateError,
    PenstockError,
    ReceiptError,
    StoreError,
    StoreFullError,
    SubscriptionNotFoundError,
    TransactionError,
    TransactionNotFoundError,
    UnavailableError,
    UnknownPipelineError,
    UsageError,
)
from penstock.gateway.auth.decisions import AuthRejected, Rejection
from penstock.gateway.http.responses import Refusal, retry_after

#: After which a client may expect a store that was away.
_RETRY_S: Final = 2.0

_DOWN: Final = (
    UnavailableError,
    ConnectionLostError,
    CommandTimeoutError,
    BackpressureError,
    ClosedError,
    StoreError,
)

_AUTH_STATUS: Final = {
    Rejection.MISSING: 401,
    Rejection.INVALID: 403,
    Rejection.FORBIDDEN: 403,
    Rejection.UNAVAILABLE: 503,
}


def refusal_of(error: PenstockError) -> Refusal | None:
    """How a request ends that met this error; None: it is our fault."""
    match error:
        case SubscriptionNotFoundError():
            return Refusal(404, "subscription-not-found", str(error))
        case ReceiptError():
            return Refusal(400, "receipt-malformed", str(error))
        case ContentError():
            return Refusal(400, "content-malformed", str(error))
        case DefinitionError():
            return Refusal(400, "definition-invalid", str(error), errors=_places_of(error))
        case UnknownPipelineError():
            return Refusal(404, "pipeline-not-found", str(error))
        case TransactionNotFoundError():
            return Refusal(404, "transaction-not-found", str(error))
        case DuplicateError():
            return Refusal(409, "external-id-taken", str(error))
        case TransactionError():
            return Refusal(409, "transaction-state", str(error))
        case UsageError():
            return Refusal(400, "bad-request", str(error))
        case AuthRejected():
            return _auth_refusal(error)
        case StoreFullError():
            return _store_full()
        case CommandError():
            return _command_refusal(error)
    if isinstance(error, _DOWN):
        return unavailable("the store does not answer; try again later")
    return None


def _places_of(error: DefinitionError) -> list[dict[str, str]]:
    """Each problem begins with the path to it."""
    parts = (problem.partition(": ") for problem in error.problems)
    return [{"name": path, "detail": detail} for path, _, detail in parts]


def unavailable(detail: str, after_s: float = _RETRY_S) -> Refusal:
    return Refusal(503, "unavailable", detail, headers=[retry_after(after_s)])


def _store_full() -> Refusal:
    """Or its disk takes no writes for another reason."""
    return Refusal(507, "store-full", "the store is full; nothing was written")


def _auth_refusal(error: AuthRejected) -> Refusal:
    status = _AUTH_STATUS[error.kind]
    headers = [(b"www-authenticate", b"Bearer")] if status == 401 else []
    if status == 503:
        headers = [retry_after(_RETRY_S)]
    return Refusal(status, f"auth-{error.kind}", error.reason, headers=headers)


def _command_refusal(error: CommandError) -> Refusal | None:
    if error.code == "MISCONF":
        return _store_full()
    if is_outage(error) or classify_error(str(error)).remedy is not Remedy.RAISE:
        return unavailable("the server cannot do it now; try again later")
    if error.code in ("WRONGTYPE", "CORRUPTCLOCK"):
        return Refusal(409, "wrong-type", "something else is stored under this name")
    return None
