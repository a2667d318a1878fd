"""Bit commands on strings. Argument checks, replies and events; the arithmetic is ``datatypes.bits``."""

from __future__ import annotations

from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_STRING
from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.bits import (
    FieldOperation,
    Operation,
    Overflow,
    bit_count,
    bit_field,
    bit_operation,
    bit_position,
    get_bit,
    parse_field_type,
    parse_offset,
    set_bit,
)
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

_BITS: Final = {b"0": 0, b"1": 1}
_OPERATORS: Final = frozenset({b"AND", b"OR", b"XOR", b"NOT"})
#: Arguments of each step of BITFIELD, its name counted.
_STEP_WIDTHS: Final = {b"GET": 3, b"SET": 4, b"INCRBY": 4, b"OVERFLOW": 2}


# ---------------------------------------------------------------------- single bits


@command("SETBIT")
def setbit(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    offset = parse_offset(argv[2])
    bit = _BITS.get(argv[3])
    if bit is None:
        raise CommandError("ERR bit is not an integer or out of range")
    old = s.ks.get_string(key)
    value, before = set_bit(old or b"", offset, bit)
    if value is not old:
        s.ks.update_string(key, value)
        s.ks.changed(key, EVENT_STRING, b"setbit")
    return before


@command("GETBIT")
def getbit(s: Session, argv: Argv) -> Reply:
    offset = parse_offset(argv[2])
    return get_bit(s.ks.get_string(argv[1]) or b"", offset)


# --------------------------------------------------------------------------- ranges


def _is_by_bit(word: bytes) -> bool:
    unit = word.upper()
    if unit not in (b"BIT", b"BYTE"):
        raise syntax_error()
    return unit == b"BIT"


@command("BITCOUNT")
def bitcount(s: Session, argv: Argv) -> Reply:
    value = s.ks.get_string(argv[1])
    if value is None:
        return 0
    match argv[2:]:
        case []:
            return bit_count(value)
        case [start, end, *unit] if len(unit) < 2:
            first, last = integer(start), integer(end)
            if first < 0 and last < 0 and first > last:
                return 0  # Redis knows the answer before it looks at the unit, even a wrong one
            return bit_count(value, first, last, by_bit=bool(unit) and _is_by_bit(unit[0]))
    raise syntax_error()


@command("BITPOS")
def bitpos(s: Session, argv: Argv) -> Reply:
    bit = integer(argv[2])
    if bit not in (0, 1):
        raise CommandError("ERR The bit argument must be 1 or 0.")
    value = s.ks.get_string(argv[1])
    if value is None:
        return -1 if bit else 0
    match argv[3:]:
        case []:
            return bit_position(value, bit)
        case [start]:
            return bit_position(value, bit, integer(start))
        case [start, end, *unit] if len(unit) < 2:
            first = integer(start)
            by_bit = bool(unit) and _is_by_bit(unit[0])
            return bit_position(value, bit, first, integer(end), by_bit=by_bit)
    raise syntax_error()


# -------------------------------------------------------------------- whole strings


@command("BITOP")
def bitop(s: Session, argv: Argv) -> Reply:
    operator, target = argv[1].upper(), argv[2]
    if operator not in _OPERATORS:
        raise syntax_error()
    if operator == b"NOT" and len(argv) != 4:
        raise CommandError("ERR BITOP NOT must be called with a single source key.")
    result = bit_operation(operator, [s.ks.get_string(key) or b"" for key in argv[3:]])
    if result:
        s.ks.set_string(target, result)
        s.ks.changed(target, EVENT_STRING, b"set")
    elif s.ks.delete(target):
        s.ks.changed(target, EVENT_GENERIC, b"del")
    return len(result)


# --------------------------------------------------------------------------- fields


@command("BITFIELD")
def bitfield(s: Session, argv: Argv) -> Reply:
    steps = _parse_steps(argv)
    old = s.ks.get_string(argv[1])
    value, answers = bit_field(old or b"", steps)
    if value is not old and value:
        s.ks.update_string(argv[1], value)
        if any(
            step.operation is not Operation.GET and answer is not None
            for step, answer in zip(steps, answers, strict=True)
        ):
            s.ks.changed(argv[1], EVENT_STRING, b"setbit")
    return answers


@command("BITFIELD_RO")
def bitfield_ro(s: Session, argv: Argv) -> Reply:
    steps = _parse_steps(argv)
    if any(step.operation is not Operation.GET for step in steps):
        raise CommandError("ERR BITFIELD_RO only supports the GET subcommand")
    return bit_field(s.ks.get_string(argv[1]) or b"", steps)[1]


def _parse_steps(argv: Argv) -> list[FieldOperation]:
    steps: list[FieldOperation] = []
    overflow = Overflow.WRAP
    at = 2
    while at < len(argv):
        word = argv[at].upper()
        width = _STEP_WIDTHS.get(word)
        if width is None or at + width > len(argv):
            raise syntax_error()
        if word == b"OVERFLOW":
            overflow = _parse_overflow(argv[at + 1])
        else:
            steps.append(_parse_step(word, argv[at + 1 : at + width], overflow))
        at += width
    return steps


def _parse_overflow(word: bytes) -> Overflow:
    try:
        return Overflow(word.upper())
    except ValueError:
        raise CommandError("ERR Invalid OVERFLOW type specified") from None


def _parse_step(word: bytes, arguments: Argv, overflow: Overflow) -> FieldOperation:
    type_ = parse_field_type(arguments[0])
    offset = parse_offset(arguments[1], type_.bits)
    operand = integer(arguments[2]) if len(arguments) > 2 else 0
    return FieldOperation(Operation(word), type_, offset, operand, overflow)
