"""A value at hand: loaded once in a unit, changed in memory, its record written late.

The record of a key in ``keys:N`` tells its type and deadline and, for a collection, its
size and the like: nearly every write changes it. A queue or counter that a batch hits a
hundred times does not need it on disk each time. So the first ``save`` in a unit writes
it, which is all that most keys ever need; from the second one on the value is put among
the late ones of the unit (``Unit.late``), which writes them when it has to.

That nobody can tell the difference rests on these rules:

1. Only what is at hand can be late: ``Keyspace.load`` answers the same object for a key
   until the unit ends or the key is let go of, so there is no second truth beside it. An
   object that is not at hand (any more) is written at once by ``save``, and is at hand
   from then on: what was saved last counts.
2. A late record replaces a row that is there. Keys appear, disappear and change type or
   deadline at once, so that counts and names are right whoever reads them.
3. Whoever reads rows sees it written: a point read of a record passes ``Keyspace.find``,
   which writes that one first; opening a cursor, a savepoint's begin and its end, and
   the commit write all (``Unit``). An abort forgets them with the rest of the unit.
4. Elements are never late.

It knows neither commands nor what a value means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace


class Kept:
    """What :meth:`Keyspace.load` answers; valid until the unit of work ends."""

    TYPE: ClassVar[int]

    __slots__ = ("_comes_again", "_ks", "_saved", "_unit", "key")

    def __init__(self, ks: Keyspace, key: bytes, record: bytes | None) -> None:
        self._ks = ks
        self._unit = ks.unit
        self.key = key
        #: the record as it was read or written last; None: the key does not exist yet
        self._saved = record
        #: whether it was saved before
        self._comes_again = False

    def _record(self) -> bytes:
        """The whole record, as the value is now."""
        raise NotImplementedError

    def save(self) -> None:
        """Make a change of a key that exists official: its record is written in time."""
        if self not in self._unit.late:
            self._put_off()

    def _put_off(self) -> None:
        if self._comes_again and self._ks.has_at_hand(self):
            self._unit.late[self] = None
        else:
            self._comes_again = True
            before = self._saved
            self.write_late()
            if self._saved is not before:
                self._ks.keep_at_hand(self)

    def write_late(self) -> None:
        """Write the record now, if it changed."""
        record = self._record()
        if record != self._saved:
            self._ks.store_late(self.key, record)
            self._saved = record
