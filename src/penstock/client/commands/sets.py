"""Commands on sets."""

from __future__ import annotations

from typing import Any, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import option, optional
from penstock.client.commands.base import Coming, Key, Runner, Value


class Sets(Runner):
    """Commands on sets."""

    __slots__ = ()

    # ------------------------------------------------------------ one set

    def sadd(self, key: Key, member: Value, *members: Value) -> Coming[int]:
        """Add members; how many are new."""
        return self._call(("SADD", key, member, *members))

    def srem(self, key: Key, member: Value, *members: Value) -> Coming[int]:
        """Remove members; how many there were."""
        return self._call(("SREM", key, member, *members))

    def scard(self, key: Key) -> Coming[int]:
        """How many members a set has."""
        return self._call(("SCARD", key))

    def smembers(self, key: Key) -> Coming[set[bytes]]:
        """All members."""
        return self._call(("SMEMBERS", key), set)

    def sismember(self, key: Key, member: Value) -> Coming[bool]:
        """Whether a value is a member."""
        return self._call(("SISMEMBER", key, member), bool)

    def smismember(self, key: Key, member: Value, *members: Value) -> Coming[list[bool]]:
        """Which of several values are members."""
        return self._call(("SMISMEMBER", key, member, *members), to.booleans)

    @overload
    def srandmember(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def srandmember(self, key: Key, count: int) -> Coming[list[bytes]]: ...

    def srandmember(self, key: Key, count: int | None = None) -> Coming[Any]:
        """Look at a member picked by chance, or several; a negative count allows repetitions."""
        return self._call(("SRANDMEMBER", key, *optional(count)))

    @overload
    def spop(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def spop(self, key: Key, count: int) -> Coming[set[bytes]]: ...

    def spop(self, key: Key, count: int | None = None) -> Coming[Any]:
        """Take out a member picked by chance, or, with ``count``, up to so many."""
        return self._call(("SPOP", key, *optional(count)), None if count is None else set)

    def sscan(
        self, key: Key, cursor: int = 0, *, match: Value | None = None, count: int | None = None
    ) -> Coming[tuple[int, list[bytes]]]:
        """One step through a set: the next cursor (0: done) and some members."""
        return self._call(("SSCAN", key, cursor, *option("MATCH", match), *option("COUNT", count)), to.page)

    # ------------------------------------------------------------ several sets

    def smove(self, source: Key, destination: Key, member: Value) -> Coming[bool]:
        """Move a member to another set; whether it was there."""
        return self._call(("SMOVE", source, destination, member), bool)

    def sdiff(self, key: Key, *keys: Key) -> Coming[set[bytes]]:
        """Members of the first set that no other has."""
        return self._call(("SDIFF", key, *keys), set)

    def sinter(self, key: Key, *keys: Key) -> Coming[set[bytes]]:
        """Members that all the sets share."""
        return self._call(("SINTER", key, *keys), set)

    def sunion(self, key: Key, *keys: Key) -> Coming[set[bytes]]:
        """Members that any of the sets has."""
        return self._call(("SUNION", key, *keys), set)

    def sintercard(self, key: Key, *keys: Key, limit: int | None = None) -> Coming[int]:
        """How many members all the sets share, counted up to ``limit``."""
        return self._call(("SINTERCARD", 1 + len(keys), key, *keys, *option("LIMIT", limit)))

    def sdiffstore(self, destination: Key, key: Key, *keys: Key) -> Coming[int]:
        """Store what sdiff would answer; how many members that is."""
        return self._call(("SDIFFSTORE", destination, key, *keys))

    def sinterstore(self, destination: Key, key: Key, *keys: Key) -> Coming[int]:
        """Store what sinter would answer; how many members that is."""
        return self._call(("SINTERSTORE", destination, key, *keys))

    def sunionstore(self, destination: Key, key: Key, *keys: Key) -> Coming[int]:
        """Store what sunion would answer; how many members that is."""
        return self._call(("SUNIONSTORE", destination, key, *keys))
