"""What a group has delivered and not seen acknowledged: runs of offsets, by offset, due time and expiry.

Messages that were delivered together share everything but their offsets, so that they are kept
together: a *run* is a base offset and a mask. A thousand messages that are read and acknowledged
at once cost as much as one. A run is divided where some of its messages change and others do not.

Rows (``G`` stands for the rows of the group: ``version(8) g group(4)``):

==========================  ================================================================
``G p base(8)``             a run (below)
``G d due_ms(8) base(8)``   empty: runs by when they are due
``G x expires_ms(8) base``  empty: runs by when they are given up; none for those that never are
==========================  ================================================================

==============  =====  ==========================================================================
due_ms          8      when it may be delivered again
expires_ms      8      when it is given up; 0: never
first_ms        8      when it was delivered first
deliveries      4      how often it was delivered
consumer        4      who got it last (``consumers``); 0: somebody without a name
mask            rest   little-endian, without zeros at its end: bit i stands for offset base + i
==============  =====  ==========================================================================

Invariants
----------
R1  The mask of a stored run is not 0. Its lowest bits may be, after acknowledgements.
R2  Runs do not overlap: the last offset of each is below the base of the next.
R3  Each run has exactly one row of its due time, and one of its expiry unless that is 0.

It knows nothing of messages, readers and counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.engine.storage.layout import U64

if TYPE_CHECKING:
    from penstock.engine.storage.environment import Table
    from penstock.engine.storage.transaction import Unit

#: due_ms, expires_ms, first_ms, deliveries, consumer
_RUN: Final = Struct(">QQQII")

#: Offsets that one run may span: keeps masks short.
LONGEST_RUN: Final = 4_096


class Range(NamedTuple):
    """Offsets, both ends included."""

    first: int
    last: int


class Run:
    """Messages that were delivered together."""

    __slots__ = ("base", "consumer", "deliveries", "due_ms", "expires_ms", "first_ms", "mask")

    def __init__(
        self,
        base: int,
        mask: int,
        due_ms: int,
        expires_ms: int,
        first_ms: int,
        deliveries: int = 1,
        consumer: int = 0,
    ) -> None:
        self.base = base
        self.mask = mask
        self.due_ms = due_ms
        self.expires_ms = expires_ms
        self.first_ms = first_ms
        self.deliveries = deliveries
        self.consumer = consumer

    @property
    def first(self) -> int:
        return self.base + (self.mask & -self.mask).bit_length() - 1

    @property
    def last(self) -> int:
        return self.base + self.mask.bit_length() - 1

    @property
    def count(self) -> int:
        return self.mask.bit_count()

    def offsets(self, mask: int | None = None) -> list[int]:
        """Of its messages, or of those in a mask."""
        return offsets_in(self.base, self.mask if mask is None else mask)

    def between(self, first: int, last: int) -> int:
        """The mask of its messages between two offsets, both included."""
        low = max(first - self.base, 0)
        high = min(last - self.base + 1, self.mask.bit_length())
        return self.mask >> low << low & ((1 << high) - 1) if low < high else 0

    def __repr__(self) -> str:
        return f"<Run {self.first}-{self.last} {self.count} messages, {self.deliveries} deliveries>"


def offsets_in(base: int, mask: int) -> list[int]:
    if mask & (mask + 1) == 0:  # no gaps
        return list(range(base, base + mask.bit_length()))
    return [base + place for place, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def masks_of(offsets: Sequence[int], *, has_gaps: bool) -> Iterator[tuple[int, int]]:
    """(base, mask) of runs for offsets in ascending order; without gaps if they are not wanted."""
    start = 0
    while start < len(offsets):
        base = offsets[start]
        stop = min(start + LONGEST_RUN, len(offsets))
        if offsets[stop - 1] - base == stop - 1 - start:
            mask = (1 << (stop - start)) - 1
        else:
            mask = 0
            stop = start
            while stop < len(offsets) and (
                offsets[stop] - base < LONGEST_RUN if has_gaps else offsets[stop] - base == stop - start
            ):
                mask |= 1 << (offsets[stop] - base)
                stop += 1
        yield base, mask
        start = stop


class Pending:
    """The runs of one group."""

    __slots__ = ("_by_due", "_by_expiry", "_runs", "_table", "_unit")

    def __init__(self, unit: Unit, table: Table, prefix: bytes) -> None:
        self._unit = unit
        self._table = table
        self._runs = prefix + b"p"
        self._by_due = prefix + b"d"
        self._by_expiry = prefix + b"x"

    # --------------------------------------------------------------------- change

    def add(self, run: Run) -> None:
        base = U64.pack(run.base)
        put, table = self._unit.put, self._table
        put(self._runs + base, _encode(run), db=table)
        put(self._by_due + U64.pack(run.due_ms) + base, b"", db=table)
        if run.expires_ms:
            put(self._by_expiry + U64.pack(run.expires_ms) + base, b"", db=table)

    def remove(self, run: Run) -> None:
        base = U64.pack(run.base)
        delete, table = self._unit.delete, self._table
        delete(self._runs + base, db=table)
        delete(self._by_due + U64.pack(run.due_ms) + base, db=table)
        if run.expires_ms:
            delete(self._by_expiry + U64.pack(run.expires_ms) + base, db=table)

    def insert(self, run: Run) -> None:
        """As ``add``, where other runs may be around it. Its offsets have no gap, and are not pending."""
        around = next(self.overlapping(run.base, run.last), None)
        if around is not None:
            self.redate(around, around.between(0, run.base), around.due_ms)  # cut in two, not changed
        self.add(run)

    def drop(self, run: Run, mask: int) -> None:
        """Forget some messages of a run."""
        left = run.mask & ~mask
        if left == 0:
            self.remove(run)
            return
        run.mask = left
        self._unit.put(self._runs + U64.pack(run.base), _encode(run), db=self._table)

    def redate(self, run: Run, mask: int, due_ms: int) -> None:
        """Some messages of a run are due at another time."""
        self._divide(run, mask, due_ms, run.deliveries, run.consumer)

    def redeliver(self, run: Run, mask: int, due_ms: int, consumer: int) -> None:
        """Some messages of a run were delivered once more."""
        self._divide(run, mask, due_ms, run.deliveries + 1, consumer)

    def _divide(self, run: Run, mask: int, due_ms: int, deliveries: int, consumer: int) -> None:
        self.remove(run)
        for part, is_chosen in _segments(run.mask, mask):
            shift = (part & -part).bit_length() - 1
            piece = Run(
                run.base + shift, part >> shift, run.due_ms, run.expires_ms, run.first_ms, run.deliveries,
                run.consumer,
            )  # fmt: skip
            if is_chosen:
                piece.due_ms, piece.deliveries, piece.consumer = due_ms, deliveries, consumer
            self.add(piece)

    # ---------------------------------------------------------------------- find

    def find(self, ranges: Sequence[Range]) -> list[tuple[Run, int]]:
        """Runs with the mask of what of them is in the ranges, which are in order and do not overlap.

        The cost is that of the runs that are found.
        """
        hits: list[tuple[Run, int]] = []
        for first, last in ranges:
            start = first
            if hits and hits[-1][0].last >= first:
                run, mask = hits[-1]
                hits[-1] = run, mask | run.between(first, last)
                start = run.last + 1
            if start <= last:
                hits.extend((run, run.between(first, last)) for run in self.overlapping(start, last))
        return [(run, mask) for run, mask in hits if mask]

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """Runs that reach into these offsets, in order. Do not write meanwhile."""
        cursor = self._unit.cursor(self._table)
        if not self._unit.seek(cursor, self._runs, U64.pack(first)):
            return
        for row, value in cursor.iternext():
            if not row.startswith(self._runs):
                return
            run = _decode(row, value)
            if run.base > last:
                return
            if run.last >= first:
                yield run

    def all(self) -> Iterator[Run]:
        """Every run, by offset. Do not write meanwhile."""
        return (_decode(row, value) for row, value in self._unit.rows(self._table, self._runs))

    def first_offset(self) -> int | None:
        run = next(self.all(), None)
        return None if run is None else run.first

    def last_offset(self) -> int | None:
        cursor = self._unit.cursor(self._table)
        found = cursor.set_range(self._runs[:-1] + b"q")  # whatever comes after the runs
        if (cursor.prev() if found else cursor.last()) and cursor.key().startswith(self._runs):
            return _decode(*cursor.item()).last
        return None

    # ------------------------------------------------------------------- by time

    def first_due(self, now_ms: int) -> Run | None:
        """The run that has been due for longest."""
        return self._first(self._by_due, now_ms)

    def first_expired(self, now_ms: int) -> Run | None:
        """The run whose time was up first."""
        return self._first(self._by_expiry, now_ms)

    def due(self, now_ms: int) -> Iterator[Run]:
        """Runs that are due, the longest due first. Do not write meanwhile."""
        end = self._by_due + U64.pack(now_ms + 1)
        for row, _ in self._unit.rows(self._table, self._by_due):
            if row >= end:
                return
            yield self._load(row[-8:])

    def count_due(self, now_ms: int, enough: int) -> int:
        """How many messages are due; counting stops at ``enough``."""
        count = 0
        for run in self.due(now_ms):
            count += run.count
            if count >= enough:
                break
        return count

    def next_due_ms(self, after_ms: int = -1) -> int | None:
        """The first due time that is later than a time."""
        return self._next(self._by_due, after_ms)

    def next_expiry_ms(self) -> int | None:
        return self._next(self._by_expiry, -1)

    def _first(self, space: bytes, now_ms: int) -> Run | None:
        cursor = self._unit.cursor(self._table)
        if not cursor.set_range(space):
            return None
        row = cursor.key()
        if not row.startswith(space) or int.from_bytes(row[-16:-8], "big") > now_ms:
            return None
        return self._load(row[-8:])

    def _next(self, space: bytes, after_ms: int) -> int | None:
        cursor = self._unit.cursor(self._table)
        if cursor.set_range(space + U64.pack(after_ms + 1)) and cursor.key().startswith(space):
            return int.from_bytes(cursor.key()[-16:-8], "big")
        return None

    def _load(self, base: bytes) -> Run:
        row = self._runs + base
        value = self._unit.get(row, None, self._table)
        assert value is not None, "R3: a time without its run"
        return _decode(row, value)


def _encode(run: Run) -> bytes:
    mask = run.mask
    head = _RUN.pack(run.due_ms, run.expires_ms, run.first_ms, run.deliveries, run.consumer)
    return head + mask.to_bytes((mask.bit_length() + 7) >> 3, "little")


def _decode(row: bytes, value: bytes) -> Run:
    due_ms, expires_ms, first_ms, deliveries, consumer = _RUN.unpack_from(value)
    mask = int.from_bytes(value[_RUN.size :], "little")
    return Run(int.from_bytes(row[-8:], "big"), mask, due_ms, expires_ms, first_ms, deliveries, consumer)


def _segments(mask: int, chosen: int) -> Iterator[tuple[int, bool]]:
    """A mask cut where bits that are chosen and bits that are not meet, from below (R2)."""
    while mask:
        is_chosen = bool(chosen & mask & -mask)
        others = mask & ~chosen if is_chosen else mask & chosen
        part = mask & ((others & -others) - 1) if others else mask
        yield part, is_chosen
        mask &= ~part
