"""The set: members without values. All of it is :class:`Members` under the set's own names.

=========================================  =====================================
row                                        value
=========================================  =====================================
``version(8) m hash(8) member``            empty
``version(8) m hash(8) fit(member)``       the whole member, wrapped, if it is long
=========================================  =====================================
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.datatypes.collection import Members
from penstock.engine.storage.layout import SET


class Set(Members):
    TYPE = SET

    __slots__ = ()

    def add(self, member: bytes) -> bool:
        """Add a member; True if it is new."""
        return self._add(member, b"")

    def add_all(self, members: Iterable[bytes]) -> int:
        """Add members; answers how many are new."""
        before = self.size
        for member in members:
            self._add(member, b"")
        return self.size - before

    def remove(self, member: bytes) -> bool:
        return self._remove(member)

    def remove_all(self, members: Iterable[bytes]) -> int:
        """Remove members; answers how many were there."""
        before = self.size
        for member in members:
            self._remove(member)
        return before - self.size
