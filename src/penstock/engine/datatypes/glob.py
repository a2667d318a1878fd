"""Redis's glob patterns, as KEYS, SCAN MATCH and PSUBSCRIBE understand them.

===========  ==============================================================
``*``        any bytes, also none
``?``        any one byte
``[abc]``    one of these bytes; ``-`` makes a range, in either direction
``[^abc]``   any one byte but these
``\\x``       the byte ``x`` itself, inside brackets too
===========  ==============================================================

Corners where Redis differs from other globs, all followed here:

1. A bracket that is never closed ends with the pattern: ``[ab`` is ``[ab]``.
2. ``]`` always closes: ``[]`` matches nothing and ``[^]`` any one byte. Only as the
   end of a range is it taken as a byte: ``[a-]`` is an unclosed range.
3. Bytes are signed in ranges: ``[\\x01-\\xff]`` is the range from -1 to 1.
4. ``*`` alone matches the empty string, two or more stars alone do not.

A pattern costs at most (its length) × (the string's length): between two stars stands
a chunk of fixed length, the leftmost place where a chunk fits is as good as any later
one, so nothing before it is ever tried again. Knows nothing of keys or channels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

Matcher: TypeAlias = Callable[[bytes], bool]

#: One place of a chunk: a byte, or the set of bytes that fit there.
_Place: TypeAlias = int | frozenset[int]

_STAR, _ANY, _OPEN, _CLOSE, _ESCAPE, _NOT, _RANGE = b"*?[]\\^-"
_EVERY_BYTE: Final = frozenset(range(256))
#: A longer pattern is compiled at each use: a few of them must not fill the cache with megabytes.
_CACHED_PATTERN_BYTES: Final = 1024


def matcher(pattern: bytes) -> Matcher:
    """The predicate that says whether a string matches ``pattern`` as a whole."""
    return _compile_cached(pattern) if len(pattern) <= _CACHED_PATTERN_BYTES else _compile(pattern)


def _compile(pattern: bytes) -> Matcher:
    chunks = _chunks(pattern)
    texts = [_leading_bytes(chunk) for chunk in chunks]
    if all(len(text) == len(chunk) for text, chunk in zip(texts, chunks, strict=True)):
        match texts:
            case [text]:
                return lambda string: string == text
            case [b"", b""]:
                return bool if len(pattern) > 1 else lambda string: True
            case [text, b""]:
                return lambda string: string.startswith(text)
            case [b"", text]:
                return lambda string: string.endswith(text)
            case [b"", text, b""]:
                return lambda string: text in string
    fits = re.compile(_expression(chunks), re.DOTALL).fullmatch
    return lambda string: fits(string) is not None


_compile_cached: Final = lru_cache(maxsize=512)(_compile)


def _expression(chunks: list[list[_Place]]) -> bytes:
    """A regular expression that never goes back beyond the last star it passed.

    Atomic groups make the leftmost place of each chunk final. Only the last chunk,
    bound to the end, is sought from there.
    """
    sources = [b"".join(map(_place_source, chunk)) for chunk in chunks]
    if len(sources) == 1:
        return sources[0]
    first, *middle, last = sources
    return first + b"".join(b"(?>.*?%b)" % source for source in middle) + b".*" + last


def _place_source(place: _Place) -> bytes:
    if isinstance(place, int):
        return re.escape(bytes((place,)))
    if place == _EVERY_BYTE:
        return b"."
    if not place:
        return b"(?!)"
    return b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted(place))


def _leading_bytes(chunk: Iterable[_Place]) -> bytes:
    text = bytearray()
    for place in chunk:
        if not isinstance(place, int):
            break
        text.append(place)
    return bytes(text)


def _chunks(pattern: bytes) -> list[list[_Place]]:
    """The pattern cut at its stars; neighbouring stars count as one."""
    chunks: list[list[_Place]] = [[]]
    at, end = 0, len(pattern)
    previous_star = False
    while at < end:
        byte = pattern[at]
        at += 1
        if byte == _STAR:
            if not previous_star:
                chunks.append([])
            previous_star = True
            continue
        previous_star = False
        place: _Place = byte
        if byte == _ANY:
            place = _EVERY_BYTE
        elif byte == _OPEN:
            place, at = _bracket(pattern, at)
        elif byte == _ESCAPE and at < end:
            place = pattern[at]
            at += 1
        chunks[-1].append(place)
    return chunks


def _bracket(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes a bracket admits, and where the pattern goes on; ``at`` is past its ``[``."""
    end = len(pattern)
    negated = at < end and pattern[at] == _NOT
    at += negated
    members: set[int] = set()
    while at < end:
        byte = pattern[at]
        if byte == _ESCAPE and at + 1 < end:
            members.add(pattern[at + 1])
            at += 2
        elif byte == _CLOSE:
            at += 1
            break
        elif at + 2 < end and pattern[at + 1] == _RANGE:
            members.update(_signed_range(byte, pattern[at + 2]))
            at += 3
        else:
            members.add(byte)
            at += 1
    return (_EVERY_BYTE - members if negated else frozenset(members)), at


def _signed_range(one: int, other: int) -> Iterable[int]:
    """The bytes between two, both included, counted as signed characters."""
    low, high = sorted((one - 256 if one > 127 else one, other - 256 if other > 127 else other))
    return (number & 0xFF for number in range(low, high + 1))
