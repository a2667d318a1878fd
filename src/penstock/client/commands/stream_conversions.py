"""Replies about Redis's streams.

An entry is its id and its fields as a dict (of a field that occurs twice, the last). An entry
that was deleted while it was pending has None for its fields.

Rules: as in ``conversions``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from penstock.client.commands.conversions import each, mapping, pairs, record

#: Id and fields.
StreamEntry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
#: … of which the fields may be gone.
PendingStreamEntry: TypeAlias = tuple[bytes, dict[bytes, bytes] | None]


def entry(reply: Any) -> tuple[Any, Any]:
    number, fields = reply
    return number, None if fields is None else mapping(fields)


def entries(reply: Any) -> list[tuple[Any, Any]]:
    """XRANGE, XCLAIM; older servers send nothing for an entry that was deleted."""
    return [entry(item) for item in reply if item is not None]


def streams(reply: Any) -> dict[Any, list[tuple[Any, Any]]]:
    """XREAD: entries by stream; nothing at all is empty."""
    return {key: entries(items) for key, items in pairs(reply)}


class AutoClaimed(NamedTuple):
    """What XAUTOCLAIM took over, where to go on, and what it found deleted."""

    #: ``0-0`` after the last
    next_id: bytes
    entries: list[StreamEntry]
    deleted_ids: list[bytes]


class AutoClaimedIds(NamedTuple):
    """The same with ids alone."""

    next_id: bytes
    ids: list[bytes]
    deleted_ids: list[bytes]


def auto_claimed(reply: Any) -> AutoClaimed:
    return AutoClaimed(reply[0], entries(reply[1]), _deleted(reply))


def auto_claimed_ids(reply: Any) -> AutoClaimedIds:
    return AutoClaimedIds(reply[0], list(reply[1]), _deleted(reply))


def _deleted(reply: Any) -> list[Any]:
    return list(reply[2]) if len(reply) > 2 else []  # before Redis 7 there is no such list


class PendingSummary(NamedTuple):
    """What a group has delivered and nobody has acknowledged."""

    total: int
    #: None when nothing is pending
    min_id: bytes | None
    max_id: bytes | None
    consumers: dict[bytes, int]


def pending_summary(reply: Any) -> PendingSummary:
    total, first, last, consumers = reply
    return PendingSummary(total, first, last, {name: int(number) for name, number in pairs(consumers)})


class PendingEntry(NamedTuple):
    """One entry that was delivered and not acknowledged."""

    id: bytes
    consumer: bytes
    idle_ms: int
    deliveries: int


def pending_entries(reply: Any) -> list[PendingEntry]:
    return [PendingEntry(*item) for item in reply]


def _tuples(reply: Any) -> list[tuple[Any, ...]]:
    return [tuple(item) for item in reply]


groups = each(record({}))
consumers = groups
_full_consumer = record({"pending": _tuples})
_full_group = record({"pending": _tuples, "consumers": each(_full_consumer)})
stream = record({"first-entry": entry, "last-entry": entry})
full_stream = record({"entries": entries, "groups": each(_full_group)})
