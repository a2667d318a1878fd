"""Ranges of sorted sets: by rank, by score, in byte order.

Bounds of scores are numbers, ``"(1.5"`` to leave the number itself out, ``"-inf"`` or ``"+inf"``;
bounds of members are ``"[a"``, ``"(a"``, ``"-"`` or ``"+"``. Both ends belong to the range.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import at_most_one, flag, limited
from penstock.client.commands.base import Coming, Key, Limit, Runner, Value
from penstock.client.transports.base import Arguments


class SortedSetRanges(Runner):
    """Ranges of sorted sets."""

    __slots__ = ()

    # ------------------------------------------------------------ reading

    @overload
    def zrange(
        self,
        key: Key,
        start: Value,
        stop: Value,
        *,
        byscore: bool = False,
        bylex: bool = False,
        rev: bool = False,
        limit: Limit | None = None,
        withscores: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def zrange(
        self,
        key: Key,
        start: Value,
        stop: Value,
        *,
        byscore: bool = False,
        bylex: bool = False,
        rev: bool = False,
        limit: Limit | None = None,
        withscores: Literal[True],
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zrange(
        self,
        key: Key,
        start: Value,
        stop: Value,
        *,
        byscore: bool = False,
        bylex: bool = False,
        rev: bool = False,
        limit: Limit | None = None,
        withscores: bool = False,
    ) -> Coming[Any]:
        """Read members by rank, score or byte order; with ``rev`` the higher bound comes first."""
        at_most_one(bylex=bylex, withscores=withscores)
        words = ("ZRANGE", key, start, stop, *_kind(byscore, bylex, rev, limit))
        if withscores:
            return self._call((*words, "WITHSCORES"), to.scored)
        return self._call(words)

    def zrangestore(
        self,
        destination: Key,
        source: Key,
        start: Value,
        stop: Value,
        *,
        byscore: bool = False,
        bylex: bool = False,
        rev: bool = False,
        limit: Limit | None = None,
    ) -> Coming[int]:
        """Store what zrange would answer; how many members that is."""
        return self._call(
            ("ZRANGESTORE", destination, source, start, stop, *_kind(byscore, bylex, rev, limit))
        )

    @overload
    def zrevrange(
        self, key: Key, start: int, stop: int, *, withscores: Literal[False] = False
    ) -> Coming[list[bytes]]: ...

    @overload
    def zrevrange(
        self, key: Key, start: int, stop: int, *, withscores: Literal[True]
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zrevrange(self, key: Key, start: int, stop: int, *, withscores: bool = False) -> Coming[Any]:
        """Read members by rank, highest score first (deprecated: zrange with rev)."""
        words = ("ZREVRANGE", key, start, stop, *flag("WITHSCORES", withscores))
        return self._call(words, to.scored if withscores else None)

    @overload
    def zrangebyscore(
        self,
        key: Key,
        min: Value,
        max: Value,
        *,
        limit: Limit | None = None,
        withscores: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def zrangebyscore(
        self, key: Key, min: Value, max: Value, *, limit: Limit | None = None, withscores: Literal[True]
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zrangebyscore(
        self, key: Key, min: Value, max: Value, *, limit: Limit | None = None, withscores: bool = False
    ) -> Coming[Any]:
        """Read members within score bounds (deprecated: zrange with byscore)."""
        words = ("ZRANGEBYSCORE", key, min, max, *flag("WITHSCORES", withscores), *limited(limit))
        return self._call(words, to.scored if withscores else None)

    @overload
    def zrevrangebyscore(
        self,
        key: Key,
        max: Value,
        min: Value,
        *,
        limit: Limit | None = None,
        withscores: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def zrevrangebyscore(
        self, key: Key, max: Value, min: Value, *, limit: Limit | None = None, withscores: Literal[True]
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zrevrangebyscore(
        self, key: Key, max: Value, min: Value, *, limit: Limit | None = None, withscores: bool = False
    ) -> Coming[Any]:
        """Read members within score bounds, backwards (deprecated: zrange with byscore and rev)."""
        words = ("ZREVRANGEBYSCORE", key, max, min, *flag("WITHSCORES", withscores), *limited(limit))
        return self._call(words, to.scored if withscores else None)

    def zrangebylex(
        self, key: Key, min: Value, max: Value, *, limit: Limit | None = None
    ) -> Coming[list[bytes]]:
        """Read members within byte-order bounds (deprecated: zrange with bylex)."""
        return self._call(("ZRANGEBYLEX", key, min, max, *limited(limit)))

    def zrevrangebylex(
        self, key: Key, max: Value, min: Value, *, limit: Limit | None = None
    ) -> Coming[list[bytes]]:
        """Read members within byte-order bounds, backwards (deprecated: zrange with bylex and rev)."""
        return self._call(("ZREVRANGEBYLEX", key, max, min, *limited(limit)))

    # ------------------------------------------------------------ counting, ranks

    def zcount(self, key: Key, min: Value, max: Value) -> Coming[int]:
        """How many members score within bounds."""
        return self._call(("ZCOUNT", key, min, max))

    def zlexcount(self, key: Key, min: Value, max: Value) -> Coming[int]:
        """How many members lie within byte-order bounds."""
        return self._call(("ZLEXCOUNT", key, min, max))

    @overload
    def zrank(self, key: Key, member: Value, *, withscore: Literal[False] = False) -> Coming[int | None]: ...

    @overload
    def zrank(
        self, key: Key, member: Value, *, withscore: Literal[True]
    ) -> Coming[tuple[int, float] | None]: ...

    def zrank(self, key: Key, member: Value, *, withscore: bool = False) -> Coming[Any]:
        """Rank of a member, lowest score first; with ``withscore`` its score too."""
        words = ("ZRANK", key, member, *flag("WITHSCORE", withscore))
        return self._call(words, to.ranked if withscore else None)

    @overload
    def zrevrank(
        self, key: Key, member: Value, *, withscore: Literal[False] = False
    ) -> Coming[int | None]: ...

    @overload
    def zrevrank(
        self, key: Key, member: Value, *, withscore: Literal[True]
    ) -> Coming[tuple[int, float] | None]: ...

    def zrevrank(self, key: Key, member: Value, *, withscore: bool = False) -> Coming[Any]:
        """Rank of a member, highest score first; with ``withscore`` its score too."""
        words = ("ZREVRANK", key, member, *flag("WITHSCORE", withscore))
        return self._call(words, to.ranked if withscore else None)

    # ------------------------------------------------------------ removing

    def zremrangebyrank(self, key: Key, start: int, stop: int) -> Coming[int]:
        """Remove members within rank bounds; how many there were."""
        return self._call(("ZREMRANGEBYRANK", key, start, stop))

    def zremrangebyscore(self, key: Key, min: Value, max: Value) -> Coming[int]:
        """Remove members within score bounds; how many there were."""
        return self._call(("ZREMRANGEBYSCORE", key, min, max))

    def zremrangebylex(self, key: Key, min: Value, max: Value) -> Coming[int]:
        """Remove members within byte-order bounds; how many there were."""
        return self._call(("ZREMRANGEBYLEX", key, min, max))


def _kind(byscore: bool, bylex: bool, rev: bool, limit: Limit | None) -> Arguments:
    at_most_one(byscore=byscore, bylex=bylex)
    if limit is not None and not (byscore or bylex):
        raise ValueError("limit needs byscore or bylex; ranks are given by start and stop")
    return (*flag("BYSCORE", byscore), *flag("BYLEX", bylex), *flag("REV", rev), *limited(limit))
