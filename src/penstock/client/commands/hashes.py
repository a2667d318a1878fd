"""Commands on hashes and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import flag, flat, only_with, option, optional
from penstock.client.commands.base import Coming, Key, Runner, Value, ValueT


class Hashes(Runner):
    """Commands on hashes and their fields."""

    __slots__ = ()

    # ------------------------------------------------------------ reading

    def hget(self, key: Key, field: Value) -> Coming[bytes | None]:
        """Read one field of a hash."""
        return self._call(("HGET", key, field))

    def hmget(self, key: Key, field: Value, *fields: Value) -> Coming[list[bytes | None]]:
        """Read several fields of a hash."""
        return self._call(("HMGET", key, field, *fields))

    def hgetall(self, key: Key) -> Coming[dict[bytes, bytes]]:
        """Read every field of a hash with its value."""
        return self._call(("HGETALL", key), to.mapping)

    def hkeys(self, key: Key) -> Coming[list[bytes]]:
        """Names of the fields of a hash."""
        return self._call(("HKEYS", key))

    def hvals(self, key: Key) -> Coming[list[bytes]]:
        """Values of the fields of a hash."""
        return self._call(("HVALS", key))

    def hlen(self, key: Key) -> Coming[int]:
        """How many fields a hash has."""
        return self._call(("HLEN", key))

    def hexists(self, key: Key, field: Value) -> Coming[bool]:
        """Whether a hash has a field."""
        return self._call(("HEXISTS", key, field), bool)

    def hstrlen(self, key: Key, field: Value) -> Coming[int]:
        """Length of a field's value in bytes."""
        return self._call(("HSTRLEN", key, field))

    @overload
    def hrandfield(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def hrandfield(
        self, key: Key, count: int, *, withvalues: Literal[False] = False
    ) -> Coming[list[bytes]]: ...

    @overload
    def hrandfield(
        self, key: Key, count: int, *, withvalues: Literal[True]
    ) -> Coming[list[tuple[bytes, bytes]]]: ...

    def hrandfield(self, key: Key, count: int | None = None, *, withvalues: bool = False) -> Coming[Any]:
        """A field of a hash picked by chance, or several; a negative count allows repetitions."""
        only_with("count", count, withvalues=withvalues)
        words = ("HRANDFIELD", key, *optional(count), *flag("WITHVALUES", withvalues))
        return self._call(words, to.pairs if withvalues else None)

    @overload
    def hscan(
        self,
        key: Key,
        cursor: int = 0,
        *,
        match: Value | None = None,
        count: int | None = None,
        novalues: Literal[False] = False,
    ) -> Coming[tuple[int, dict[bytes, bytes]]]: ...

    @overload
    def hscan(
        self,
        key: Key,
        cursor: int = 0,
        *,
        match: Value | None = None,
        count: int | None = None,
        novalues: Literal[True],
    ) -> Coming[tuple[int, list[bytes]]]: ...

    def hscan(
        self,
        key: Key,
        cursor: int = 0,
        *,
        match: Value | None = None,
        count: int | None = None,
        novalues: bool = False,
    ) -> Coming[Any]:
        """One step through a hash: the next cursor (0: done) and some fields."""
        options = (*option("MATCH", match), *option("COUNT", count), *flag("NOVALUES", novalues))
        return self._call(("HSCAN", key, cursor, *options), to.page if novalues else to.mapping_page)

    # ------------------------------------------------------------ writing

    def hset(self, key: Key, mapping: Mapping[ValueT, Value]) -> Coming[int]:
        """Write fields of a hash; how many are new."""
        return self._call(("HSET", key, *flat("mapping", mapping)))

    def hsetnx(self, key: Key, field: Value, value: Value) -> Coming[bool]:
        """Write one field of a hash, unless it is there; whether it was written."""
        return self._call(("HSETNX", key, field, value), bool)

    def hdel(self, key: Key, field: Value, *fields: Value) -> Coming[int]:
        """Drop fields from a hash; how many there were."""
        return self._call(("HDEL", key, field, *fields))

    def hincrby(self, key: Key, field: Value, increment: int) -> Coming[int]:
        """Add a number to the counter in a field; its value then."""
        return self._call(("HINCRBY", key, field, increment))

    def hincrbyfloat(self, key: Key, field: Value, increment: float) -> Coming[float]:
        """Add a decimal fraction to the counter in a field; its value then."""
        return self._call(("HINCRBYFLOAT", key, field, increment), float)
