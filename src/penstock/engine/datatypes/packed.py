"""Readers of the dense encodings in which Redis and Valkey keep small collections, and of LZF.

Each takes the bytes of one encoded value and gives its elements, integers as their decimal
text. Bytes that are not what they claim to be raise :class:`DamagedError`, never anything
else, and no length found inside is trusted before so many bytes are known to be there.
We read these encodings in payloads of RESTORE; we never write them. Integers are
little-endian unless said otherwise.

Listpack: ``bytes(4) count(2) entry… 0xFF``; an entry is ``code data backlength``
--------------------------------------------------------------------------------
=================  =========================  ========================================
code               data                       meaning
=================  =========================  ========================================
``0xxxxxxx``       –                          integer 0–127
``10xxxxxx``       x bytes                    string of up to 63 bytes
``110xxxxx`` y     –                          signed integer of 13 bits, high bits first
``1110xxxx`` y     xy bytes                   string of up to 4,095 bytes, high bits first
``11110000``       length(4), bytes           longer string
``11110001``–4     2, 3, 4 or 8 bytes         signed integer
=================  =========================  ========================================

The backlength (1–5 bytes, seven bits each) lets Redis walk backwards; we skip it.

Ziplist: ``bytes(4) tail(4) count(2) entry… 0xFF``; an entry is ``previous code data``
-------------------------------------------------------------------------------------
=================  =========================  ========================================
code               data                       meaning
=================  =========================  ========================================
``00xxxxxx``       x bytes                    string of up to 63 bytes
``01xxxxxx`` y     xy bytes                   string of up to 16,383 bytes, high first
``10000000``       length(4, big-endian)      longer string
``11000000``       2 bytes                    signed integer; likewise ``11010000`` 4
                                              bytes, ``11100000`` 8, ``11110000`` 3,
                                              ``11111110`` 1
``1111xxxx``       –                          integer x - 1, for x from 1 to 13
=================  =========================  ========================================

The previous entry's length takes 1 byte, or 5 with the first 0xFE. Skipped.

Intset: ``width(4) count(4)`` and as many signed integers of 2, 4 or 8 bytes.

LZF: runs of ``000xxxxx`` and x + 1 literal bytes, or of ``xxxyyyyy`` (x = 7: one byte more
of length follows) and one more byte of distance: x + 2 bytes again from y + 1 bytes back.
"""

from __future__ import annotations

import struct
from typing import Final


class DamagedError(Exception):
    """The bytes are not what they claim to be."""


_END: Final = 0xFF
_UNKNOWN_COUNT: Final = 0xFFFF

#: code → width in bytes of the signed integer behind it
_LISTPACK_INTEGERS: Final = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}
_ZIPLIST_INTEGERS: Final = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}


def read_listpack(data: bytes) -> list[bytes]:
    """The elements of a listpack, in order."""
    if len(data) < 7 or int.from_bytes(data[:4], "little") != len(data) or data[-1] != _END:
        raise DamagedError
    elements = []
    end = len(data) - 1
    at = 6
    while at < end:
        element, after = _listpack_entry(data, at)
        elements.append(element)
        at = after + _backlength_bytes(after - at)
    return _counted(elements, data[4:6], at == end)


def _listpack_entry(data: bytes, at: int) -> tuple[bytes, int]:
    """One element, and where its backlength begins."""
    code = data[at]
    if code < 0x80:
        return b"%d" % code, at + 1
    if code < 0xC0:
        return _slice(data, at + 1, code & 0x3F)
    if code < 0xE0:
        number = (code & 0x1F) << 8 | data[at + 1]
        return b"%d" % (number if number < 0x1000 else number - 0x2000), at + 2
    if code < 0xF0:
        return _slice(data, at + 2, (code & 0x0F) << 8 | data[at + 1])
    if code == 0xF0:
        return _slice(data, at + 5, int.from_bytes(data[at + 1 : at + 5], "little"))
    return _integer(data, at + 1, _LISTPACK_INTEGERS.get(code))


def _backlength_bytes(entry_bytes: int) -> int:
    for width, limit in enumerate((128, 16_383, 2_097_151, 268_435_455), 1):
        if entry_bytes < limit:
            return width
    return 5


def read_ziplist(data: bytes) -> list[bytes]:
    """The elements of a ziplist, in order."""
    if len(data) < 11 or int.from_bytes(data[:4], "little") != len(data) or data[-1] != _END:
        raise DamagedError
    elements = []
    end = len(data) - 1
    at = 10
    while at < end:
        at += 5 if data[at] == 0xFE else 1
        if at >= end:
            raise DamagedError
        element, at = _ziplist_entry(data, at)
        elements.append(element)
    return _counted(elements, data[8:10], at == end)


def _ziplist_entry(data: bytes, at: int) -> tuple[bytes, int]:
    """One element from its code on, and where the next entry begins."""
    code = data[at]
    if code < 0x40:
        return _slice(data, at + 1, code)
    if code < 0x80:
        return _slice(data, at + 2, (code & 0x3F) << 8 | data[at + 1])
    if code == 0x80:
        return _slice(data, at + 5, int.from_bytes(data[at + 1 : at + 5], "big"))
    if 0xF1 <= code <= 0xFD:
        return b"%d" % ((code & 0x0F) - 1), at + 1
    return _integer(data, at + 1, _ZIPLIST_INTEGERS.get(code))


def read_intset(data: bytes) -> list[bytes]:
    """The members of an intset, ascending."""
    width, count = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    if width not in (2, 4, 8) or len(data) != 8 + width * count:
        raise DamagedError
    letter = {2: "h", 4: "i", 8: "q"}[width]
    return [b"%d" % number for number in struct.unpack(f"<{count}{letter}", data[8:])]


def decompress_lzf(data: bytes, size: int) -> bytes:
    """What LZF made ``data`` of; ``size`` is how long it must be."""
    out = bytearray()
    at = 0
    try:
        while at < len(data) and len(out) < size:
            code = data[at]
            at += 1
            if code < 32:
                out += data[at : at + code + 1]
                at += code + 1
                continue
            length = code >> 5
            if length == 7:
                length += data[at]
                at += 1
            distance = ((code & 31) << 8 | data[at]) + 1
            at += 1
            _repeat(out, distance, length + 2)
    except IndexError:
        raise DamagedError from None
    if at != len(data) or len(out) != size:
        raise DamagedError
    return bytes(out)


def _repeat(out: bytearray, distance: int, length: int) -> None:
    """Append ``length`` bytes from ``distance`` back; they may run into themselves."""
    start = len(out) - distance
    if start < 0:
        raise DamagedError
    if distance >= length:
        out += out[start : start + length]
    else:
        out += (out[start:] * (length // distance + 1))[:length]


def _slice(data: bytes, start: int, length: int) -> tuple[bytes, int]:
    end = start + length
    if end >= len(data):
        raise DamagedError
    return data[start:end], end


def _integer(data: bytes, start: int, width: int | None) -> tuple[bytes, int]:
    if width is None or start + width >= len(data):
        raise DamagedError
    return b"%d" % int.from_bytes(data[start : start + width], "little", signed=True), start + width


def _counted(elements: list[bytes], count: bytes, ended_well: bool) -> list[bytes]:
    expected = int.from_bytes(count, "little")
    if not ended_well or expected not in (len(elements), _UNKNOWN_COUNT):
        raise DamagedError
    return elements
