"""The groups of a stream: a cursor, options, counters, and what was delivered and not acknowledged.

Rows of a stream, all in its space ``g``:

================================  =============================================================
``version(8) g 0(4) fit(name)``   the record of a group (below)
``version(8) g group(4) …``       ``G``: what a group keeps; the letter after it says what

``G p``, ``G d``, ``G x``         pending messages (``pending``)
``G c``, ``G k``                  consumers (``consumers``)
``G t``, ``G o``, ``G w``,        tags (``ordering``)
``G r``
================================  =============================================================

Record of a group
-----------------
=================  =====  =======================================================================
number             4      names its other rows; not used again while they are there
flags              1      bit 0: ordered
cursor             8      the offset that comes next
reached            8      above every offset that was delivered; the cursor may be set below it
pending            8      messages in ``G p``
passed             8      messages below the cursor that wait for their tag (``ordering``)
lost               8      messages that were gone before they were read
delivered          8      deliveries, repeated ones included
acked              8
expired            8      given up because their time was up
dead               8      given up for another reason
active_ms          8      when it was used last
timer_ms           8      its row in ``due``; 0: none (``timers``)
max_pending        8      options
ttl_ms             8
max_deliveries     8
consumers          4      the largest number of a consumer
backoff length     2      how many numbers follow
dead letter        4      its length in bytes
backoff            8 n
dead letter        n      a key
name               rest
=================  =====  =======================================================================

Invariants
----------
G1  ``pending`` is the number of messages in the runs; ``passed`` that of rows in ``w`` and ``r``.
G2  ``Stream.groups`` is the number of records.
G3  No offset is pending twice. New messages are not checked for it from ``reached`` on.

Groups know nothing of commands and replies. Like its stream, a loaded group is valid until the unit of
work ends, and its changes are official once it is saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.stream import timers
from penstock.engine.datatypes.stream.pending import Pending, Range
from penstock.engine.storage.layout import U32, fit

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.storage.environment import Table
    from penstock.engine.storage.transaction import Unit

_SPACE: Final = b"g"
_RECORDS: Final = bytes(4)
_FIXED: Final = Struct(">IB14QIHI")
_ORDERED: Final = 1

DEFAULT_MAX_PENDING: Final = 1_000

#: The class of keyspace events of streams.
EVENT_CLASS: Final = "t"


@dataclass(frozen=True, slots=True)
class Options:
    """What TGROUP sets."""

    max_pending: int = DEFAULT_MAX_PENDING
    #: 0: it stays for ever
    ttl_ms: int = 0
    #: while a message of a tag is pending, no other of that tag is delivered
    ordered: bool = False
    #: 0: no limit
    max_deliveries: int = 0
    #: delays before the second, third, … delivery; empty: what the reader says
    backoff_ms: tuple[int, ...] = ()
    #: the key of a stream; empty: messages that are given up are forgotten
    dead_letter: bytes = b""


class Group:
    """One loaded group."""

    __slots__ = (
        "_record_row", "_rows", "_saved", "acked", "active_ms", "consumers", "cursor", "dead", "delivered",
        "expired", "is_stirred", "lost", "name", "number", "options", "passed", "pending", "reached", "runs",
        "table", "timer_ms", "unit",
    )  # fmt: skip

    number: int
    cursor: int
    reached: int
    pending: int
    passed: int
    lost: int
    delivered: int
    acked: int
    expired: int
    dead: int
    active_ms: int
    timer_ms: int
    consumers: int

    def __init__(self, stream: Stream, record: bytes) -> None:
        self.unit: Unit = stream.unit
        self.table: Table = stream.table
        (
            self.number, flags, self.cursor, self.reached, self.pending, self.passed, self.lost,
            self.delivered, self.acked, self.expired, self.dead, self.active_ms, self.timer_ms, max_pending,
            ttl_ms, max_deliveries, self.consumers, backoff_length, letter_bytes,
        ) = _FIXED.unpack_from(record)  # fmt: skip
        middle = _FIXED.size + 8 * backoff_length
        self.options = Options(
            max_pending,
            ttl_ms,
            bool(flags & _ORDERED),
            max_deliveries,
            Struct(f">{backoff_length}Q").unpack_from(record, _FIXED.size) if backoff_length else (),
            record[middle : middle + letter_bytes],
        )
        self.name = record[middle + letter_bytes :]
        self._saved = record
        self._record_row = _record_row(stream, self.name)
        self._rows = stream.row(_SPACE, U32.pack(self.number))
        self.runs = Pending(self.unit, self.table, self._rows)
        #: whether something can be delivered now that could not be before
        self.is_stirred = False

    def row(self, letter: bytes, rest: bytes = b"") -> bytes:
        """The key of a row of this group."""
        return self._rows + letter + rest

    def save(self) -> None:
        record = self._encode()
        if record != self._saved:
            self.unit.put(self._record_row, record, db=self.table)
            self._saved = record

    def _encode(self) -> bytes:
        options = self.options
        backoff = options.backoff_ms
        fixed = _FIXED.pack(
            self.number, _ORDERED if options.ordered else 0, self.cursor, self.reached, self.pending,
            self.passed, self.lost, self.delivered, self.acked, self.expired, self.dead, self.active_ms,
            self.timer_ms, options.max_pending, options.ttl_ms, options.max_deliveries, self.consumers,
            len(backoff), len(options.dead_letter),
        )  # fmt: skip
        delays = Struct(f">{len(backoff)}Q").pack(*backoff) if backoff else b""
        return b"".join((fixed, delays, options.dead_letter, self.name))

    def remove_rows(self) -> None:
        """Part of :func:`destroy_group`."""
        self.unit.delete(self._record_row, db=self.table)
        cursor = self.unit.cursor(self.table)
        found = cursor.set_range(self._rows)
        while found and cursor.key().startswith(self._rows):
            found = cursor.delete()

    # ---------------------------------------------------------------------- facts

    @property
    def is_full(self) -> bool:
        """Whether new messages are held back."""
        return self.pending >= self.options.max_pending

    def delay_ms(self, deliveries: int, retry_ms: int) -> int:
        """How long to wait after so many deliveries; at least 1, or one read could deliver for ever."""
        backoff = self.options.backoff_ms
        return max(backoff[min(deliveries, len(backoff)) - 1] if backoff else retry_ms, 1)

    def ack_offset(self, first: int) -> int:
        """The first offset that is not done with: pending, waiting for its tag, or not read yet.

        ``first`` is that of the stream.
        """
        needed = [max(self.cursor, first)]
        if self.pending:
            pending = self.runs.first_offset()
            assert pending is not None, "G1"
            needed.append(pending)
        if self.passed:
            needed += [int.from_bytes(row[-8:], "big") for row in self.passed_rows()]
        return min(needed)

    def passed_rows(self) -> list[bytes]:
        """Rows of messages that wait for their tag, and of those that need not wait any more."""
        rows = self.unit.rows
        return [row for letter in (b"w", b"r") for row, _ in rows(self.table, self.row(letter))]

    def __repr__(self) -> str:
        return f"<Group {self.name!r} at {self.cursor}, {self.pending} pending>"


# ------------------------------------------------------------------ groups of a stream


def _record_row(stream: Stream, name: bytes) -> bytes:
    return stream.row(_SPACE, _RECORDS + fit(name))


def find_group(stream: Stream, name: bytes) -> Group | None:
    record = stream.unit.get(_record_row(stream, name), None, stream.table)
    return None if record is None else Group(stream, record)


def all_groups(stream: Stream) -> list[Group]:
    """By name."""
    if stream.groups == 0:
        return []
    rows = stream.unit.rows(stream.table, stream.row(_SPACE, _RECORDS))
    return [Group(stream, record) for _, record in rows]


def create_group(stream: Stream, name: bytes, beginning: int | None, options: Options) -> Group:
    """Make a group that is not there yet. Both have to be saved.

    ``beginning``: 0 is the first message available, None after the last one.
    """
    if stream.is_new:
        stream.save()  # rows belong to a stream that is there
    number = 1 + max((group.number for group in all_groups(stream)), default=0)
    group = Group(stream, _FIXED.pack(number, *[0] * 15, 0, 0, 0) + name)
    group.options = options
    group.cursor = group.reached = cursor_at(stream, beginning)
    group.active_ms = stream.unit.now_ms
    stream.groups += 1
    return group


def destroy_group(stream: Stream, group: Group) -> None:
    """Remove a group and all it keeps. The stream has to be saved."""
    timers.cancel(stream, group)
    group.remove_rows()
    stream.groups -= 1


def cursor_at(stream: Stream, beginning: int | None) -> int:
    if beginning is None:
        return stream.last + 1
    return beginning or stream.first


def needed_from(stream: Stream) -> int:
    """The first offset that some group is not done with; behind the last one if there is none."""
    return min((group.ack_offset(stream.first) for group in all_groups(stream)), default=stream.last + 1)


def pending_between(stream: Stream, first: int, last: int) -> set[int]:
    """Which offsets between two, both included, some group has pending."""
    found: set[int] = set()
    for group in all_groups(stream):
        if group.pending:
            found |= offsets_pending(group, first, last)
    return found


def offsets_pending(group: Group, first: int, last: int) -> set[int]:
    hits = group.runs.find([Range(first, last)])
    return {offset for run, mask in hits for offset in run.offsets(mask)}
