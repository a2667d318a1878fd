"""What all requests about transactions have in common: who asks, whose transactions, moments, starting.

Rules: a credential is asked for before anything else of the request. Who is no operator sees the
transactions of one owner, and others as if there were none. A start that has succeeded is answered so,
whatever happens afterwards: who repeats it would start another one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from penstock.channels.model import compact
from penstock.errors import BackpressureError, ContentError, PenstockError, UsageError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.auth.owners import Caller, is_owner
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, retry_after
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.transacting import TransactionService
from penstock.gateway.v1.channel_requests import refuse_other_sites
from penstock.gateway.v1.reading import bad, wait_ms
from penstock.transactions import keys
from penstock.transactions.model import State, Transaction

#: After which a client may expect that something has happened.
RETRY_S: Final = 1.0
_LAST_MS: Final = 253_402_300_799_999  # the year 9999
_OWNER_FORM: Final = "1 to 128 letters, digits or any of _ . @ : / + -"


def service_of(services: Services) -> TransactionService:
    assert services.transactions is not None, "these routes need transactions"
    return services.transactions


# ------------------------------------------------------------------------- who, and whose


async def admit(services: Services, request: Request, action: Action) -> Caller:
    """Who asks, if they may do this."""
    return await services.access.admit_caller(request, action, service_of(services).rules)


async def admit_change(services: Services, request: Request, action: Action) -> Caller:
    """The same for what pages of other sites must not do."""
    caller = await admit(services, request, action)
    refuse_other_sites(services, request)
    return caller


async def admit_operator(services: Services, request: Request) -> Caller:
    """Whoever looks after the transactions of all owners."""
    return await admit_change(services, request, Action.OPERATE)


def seen_by(caller: Caller, request: Request) -> str | None:
    """The owner whose transactions are seen; None: those of all."""
    named = request.query.get("owner")
    return (None if caller.sees_all else caller.owner) if named is None else owner_for(caller, named)


def owner_for(caller: Caller, named: str | None) -> str:
    """The owner that a request names, or the caller's own."""
    if named is None:
        return caller.owner
    if not is_owner(named):
        raise bad("owner", _OWNER_FORM, named)
    if named != caller.owner and not caller.sees_all:
        raise Refusal(403, "owner-not-allowed", "only operators may name another owner than their own")
    return named


def transaction_of(request: Request) -> str:
    """The id of the path; what cannot be one is not there."""
    tx = request.params["transaction"]
    try:
        keys.partition_of(tx)
    except UsageError as error:
        raise Refusal(404, "transaction-not-found", str(error)) from None
    return tx


# ------------------------------------------------------------------------- values of requests


def waiting_ms(request: Request, most_ms: int) -> int:
    """How long to wait: ``?wait=20s`` (or ``20``, in seconds), or ``Prefer: wait=20``."""
    text = request.query.get("wait", "")
    if text.isascii() and text.isdigit():
        return min(int(text) * 1_000, most_ms) if len(text) < 10 else most_ms
    return wait_ms(request, most_ms)


def is_set(request: Request, name: str, default: bool = False) -> bool:
    text = request.query.get(name)
    if text is None:
        return default
    if text not in ("true", "false", "1", "0"):
        raise bad(name, "true or false", text)
    return text in ("true", "1")


def moment_in(request: Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    return moment_ms(name, int(text) if is_number else text)


def moment_ms(name: str, value: int | str) -> int:
    """Milliseconds since 1970, of such a number or of a time as RFC 3339 writes it."""
    try:
        found = value if isinstance(value, int) else _parsed_ms(value)
        if 0 <= found <= _LAST_MS:
            return found
    except (ValueError, OverflowError):
        pass
    raise bad(name, "milliseconds since 1970, or a time such as 2030-01-31T08:00:00Z", value)


def _parsed_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def json_of(name: str, value: msgspec.Raw) -> msgspec.Raw | None:
    """A part of a body as its sender spelt it, without the spaces; so numbers stay what they were."""
    try:
        text = compact(bytes(value))
    except ContentError as error:
        raise Refusal(400, "content-malformed", f"{name}: {error}") from None
    return None if text == b"null" else msgspec.Raw(text)


# ------------------------------------------------------------------------- starting


class Begun(NamedTuple):
    transaction: Transaction
    #: False: it had been started before, under the same external id
    is_new: bool


async def start(
    services: Services,
    request: Request,
    pipeline: str,
    input: msgspec.Raw | None,
    *,
    owner: str,
    timeout_ms: int,
    **options: Any,
) -> Begun:
    """Start a transaction, and wait for its end for so long. The body must have been read."""
    facility = service_of(services).facility
    try:
        handle = await facility.start(pipeline, input, owner=owner, **options)
    except BackpressureError as error:
        raise too_many(error) from None
    has_room = services.waiting < services.config.http.limits.idle_polls
    try:
        if timeout_ms > 0 and has_room:
            waiting = facility.wait(handle.id, timeout_ms=timeout_ms, owner=owner)
            found = await while_connected(services, request, waiting)
        else:
            found = await facility.get(handle.id, owner=owner)
    except PenstockError:
        # It is started; how it is can be asked for later.
        now_ms = keys.created_ms_of(handle.id)
        found = Transaction(
            id=handle.id, owner=owner, pipeline=pipeline, version="", node_group="", state=State.QUEUED,
            status="running", created_ms=now_ms, external_id=options.get("external_id"),
        )  # fmt: skip
    return Begun(found, handle.is_new)


def too_many(error: BackpressureError) -> Refusal:
    return Refusal(429, "too-many-queued", str(error), headers=[retry_after(RETRY_S)])


def location(request: Request, *segments: str) -> tuple[bytes, bytes]:
    """The header that names what was made, below ``/v1``."""
    path: bytes = request.scope["raw_path"]
    base = path[: path.find(b"/v1/") + len(b"/v1")]
    return b"location", b"/".join([base, *(quote(segment, safe="").encode() for segment in segments)])
