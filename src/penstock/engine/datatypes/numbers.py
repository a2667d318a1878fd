"""Numbers as Redis reads and writes them: strict integers, doubles, 80-bit long doubles.

Parsers answer None for what Redis would refuse; the caller knows which error to raise.

============================  ==========================================================
``parse_int``                 arguments and counters: the one canonical spelling only
``parse_float``               scores and increments: as strtod, the whole string
``parse_score_limit``         ends of a score range: as strtod, blanks and emptiness pass
``parse_long_double``         INCRBYFLOAT, HINCRBYFLOAT
============================  ==========================================================

A long double of the x86 is ``significand × 2**exponent`` with a significand of at
most 64 bits. Redis adds and prints with this precision, so a sum of two decimal
fractions differs from the one in doubles and from the exact one. Here it is computed
with integers, so that every platform gives the x86's digits.
Knows nothing of keys, commands or errors.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

MAX_INT64: Final = (1 << 63) - 1
MIN_INT64: Final = -(1 << 63)

_DECIMAL_TEXT: Final = re.compile(rb"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_HEXADECIMAL_TEXT: Final = re.compile(
    rb"([+-]?)0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?(?:[pP]([+-]?[0-9]+))?"
)
_INFINITY_TEXT: Final = re.compile(rb"([+-]?)inf(?:inity)?", re.IGNORECASE)


# --- Integers -----------------------------------------------------------------------------------


def parse_int(text: bytes) -> int | None:
    """A signed 64-bit integer in its canonical spelling: no plus, blanks, leading zeros or ``-0``."""
    if text.isdigit() and len(text) < 19 and text[0] != 48:
        return int(text)
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 19:
        return None
    if digits[0] == 48:
        return 0 if text == b"0" else None
    number = int(text)
    return number if MIN_INT64 <= number <= MAX_INT64 else None


# --- Doubles ------------------------------------------------------------------------------------


def parse_float(text: bytes) -> float | None:
    """A double. Refused: nan, blanks, trailing bytes, and what overflows or underflows to zero."""
    number = _strtod(text)
    if number is None:
        return None
    if math.isinf(number):
        return number if _INFINITY_TEXT.fullmatch(text) else None
    return None if number == 0 and _has_significant_digit(text) else number


def parse_score_limit(text: bytes) -> float | None:
    """The end of a score range, less strict than a score.

    Nothing at all counts as 0, blanks may stand before, the rest after a zero byte
    is not seen, and a number out of range becomes infinity or zero.
    """
    text = text.partition(b"\0")[0]
    return _strtod(text.lstrip(b" \t\n\v\f\r")) if text else 0.0


def _strtod(text: bytes) -> float | None:
    """What strtod makes of exactly these bytes; None if it would stop early or answer nan."""
    if _DECIMAL_TEXT.fullmatch(text):
        return float(text)
    if _HEXADECIMAL_TEXT.fullmatch(text):
        try:
            return float.fromhex(text.decode("ascii"))
        except OverflowError:
            return -math.inf if text[:1] == b"-" else math.inf
    if match := _INFINITY_TEXT.fullmatch(text):
        return -math.inf if match[1] == b"-" else math.inf
    return None


def _has_significant_digit(text: bytes) -> bool:
    match = _DECIMAL_TEXT.fullmatch(text) or _HEXADECIMAL_TEXT.fullmatch(text)
    return match is not None and bool((match[2] + (match[3] or b"")).strip(b"0"))


# --- Long doubles -------------------------------------------------------------------------------

_SIGNIFICAND_BITS: Final = 64
#: Exponents of the last bit: of the smallest subnormal, and of the largest finite number.
_MIN_EXPONENT: Final = -16445
_MAX_EXPONENT: Final = 16383 - 63
#: Redis copies the text into a buffer of this size, with a zero byte behind it.
_MAX_TEXT_BYTES: Final = 5 * 1024
#: Decimal exponents beyond this are out of range whatever digits stand before them.
_DECIMAL_EXPONENT_LIMIT: Final = 2 * _MAX_TEXT_BYTES
_BINARY_EXPONENT_LIMIT: Final = 8 * _MAX_TEXT_BYTES
_FRACTION_DIGITS: Final = 17
#: Python refuses to convert integers of more than 4300 digits from or to decimal at once.
_DIGITS_AT_ONCE: Final = 4000
_DIGITS_AT_ONCE_POWER: Final = 10**_DIGITS_AT_ONCE


class LongDouble(NamedTuple):
    """``significand * 2**exponent``, or an infinity of the significand's sign if ``exponent`` is None."""

    significand: int
    exponent: int | None

    @property
    def is_finite(self) -> bool:
        return self.exponent is not None


def parse_long_double(text: bytes) -> LongDouble | None:
    """A long double, under the rules of ``parse_float``."""
    number = parse_int(text)
    if number is not None:
        return LongDouble(number, 0)
    if len(text) >= _MAX_TEXT_BYTES:
        return None
    if match := _DECIMAL_TEXT.fullmatch(text):
        sign, whole, fraction, power = match.groups(b"")
        digits = _decimal_to_int(whole + fraction)
        ten_power = _clamped(power, _DECIMAL_EXPONENT_LIMIT) - len(fraction)
        numerator, denominator, exponent = digits * 10 ** max(ten_power, 0), 10 ** max(-ten_power, 0), 0
    elif match := _HEXADECIMAL_TEXT.fullmatch(text):
        sign, whole, fraction, power = match.groups(b"")
        numerator, denominator = int(whole + fraction, 16), 1
        exponent = _clamped(power, _BINARY_EXPONENT_LIMIT) - 4 * len(fraction)
    elif match := _INFINITY_TEXT.fullmatch(text):
        return LongDouble(-1 if match[1] == b"-" else 1, None)
    else:
        return None
    significand, rounded_exponent = _rounded(numerator, denominator, exponent)
    if rounded_exponent is None or (significand == 0 and numerator):
        return None
    return LongDouble(-significand if sign == b"-" else significand, rounded_exponent)


def add_long_doubles(one: LongDouble, other: LongDouble) -> LongDouble | None:
    """The sum, rounded as the x86 does; None where it is infinite or not a number."""
    if one.exponent is None or other.exponent is None:
        return None
    exponent = min(one.exponent, other.exponent)
    total = (one.significand << one.exponent - exponent) + (other.significand << other.exponent - exponent)
    significand, rounded_exponent = _rounded(abs(total), 1, exponent)
    if rounded_exponent is None:
        return None
    return LongDouble(-significand if total < 0 else significand, rounded_exponent)


def format_long_double(number: LongDouble) -> bytes:
    """As printf's ``%.17Lf`` without the zeros at its end; there is no ``-0``."""
    significand, exponent = number
    if exponent is None:
        return b"-inf" if significand < 0 else b"inf"
    magnitude = abs(significand)
    if exponent >= 0:
        text = _int_to_decimal(magnitude << exponent)
    else:
        scaled = _divided_half_even(magnitude * 10**_FRACTION_DIGITS, 1 << -exponent)
        digits = _int_to_decimal(scaled).rjust(_FRACTION_DIGITS + 1, b"0")
        text = (digits[:-_FRACTION_DIGITS] + b"." + digits[-_FRACTION_DIGITS:]).rstrip(b"0").rstrip(b".")
    return b"-" + text if significand < 0 and text != b"0" else text


def _rounded(numerator: int, denominator: int, exponent: int) -> tuple[int, int | None]:
    """``numerator / denominator * 2**exponent`` to 64 bits, half to even.

    The exponent is None on overflow; the significand is 0 on underflow.
    """
    if numerator == 0:
        return 0, 0
    # One bit too many at most: the quotient has 64 or 65 bits, corrected below.
    shift = numerator.bit_length() - denominator.bit_length() - _SIGNIFICAND_BITS
    if _quotient(numerator, denominator, shift) >> _SIGNIFICAND_BITS:
        shift += 1
    shift = max(shift, _MIN_EXPONENT - exponent)
    if shift >= 0:
        significand = _divided_half_even(numerator, denominator << shift)
    else:
        significand = _divided_half_even(numerator << -shift, denominator)
    if significand >> _SIGNIFICAND_BITS:
        significand, shift = significand >> 1, shift + 1
    exponent += shift
    return significand, exponent if exponent <= _MAX_EXPONENT else None


def _quotient(numerator: int, denominator: int, shift: int) -> int:
    return numerator // (denominator << shift) if shift >= 0 else (numerator << -shift) // denominator


def _divided_half_even(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    return quotient + (twice > denominator or (twice == denominator and quotient & 1))


def _clamped(power: bytes, limit: int) -> int:
    """The written exponent, held within ± ``limit`` so that nobody can ask for 10**999999999."""
    if not power:
        return 0
    sign = -1 if power[:1] == b"-" else 1
    digits = power.lstrip(b"+-").lstrip(b"0")
    return sign * min(int(digits or b"0") if len(digits) < 10 else limit, limit)


def _decimal_to_int(digits: bytes) -> int:
    if len(digits) <= _DIGITS_AT_ONCE:
        return int(digits)
    head, tail = digits[:-_DIGITS_AT_ONCE], digits[-_DIGITS_AT_ONCE:]
    return _decimal_to_int(head) * _DIGITS_AT_ONCE_POWER + int(tail)


def _int_to_decimal(number: int) -> bytes:
    high, low = divmod(number, _DIGITS_AT_ONCE_POWER)
    if high == 0:
        return b"%d" % low
    return _int_to_decimal(high) + b"%0*d" % (_DIGITS_AT_ONCE, low)
