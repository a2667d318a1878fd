"""The ``struct`` library: C structures in strings, and doubles for ``cmsgpack``.

=========  ==============================  =======  ===========================
option     value                           size     notes
=========  ==============================  =======  ===========================
``b B``    char                            1        capitals are unsigned
``h H``    short                           2
``l L T``  long, size_t                    8
``i I``    integer                         4, or n  ``i3``; up to 32
``f d``    float, double                   4, 8
``s``      text up to a zero byte          varies
``c``      text of n bytes                 1, or n  ``c0``: as long as the value
                                                    read before it says
``x``      a zero byte                     1        no value
``< >``    from here on little, big endian
``!``      from here on aligned            8, or n  a power of two
blank      nothing
=========  ==============================  =======  ===========================

Arguments are strings and numbers; ``False`` stands for any other value. The
functions for Lua answer ``(True, result, …)``, or ``(False, i, problem)`` if
argument ``i`` is bad, ``i`` being 0 if none is. ``struct.lua`` raises that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_MAX_INT: Final = 2**31 - 1
_MAX_INTEGER_SIZE: Final = 32
_MAX_ALIGNMENT: Final = 8
_WORD_MASK: Final = 2**64 - 1
_FIXED_SIZES: Final = {"b": 1, "h": 2, "l": 8, "L": 8, "T": 8, "f": 4, "d": 8, "x": 1, "B": 1, "H": 2}
_INTEGERS: Final = frozenset("bBhHlLTiI")

_Answer = tuple[Any, ...]


class _ProblemError(Exception):
    """What is wrong, and with which argument; 0 for none in particular."""

    def __init__(self, argument: int, text: str) -> None:
        super().__init__(text)
        self.answer: _Answer = (False, argument, text.encode("latin-1"))


@dataclass(slots=True)
class _Option:
    letter: str
    size: int
    #: Zero bytes before it.
    padding: int


class _Format:
    """Walks through a format, keeping endianness and alignment."""

    def __init__(self, text: bytes) -> None:
        self._text = text.partition(b"\0")[0].decode("latin-1")
        self._at = 0
        self._alignment = 1
        self.is_little = True

    def next(self, position: int, *, is_size: bool = False) -> _Option | None:
        """The next option, for data at ``position``; none after the last."""
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            size = self._size(letter)
            if size is not None:
                return _Option(letter, size, self._padding(position, letter, size))
            # Asked for sizes, the library passes over letters and digits it does not know.
            if not (is_size and letter.isalnum()):
                self._control(letter)
        return None

    def _size(self, letter: str) -> int | None:
        if letter in "iI":
            size = self._number(4)
            if size > _MAX_INTEGER_SIZE:
                raise _ProblemError(0, f"integral size {size} is larger than limit of {_MAX_INTEGER_SIZE}")
            return size
        if letter == "c":
            return self._number(1)
        return 0 if letter == "s" else _FIXED_SIZES.get(letter)

    def _number(self, default: int) -> int:
        start = self._at
        while self._at < len(self._text) and "0" <= self._text[self._at] <= "9":
            self._at += 1
        if start == self._at:
            return default
        number = int(self._text[start : self._at][:20])
        if number > _MAX_INT:
            raise _ProblemError(0, "integral size overflow")
        return number

    def _padding(self, position: int, letter: str, size: int) -> int:
        if size == 0 or letter == "c":
            return 0
        size = min(size, self._alignment)
        # For sizes that are no power of two this is what the C library computes.
        return (size - (position & (size - 1))) & (size - 1)

    def _control(self, letter: str) -> None:
        if letter in "<>":
            self.is_little = letter == "<"
        elif letter == "!":
            alignment = self._number(_MAX_ALIGNMENT)
            if alignment <= 0 or alignment & (alignment - 1):
                raise _ProblemError(0, f"alignment {alignment} is not a power of 2")
            self._alignment = alignment
        elif letter != " ":
            raise _ProblemError(1, f"invalid format option '{letter}'")


def _answering(function: Callable[..., _Answer]) -> Callable[..., _Answer]:
    def answer(*arguments: Any) -> _Answer:
        try:
            return function(*arguments)
        except _ProblemError as problem:
            return problem.answer

    return answer


# ---------------------------------------------------------------- pack


def _number(value: Any, argument: int) -> float:
    if isinstance(value, bytes):
        try:
            return float(value)
        except ValueError:
            raise _ProblemError(argument, "number expected, got ") from None
    if value is False:
        raise _ProblemError(argument, "number expected, got ")
    number: float = value
    return number


def _text(value: Any, argument: int) -> bytes:
    if value is False:
        raise _ProblemError(argument, "string expected, got ")
    return value if isinstance(value, bytes) else b"%.14g" % value


def _pack_integer(number: float, size: int, is_little: bool) -> bytes:
    # As C converts a double: towards zero, then modulo 2^64; wider fields are filled with zeros.
    word = int(number) & _WORD_MASK if -(2.0**63) <= number < 2.0**64 else 0
    return (word & ((1 << 8 * size) - 1)).to_bytes(size, "little" if is_little else "big")


def _pack_float(number: float, size: int, is_little: bool) -> bytes:
    order = "<" if is_little else ">"
    if size == 8:
        return struct.pack(order + "d", number)
    try:
        return struct.pack(order + "f", number)
    except OverflowError:
        return struct.pack(order + "f", float("inf") if number > 0 else float("-inf"))


@_answering
def pack(format_text: bytes, *values: Any) -> _Answer:
    layout = _Format(format_text)
    out = bytearray()
    used = 0
    while option := layout.next(len(out)):
        out += bytes(option.padding)
        if option.letter == "x":
            out.append(0)
            continue
        argument = used + 2
        value = values[used] if used < len(values) else False
        used += 1
        if option.letter in _INTEGERS:
            out += _pack_integer(_number(value, argument), option.size, layout.is_little)
        elif option.letter in "fd":
            out += _pack_float(_number(value, argument), option.size, layout.is_little)
        else:
            text = _text(value, argument)
            size = option.size or len(text)
            if len(text) < size:
                # The library has moved on to the next argument when it says so.
                raise _ProblemError(argument + 1, "string too short")
            out += text[:size]
            if option.letter == "s":
                out.append(0)
    return True, bytes(out)


# ---------------------------------------------------------------- unpack


def _unpack_integer(data: bytes, is_little: bool, is_signed: bool) -> float:
    word = int.from_bytes(data, "little" if is_little else "big") & _WORD_MASK
    bits = min(8 * len(data), 64)
    if is_signed and bits and word >> (bits - 1):
        word -= 1 << bits
    return float(word)


def _previous_size(results: list[Any]) -> int:
    """The size that ``c0`` takes from the value before it, which it replaces."""
    try:
        number = float(results.pop())
    except (IndexError, ValueError):
        raise _ProblemError(0, "format 'c0' needs a previous size") from None
    # As C converts a double to a size on the machines that Redis runs on.
    if number >= 2.0**64:
        return 0
    return int(number) if 0 <= number < 2**31 else _MAX_INT


def _check_length(data: bytes, position: int, size: int) -> None:
    if size > len(data) or not 0 <= position <= len(data) - size:
        raise _ProblemError(2, "data string too short")


@_answering
def unpack(format_text: bytes, data: bytes, start: float) -> _Answer:
    position = int(start) - 1 if abs(start) < 2**62 else -1
    if abs(start) < 1:
        raise _ProblemError(3, "offset must be 1 or greater")
    layout = _Format(format_text)
    results: list[Any] = []
    while option := layout.next(position):
        letter, size = option.letter, option.size
        position += option.padding
        _check_length(data, position, size)
        if letter == "c" and size == 0:
            size = _previous_size(results)
            _check_length(data, position, size)
        piece = data[position : position + size]
        if letter in _INTEGERS:
            results.append(_unpack_integer(piece, layout.is_little, letter.islower()))
        elif letter in "fd":
            results.append(struct.unpack(("<" if layout.is_little else ">") + letter, piece)[0])
        elif letter == "c":
            results.append(piece)
        elif letter == "s":
            end = data.find(b"\0", position)
            if end < 0:
                raise _ProblemError(0, "unfinished string in data")
            results.append(data[position:end])
            size = end - position + 1
        position += size
    return True, *results, position + 1


@_answering
def size(format_text: bytes) -> _Answer:
    layout = _Format(format_text)
    total = 0
    while option := layout.next(total, is_size=True):
        if option.letter == "s":
            raise _ProblemError(1, "option 's' has no fixed size")
        if option.letter == "c" and option.size == 0:
            raise _ProblemError(1, "option 'c0' has no fixed size")
        total += option.padding + option.size
    return True, total


# ---------------------------------------------------------------- doubles of MessagePack


def pack_double(number: float) -> bytes:
    """A MessagePack float of 32 bits if that loses nothing, else of 64 bits."""
    try:
        short = struct.pack(">f", number)
    except OverflowError:
        short = b""
    if short and struct.unpack(">f", short)[0] == number:
        return b"\xca" + short
    return b"\xcb" + struct.pack(">d", number)


def unpack_double(data: bytes) -> float:
    number: float = struct.unpack(">f" if len(data) == 4 else ">d", data)[0]
    return number


#: By the name under which ``struct.lua`` and ``cmsgpack.lua`` know them.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "struct_pack": pack,
    "struct_unpack": unpack,
    "struct_size": size,
    "pack_double": pack_double,
    "unpack_double": unpack_double,
}
