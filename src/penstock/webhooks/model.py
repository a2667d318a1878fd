"""The values of webhooks: what is sent, what came of it, what is remembered of it.

States of a delivery, with the script behind each arrow (``lua/``):

=========  ==============================  ========
from       by                              to
=========  ==============================  ========
nothing    put                             waiting
waiting    claim                           leased
leased     settle: retry, release          waiting
leased     claim, when the lease is over   waiting
leased     settle: done                    done
leased     settle: dead, disable           dead
done       replay                          waiting
dead       replay, replay_failed           waiting
done,dead  time (retention)                nothing
=========  ==============================  ========

Rules: frozen values and their bytes, no I/O. Times are those of the store, in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

from penstock.errors import ConfigError, StoreCorruptError, UsageError

T = TypeVar("T")

#: A response is remembered up to so many characters.
MAX_EXCERPT: Final = 512
MAX_ERROR: Final = 512
MAX_EVENT_ID: Final = 512
DAY_MS: Final = 86_400_000


class Status(StrEnum):
    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way to one endpoint, without its body."""

    id: str
    endpoint: str
    #: as the caller named it
    event: str
    status: Status
    #: that were made since it was put or replayed
    attempts: int
    #: fences off whoever had it before
    token: int
    created_ms: int
    due_ms: int
    #: under a lease until then
    lease_ms: int | None = None
    finished_ms: int | None = None
    #: workers that died with it
    losses: int = 0
    replays: int = 0
    epoch: int = 0
    #: HTTP status of the last attempt, or the error in its place
    code: int | None = None
    error: str | None = None
    #: why it is dead
    reason: str | None = None


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """What is sent; the same for every attempt."""

    headers: dict[str, str]
    body: bytes


class Claimed(msgspec.Struct, frozen=True):
    """A delivery that this worker alone may send, until ``delivery.lease_ms``."""

    delivery: Delivery
    payload: Payload


class Claim(msgspec.Struct, frozen=True):
    """What a worker got, and when it should ask again."""

    deliveries: list[Claimed]
    #: the store's clock
    now_ms: int
    #: None: not before the topic says so
    next_ms: int | None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """How one request ended: with a status, or with an error."""

    status: int | None = None
    error: str | None = None
    duration_ms: int = 0
    response_excerpt: str = ""
    retry_after_ms: int | None = None


class OutcomeKind(StrEnum):
    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    #: dead, and the endpoint gets nothing any more
    DISABLE = "disable"
    #: nothing was sent; no attempt is counted
    RELEASE = "release"


class Health(StrEnum):
    """What an attempt says about the endpoint."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a delivery."""

    kind: OutcomeKind
    #: until the next attempt
    delay_ms: int = 0
    #: how long the endpoint is to be spared altogether
    hold_ms: int = 0
    health: Health = Health.UNKNOWN
    reason: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The delivery as it is now."""

    delivery: Delivery
    #: why its endpoint was disabled by this
    disabled: str | None


class Put(msgspec.Struct, frozen=True):
    delivery: Delivery
    #: False: it had been put before, and nothing was changed
    is_new: bool


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, or (``lost``) a worker that died during one."""

    number: int
    at_ms: int
    delivery: str
    event: str
    attempt: int
    #: an :class:`OutcomeKind`, or ``lost``
    outcome: str
    code: int | None = None
    error: str | None = None
    duration_ms: int = 0
    excerpt: str = ""


class LogPage(msgspec.Struct, frozen=True):
    """Newest first."""

    entries: list[LogEntry]
    #: give it to the next call; None: that was all
    next_cursor: int | None


class WaitingPage(msgspec.Struct, frozen=True):
    """What is due first comes first."""

    deliveries: list[Delivery]
    next_cursor: str | None


class EndpointState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an endpoint, wherever it is defined."""

    in_flight: int = 0
    waiting: int = 0
    max_in_flight: int = 1
    #: nothing is sent until then: throttled, or the breaker is open
    hold_ms: int = 0
    #: in a row
    failures: int = 0
    #: times in a row that its breaker opened; 0: it is closed
    opened: int = 0
    #: since when nothing has succeeded; 0: the last attempt did
    failing_ms: int = 0
    ok_ms: int = 0
    delivered: int = 0
    dead: int = 0
    #: why nothing is sent; None: it is enabled
    disabled: str | None = None
    disabled_ms: int | None = None


class QueueStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one queue: what is there now, and what has been since it was made."""

    now_ms: int
    waiting: int
    leased: int
    finished: int
    dead_kept: int
    endpoints: int
    put: int = 0
    delivered: int = 0
    dead: int = 0
    attempts: int = 0
    lost: int = 0
    replayed: int = 0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request, ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    #: from the first packet to the last byte of the answer
    timeout_ms: int
    #: networks that may be called besides public ones
    allowed_networks: tuple[str, ...] = ()


class Sender(Protocol):
    """Makes one attempt. It answers how it ended and raises nothing but ``CancelledError``."""

    async def send(self, request: Request) -> Attempt: ...


# ---------------------------------------------------------------------------------------------- bytes

_DELIVERY: Final = msgspec.msgpack.Decoder(Delivery)
_PAYLOAD: Final = msgspec.msgpack.Decoder(Payload)
_STATE: Final = msgspec.msgpack.Decoder(EndpointState)
_LOG_ENTRY: Final = msgspec.msgpack.Decoder(LogEntry)


def delivery_from(packed: bytes) -> Delivery:
    return _decoded(_DELIVERY, packed, "a delivery")


def payload_from(packed: bytes) -> Payload:
    return _decoded(_PAYLOAD, packed, "a payload")


def state_from(packed: bytes | None) -> EndpointState:
    return EndpointState() if packed is None else _decoded(_STATE, packed, "the state of an endpoint")


def log_entry_from(packed: bytes) -> LogEntry:
    return _decoded(_LOG_ENTRY, packed, "an entry of the log")


def _decoded(decoder: msgspec.msgpack.Decoder[T], packed: bytes, what: str) -> T:
    try:
        return decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise StoreCorruptError(f"{what} of the webhooks does not decode: {error}") from error


# --------------------------------------------------------------------------------------------- bodies


def event_body(type: str, timestamp: str, data_json: bytes) -> bytes:
    """The body that Standard Webhooks proposes; ``timestamp`` is RFC 3339, ``data_json`` goes in as it is."""
    if not type:
        raise UsageError("type must name the kind of event, such as order.created")
    try:
        msgspec.json.decode(data_json)
    except msgspec.MsgspecError as error:
        raise UsageError(f"data_json must be JSON: {error}") from None
    return msgspec.json.encode({"type": type, "timestamp": timestamp, "data": msgspec.Raw(data_json)})


# -------------------------------------------------------------------------------------------- headers

_TOKEN_LETTERS: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
#: What the sender says itself; another value would forge a signature or cut the request in two.
_OWN_HEADERS: Final = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect"
    " proxy-authorization proxy-connection accept-encoding"
    " webhook-id webhook-timestamp webhook-signature".split()
)
MAX_HEADERS: Final = 64
MAX_HEADER_VALUE: Final = 4096


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The same with small names; ``ConfigError`` for what must not be sent."""
    if len(headers) > MAX_HEADERS:
        raise ConfigError(f"headers must be at most {MAX_HEADERS}, not {len(headers)}")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        small = name.lower()
        if not small or not _TOKEN_LETTERS.issuperset(small):
            raise ConfigError(f"headers: {name!r} is no name of a header")
        if small in _OWN_HEADERS:
            raise ConfigError(f"headers must not set {small}: the sender does")
        if small in checked:
            raise ConfigError(f"headers name {small} twice")
        if len(value) > MAX_HEADER_VALUE or any(not " " <= letter <= "~" for letter in value):
            raise ConfigError(
                f"headers: the value of {small} must be printable ASCII of at most {MAX_HEADER_VALUE} letters"
            )
        checked[small] = value.strip(" ")
    return checked
