"""Reading arguments: from bytes to numbers and options, with Redis's error texts.

Every function raises :class:`CommandError` and changes nothing.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.engine.datatypes.numbers import parse_float, parse_int
from penstock.errors import CommandError

SYNTAX: Final = "ERR syntax error"
NOT_INTEGER: Final = "ERR value is not an integer or out of range"
NOT_FLOAT: Final = "ERR value is not a valid float"
NO_SUCH_KEY: Final = "ERR no such key"
MAX_INT64: Final = (1 << 63) - 1
MIN_INT64: Final = -(1 << 63)
#: Elements that may repeat are as many as were asked for, however few there are: they would fill the memory.
MOST_DRAWN: Final = 1_000_000


def syntax_error() -> CommandError:
    return CommandError(SYNTAX)


def integer(value: bytes, message: str = NOT_INTEGER) -> int:
    """A signed 64-bit integer, written as Redis wants it (no sign +, no leading zeros)."""
    number = parse_int(value)
    if number is None:
        raise CommandError(message)
    return number


def integer_in(value: bytes, low: int, high: int, message: str = NOT_INTEGER) -> int:
    number = integer(value, message)
    if not low <= number <= high:
        raise CommandError(message)
    return number


def positive(value: bytes, message: str = "ERR value is out of range, must be positive") -> int:
    """A count that may be zero but not negative."""
    number = integer(value, message)
    if number < 0:
        raise CommandError(message)
    return number


def signed_count(value: bytes) -> int:
    """The count of a random pick: negative counts may repeat elements, so both signs must fit."""
    number = integer(value)
    if number == MIN_INT64:
        raise CommandError(f"ERR value is out of range, value must between {-MAX_INT64} and {MAX_INT64}")
    if number < -MOST_DRAWN:
        raise CommandError(f"ERR value is out of range, at most {MOST_DRAWN} elements are drawn at a time")
    return number


def floating(value: bytes, message: str = NOT_FLOAT) -> float:
    number = parse_float(value)
    if number is None:
        raise CommandError(message)
    return number


def timeout_ms(value: bytes) -> int:
    """The timeout of a blocking command: seconds with fraction, 0 = for ever; answers milliseconds."""
    seconds = parse_float(value)
    if seconds is None:
        raise CommandError("ERR timeout is not a float or out of range")
    if seconds < 0:
        raise CommandError("ERR timeout is negative")
    # Redis 7.0 calls these negative, which helps nobody; this is Valkey's word for it.
    if seconds * 1000 > MAX_INT64:
        raise CommandError("ERR timeout is out of range")
    return math.ceil(seconds * 1000)
