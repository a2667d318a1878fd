"""What every collection shares: a head record in ``keys:N``, elements in ``data:N``.

Body of the head record
-----------------------
=========  =====  ==========================================================
field      bytes  meaning
=========  =====  ==========================================================
version    8      names this incarnation; elements are keyed by it, so that
                  deleting the key is O(1) whatever its size
size       8      number of elements
extra      n      what the type adds (a list keeps its first index here)
=========  =====  ==========================================================

Element rows: ``version(8) space(1) rest``. The space byte separates what one type keeps
in several orders: ``m`` by hash of the name, ``s`` by score, ``i`` by index.

Invariants
----------
I1  A stored collection is never empty: ``save`` of an empty one deletes the key.
I2  ``size`` equals the number of element rows in the type's main space.
I3  Changes to elements become official with ``save``; a method that changes the
    number of elements updates ``size`` itself. When the head is written: ``kept``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.engine.datatypes.kept import Kept
from penstock.engine.storage import layout
from penstock.engine.storage.layout import FIT_BYTES, U64, hash64, physical
from penstock.engine.storage.scanning import scan_rows

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace

T = TypeVar("T")

_BODY: Final = Struct(">8sQ")
#: Where the name begins in a row of :class:`Members`, and how long a row with a long name is.
_NAME_AT: Final = 8 + 1 + 8
_LONG_ROW_BYTES: Final = _NAME_AT + FIT_BYTES

#: Up to this size a random pick counts rows from an end on.
_SMALL_SIZE: Final = 128
#: Beyond it: the number of neighbours among which a random place is shared; a divisor of 256.
_WINDOW: Final = 16


class Collection(Kept):
    """One loaded collection; valid until the unit of work ends."""

    __slots__ = ("_head", "_table", "_version", "deadline_ms", "size")

    def __init__(self, ks: Keyspace, key: bytes, record: bytes | None) -> None:
        super().__init__(ks, key, record)
        self._table = ks.data
        if record is None:
            self._version = U64.pack(ks.unit.take_number(b"version"))
            self._head = layout.encode_head(self.TYPE, None, key)
            self.deadline_ms: int | None = None
            self.size = 0
            self._load_extra(b"")
            return
        if record[0] == self.TYPE:
            body = 1
            self.deadline_ms = None
        else:
            head = layout.decode_head(record)
            body = head.body
            self.deadline_ms = head.deadline_ms
        self._head = record[:body]
        self._version = record[body : body + 8]
        self.size = int.from_bytes(record[body + 8 : body + 16], "big")
        self._load_extra(record[body + 16 :])

    # What a type with extra fields overrides.
    def _load_extra(self, extra: bytes) -> None:
        """Read the extra fields; ``extra`` is empty for a new collection."""

    def _record(self) -> bytes:
        """The head record; a type with extra fields adds them."""
        return self._head + self._version + self.size.to_bytes(8, "big")

    @property
    def is_new(self) -> bool:
        """Whether the key did not exist when this was loaded."""
        return self._saved is None

    def save(self) -> None:
        """Make changes official: the key is created, deleted if nothing is left (I1), or its head put off."""
        if self.size == 0:
            self._delete()
        elif self._saved is None:
            self._create()
        elif self not in self._unit.late:
            self._put_off()

    def _delete(self) -> None:
        if self._saved is not None:
            # By the record as it was last written: its size says whether elements are too many to go at once.
            self._unit.late.pop(self, None)
            self._ks.delete(self.key)

    def _create(self) -> None:
        record = self._record()
        self._ks.put_body(self.key, self.TYPE, None, record[len(self._head) :])
        self._saved = record


class Members(Collection):
    """A collection of named elements: hash, set, and the by-member side of a sorted set.

    Rows: ``version m hash(8) fit(name)`` → value; with a long name the value is wrapped
    with it (:func:`layout.wrap_long`). Everything that lists elements reads exactly
    ``size`` rows from the first one on (I2).
    """

    __slots__ = ("_base",)

    def __init__(self, ks: Keyspace, key: bytes, record: bytes | None) -> None:
        if record is None or record[0] != self.TYPE:
            super().__init__(ks, key, record)
            return
        # The usual record (no deadline, short name) once more in one go: most commands come this way.
        self._ks = ks
        self._unit = ks.unit
        self._table = ks.data
        self.key = key
        self.deadline_ms = None
        self._head = record[:1]
        self._saved = record
        self._comes_again = False
        self._version, self.size = _BODY.unpack_from(record, 1)
        self._base = self._version + b"m"

    def _load_extra(self, extra: bytes) -> None:
        self._base = self._version + b"m"

    def _get(self, name: bytes) -> bytes | None:
        if len(name) < FIT_BYTES:
            return self._unit.get(self._base + hash64(name) + name, None, self._table)
        value = self._unit.get(self._base + physical(name), None, self._table)
        return None if value is None else layout.unwrap_long(value)[1]

    def _put(self, name: bytes, value: bytes) -> bool:
        """Add or replace; True if the name is new."""
        if len(name) < FIT_BYTES:
            row = self._base + hash64(name) + name
        else:
            row = self._base + physical(name)
            value = layout.wrap_long(name, value)
        if self._unit.replace(row, value, self._table) is None:
            self.size += 1
            return True
        return False

    def _add(self, name: bytes, value: bytes) -> bool:
        """Add unless the name is there; True if it was added."""
        if len(name) < FIT_BYTES:
            row = self._base + hash64(name) + name
        else:
            row = self._base + physical(name)
            value = layout.wrap_long(name, value)
        if self._unit.put(row, value, True, False, False, self._table):
            self.size += 1
            return True
        return False

    def _remove(self, name: bytes) -> bool:
        if self._unit.delete(self._base + physical(name), b"", self._table):
            self.size -= 1
            return True
        return False

    def __contains__(self, name: bytes) -> bool:
        return self._unit.get(self._base + physical(name), None, self._table) is not None

    # ------------------------------------------------------------ all of them

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """(name, value) in hash order. Do not write meanwhile."""
        row = self._base
        for row, value in self._rows():
            yield layout.unwrap_long(value) if len(row) == _LONG_ROW_BYTES else (row[_NAME_AT:], value)
        assert row.startswith(self._base), "I2"  # else the last ones are elements of others

    def names(self) -> list[bytes]:
        """Every name, in hash order."""
        rows = list(self._rows(values=False))
        assert not rows or rows[-1].startswith(self._base), "I2"
        if _LONG_ROW_BYTES in map(len, rows):
            return [name for name, _ in self.items()]
        return [row[_NAME_AT:] for row in rows]

    def values(self) -> list[bytes]:
        """Every value, in hash order."""
        return [value for _, value in self.items()]

    def _rows(self, values: bool = True) -> Iterator[Any]:
        cursor = self._unit.cursor(self._table)
        # A cursor that found nothing would be read from the table's first row.
        if self.size == 0 or not cursor.set_range(self._base):
            return iter(())
        return islice(cursor.iternext(values=values), self.size)

    def scan(self, cursor: int, count: int, pick: Callable[[bytes, bytes], T | None]) -> tuple[int, list[T]]:
        """One step of HSCAN, SSCAN or ZSCAN: see :func:`scan_rows`."""

        def item(row: bytes, value: bytes) -> T | None:
            if len(row) == layout.LONG_PHYSICAL_BYTES:
                return pick(*layout.unwrap_long(value))
            return pick(row[8:], value)

        return scan_rows(self._unit, self._table, self._base, cursor, count, item)

    # ------------------------------------------------------------- any of them

    def random_item(self) -> tuple[bytes, bytes]:
        """One element of a collection that is not empty; how fair: see :meth:`_random_place`."""
        row, value = self._random_place().item()
        assert row.startswith(self._base), "I2"
        return _item_of(row, value)

    def pop_random(self) -> tuple[bytes, bytes]:
        """Take one element of a collection that is not empty, picked as by :meth:`random_item`."""
        cursor = self._random_place()
        row, value = cursor.item()
        assert row.startswith(self._base), "I2"
        cursor.delete()
        self.size -= 1
        return _item_of(row, value)

    def sample(self, count: int) -> list[tuple[bytes, bytes]]:
        """``count`` distinct elements in random order (all of them, in any order, if there are fewer)."""
        if count >= self.size:
            return list(self.items())
        if count * 3 > self.size or self.size <= _SMALL_SIZE:
            return random.sample(list(self.items()), count)
        found: dict[bytes, bytes] = {}
        while len(found) < count:
            name, value = self.random_item()
            found[name] = value
        return list(found.items())

    def draw(self, count: int) -> list[tuple[bytes, bytes]]:
        """``count`` elements, each picked from all of them: some may come more than once."""
        if count * 16 > self.size:
            return random.choices(list(self.items()), k=count)
        return [self.random_item() for _ in range(count)]

    def _random_place(self) -> Any:
        """A cursor on a row picked by chance.

        Small collections: each element is as likely as any other. Large ones: some steps
        on from a random place in hash order. Where elements lie far apart the first one
        after the gap would be picked too often; the steps share its luck out among
        ``_WINDOW`` neighbours, so that the odds of an element stray by a quarter of the
        mean (1/sqrt(_WINDOW)), for the cost of one lookup.
        """
        cursor = self._unit.cursor(self._table)
        if self.size <= _SMALL_SIZE:
            self._go_to(cursor, int(random.random() * self.size))
            return cursor
        base = self._base
        chance = random.getrandbits(72).to_bytes(9, "big")
        steps = chance[0] % _WINDOW
        passed: list[bytes] = []
        if cursor.set_range(base + chance[1:]):
            passed = list(islice(cursor.iternext(values=False), steps + 1))
        if len(passed) <= steps or not passed[-1].startswith(base):
            # Beyond the end: the way goes on at the beginning.
            self._go_to(cursor, steps - sum(row.startswith(base) for row in passed))
        return cursor

    def _go_to(self, cursor: Any, position: int) -> None:
        """Put a cursor on the element at a position in hash order, from the nearer end."""
        if position * 2 < self.size:
            cursor.set_range(self._base)
            for _ in range(position):
                cursor.next()
            return
        if cursor.set_range(self._version + b"n"):
            cursor.prev()
        else:
            cursor.last()
        for _ in range(self.size - 1 - position):
            cursor.prev()


def _item_of(row: bytes, value: bytes) -> tuple[bytes, bytes]:
    return layout.unwrap_long(value) if len(row) == _LONG_ROW_BYTES else (row[_NAME_AT:], value)
