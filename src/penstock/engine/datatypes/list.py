"""The list: elements by position, direct access anywhere, growth at both ends.

=====================================  ==============================================
where                                  bytes
=====================================  ==============================================
``extra`` of the head record           first index (8): where the leftmost element is
row ``version(8) i index(8)``          the element
=====================================  ==============================================

An index is a signed number written by :func:`layout.encode_index`, so that rows sort as
the list does and a list can grow to the left for ever. In memory it is the unsigned
number of those eight bytes, which takes no decoding. A *position* counts from 0 at the
left: ``index = first + position``.

Invariants
----------
L1  The rows are exactly ``first … first + size - 1``, without gaps.

Positions passed in are already normalised: this module knows neither negative positions
nor ranges beyond the end. Costs: any position is one get; inserting or removing in the
middle moves the rows of the shorter side; a range is one scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.collection import Collection
from penstock.engine.storage.layout import LIST, encode_index

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace

_PLAIN_HEAD: Final = bytes((LIST,))
_BODY: Final = Struct(">8sQQ")
#: Where a list begins: index 0, in the middle of the numbers.
_ORIGIN: Final = encode_index(0)


class List(Collection):
    TYPE = LIST

    __slots__ = ("_base", "_first")

    _first: int

    def __init__(self, ks: Keyspace, key: bytes, record: bytes | None) -> None:
        if record is None or record[0] != LIST:
            super().__init__(ks, key, record)
            return
        # The usual record (no deadline, short name) once more in one go: every push and pop comes this way.
        self._ks = ks
        self._unit = ks.unit
        self._table = ks.data
        self.key = key
        self.deadline_ms = None
        self._head = _PLAIN_HEAD
        self._saved = record
        self._comes_again = False
        self._version, self.size, self._first = _BODY.unpack_from(record, 1)
        self._base = self._version + b"i"

    def _load_extra(self, extra: bytes) -> None:
        self._base = self._version + b"i"
        self._first = int.from_bytes(extra or _ORIGIN, "big")

    def _record(self) -> bytes:
        return self._head + _BODY.pack(self._version, self.size, self._first)

    # -------------------------------------------------------------------- ends

    def push_left(self, values: Iterable[bytes]) -> None:
        """Put values in front, one after the other: the last one ends up leftmost."""
        put, base, table, index = self._unit.put, self._base, self._table, self._first
        for value in values:
            index -= 1
            put(base + index.to_bytes(8, "big"), value, True, True, False, table)
        self.size += self._first - index
        self._first = index

    def push_right(self, values: Iterable[bytes]) -> None:
        """Put values at the end, in their order."""
        put, base, table = self._unit.put, self._base, self._table
        index = self._first + self.size
        for value in values:
            put(base + index.to_bytes(8, "big"), value, True, True, False, table)
            index += 1
        self.size = index - self._first

    def pop_left(self) -> bytes:
        """Take the leftmost element of a list that is not empty."""
        value = self._unit.pop(self._base + self._first.to_bytes(8, "big"), self._table)
        assert value is not None, "L1"
        self._first += 1
        self.size -= 1
        return value

    def pop_right(self) -> bytes:
        """Take the rightmost element of a list that is not empty."""
        value = self._unit.pop(self._row(self.size - 1), self._table)
        assert value is not None, "L1"
        self.size -= 1
        return value

    def take_left(self, count: int) -> list[bytes]:
        """Take up to ``count`` elements from the left, leftmost first."""
        if count >= self.size:
            values = self.slice(0, self.size)
            self.clear()
            return values
        return [self.pop_left() for _ in range(count)]

    def take_right(self, count: int) -> list[bytes]:
        """Take up to ``count`` elements from the right, rightmost first."""
        if count >= self.size:
            values = self.slice(0, self.size)
            values.reverse()
            self.clear()
            return values
        return [self.pop_right() for _ in range(count)]

    def clear(self) -> None:
        """Remove every element; only ``save`` may follow.

        The rows stay for ``save``, which lets go of them with the key: at once if they are
        few, by the sweeper if they are many.
        """
        if self._saved is None:
            self._delete_rows(0, self.size)  # no key in the store that they could go with
        self.size = 0

    # --------------------------------------------------------------- positions

    def __getitem__(self, position: int) -> bytes:
        value = self._unit.get(self._row(position), None, self._table)
        assert value is not None, "L1"
        return value

    def __setitem__(self, position: int, value: bytes) -> None:
        self._unit.put(self._row(position), value, db=self._table)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """The elements from left to right. Do not write meanwhile."""
        return self._forward(0, self.size)

    def slice(self, start: int, stop: int) -> list[bytes]:
        """The elements at positions ``start`` up to, not including, ``stop``."""
        count = stop - start
        if count <= 0:
            return []
        cursor = self._unit.cursor(self._table)
        found = cursor.set_key(self._row(start))
        values = list(islice(cursor.iternext(keys=False, values=True), count)) if found else []
        # Rows are dense (L1): if the last one is in its place, so are all. Else these are elements of others.
        assert len(values) == count and cursor.key() == self._row(stop - 1), "L1"  # noqa: PT018
        return values

    def find(
        self, value: bytes, *, backwards: bool = False, skip: int = 0, limit: int = 0, window: int = 0
    ) -> list[int]:
        """Positions of elements equal to ``value``, in the order in which the search meets them.

        Leaves out the first ``skip`` matches, ends after ``limit`` others (0 = all) and
        looks at no more than ``window`` elements (0 = all).
        """
        length = min(window, self.size) if window else self.size
        if backwards:
            last = self.size - 1
            matches = (last - n for n, item in enumerate(self._backward(length)) if item == value)
        else:
            matches = (n for n, item in enumerate(self._forward(0, length)) if item == value)
        if skip >= length:
            return []
        return list(islice(matches, skip, min(skip + limit, length) if limit else None))

    # ------------------------------------------------------------------ middle

    def insert(self, position: int, value: bytes) -> None:
        """Put a value before ``position`` (``size`` = at the end)."""
        if position < self.size - position:
            self._first -= 1
            for at in range(position):
                self[at] = self[at + 1]
        else:
            for at in range(self.size, position, -1):
                self[at] = self[at - 1]
        self[position] = value
        self.size += 1

    def remove(self, positions: list[int]) -> None:
        """Remove the elements at these positions, given in ascending order."""
        if len(positions) == self.size:
            self.clear()
        elif positions and positions[-1] < self.size - positions[0]:
            self._close_gaps_rightwards(positions)
        elif positions:
            self._close_gaps_leftwards(positions)

    def _close_gaps_leftwards(self, positions: list[int]) -> None:
        gone = set(positions)
        target = positions[0]
        for at in range(target + 1, self.size):
            if at not in gone:
                self[target] = self[at]
                target += 1
        self._delete_rows(target, self.size)
        self.size = target

    def _close_gaps_rightwards(self, positions: list[int]) -> None:
        gone = set(positions)
        target = positions[-1]
        for at in range(target - 1, -1, -1):
            if at not in gone:
                self[target] = self[at]
                target -= 1
        count = len(positions)
        self._delete_rows(0, count)
        self._first += count
        self.size -= count

    def keep(self, start: int, stop: int) -> None:
        """Remove all but the positions ``start`` up to, not including, ``stop``."""
        if start >= stop:
            self.clear()
            return
        self._delete_rows(stop, self.size)
        self._delete_rows(0, start)
        self._first += start
        self.size = stop - start

    # -------------------------------------------------------------------- rows

    def _row(self, position: int) -> bytes:
        return self._base + (self._first + position).to_bytes(8, "big")

    def _delete_rows(self, start: int, stop: int) -> None:
        delete, table = self._unit.delete, self._table
        for position in range(start, stop):
            if not delete(self._row(position), db=table):
                raise LookupError("L1")  # or a damaged size would keep this going for years

    def _forward(self, start: int, count: int) -> Iterator[bytes]:
        if count <= 0:
            return iter(())
        cursor = self._unit.cursor(self._table)
        found = cursor.set_key(self._row(start))
        assert found, "L1"
        return islice(cursor.iternext(keys=False, values=True), count)

    def _backward(self, count: int) -> Iterator[bytes]:
        if count <= 0:
            return iter(())
        cursor = self._unit.cursor(self._table)
        found = cursor.set_key(self._row(self.size - 1))
        assert found, "L1"
        return islice(cursor.iterprev(keys=False, values=True), count)
