"""Unions, intersections and differences of sorted sets. Plain sets take part, each member scoring 1.

===========  ===================  =====================================================
operation    options              score of a member in the result
===========  ===================  =====================================================
union        WEIGHTS, AGGREGATE   scores × weights of all sets that have it, aggregated
intersection WEIGHTS, AGGREGATE   likewise; all sets have it
difference   none                 that of the first set
===========  ===================  =====================================================

What is not a number on the way (``inf * 0``, ``inf - inf``) counts as 0. Floating-point
sums depend on their order: sets are taken from the smallest to the largest, as Redis
takes them. Results are listed by score, then member.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.engine.commands.arguments import floating, integer, positive, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.sorted_sets import store_result
from penstock.engine.datatypes.set import Set
from penstock.engine.datatypes.sorted_set import Entry, SortedSet
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import SET
from penstock.errors import CommandError
from penstock.protocol.replies import Pairs, Reply

Aggregate: TypeAlias = Callable[[float, float], float]


# ---------------------------------------------------------------------------- sources


class _Source:
    """One input: a sorted set, a set, or a key that is not there."""

    __slots__ = ("_held", "size", "weight")

    def __init__(self, ks: Keyspace, key: bytes) -> None:
        held: SortedSet | Set | None
        if ks.type_of(key) == SET:
            held = ks.load(key, Set)
        else:
            held = ks.load(key, SortedSet)
        self._held = held
        self.size = 0 if held is None else held.size
        self.weight = 1.0

    def entries(self) -> list[Entry]:
        held = self._held
        if held is None:
            return []
        if isinstance(held, Set):
            return [(member, 1.0) for member in held.names()]
        return held.entries()

    def score(self, member: bytes) -> float | None:
        held = self._held
        if held is None:
            return None
        if isinstance(held, Set):
            return 1.0 if member in held else None
        return held.score(member)


# -------------------------------------------------------------------------- aggregates


def _sum(one: float, other: float) -> float:
    total = one + other
    return 0.0 if math.isnan(total) else total


def _min(one: float, other: float) -> float:
    return other if other < one else one


def _max(one: float, other: float) -> float:
    return other if other > one else one


_AGGREGATES: Final[dict[bytes, Aggregate]] = {b"SUM": _sum, b"MIN": _min, b"MAX": _max}


def _weighted(score: float, weight: float) -> float:
    product = score * weight
    return 0.0 if math.isnan(product) else product


# -------------------------------------------------------------------------- operations


def _union(sources: list[_Source], aggregate: Aggregate) -> list[Entry]:
    result: dict[bytes, float] = {}
    for source in sorted(sources, key=_size):
        weight = source.weight
        for member, score in source.entries():
            score = _weighted(score, weight)
            old = result.get(member)
            result[member] = score if old is None else aggregate(old, score)
    return list(result.items())


def _intersection(sources: list[_Source], aggregate: Aggregate) -> Iterator[Entry]:
    first, *others = sorted(sources, key=_size)
    for member, score in first.entries():
        score = _weighted(score, first.weight)
        for other in others:
            found = other.score(member)
            if found is None:
                break
            # Here a product that is not a number meets the aggregate as it is, as in Redis.
            score = aggregate(score, found * other.weight)
        else:
            yield member, score


def _difference(sources: list[_Source], _: Aggregate) -> Iterator[Entry]:
    first, *others = sources
    others = [other for other in others if other.size]
    return (entry for entry in first.entries() if all(other.score(entry[0]) is None for other in others))


def _size(source: _Source) -> int:
    return source.size


class _Operation(NamedTuple):
    run: Callable[[list[_Source], Aggregate], Iterator[Entry] | list[Entry]]
    has_weights: bool


_UNION: Final = _Operation(_union, True)
_INTERSECTION: Final = _Operation(_intersection, True)
_DIFFERENCE: Final = _Operation(_difference, False)


# ----------------------------------------------------------------------------- parsing


def _read_sources(s: Session, argv: Argv, numkeys_at: int) -> tuple[list[_Source], list[bytes]]:
    """``numkeys key [key …]`` from a position on, and the arguments that are left."""
    numkeys = integer(argv[numkeys_at])
    if numkeys < 1:
        name = argv[0].decode(errors="replace").lower()
        raise CommandError(f"ERR at least 1 input key is needed for '{name}' command")
    if numkeys > len(argv) - numkeys_at - 1:
        raise syntax_error()
    end = numkeys_at + 1 + numkeys
    return [_Source(s.ks, key) for key in argv[numkeys_at + 1 : end]], argv[end:]


def _run(s: Session, argv: Argv, numkeys_at: int, operation: _Operation) -> tuple[list[Entry], bool]:
    """The sorted result, and whether scores were asked for; ``numkeys_at`` 2 means that it is stored."""
    sources, rest = _read_sources(s, argv, numkeys_at)
    aggregate: Aggregate = _sum
    with_scores = False
    while rest:
        option = rest[0].upper()
        if option == b"WEIGHTS" and operation.has_weights and len(rest) > len(sources):
            for source, weight in zip(sources, rest[1:], strict=False):
                source.weight = floating(weight, "ERR weight value is not a float")
            rest = rest[1 + len(sources) :]
        elif option == b"AGGREGATE" and operation.has_weights and len(rest) > 1:
            name = rest[1].upper()
            if name not in _AGGREGATES:
                raise syntax_error()
            aggregate = _AGGREGATES[name]
            rest = rest[2:]
        elif option == b"WITHSCORES" and numkeys_at == 1:
            with_scores = True
            rest = rest[1:]
        else:
            raise syntax_error()
    return list(operation.run(sources, aggregate)), with_scores


def _by_score(entry: Entry) -> tuple[float, bytes]:
    return entry[1], entry[0]


def _answer(s: Session, argv: Argv, operation: _Operation) -> Reply:
    entries, with_scores = _run(s, argv, 1, operation)
    entries.sort(key=_by_score)
    return Pairs(entries) if with_scores else [member for member, _ in entries]


def _store(s: Session, argv: Argv, operation: _Operation, event: bytes) -> int:
    entries, _ = _run(s, argv, 2, operation)
    return store_result(s.ks, argv[1], entries, event)


# ---------------------------------------------------------------------------- commands


@command("ZUNION")
def zunion(s: Session, argv: Argv) -> Reply:
    return _answer(s, argv, _UNION)


@command("ZINTER")
def zinter(s: Session, argv: Argv) -> Reply:
    return _answer(s, argv, _INTERSECTION)


@command("ZDIFF")
def zdiff(s: Session, argv: Argv) -> Reply:
    return _answer(s, argv, _DIFFERENCE)


@command("ZUNIONSTORE")
def zunionstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv, _UNION, b"zunionstore")


@command("ZINTERSTORE")
def zinterstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv, _INTERSECTION, b"zinterstore")


@command("ZDIFFSTORE")
def zdiffstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv, _DIFFERENCE, b"zdiffstore")


@command("ZINTERCARD")
def zintercard(s: Session, argv: Argv) -> Reply:
    sources, rest = _read_sources(s, argv, 1)
    limit = 0
    while rest:
        if rest[0].upper() != b"LIMIT" or len(rest) == 1:
            raise syntax_error()
        limit = positive(rest[1], "ERR LIMIT can't be negative")
        rest = rest[2:]
    count = 0
    for _ in _intersection(sources, _sum):
        count += 1
        if count == limit:
            break
    return count
