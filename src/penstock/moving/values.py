"""A value as elements, and the commands that make it again: strings, lists, sets, sorted sets, hashes.

======  ======================================  =====================
type    element                                 made again by
======  ======================================  =====================
string  value                                   SET
list    element                                 RPUSH
set     member                                  SADD
zset    member, score                           ZADD
hash    field, value, deadline in ms (0: none)  HSET, HPEXPIREAT
======  ======================================  =====================

Bitmaps, HyperLogLogs and geo sets are one of these. No payload of DUMP is used: servers of different makes
and versions do not understand each other's, and a large value should come in pieces.

Rules: a value of up to :data:`SMALL` elements is read at once, with others of its page; a larger one in
pieces (:func:`pieces`). A value that is gone has no elements. Streams are not known here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, TypeAlias

from penstock.client.client import Client
from penstock.client.pipelines import Pipeline
from penstock.errors import CommandError

#: As the table says: bytes, scores and deadlines.
Element: TypeAlias = tuple[Any, ...]
Command: TypeAlias = tuple[Any, ...]

SMALL: Final = 1_000
#: Elements that one command adds, …
_PIECE: Final = 1_000
#: … and about how many bytes values of a page may have that are read at once.
PAGE_BYTES: Final = 8 << 20

_COUNTING: Final = {"string": "STRLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "hash": "HLEN"}
KINDS: Final = frozenset(_COUNTING)


def ask_size(pipe: Pipeline, kind: str, key: bytes) -> None:
    """Bytes of a string, elements of anything else."""
    pipe.execute(_COUNTING[kind], key)


# -------------------------------------------------------------------------- reading


async def read_small(
    client: Client, wanted: Sequence[tuple[str, bytes]], *, has_field_deadlines: bool
) -> list[list[Element]]:
    """Elements of several (type, key) at once. One whose type has changed meanwhile has none."""
    pipe = client.pipeline()
    for kind, key in wanted:
        _ask_all(pipe, kind, key)
    replies = await pipe.try_all()
    for reply in replies:
        if isinstance(reply, Exception) and not isinstance(reply, CommandError):
            raise reply
    values = [_elements(kind, reply) for (kind, _), reply in zip(wanted, replies, strict=True)]
    hashes = [place for place, (kind, _) in enumerate(wanted) if kind == "hash" and values[place]]
    if has_field_deadlines and hashes:
        parts = [(wanted[place][1], values[place]) for place in hashes]
        for place, dated in zip(hashes, await _dated(client, parts), strict=True):
            values[place] = dated
    return values


def _ask_all(pipe: Pipeline, kind: str, key: bytes) -> None:
    match kind:
        case "string":
            pipe.get(key)
        case "list":
            pipe.lrange(key, 0, -1)
        case "set":
            pipe.smembers(key)
        case "zset":
            pipe.zrange(key, 0, -1, withscores=True)
        case "hash":
            pipe.hgetall(key)


def _elements(kind: str, reply: Any) -> list[Element]:
    if reply is None or isinstance(reply, CommandError):
        return []
    match kind:
        case "string":
            return [(reply,)]
        case "zset":
            return list(map(tuple, reply))
        case "hash":
            return [(field, value, 0) for field, value in reply.items()]
    return [(element,) for element in reply]


async def _dated(client: Client, parts: Sequence[tuple[bytes, list[Element]]]) -> list[list[Element]]:
    """Fields of hashes with their deadlines."""
    pipe = client.pipeline()
    for key, elements in parts:
        pipe.hpexpiretime(key, *(element[0] for element in elements))
    replies = await pipe.all()
    return [
        [
            (field, value, max(deadline_ms, 0))
            for (field, value, _), deadline_ms in zip(elements, deadlines, strict=True)
            if deadline_ms != -2  # gone meanwhile
        ]
        for (_, elements), deadlines in zip(parts, replies, strict=True)
    ]


async def pieces(
    client: Client, kind: str, key: bytes, *, has_field_deadlines: bool
) -> AsyncIterator[list[Element]]:
    """Elements of one value, some at a time; a set, a sorted set or a hash may name one twice."""
    match kind:
        case "list":
            start = 0
            while found := await client.lrange(key, start, start + _PIECE - 1):
                yield [(element,) for element in found]
                start += len(found)
        case "set":
            async for part in _gathered(client.sscan_iter(key, count=_PIECE)):
                yield [(member,) for member in part]
        case "zset":
            async for part in _gathered(client.zscan_iter(key, count=_PIECE)):
                yield part
        case "hash":
            async for part in _gathered(client.hscan_iter(key, count=_PIECE)):
                fields = [(field, value, 0) for field, value in part]
                yield (await _dated(client, [(key, fields)]))[0] if has_field_deadlines else fields
        case "string":
            value = await client.get(key)
            if value is not None:
                yield [(value,)]


async def _gathered(items: AsyncIterator[Any]) -> AsyncIterator[list[Any]]:
    part = []
    async for item in items:
        part.append(item)
        if len(part) >= _PIECE:
            yield part
            part = []
    if part:
        yield part


# -------------------------------------------------------------------------- writing


def commands_for(kind: str, key: bytes, elements: Sequence[Element]) -> Iterable[Command]:
    """What adds elements to a key."""
    match kind:
        case "string":
            yield ("SET", key, elements[0][0])
        case "list":
            yield ("RPUSH", key, *(element for (element,) in elements))
        case "set":
            yield ("SADD", key, *(member for (member,) in elements))
        case "zset":
            yield ("ZADD", key, *(word for member, score in elements for word in (_score(score), member)))
        case "hash":
            yield ("HSET", key, *(word for field, value, _ in elements for word in (field, value)))
            for field, _, deadline_ms in elements:
                if deadline_ms:
                    yield ("HPEXPIREAT", key, deadline_ms, "FIELDS", 1, field)


def _score(score: float) -> str:
    """As many digits as make the same number again."""
    return repr(score) if math.isfinite(score) else f"{score:+}"


def without_deadlines(elements: Sequence[Element]) -> list[Element]:
    """Fields of a hash as they are in a place where fields do not expire."""
    return [(field, value, 0) for field, value, _ in elements]
