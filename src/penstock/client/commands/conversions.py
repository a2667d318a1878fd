"""From replies to Python values: the same value for RESP2 and RESP3, for bytes and decoded text.

=================  ==============================  ==========================================
what differs       RESP2                           RESP3
=================  ==============================  ==========================================
maps               flat array                      map (``dict``)
pairs              flat array, sometimes nested    array of two-element arrays, or a map
sets               array                           set (which the parser makes a list)
doubles            text                            double (``float``)
=================  ==============================  ==========================================

User data (keys, values, members) stays as the connection reads it: bytes, or text when it
decodes. Words of the protocol itself (types, names of settings and statistics) become ``str``
always; so does text for people. Binary data (DUMP) becomes ``bytes`` always.

Rules: pure functions of one reply, each of which also takes what the other protocol would
have sent. They know shapes, not commands: what only one family needs stands in
``server_conversions`` and ``stream_conversions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Convert: TypeAlias = Callable[[Any], Any]

# ---------------------------------------------------------------- single values


def text(reply: Any) -> str:
    """A word of the protocol, or text for people."""
    return reply.decode("utf-8", "surrogateescape") if isinstance(reply, bytes) else str(reply)


def binary(reply: Any) -> bytes:
    """Data that is not text, even if the connection decodes."""
    return reply.encode("utf-8", "surrogateescape") if isinstance(reply, str) else bytes(reply)


def optional(convert: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """The same conversion, where the reply may be nothing."""

    def converted(reply: Any) -> T | None:
        return None if reply is None else convert(reply)

    return converted


def each(convert: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    """The same conversion for every item of a list."""

    def converted(reply: Any) -> list[T]:
        return [convert(item) for item in reply]

    return converted


optional_text = optional(text)
optional_binary = optional(binary)
optional_float = optional(float)
texts = each(text)
booleans = each(bool)
optional_floats = each(optional_float)


def figure(reply: Any) -> int | float | str:
    """A number that RESP2 sends as text, or text that is no number."""
    if isinstance(reply, int | float):
        return reply
    word = text(reply)
    try:
        return float(word)
    except ValueError:
        return word


# ---------------------------------------------------------------- pairs and maps


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """A map, nested pairs, or a flat array; nothing at all is empty."""
    if not reply:
        return []
    if isinstance(reply, Mapping):
        return list(reply.items())
    if isinstance(reply[0], list | tuple):
        return [(first, second) for first, second in reply]
    return flat_pairs(reply)


def flat_pairs(reply: Any) -> list[tuple[Any, Any]]:
    """A map or a flat array, whatever its items are."""
    if isinstance(reply, Mapping):
        return list(reply.items())
    items = iter(reply or ())
    return list(zip(items, items, strict=True))


def mapping(reply: Any) -> dict[Any, Any]:
    """A map with keys and values as they came."""
    return reply if isinstance(reply, dict) else dict(flat_pairs(reply))


def scored(reply: Any) -> list[tuple[Any, float]]:
    """Members with their scores."""
    return [(member, float(score)) for member, score in pairs(reply)]


def record(fields: Mapping[str, Convert], other: Convert | None = None) -> Callable[[Any], dict[str, Any]]:
    """A map whose keys are words of the protocol: ``fields`` convert values by name, ``other`` the rest."""

    def converted(reply: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in flat_pairs(reply):
            name = text(key)
            convert = fields.get(name, other)
            values[name] = value if convert is None or value is None else convert(value)
        return values

    return converted


def text_map(reply: Any) -> dict[str, str]:
    """A map of words, such as settings."""
    return {text(key): text(value) for key, value in flat_pairs(reply)}


def words(reply: Any) -> frozenset[str]:
    """A set of words of the protocol, such as flags."""
    return frozenset(map(text, reply))


# ---------------------------------------------------------------- pages of scans


def page(reply: Any) -> tuple[int, list[Any]]:
    """Cursor and items of SCAN and SSCAN."""
    cursor, items = reply
    return int(cursor), list(items)


def mapping_page(reply: Any) -> tuple[int, dict[Any, Any]]:
    """Cursor and fields of HSCAN."""
    cursor, items = reply
    return int(cursor), mapping(items)


def scored_page(reply: Any) -> tuple[int, list[tuple[Any, float]]]:
    """Cursor and members of ZSCAN."""
    cursor, items = reply
    return int(cursor), scored(items)


# ---------------------------------------------------------------- what was popped


def optional_pair(reply: Any) -> tuple[Any, Any] | None:
    """BLPOP: the key and the element."""
    return None if reply is None else (reply[0], reply[1])


def popped(reply: Any) -> tuple[Any, list[Any]] | None:
    """LMPOP: the key and its elements."""
    return None if reply is None else (reply[0], list(reply[1]))


def popped_member(reply: Any) -> tuple[Any, Any, float] | None:
    """BZPOPMIN: the key, the member and its score."""
    return None if reply is None else (reply[0], reply[1], float(reply[2]))


def popped_scored(reply: Any) -> tuple[Any, list[tuple[Any, float]]] | None:
    """ZMPOP: the key and its members with their scores."""
    return None if reply is None else (reply[0], scored(reply[1]))


def ranked(reply: Any) -> tuple[int, float] | None:
    """ZRANK WITHSCORE."""
    return None if reply is None else (reply[0], float(reply[1]))


# ---------------------------------------------------------------- longest common subsequence


class LcsMatch(NamedTuple):
    """A run that two strings share: where it begins and ends in each."""

    first: tuple[int, int]
    second: tuple[int, int]
    #: None unless asked for
    length: int | None


class Lcs(NamedTuple):
    """The runs that make up the longest common subsequence, the last one first."""

    length: int
    matches: list[LcsMatch]


def lcs_matches(reply: Any) -> Lcs:
    fields = record({})(reply)
    return Lcs(
        fields["len"],
        [
            LcsMatch(tuple(match[0]), tuple(match[1]), match[2] if len(match) > 2 else None)
            for match in fields["matches"]
        ],
    )


# ---------------------------------------------------------------- places


class GeoMatch(NamedTuple):
    """A place that was found; what was not asked for is None."""

    member: bytes
    distance: float | None
    hash: int | None
    #: longitude, latitude
    position: tuple[float, float] | None


def position(reply: Any) -> tuple[float, float] | None:
    return None if reply is None else (float(reply[0]), float(reply[1]))


positions = each(position)


def geo_matches(*, withdist: bool, withhash: bool, withcoord: bool) -> Callable[[Any], list[GeoMatch]]:
    """How to read GEOSEARCH: what was asked for comes in this order, whatever the order of the options."""
    return partial(_geo_matches, (withdist, withhash, withcoord))


def _geo_matches(asked: tuple[bool, bool, bool], reply: Any) -> list[GeoMatch]:
    return [_geo_match(asked, item[0], iter(item[1:])) for item in reply]


def _geo_match(asked: tuple[bool, bool, bool], member: Any, rest: Iterable[Any]) -> GeoMatch:
    values = iter(rest)
    distance, hash_, place = (next(values) if is_asked else None for is_asked in asked)
    return GeoMatch(member, optional_float(distance), hash_, position(place))
