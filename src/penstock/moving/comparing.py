"""Are two places equal? Reads everything in both and names each key that differs.

    async for count, difference in compare(source, target, …): …

Equal means: the same type, the same deadline, the same elements (in the same order where there is one); of
a stream the same messages at the same offsets and times, and the same groups, producers and policy.

Large values are compared by a sum over hashes of their elements, so that their order in a SCAN does not
matter. A key whose time is up meanwhile is no difference, nor is a message that a policy has removed in one
of the places.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from xxhash import xxh3_128_intdigest

from penstock.errors import CommandError
from penstock.moving import journal, values
from penstock.moving.keys import Key, Place, owner_of
from penstock.moving.report import Problem
from penstock.moving.streams import Row, export, rows
from penstock.streams.commands import StreamCommands
from penstock.streams.repeating import repeat

#: Keys that were compared, and a difference if there is one.
Step: TypeAlias = tuple[int, Problem | None]

_ORDERED: Final = ("list", "string")


async def compare(
    source: Place, target: Place, *, match: str | None, known: Collection[bytes], is_whole: bool
) -> AsyncIterator[Step]:
    """Compare the keys of the source; ``is_whole``: the destination must have no others.

    ``known`` are keys that are known to differ: of streams among them only messages count.
    """
    async for names in source.pages(match):
        own = await _own_keys(source, names)
        there = {key.name: key for key in await target.look(own)}
        keys = await source.look(own)
        async for step in _compare_page(source, target, keys, there, known):
            yield step
    if is_whole:
        async for names in target.pages(match):
            for name in await _only_there(source, target, names, known):
                yield 0, Problem(name, "is only in the destination")


async def _own_keys(place: Place, names: Sequence[bytes]) -> list[bytes]:
    """Without side keys of streams and notes of a migration."""
    names = [name for name in names if name != journal.KEY]
    if place.has_native_streams:
        return names
    owners = {name: owner for name in names if (owner := owner_of(name)) is not None}
    streams = await place.own_streams(list(set(owners.values()))) if owners else set()
    return [name for name in names if owners.get(name) not in streams]


async def _only_there(
    source: Place, target: Place, names: Sequence[bytes], known: Collection[bytes]
) -> list[bytes]:
    own = [name for name in await _own_keys(target, names) if name not in known]
    here = {key.name for key in await source.look(own)}
    lacking = [name for name in own if name not in here]
    return [key.name for key in await target.look(lacking)]  # those whose time is up are gone by now


async def _compare_page(
    source: Place, target: Place, keys: Sequence[Key], there: dict[bytes, Key], known: Collection[bytes]
) -> AsyncIterator[Step]:
    small = []
    for key in keys:
        other = there.get(key.name)
        if key.name in known and (other is None or key.kind != "stream"):
            continue
        if other is None:
            is_gone = not await source.look([key.name])
            yield 1, None if is_gone else Problem(key.name, "is not in the destination")
        elif (reason := _differs_at_once(key, other)) is not None:
            yield 1, Problem(key.name, reason)
        elif key.kind == "stream":
            reason = await _stream_difference(source, target, key.name, key.name in known)
            yield 1, None if reason is None else Problem(key.name, reason)
        elif key.kind not in values.KINDS:
            yield 1, None  # a type that is only carried
        elif key.size > values.SMALL and key.kind != "string":
            is_equal = await _digest(source, key) == await _digest(target, key)
            yield 1, None if is_equal else Problem(key.name, "has other elements")
        else:
            small.append(key)
    for problem in await _small_differences(source, target, small):
        yield 1, problem


def _differs_at_once(key: Key, other: Key) -> str | None:
    if key.kind != other.kind:
        return f"is a {key.kind}, in the destination a {other.kind}"
    if key.deadline_ms != other.deadline_ms:
        return f"expires at {key.deadline_ms or 'no time'}, there at {other.deadline_ms or 'no time'}"
    if key.size != other.size:
        return f"has a size of {key.size:,}, in the destination of {other.size:,}"
    return None


async def _small_differences(source: Place, target: Place, keys: Sequence[Key]) -> list[Problem | None]:
    wanted = [(key.kind, key.name) for key in keys]
    ours, theirs = [
        await values.read_small(place.client, wanted, has_field_deadlines=place.has_field_deadlines)
        for place in (source, target)
    ]
    return [
        None
        if _canonical(key.kind, one) == _canonical(key.kind, other)
        else Problem(key.name, "has another value")
        for key, one, other in zip(keys, ours, theirs, strict=True)
    ]


def _canonical(kind: str, elements: Sequence[values.Element]) -> Sequence[values.Element]:
    return elements if kind in _ORDERED else sorted(elements)


async def _digest(place: Place, key: Key) -> int:
    """The same for the same elements."""
    total = count = 0
    seen: set[int] = set()
    async for part in values.pieces(
        place.client, key.kind, key.name, has_field_deadlines=place.has_field_deadlines
    ):
        for element in part:
            count += 1
            position = count if key.kind in _ORDERED else 0
            digest = xxh3_128_intdigest(msgspec.msgpack.encode((position, *element)))
            if digest not in seen:  # a SCAN may name one twice
                seen.add(digest)
                total += digest
    return total


async def _stream_difference(source: Place, target: Place, key: bytes, only_messages: bool) -> str | None:
    try:
        ours = await export(source.streams, key)
    except CommandError:
        return None  # a stream of Redis itself, which is only carried
    theirs = await export(target.streams, key)
    if ours is None or theirs is None:
        return "is not in the destination" if ours is not None else None
    is_thinned = await _is_thinned(source.streams, key)
    if ours.last != theirs.last or (ours.first != theirs.first and not is_thinned):
        return f"goes from {ours.first} to {ours.last}, there from {theirs.first} to {theirs.last}"
    if not only_messages and ours.words != theirs.words:
        return "has other groups, producers or policies"
    return await _message_difference(
        rows(source.streams, key, ours.first, ours.last),
        rows(target.streams, key, theirs.first, theirs.last),
        is_thinned,
    )


async def _is_thinned(commands: StreamCommands, key: bytes) -> bool:
    """Whether messages go by themselves: then one place may have some of which the other got rid already."""
    policy: Any = await repeat(commands, "TPOLICY", key)
    limits = [policy[name] for name in ("retain-ms", "retain-count", "retain-bytes")]
    return any(map(int, limits)) or policy["compact"] == b"yes"


async def _message_difference(
    ours: AsyncIterator[Row], theirs: AsyncIterator[Row], is_thinned: bool
) -> str | None:
    one, other = await anext(ours, None), await anext(theirs, None)
    while one is not None or other is not None:
        if one == other:
            one, other = await anext(ours, None), await anext(theirs, None)
            continue
        is_lacking = other is None or (one is not None and one[0] < other[0])
        is_same_offset = one is not None and other is not None and one[0] == other[0]
        if is_same_offset or not is_thinned:
            return f"has another message at {min(row[0] for row in (one, other) if row is not None)}"
        if is_lacking:
            one = await anext(ours, None)
        else:
            other = await anext(theirs, None)
    return None
