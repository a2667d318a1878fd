"""The payload of DUMP and RESTORE: Redis's own, so that values travel in both directions.

==========  =====  ===================================================================
field       bytes  meaning
==========  =====  ===================================================================
type        1      which of the encodings below
content     n      elements in that encoding
version     2      of the encodings, little-endian; ours is 10, that of Redis 7.0
checksum    8      CRC-64 of all bytes before it, little-endian
==========  =====  ===================================================================

Encodings (a *length* and a *string* are defined below)
-------------------------------------------------------
====  ==============================================================  =======  ======
type  content                                                         written  read
====  ==============================================================  =======  ======
0     string                                                          yes      yes
1     list: length, strings                                           yes      yes
2     set: length, strings                                            yes      yes
3     sorted set: length, (string, score as text)…                    no       yes
4     hash: length, (string, string)…                                 yes      yes
5     sorted set: length, (string, double little-endian)…             yes      yes
10    list: one string holding a ziplist                              no       yes
11    set: one string holding an intset                               no       yes
12    sorted set: one string holding a ziplist                        no       yes
13    hash: one string holding a ziplist                              no       yes
14    list: length, strings holding ziplists                          no       yes
16    hash: one string holding a listpack                             no       yes
17    sorted set: one string holding a listpack                       no       yes
18    list: length, (1, element) or (2, string holding a listpack)…   no       yes
20    set: one string holding a listpack                              no       yes
200   stream of ours: head, length, (row, value)… as they are stored  yes      yes
====  ==============================================================  =======  ======

Length
------
====================  ===================================================
``00xxxxxx``          x
``01xxxxxx`` y        xy, high bits first
``10000000`` 4 bytes  big-endian
``10000001`` 8 bytes  big-endian
``110000xx``          not a length: a string in another form, see below
====================  ===================================================

A string is its length and its bytes, or ``0xC0``, ``0xC1``, ``0xC2`` and a signed integer of
1, 2 or 4 bytes, little-endian, standing for its text, or ``0xC3``, compressed length,
length, and LZF.

Rules: ``decode`` answers content that may be stored as it is (not empty, no name twice, no
score NaN) or raises :class:`DamagedError`. Bytes behind the content are ignored, as Redis
does. Knows nothing of keys and tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.engine.datatypes.crc64 import crc64
from penstock.engine.datatypes.numbers import parse_float, parse_int
from penstock.engine.datatypes.packed import (
    DamagedError,
    decompress_lzf,
    read_intset,
    read_listpack,
    read_ziplist,
)

__all__ = [
    "Content",
    "DamagedError",
    "HashContent",
    "ListContent",
    "SetContent",
    "SortedSetContent",
    "StreamContent",
    "StringContent",
    "decode",
    "encode",
    "is_intact",
]

T = TypeVar("T")

VERSION: Final = 10
#: Redis up to 8 and Valkey 9; a newer one may give known types another meaning.
_READABLE_VERSIONS: Final = frozenset((*range(1, 13), 80))
_FOOTER_BYTES: Final = 10

_DOUBLE: Final = struct.Struct("<d")
_INTEGER_WIDTHS: Final = {0xC0: 1, 0xC1: 2, 0xC2: 4}
_COMPRESSED: Final = 0xC3
#: Far from the numbers that Redis gives its own types.
_STREAM: Final = 200
#: The longest text of a 32-bit integer: a longer string is not tried as one.
_INTEGER_TEXT_BYTES: Final = 11


class StringContent(NamedTuple):
    value: bytes


class ListContent(NamedTuple):
    items: Sequence[bytes]


class SetContent(NamedTuple):
    members: Sequence[bytes]


class SortedSetContent(NamedTuple):
    entries: Sequence[tuple[bytes, float]]


class HashContent(NamedTuple):
    pairs: Sequence[tuple[bytes, bytes]]


class StreamContent(NamedTuple):
    #: number of messages, and the other fields of the head, as they are stored
    head: bytes
    #: what follows the version in each row, and the value
    rows: Sequence[tuple[bytes, bytes]]


Content: TypeAlias = StringContent | ListContent | SetContent | SortedSetContent | HashContent | StreamContent


# --- Writing ------------------------------------------------------------------------------------


def encode(content: Content) -> bytes:
    """The payload that stands for this content."""
    body = b"".join(_content_parts(content)) + VERSION.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def _content_parts(content: Content) -> Iterable[bytes]:
    match content:
        case StringContent(value):
            return [b"\x00", _string(value)]
        case ListContent(items):
            return [b"\x01", _length(len(items)), *map(_string, items)]
        case SetContent(members):
            return [b"\x02", _length(len(members)), *map(_string, members)]
        case HashContent(pairs):
            return [b"\x04", _length(len(pairs)), *(_string(text) for pair in pairs for text in pair)]
        case SortedSetContent(entries):
            rows = (_string(member) + _DOUBLE.pack(score) for member, score in entries)
            return [b"\x05", _length(len(entries)), *rows]
        case StreamContent(head, parts):
            texts = (_string(text) for part in parts for text in part)
            return [bytes((_STREAM,)), _string(head), _length(len(parts)), *texts]


def _length(number: int) -> bytes:
    if number < 1 << 6:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((0x40 | number >> 8, number & 0xFF))
    if number < 1 << 32:
        return b"\x80" + number.to_bytes(4, "big")
    return b"\x81" + number.to_bytes(8, "big")


def _string(text: bytes) -> bytes:
    if len(text) <= _INTEGER_TEXT_BYTES and (number := parse_int(text)) is not None:
        for code, width in _INTEGER_WIDTHS.items():
            if -(1 << width * 8 - 1) <= number < 1 << width * 8 - 1:
                return bytes((code,)) + number.to_bytes(width, "little", signed=True)
    return _length(len(text)) + text


# --- Reading ------------------------------------------------------------------------------------


def is_intact(payload: bytes) -> bool:
    """Whether version and checksum are in order, so that ``decode`` makes sense."""
    if len(payload) < _FOOTER_BYTES:
        return False
    version = int.from_bytes(payload[-10:-8], "little")
    return version in _READABLE_VERSIONS and crc64(payload[:-8]) == int.from_bytes(payload[-8:], "little")


def decode(payload: bytes) -> Content:
    """What an intact payload stands for."""
    source = _Source(payload[:-_FOOTER_BYTES])
    read = _READERS.get(source.byte())
    if read is None:
        raise DamagedError
    return read(source)


class _Source:
    """Takes bytes, lengths and strings from the front of a payload."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        start = self._at
        self._at = end = start + count
        if end > len(self._data):
            raise DamagedError
        return self._data[start:end]

    def byte(self) -> int:
        return self.take(1)[0]

    def length(self) -> int:
        return self._length_from(self.byte())

    def string(self) -> bytes:
        code = self.byte()
        if code < 0xC0:
            return self.take(self._length_from(code))
        if code == _COMPRESSED:
            compressed_bytes, size = self.length(), self.length()
            return decompress_lzf(self.take(compressed_bytes), size)
        width = _INTEGER_WIDTHS.get(code)
        if width is None:
            raise DamagedError
        return b"%d" % int.from_bytes(self.take(width), "little", signed=True)

    def score(self) -> float:
        """A double in binary."""
        return float(_DOUBLE.unpack(self.take(8))[0])

    def score_text(self) -> float:
        """A double as text behind its length; the three last lengths are signs for special values."""
        size = self.byte()
        if size >= 253:
            return {253: float("nan"), 254: float("inf"), 255: float("-inf")}[size]
        return _parse_score(self.take(size))

    def many(self, item: Callable[[], T]) -> list[T]:
        """A length and so many items. The length is not trusted: reading ends with the bytes."""
        return [item() for _ in range(self.length())]

    def _length_from(self, code: int) -> int:
        kind = code >> 6
        if kind == 0:
            return code
        if kind == 1:
            return (code & 0x3F) << 8 | self.byte()
        if code == 0x80:
            return int.from_bytes(self.take(4), "big")
        if code == 0x81:
            return int.from_bytes(self.take(8), "big")
        raise DamagedError


def _parse_score(text: bytes) -> float:
    score = parse_float(text)
    if score is None:
        raise DamagedError
    return score


def _list(items: list[bytes]) -> ListContent:
    if not items:
        raise DamagedError
    return ListContent(items)


def _set(members: list[bytes]) -> SetContent:
    _check_names(members)
    return SetContent(members)


def _hash(pairs: list[tuple[bytes, bytes]]) -> HashContent:
    _check_names([field for field, _ in pairs])
    return HashContent(pairs)


def _sorted_set(entries: list[tuple[bytes, float]]) -> SortedSetContent:
    _check_names([member for member, _ in entries])
    if any(isnan(score) for _, score in entries):
        raise DamagedError
    return SortedSetContent(entries)


def _check_names(names: list[bytes]) -> None:
    if not names or len(set(names)) != len(names):
        raise DamagedError


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(flat) % 2:
        raise DamagedError
    return list(zip(flat[::2], flat[1::2], strict=True))


def _entries(flat: list[bytes]) -> list[tuple[bytes, float]]:
    return [(member, _parse_score(text)) for member, text in _pairs(flat)]


def _quicklist_node(source: _Source) -> list[bytes]:
    container = source.length()
    if container not in (1, 2):
        raise DamagedError
    node = source.string()
    return [node] if container == 1 else read_listpack(node)


def _joined(nodes: Iterable[list[bytes]]) -> list[bytes]:
    return [item for node in nodes for item in node]


_READERS: Final[dict[int, Callable[[_Source], Content]]] = {
    _STREAM: lambda source: StreamContent(
        source.string(), source.many(lambda: (source.string(), source.string()))
    ),
    0: lambda source: StringContent(source.string()),
    1: lambda source: _list(source.many(source.string)),
    2: lambda source: _set(source.many(source.string)),
    3: lambda source: _sorted_set(source.many(lambda: (source.string(), source.score_text()))),
    4: lambda source: _hash(source.many(lambda: (source.string(), source.string()))),
    5: lambda source: _sorted_set(source.many(lambda: (source.string(), source.score()))),
    10: lambda source: _list(read_ziplist(source.string())),
    11: lambda source: _set(read_intset(source.string())),
    12: lambda source: _sorted_set(_entries(read_ziplist(source.string()))),
    13: lambda source: _hash(_pairs(read_ziplist(source.string()))),
    14: lambda source: _list(_joined(source.many(lambda: read_ziplist(source.string())))),
    16: lambda source: _hash(_pairs(read_listpack(source.string()))),
    17: lambda source: _sorted_set(_entries(read_listpack(source.string()))),
    18: lambda source: _list(_joined(source.many(lambda: _quicklist_node(source)))),
    20: lambda source: _set(read_listpack(source.string())),
}
