"""The hash: fields and values, by field. All of it is :class:`Members` under the hash's own names."""

from __future__ import annotations

from penstock.engine.datatypes.collection import Members
from penstock.engine.storage.layout import HASH


class Hash(Members):
    TYPE = HASH

    __slots__ = ()

    def get(self, field: bytes) -> bytes | None:
        return self._get(field)

    def put(self, field: bytes, value: bytes) -> bool:
        """Set a field; True if it is new."""
        return self._put(field, value)

    def put_new(self, field: bytes, value: bytes) -> bool:
        """Set a field unless it exists; True if it was set."""
        return self._add(field, value)

    def remove(self, field: bytes) -> bool:
        return self._remove(field)
