"""Bit arithmetic over strings: SETBIT, BITCOUNT, BITPOS, BITOP and BITFIELD.

Rules:

1. Bit 0 is the highest bit of byte 0; a field's first bit is its most significant.
2. Past its end a string goes on with zeros. Reading does not grow it, writing does.
3. Functions take and return ``bytes`` and change nothing in place. An unchanged value
   comes back as the same object, so ``is`` tells whether there is something to store.

Whole strings are handled as big integers or by C-level byte methods, never bit by bit.
Knows nothing of keys; a missing key is the empty string, except for BITPOS (see there).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import reduce
from operator import and_, or_, xor
from typing import Final, NamedTuple

from penstock.engine.datatypes.numbers import MAX_INT64, parse_int
from penstock.errors import CommandError

#: The longest string, hence the limit of bit offsets: Redis's default proto-max-bulk-len.
MAX_STRING_BYTES: Final = 512 * 1024 * 1024

BAD_OFFSET: Final = "ERR bit offset is not an integer or out of range"
BAD_FIELD_TYPE: Final = (
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
)

# --- Single bits --------------------------------------------------------------------------------


def parse_offset(text: bytes, field_bits: int = 0, max_bytes: int = MAX_STRING_BYTES) -> int:
    """A bit offset. With ``field_bits``, ``#n`` means the n-th field of that width."""
    multiply = field_bits > 0 and text[:1] == b"#"
    number = parse_int(text[1:] if multiply else text)
    offset = -1 if number is None else number * field_bits if multiply else number
    if not 0 <= offset < max_bytes * 8:
        raise CommandError(BAD_OFFSET)
    return offset


def get_bit(value: bytes, offset: int) -> int:
    at = offset >> 3
    return value[at] >> (7 - (offset & 7)) & 1 if at < len(value) else 0


def set_bit(value: bytes, offset: int, bit: int) -> tuple[bytes, int]:
    """The string with this bit set or cleared, and the bit that was there."""
    old = get_bit(value, offset)
    if old == bit and offset >> 3 < len(value):
        return value, old
    changed = _grown(value, offset + 1)
    mask = 0x80 >> (offset & 7)
    if bit:
        changed[offset >> 3] |= mask
    else:
        changed[offset >> 3] &= ~mask
    return bytes(changed), old


def _grown(value: bytes, bits: int) -> bytearray:
    """A copy that has at least this many bits."""
    missing = (bits + 7 >> 3) - len(value)
    return bytearray(value) + bytes(missing) if missing > 0 else bytearray(value)


# --- Ranges of bits -----------------------------------------------------------------------------


def bit_count(value: bytes, start: int = 0, end: int = -1, *, by_bit: bool = False) -> int:
    """How many bits are set between two places, both included; negative ones count from the end.

    Places are bytes, or bits if ``by_bit``.
    """
    if start < 0 and end < 0 and start > end:
        return 0  # before clamping: both may lie before the string, in the wrong order
    first, last = _bit_range(len(value), start, end, by_bit)
    if first > last:
        return 0
    return int.from_bytes(_masked(value, first, last, outside=0), "little").bit_count()


def bit_position(
    value: bytes, bit: int, start: int = 0, end: int | None = None, *, by_bit: bool = False
) -> int:
    """Where the first bit of this kind stands, or -1; places as in ``bit_count``.

    Without ``end`` the zeros past the string's end are found too. A missing key is not
    an empty string here: the caller answers 0 or -1 for it, whatever the range.
    """
    first, last = _bit_range(len(value), start, -1 if end is None else end, by_bit)
    if first > last:
        return -1
    # Bits outside the range, and whole bytes without an answer, look like the other kind.
    skip = b"\0" if bit else b"\xff"
    searched = _masked(value, first, last, outside=0 if bit else 0xFF)
    rest = searched.lstrip(skip)
    if not rest:
        return -1 if bit or end is not None else last + 1
    highest = rest[0] if bit else rest[0] ^ 0xFF
    return ((first >> 3) + len(searched) - len(rest)) * 8 + 8 - highest.bit_length()


def _bit_range(length: int, start: int, end: int, by_bit: bool) -> tuple[int, int]:
    """First and last bit of a range; the range is empty if first > last."""
    total = length * 8 if by_bit else length
    start = max(start + total if start < 0 else start, 0)
    end = min(max(end + total if end < 0 else end, 0), total - 1)
    return (start, end) if by_bit else (start * 8, end * 8 + 7)


def _masked(value: bytes, first: int, last: int, *, outside: int) -> bytes:
    """The bytes from bit ``first`` to bit ``last``; foreign bits in the outer ones read as in ``outside``."""
    piece = value[first >> 3 : (last >> 3) + 1]
    head, tail = 0xFF00 >> (first & 7) & 0xFF, 0x7F >> (last & 7)
    if head == 0 and tail == 0:
        return piece
    edges = bytearray(piece)
    edges[0] = edges[0] & ~head | outside & head
    edges[-1] = edges[-1] & ~tail | outside & tail
    return bytes(edges)


# --- Whole strings ------------------------------------------------------------------------------

_INVERTED: Final = bytes(byte ^ 0xFF for byte in range(256))
_OPERATIONS: Final = {b"AND": and_, b"OR": or_, b"XOR": xor}


def bit_operation(name: bytes, values: Sequence[bytes]) -> bytes:
    """AND, OR or XOR of all values, as long as the longest; NOT of the only one."""
    if name == b"NOT":
        (value,) = values
        return value.translate(_INVERTED)
    # Little endian: shorter strings then lack the high bytes, which is the same as zeros.
    numbers = (int.from_bytes(value, "little") for value in values)
    return reduce(_OPERATIONS[name], numbers).to_bytes(max(map(len, values)), "little")


# --- Fields -------------------------------------------------------------------------------------

_FIELD_TYPE: Final = re.compile(rb"([iu])([1-9][0-9]?)")


class Overflow(Enum):
    """What becomes of a result that does not fit its field."""

    WRAP = b"WRAP"  # the low bits are kept
    SAT = b"SAT"  # the nearest value that fits
    FAIL = b"FAIL"  # nothing is written, the answer is None


class FieldType(NamedTuple):
    """An integer inside a string: ``u1`` to ``u63`` or ``i1`` to ``i64``."""

    signed: bool
    bits: int

    @property
    def low(self) -> int:
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << self.bits - self.signed) - 1


class Operation(Enum):
    GET = b"GET"
    SET = b"SET"
    INCRBY = b"INCRBY"


class FieldOperation(NamedTuple):
    """One step of BITFIELD. ``operand`` is the value to set or the increment."""

    operation: Operation
    type: FieldType
    offset: int
    operand: int = 0
    overflow: Overflow = Overflow.WRAP


def parse_field_type(text: bytes) -> FieldType:
    match = _FIELD_TYPE.fullmatch(text)
    if match is None:
        raise CommandError(BAD_FIELD_TYPE)
    signed, bits = match[1] == b"i", int(match[2])
    if bits > (64 if signed else 63):
        raise CommandError(BAD_FIELD_TYPE)
    return FieldType(signed, bits)


def bit_field(value: bytes, steps: Sequence[FieldOperation]) -> tuple[bytes, list[int | None]]:
    """The string after all steps, and what each answers: GET and SET the old value, INCRBY the new.

    Room for every write is made first, and stays even if the write then fails. Where no step
    changed anything the string is the same object; one change taken back by the next counts.
    """
    writes = [step.offset + step.type.bits for step in steps if step.operation is not Operation.GET]
    if not writes:
        return value, [_read_field(value, step.type, step.offset) for step in steps]
    grown = _grown(value, max(writes))
    is_changed = len(grown) > len(value)
    answers: list[int | None] = []
    for step in steps:
        answer, has_written = _run_step(grown, step)
        answers.append(answer)
        is_changed |= has_written
    return (bytes(grown) if is_changed else value), answers


def _run_step(value: bytearray, step: FieldOperation) -> tuple[int | None, bool]:
    """The answer, and whether the field has another value now."""
    old = _read_field(value, step.type, step.offset)
    if step.operation is Operation.GET:
        return old, False
    setting = step.operation is Operation.SET
    wanted = _wanted(step.operand, step.type) if setting else old + step.operand
    new = _fitted(wanted, step.type, step.overflow)
    if new is None:
        return None, False
    if new != old:
        _write_field(value, step.type, step.offset, new)
    return old if setting else new, new != old


def _wanted(operand: int, kind: FieldType) -> int:
    """What SET sees of its operand.

    Redis computes in 64 bits. A negative number is huge for an unsigned field, and so it
    is for a signed one if its distance from the highest value overflows: SAT then takes
    the wrong end. We follow.
    """
    too_low = operand < kind.low
    if too_low and (not kind.signed or kind.high - operand > MAX_INT64):
        return operand + (1 << 64)
    return operand


def _fitted(number: int, kind: FieldType, overflow: Overflow) -> int | None:
    low, high = kind.low, kind.high
    if low <= number <= high:
        return number
    if overflow is Overflow.FAIL:
        return None
    if overflow is Overflow.SAT:
        return high if number > high else low
    return ((number - low) & (1 << kind.bits) - 1) + low


def _read_field(value: bytes | bytearray, kind: FieldType, offset: int) -> int:
    first, after = offset >> 3, offset + kind.bits + 7 >> 3
    window = int.from_bytes(value[first:after].ljust(after - first, b"\0"), "big")
    number = window >> (after * 8 - offset - kind.bits) & (1 << kind.bits) - 1
    return number - (1 << kind.bits) if kind.signed and number > kind.high else number


def _write_field(value: bytearray, kind: FieldType, offset: int, number: int) -> None:
    first, after = offset >> 3, offset + kind.bits + 7 >> 3
    shift = after * 8 - offset - kind.bits
    mask = (1 << kind.bits) - 1
    window = int.from_bytes(value[first:after], "big") & ~(mask << shift) | (number & mask) << shift
    value[first:after] = window.to_bytes(after - first, "big")
