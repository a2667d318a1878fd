"""The sorted set: members with scores, by member and by (score, member).

Rows of one set
---------------
=====  =========================================  ====================================
space  rest of the row                            value
=====  =========================================  ====================================
``m``  hash(8) fit(member)                        place(8); a long member is wrapped
``s``  place(8) fit(member)                       empty, or the whole of a long member
=====  =========================================  ====================================

A *place* is the score as eight bytes that sort as the numbers do (``encode_score``). Both
spaces keep it, so that moving a member needs no arithmetic: the old ``s`` row is built
from the bytes found in the ``m`` row.

Invariants
----------
Z1  Every ``m`` row has exactly one ``s`` row with the same place and member, and the other
    way round; ``size`` is the number of either.
Z2  No score is NaN; the caller sees to it. -0.0 is stored as 0.0.

What the tree cannot do
-----------------------
* It keeps no counts, so ranks are found by walking: an index costs the distance to the
  nearer end, ``rank`` likewise, counting the rows it counts. All else costs O(log n)
  and what it answers.
* Members of 450 bytes or more that agree in score and in their first 418 bytes are
  ordered by digest among themselves.

Reads give :data:`Rows`, raw and in order; :func:`members_of` and :func:`entries_of` turn
them into what is needed, so that nobody pays for scores he does not want.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.engine.datatypes.collection import Members
from penstock.engine.storage.layout import (
    FIT_BYTES,
    U64,
    ZSET,
    decode_score,
    encode_score,
    fit,
    hash64,
    physical,
    wrap_long,
)

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace

#: Rows of the ``s`` space as LMDB gives them.
Rows: TypeAlias = list[tuple[bytes, bytes]]
Entry: TypeAlias = tuple[bytes, float]

# What ``put`` did.
SAME: Final = 0
ADDED: Final = 1
MOVED: Final = 2

#: Where place and member begin in a row of the ``s`` space.
_PLACE: Final = 9
_MEMBER: Final = 17
_LONG_ROW_BYTES: Final = _MEMBER + FIT_BYTES
#: The part of a long member that stands in a row as it is.
_HEAD_BYTES: Final = FIT_BYTES - 32
#: Sorts behind whatever follows the head of a long member.
_BEHIND_DIGESTS: Final = b"\xff" * 33
#: Rows that are counted at a time.
_STRIDE: Final = 128


class ScoreRange(NamedTuple):
    """Scores between two numbers; an open end leaves out the number itself."""

    low: float
    low_open: bool
    high: float
    high_open: bool


class LexRange(NamedTuple):
    """Members between two strings in byte order. ``high`` None: no upper end; no lower end is ``b""``."""

    low: bytes
    low_open: bool
    high: bytes | None
    high_open: bool

    @property
    def is_empty(self) -> bool:
        if self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def reaches(self, member: bytes) -> bool:
        """Whether a member is not below the range."""
        return member > self.low or (member == self.low and not self.low_open)

    def covers(self, member: bytes) -> bool:
        """Whether a member is not above the range."""
        return self.high is None or member < self.high or (member == self.high and not self.high_open)


#: Begins above every string and ends below: what ``+`` as a lower end or ``-`` as an upper end mean.
EMPTY_LEX_RANGE: Final = LexRange(b"", True, b"", True)


def member_of(row: tuple[bytes, bytes]) -> bytes:
    name = row[0]
    return row[1] if len(name) == _LONG_ROW_BYTES else name[_MEMBER:]


def members_of(rows: Rows) -> list[bytes]:
    return [value if len(row) == _LONG_ROW_BYTES else row[_MEMBER:] for row, value in rows]


def entries_of(rows: Rows) -> list[Entry]:
    """(member, score) of each row."""
    return [
        (value if len(row) == _LONG_ROW_BYTES else row[_MEMBER:], decode_score(row[_PLACE:_MEMBER]))
        for row, value in rows
    ]


class SortedSet(Members):
    TYPE = ZSET

    __slots__ = ("_start",)

    def __init__(self, ks: Keyspace, key: bytes, record: bytes | None) -> None:
        super().__init__(ks, key, record)
        #: what rows of the ``s`` space begin with
        self._start = self._version + b"s"

    @property
    def _end(self) -> bytes:
        """Sorts behind every row of the ``s`` space, before whatever follows it."""
        return self._version + b"t"

    # ------------------------------------------------------------- one member

    def score(self, member: bytes) -> float | None:
        stored = self._unit.get(self._base + physical(member), None, self._table)
        return None if stored is None else decode_score(stored[-8:])

    def put(self, member: bytes, score: float) -> int:
        """Give a member a score; answers ``ADDED``, ``MOVED`` or ``SAME``."""
        unit, table = self._unit, self._table
        stored = place = encode_score(score)
        name, whole = member, b""
        if len(member) >= FIT_BYTES:
            name, whole = fit(member), member
            stored = wrap_long(member, place)
        old = unit.replace(self._base + hash64(member) + name, stored, table)
        if old is None:
            unit.put(self._start + place + name, whole, True, True, False, table)
            self.size += 1
            return ADDED
        old_place = old[-8:]
        if old_place == place:
            return SAME
        unit.delete(self._start + old_place + name, b"", table)
        unit.put(self._start + place + name, whole, True, True, False, table)
        return MOVED

    def remove(self, member: bytes) -> bool:
        name = fit(member)
        stored = self._unit.pop(self._base + hash64(member) + name, db=self._table)
        if stored is None:
            return False
        self._unit.delete(self._start + stored[-8:] + name, db=self._table)
        self.size -= 1
        return True

    def pop(self, highest: bool) -> Entry:
        """Take the member at one end of a set that is not empty."""
        cursor = self._unit.cursor(self._table)
        if highest:
            self._seek_before(cursor, self._end)
        else:
            cursor.set_range(self._start)
        row: tuple[bytes, bytes] = cursor.item()
        assert row[0].startswith(self._start), "I2"
        cursor.delete()
        member = member_of(row)
        self._unit.delete(self._base + physical(member), db=self._table)
        self.size -= 1
        return member, decode_score(row[0][_PLACE:_MEMBER])

    def rank(self, member: bytes) -> int | None:
        """How many members stand before this one; walks to the nearer end."""
        stored = self._unit.get(self._base + physical(member), None, self._table)
        if stored is None:
            return None
        row = self._start + stored[-8:] + fit(member)
        down, up = self._unit.cursor(self._table), self._unit.cursor(self._table)
        down.set_key(row)
        up.set_key(row)
        lower: Iterator[bytes] = down.iterprev(values=False)
        upper: Iterator[bytes] = up.iternext(values=False)
        start, end = self._start, self._end
        seen = 0
        while True:
            chunk = list(islice(lower, _STRIDE))
            if len(chunk) < _STRIDE or chunk[-1] < start:
                return seen + sum(other > start for other in chunk) - 1
            chunk = list(islice(upper, _STRIDE))
            if len(chunk) < _STRIDE or chunk[-1] >= end:
                return self.size - seen - bisect_left(chunk, end)
            seen += _STRIDE

    # ------------------------------------------------------------ many at once

    def fill(self, entries: Iterable[Entry]) -> None:
        """Add many members to a set that has none of them yet."""
        by_member: Rows = []
        by_score: Rows = []
        for member, score in entries:
            place = encode_score(score)
            if len(member) < FIT_BYTES:
                by_member.append((self._base + hash64(member) + member, place))
                by_score.append((self._start + place + member, b""))
            else:
                name = fit(member)
                by_member.append((self._base + hash64(member) + name, wrap_long(member, place)))
                by_score.append((self._start + place + name, member))
        # In the order of the tree, neighbours share a page.
        by_member.sort()
        by_score.sort()
        cursor = self._unit.cursor(self._table)
        cursor.putmulti(by_member)
        cursor.putmulti(by_score)
        self.size += len(by_member)

    def remove_rows(self, rows: Rows) -> None:
        """Remove members by rows that a read of this unit gave; ``save`` must follow."""
        if len(rows) == self.size:
            self.size = 0  # the key goes when it is saved, and everything with it
            return
        delete = self._unit.delete
        table = self._table
        for row in rows:
            delete(row[0], db=table)
            delete(self._base + physical(member_of(row)), db=table)
        self.size -= len(rows)

    def entries(self) -> list[Entry]:
        """Every (member, score), lowest first."""
        return entries_of(self.rows_by_rank(0, self.size))

    # ------------------------------------------------------------------ ranges

    def rows_by_rank(self, start: int, stop: int, reverse: bool = False) -> Rows:
        """Ranks ``start`` (included, not negative) to ``stop`` (excluded), counted and listed from the
        highest member if ``reverse``; walks from the nearer end."""
        stop = min(stop, self.size)
        if start >= stop:
            return []
        if reverse:
            start, stop = self.size - stop, self.size - start
        after = self.size - stop
        cursor = self._unit.cursor(self._table)
        if start <= after:
            cursor.set_range(self._start)
            _skip(cursor.iternext, start)
            rows = list(islice(cursor.iternext(), stop - start))
            if reverse:
                rows.reverse()
        else:
            self._seek_before(cursor, self._end)
            _skip(cursor.iterprev, after)
            rows = list(islice(cursor.iterprev(), stop - start))
            if not reverse:
                rows.reverse()
        # A size that is damaged leads into the rows of others.
        assert all(row[0].startswith(self._start) for row in (rows[0], rows[-1])), "I2"
        return rows

    def rows_by_score(
        self, within: ScoreRange, reverse: bool = False, skip: int = 0, limit: int | None = None
    ) -> Rows:
        return _sliced(self._walk(*self._span_of_scores(within), reverse), skip, limit)

    def iterate_by_score(self, within: ScoreRange) -> Iterator[Entry]:
        """(member, score) of a range one by one, for who may stop early. Do not write meanwhile."""
        for row in self._walk(*self._span_of_scores(within), False):
            yield member_of(row), decode_score(row[0][_PLACE:_MEMBER])

    def rows_by_lex(
        self, within: LexRange, reverse: bool = False, skip: int = 0, limit: int | None = None
    ) -> Rows:
        return _sliced(self._walk_lex(within, reverse), skip, limit)

    def count_by_score(self, within: ScoreRange) -> int:
        return self._count(*self._span_of_scores(within))

    def count_by_lex(self, within: LexRange) -> int:
        span = self._span_of_members(within)
        if span is not None:
            return self._count(*span)
        return sum(1 for _ in self._walk_lex(within, False))

    def _span_of_scores(self, within: ScoreRange) -> tuple[bytes, bytes]:
        """The rows of a range are those from the first of these bytes up to, not including, the second."""
        low = int.from_bytes(encode_score(within.low), "big") + within.low_open
        high = int.from_bytes(encode_score(within.high), "big") + (not within.high_open)
        return self._start + U64.pack(low), self._start + U64.pack(high)

    def _span_of_members(self, within: LexRange) -> tuple[bytes, bytes] | None:
        """Likewise for members in byte order; None where they are not the rows of one span."""
        low, low_open, high, high_open = within
        if within.is_empty:
            return self._start, self._start
        first, last = self._ends()
        if first[0][:_MEMBER] != last[0][:_MEMBER] or max(len(low), len(high or b"")) >= _HEAD_BYTES:
            return None
        before = first[0][:_MEMBER]
        start = before + (low + b"\0" if low_open else low)
        if high is None:
            return start, self._end
        return start, before + (high if high_open else high + b"\0")

    def _walk_lex(self, within: LexRange, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Members of a range in byte order, which is the order of the rows if all scores are equal.

        With different scores the order means nothing. Redis then answers, from a small
        set, what lies between the first member not below the range and the next one above
        it (nothing if the last member is below or the first above), and so do we.
        """
        span = self._span_of_members(within)
        if span is not None:
            return self._walk(*span, reverse)
        first, last = self._ends()
        before = first[0][:_MEMBER]
        if before == last[0][:_MEMBER]:
            # An end as long as long members: what stands in the rows is not enough to decide.
            start = before + within.low[:_HEAD_BYTES]
            end = self._end if within.high is None else before + within.high[:_HEAD_BYTES] + _BEHIND_DIGESTS
            return (
                row
                for row in self._walk(start, end, reverse)
                if within.reaches(member_of(row)) and within.covers(member_of(row))
            )
        if not within.reaches(member_of(last)) or not within.covers(member_of(first)):
            return iter(())
        rows = self._walk(self._start, self._end, reverse)
        enters, stays = (within.covers, within.reaches) if reverse else (within.reaches, within.covers)
        return takewhile(
            lambda row: stays(member_of(row)), dropwhile(lambda row: not enters(member_of(row)), rows)
        )

    # ----------------------------------------------------------------- walking

    def _walk(self, start: bytes, end: bytes, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """The rows from ``start`` up to, not including, ``end``. Do not write meanwhile."""
        cursor = self._unit.cursor(self._table)
        if reverse:
            if not self._seek_before(cursor, end):
                return
            for row in cursor.iterprev():
                if row[0] < start:
                    return
                yield row
        else:
            if not cursor.set_range(start):
                return
            for row in cursor.iternext():
                if row[0] >= end:
                    return
                yield row

    def _count(self, start: bytes, end: bytes) -> int:
        """How many rows there are from ``start`` up to, not including, ``end``."""
        first, last = self._ends()
        if start <= first[0] and last[0] < end:
            return self.size
        cursor = self._unit.cursor(self._table)
        if not cursor.set_range(start):
            return 0
        rows: Iterator[bytes] = cursor.iternext(values=False)
        counted = 0
        while True:
            chunk = list(islice(rows, _STRIDE))
            if len(chunk) < _STRIDE or chunk[-1] >= end:
                return counted + bisect_left(chunk, end)
            counted += _STRIDE

    def _ends(self) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
        """The first and the last row."""
        cursor = self._unit.cursor(self._table)
        cursor.set_range(self._start)
        first: tuple[bytes, bytes] = cursor.item()
        self._seek_before(cursor, self._end)
        return first, cursor.item()

    @staticmethod
    def _seek_before(cursor: Any, end: bytes) -> bool:
        """Put the cursor on the last row that sorts before ``end``."""
        return bool(cursor.prev() if cursor.set_range(end) else cursor.last())


def _skip(iterate: Any, count: int) -> None:
    """Move a cursor that stands on a row by ``count`` rows (there are as many), reading no values."""
    if count:
        next(islice(iterate(values=False), count, None))


def _sliced(rows: Iterator[tuple[bytes, bytes]], skip: int, limit: int | None) -> Rows:
    if not skip and limit is None:
        return list(rows)
    return list(islice(rows, skip, None if limit is None else min(skip + limit, sys.maxsize)))
