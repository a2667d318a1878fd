"""Commands on members of sorted sets, one set or several; waiting ones included.

Ranges stand in ``sorted_set_ranges``. ``timeout_s`` is in seconds; 0 waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import (
    at_most_one,
    flag,
    flat_swapped,
    only_with,
    option,
    optional,
    several,
)
from penstock.client.commands.base import Aggregate, Coming, Key, Runner, Value, ValueT
from penstock.client.transports.base import Arguments


class SortedSets(Runner):
    """Commands on members of sorted sets."""

    __slots__ = ()

    # ------------------------------------------------------------ members

    @overload
    def zadd(
        self,
        key: Key,
        mapping: Mapping[ValueT, float],
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
        ch: bool = False,
        incr: Literal[False] = False,
    ) -> Coming[int]: ...

    @overload
    def zadd(
        self,
        key: Key,
        mapping: Mapping[ValueT, float],
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
        ch: bool = False,
        incr: Literal[True],
    ) -> Coming[float | None]: ...

    def zadd(
        self,
        key: Key,
        mapping: Mapping[ValueT, float],
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
        ch: bool = False,
        incr: bool = False,
    ) -> Coming[Any]:
        """Give members scores; how many are new (``ch``: or changed), with ``incr`` the one new score."""
        if incr and len(mapping) != 1:
            raise ValueError(f"incr takes one member, not {len(mapping)}")
        options = _adding(nx, xx, gt, lt, ch, incr) if nx or xx or gt or lt or ch or incr else ()
        words = ("ZADD", key, *options, *flat_swapped("mapping", mapping))
        return self._call(words, to.optional_float if incr else None)

    def zincrby(self, key: Key, increment: float, member: Value) -> Coming[float]:
        """Add to a member's score; the score then."""
        return self._call(("ZINCRBY", key, increment, member), float)

    def zrem(self, key: Key, member: Value, *members: Value) -> Coming[int]:
        """Remove members; how many there were."""
        return self._call(("ZREM", key, member, *members))

    def zcard(self, key: Key) -> Coming[int]:
        """How many members a sorted set has."""
        return self._call(("ZCARD", key))

    def zscore(self, key: Key, member: Value) -> Coming[float | None]:
        """Score of one member."""
        return self._call(("ZSCORE", key, member), to.optional_float)

    def zmscore(self, key: Key, member: Value, *members: Value) -> Coming[list[float | None]]:
        """Scores of several members."""
        return self._call(("ZMSCORE", key, member, *members), to.optional_floats)

    @overload
    def zrandmember(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def zrandmember(
        self, key: Key, count: int, *, withscores: Literal[False] = False
    ) -> Coming[list[bytes]]: ...

    @overload
    def zrandmember(
        self, key: Key, count: int, *, withscores: Literal[True]
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zrandmember(self, key: Key, count: int | None = None, *, withscores: bool = False) -> Coming[Any]:
        """A member picked by chance, or several; a negative count allows repetitions."""
        only_with("count", count, withscores=withscores)
        words = ("ZRANDMEMBER", key, *optional(count), *flag("WITHSCORES", withscores))
        return self._call(words, to.scored if withscores else None)

    def zscan(
        self, key: Key, cursor: int = 0, *, match: Value | None = None, count: int | None = None
    ) -> Coming[tuple[int, list[tuple[bytes, float]]]]:
        """One step through a sorted set: the next cursor (0: done) and some members with their scores."""
        words = ("ZSCAN", key, cursor, *option("MATCH", match), *option("COUNT", count))
        return self._call(words, to.scored_page)

    # ------------------------------------------------------------ taking

    def zpopmin(self, key: Key, count: int | None = None) -> Coming[list[tuple[bytes, float]]]:
        """Take out the lowest-scoring members, one unless ``count`` says more."""
        return self._call(("ZPOPMIN", key, *optional(count)), to.scored)

    def zpopmax(self, key: Key, count: int | None = None) -> Coming[list[tuple[bytes, float]]]:
        """Take out the highest-scoring members, one unless ``count`` says more."""
        return self._call(("ZPOPMAX", key, *optional(count)), to.scored)

    def zmpop(
        self, key: Key, *keys: Key, where: Literal["MIN", "MAX"], count: int | None = None
    ) -> Coming[tuple[bytes, list[tuple[bytes, float]]] | None]:
        """Take members off the first set that is not empty: its key and them with their scores."""
        words = ("ZMPOP", 1 + len(keys), key, *keys, where, *option("COUNT", count))
        return self._call(words, to.popped_scored)

    def bzpopmin(self, key: Key, *keys: Key, timeout_s: float) -> Coming[tuple[bytes, bytes, float] | None]:
        """Take the lowest-scoring member of the first set that has one, or wait: key, member, score."""
        return self._call(("BZPOPMIN", key, *keys, timeout_s), to.popped_member)

    def bzpopmax(self, key: Key, *keys: Key, timeout_s: float) -> Coming[tuple[bytes, bytes, float] | None]:
        """Take the highest-scoring member of the first set that has one, or wait: key, member, score."""
        return self._call(("BZPOPMAX", key, *keys, timeout_s), to.popped_member)

    def bzmpop(
        self,
        key: Key,
        *keys: Key,
        timeout_s: float,
        where: Literal["MIN", "MAX"],
        count: int | None = None,
    ) -> Coming[tuple[bytes, list[tuple[bytes, float]]] | None]:
        """zmpop that waits for a member."""
        words = ("BZMPOP", timeout_s, 1 + len(keys), key, *keys, where, *option("COUNT", count))
        return self._call(words, to.popped_scored)

    # ------------------------------------------------------------ several sets

    @overload
    def zdiff(self, key: Key, *keys: Key, withscores: Literal[False] = False) -> Coming[list[bytes]]: ...

    @overload
    def zdiff(self, key: Key, *keys: Key, withscores: Literal[True]) -> Coming[list[tuple[bytes, float]]]: ...

    def zdiff(self, key: Key, *keys: Key, withscores: bool = False) -> Coming[Any]:
        """Members of the first set that no other has."""
        words = ("ZDIFF", 1 + len(keys), key, *keys, *flag("WITHSCORES", withscores))
        return self._call(words, to.scored if withscores else None)

    @overload
    def zinter(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def zinter(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: Literal[True],
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zinter(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: bool = False,
    ) -> Coming[Any]:
        """Members that all the sets share, scores combined."""
        words = ("ZINTER", *_combined((key, *keys), weights, aggregate), *flag("WITHSCORES", withscores))
        return self._call(words, to.scored if withscores else None)

    @overload
    def zunion(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: Literal[False] = False,
    ) -> Coming[list[bytes]]: ...

    @overload
    def zunion(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: Literal[True],
    ) -> Coming[list[tuple[bytes, float]]]: ...

    def zunion(
        self,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
        withscores: bool = False,
    ) -> Coming[Any]:
        """Members that any of the sets has, scores combined."""
        words = ("ZUNION", *_combined((key, *keys), weights, aggregate), *flag("WITHSCORES", withscores))
        return self._call(words, to.scored if withscores else None)

    def zintercard(self, key: Key, *keys: Key, limit: int | None = None) -> Coming[int]:
        """How many members all the sets share, counted up to ``limit``."""
        return self._call(("ZINTERCARD", 1 + len(keys), key, *keys, *option("LIMIT", limit)))

    def zdiffstore(self, destination: Key, key: Key, *keys: Key) -> Coming[int]:
        """Store what zdiff would answer; how many members that is."""
        return self._call(("ZDIFFSTORE", destination, 1 + len(keys), key, *keys))

    def zinterstore(
        self,
        destination: Key,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
    ) -> Coming[int]:
        """Store what zinter would answer; how many members that is."""
        return self._call(("ZINTERSTORE", destination, *_combined((key, *keys), weights, aggregate)))

    def zunionstore(
        self,
        destination: Key,
        key: Key,
        *keys: Key,
        weights: Sequence[float] | None = None,
        aggregate: Aggregate | None = None,
    ) -> Coming[int]:
        """Store what zunion would answer; how many members that is."""
        return self._call(("ZUNIONSTORE", destination, *_combined((key, *keys), weights, aggregate)))


def _adding(nx: bool, xx: bool, gt: bool, lt: bool, ch: bool, incr: bool) -> Arguments:
    at_most_one(nx=nx, xx=xx)
    at_most_one(nx=nx, gt=gt, lt=lt)
    return (
        *flag("NX", nx),
        *flag("XX", xx),
        *flag("GT", gt),
        *flag("LT", lt),
        *flag("CH", ch),
        *flag("INCR", incr),
    )


def _combined(
    keys: tuple[Key, ...], weights: Sequence[float] | None, aggregate: Aggregate | None
) -> Arguments:
    if weights is None:
        return (len(keys), *keys, *option("AGGREGATE", aggregate))
    if len(several("weights", weights)) != len(keys):
        raise ValueError(f"weights must have one number for each of {len(keys)} keys, not {len(weights)}")
    return (len(keys), *keys, "WEIGHTS", *weights, *option("AGGREGATE", aggregate))
