"""What is known of a stream, its groups and their pending messages; and how it comes out of a reply.

Values only. Replies are dicts (maps) and lists; names of fields are those of TINFO and TPOLICY
with underscores. A field that an older or newer server does not have keeps its default, so
that neither breaks the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream: what is there, and what it takes."""

    #: the offsets that are there; an empty stream has ``first == last + 1``
    first: int = 1
    last: int = 0
    #: messages, without those that were compacted away
    length: int = 0
    #: what they take where they are stored, and what was written
    bytes: int = 0
    raw_bytes: int = 0
    nodes: int = 0
    groups: int = 0
    #: when the first and the last message were written, in ms since 1970
    first_ms: int = 0
    last_ms: int = 0
    compacted_to: int = 0
    dirty_bytes: int = 0
    producers: int = 0


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer: how far it is."""

    #: the number of its last message, in its own count, and the offset of that
    sequence: int = 0
    last: int = 0
    #: whether it is remembered for as long as the stream lives
    kept: bool = False
    #: since it wrote
    idle_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group: how far it is, what it has counted, its options."""

    name: str = ""
    #: the offset that comes next
    cursor: int = 0
    #: everything below is acknowledged
    ack_offset: int = 0
    pending: int = 0
    #: messages that were not delivered yet
    lag: int = 0
    #: messages that were gone before they could be delivered
    lost: int = 0
    delivered: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0
    idle_ms: int = 0
    last_active_ms: int = 0
    max_pending: int = 1_000
    ttl_ms: int = 0
    ordered: bool = False
    max_deliveries: int = 0
    backoff_ms: tuple[int, ...] = ()
    dead_letter: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A reader of a group."""

    name: str = ""
    pending: int = 0
    idle_ms: int = 0
    delivered: int = 0


@dataclass(frozen=True, slots=True)
class PendingSummary:
    """What a group has delivered and nobody has acknowledged."""

    count: int
    #: their offsets; 0 if there are none
    first: int
    last: int
    #: in how many ms the next one is due; None if there are none
    next_ms: int | None


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """One of them."""

    offset: int
    consumer: str
    deliveries: int
    since_first_ms: int
    #: may be negative: it is due, and nobody has read since
    due_in_ms: int
    #: None: never
    expires_in_ms: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a stream keeps what; 0 is no limit."""

    retain_ms: int = 0
    retain_count: int = 0
    retain_bytes: int = 0
    #: …but nothing that a group still needs
    retain_acked: bool = False
    #: keep only the newest message of each tag
    compact: bool = False
    dirty_ratio: int = 50
    min_lag_ms: int = 0
    max_lag_ms: int = 0
    tombstone_ms: int = 86_400_000
    node_messages: int = 1_000
    node_bytes: int = 1 << 20


# ---------------------------------------------------------------------------- parsing

#: Options of a group are spelled as one word; their fields here tell the unit.
_SPELLINGS: Final = {
    "maxpending": "max_pending",
    "ttl": "ttl_ms",
    "maxdeliveries": "max_deliveries",
    "backoff": "backoff_ms",
    "deadletter": "dead_letter",
}


def text(value: bytes | str) -> str:
    """A name for people and dicts; bytes that are no UTF-8 survive the way back."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def parse_info(kind: type[T], reply: Mapping[Any, Any]) -> T:
    """A map of TINFO or TPOLICY as one of the classes above."""
    values: dict[str, Any] = {}
    for word, value in reply.items():
        name = text(word).lower().replace("-", "_")
        values[_SPELLINGS.get(name, name)] = value
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _parse(type_, values[name]) for name, type_ in types.items() if name in values})


def _parse(type_: str, value: Any) -> Any:
    match type_:
        case "int":
            return int(value)
        case "bool":
            return text(value).lower() == "yes" if isinstance(value, bytes | str) else bool(value)
        case "str":
            return text(value or "")
    if isinstance(value, bytes | str):
        return tuple(int(part) for part in text(value).split(",") if part)
    return tuple(map(int, value or ()))


def parse_summary(reply: list[Any]) -> PendingSummary:
    count, first, last, next_ms = map(int, reply)
    return PendingSummary(count, first, last, None if count == 0 else next_ms)


def parse_pending(row: list[Any]) -> PendingMessage:
    offset, consumer, deliveries, since_first_ms, due_in_ms, expires_in_ms = row
    return PendingMessage(
        offset=int(offset),
        consumer=text(consumer or ""),
        deliveries=int(deliveries),
        since_first_ms=int(since_first_ms),
        due_in_ms=int(due_in_ms),
        expires_in_ms=None if int(expires_in_ms) < 0 else int(expires_in_ms),
    )
