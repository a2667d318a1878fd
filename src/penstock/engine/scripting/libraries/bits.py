"""The ``bit`` library: operations on 32 bits whose results are signed.

Lua 5.1 has doubles only. A number becomes 32 bits as in the C library: rounded to
even, then modulo 2^32, by adding 2^52 + 2^51 and looking at the low word of the
sum; beyond 2^51 that gives nonsense, the same nonsense. ``bit.lua`` checks
arguments: numbers only arrive here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SHIFTER: Final = float(2**52 + 2**51)
_EXACT: Final = 2**51


def _word(number: float) -> int:
    """A number of Lua as 32 unsigned bits."""
    if type(number) is int and -_EXACT < number < _EXACT:
        return number & _MASK
    low: int = struct.unpack_from("<I", struct.pack("<d", float(number) + _SHIFTER))[0]
    return low


def _signed(word: int) -> int:
    return (word & _MASK ^ 0x80000000) - 0x80000000


def tobit(number: float) -> int:
    return _signed(_word(number))


def bnot(number: float) -> int:
    return _signed(~_word(number))


def bswap(number: float) -> int:
    return _signed(int.from_bytes(_word(number).to_bytes(4, "little"), "big"))


def band(first: float, *others: float) -> int:
    result = _word(first)
    for other in others:
        result &= _word(other)
    return _signed(result)


def bor(first: float, *others: float) -> int:
    result = _word(first)
    for other in others:
        result |= _word(other)
    return _signed(result)


def bxor(first: float, *others: float) -> int:
    result = _word(first)
    for other in others:
        result ^= _word(other)
    return _signed(result)


def lshift(number: float, count: float) -> int:
    return _signed(_word(number) << (_word(count) & 31))


def rshift(number: float, count: float) -> int:
    return _signed(_word(number) >> (_word(count) & 31))


def arshift(number: float, count: float) -> int:
    return _signed(_word(number)) >> (_word(count) & 31)


def rol(number: float, count: float) -> int:
    word, count = _word(number), _word(count) & 31
    return _signed(word << count | word >> (32 - count))


def ror(number: float, count: float) -> int:
    return rol(number, -(_word(count) & 31))


def tohex(number: float, digits: int) -> bytes:
    """The last ``digits`` hexadecimal digits, capital ones if ``digits`` is negative; at most 8."""
    shown = min(abs(digits), 8)
    text = b"%08x" % _word(number)
    text = text[8 - shown :]
    return text.upper() if digits < 0 else text


#: By the name under which ``bit.lua`` knows them.
FUNCTIONS: Final[dict[str, Callable[..., int | bytes]]] = {
    f"bit_{function.__name__}": function
    for function in (tobit, bnot, bswap, band, bor, bxor, lshift, rshift, arshift, rol, ror, tohex)
}
