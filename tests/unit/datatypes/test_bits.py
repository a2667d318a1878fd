"""Bits: fixed vectors, and random SETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD on a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.engine.datatypes.bits import (
    BAD_FIELD_TYPE,
    BAD_OFFSET,
    FieldOperation,
    FieldType,
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
from penstock.errors import CommandError
from tests.unit.datatypes.realserver import Peer, Word, peer


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


# --- Fixed vectors ------------------------------------------------------------------------------


def test_single_bits() -> None:
    assert set_bit(b"", 7, 1) == (b"\x01", 0)
    assert set_bit(b"\x01", 7, 0) == (b"\x00", 1)
    assert set_bit(b"", 17, 0) == (b"\0\0\0", 0)  # writing grows, even a zero
    assert [get_bit(b"\x41", offset) for offset in range(9)] == [0, 1, 0, 0, 0, 0, 0, 1, 0]


def test_an_unchanged_value_is_the_same_object() -> None:
    value = bytes(range(100))
    assert set_bit(value, 15, 1)[0] is value
    steps = [FieldOperation(Operation.SET, FieldType(False, 8), 8, 1)]
    assert bit_field(value, steps) == (value, [1])
    assert bit_field(value, steps)[0] is value


def test_counts() -> None:
    assert bit_count(b"foobar") == 26
    assert bit_count(b"foobar", 0, 0) == 4
    assert bit_count(b"foobar", 1, 1) == 6
    assert bit_count(b"foobar", 5, 30, by_bit=True) == 17
    assert bit_count(b"foobar", -2, -5) == 0
    assert bit_count(b"foobar", -10, -20) == 0
    assert bit_count(b"") == 0


def test_positions() -> None:
    assert bit_position(b"\xff\xf0\x00", 0) == 12
    assert bit_position(b"\x00\xff\xf0", 1, 2) == 16
    assert bit_position(b"\x00\xff\xf0", 1, 7, -3, by_bit=True) == 8
    assert bit_position(b"\xff\xff", 0) == 16  # past the end
    assert bit_position(b"\xff\xff", 0, 0, -1) == -1  # with an end there is nothing past it
    assert bit_position(b"\x00", 1) == -1
    assert bit_position(b"", 0) == -1


def test_operations_on_strings_of_different_length() -> None:
    assert bit_operation(b"AND", [b"\xff\xff", b"\x0f"]) == b"\x0f\x00"
    assert bit_operation(b"OR", [b"\xf0", b"\x0f\x01"]) == b"\xff\x01"
    assert bit_operation(b"XOR", [b"\xff", b"\xff", b"\x01"]) == b"\x01"
    assert bit_operation(b"NOT", [b"\x00\xf0"]) == b"\xff\x0f"
    assert bit_operation(b"OR", [b""]) == b""


@pytest.mark.parametrize(
    ("overflow", "answers"),
    [(Overflow.WRAP, [200, 44, -100]), (Overflow.SAT, [200, 255, 127]), (Overflow.FAIL, [200, None, None])],
)
def test_overflow(overflow: Overflow, answers: list[int | None]) -> None:
    unsigned, signed = FieldType(False, 8), FieldType(True, 8)
    steps = [
        FieldOperation(Operation.INCRBY, unsigned, 0, 200, overflow),
        FieldOperation(Operation.INCRBY, unsigned, 0, 100, overflow),
        FieldOperation(Operation.INCRBY, signed, 8, 156, overflow),
    ]
    assert bit_field(b"", steps)[1] == answers


def test_set_saturates_as_redis_does_also_where_its_arithmetic_overflows() -> None:
    kinds = FieldType(False, 8), FieldType(True, 8), FieldType(True, 63), FieldType(True, 63)
    operands = -1, -300, -(2**62) - 1, 2**62
    steps = [
        FieldOperation(Operation.SET, kind, 0, operand, Overflow.SAT)
        for kind, operand in zip(kinds, operands, strict=True)
    ]
    after = [bit_field(b"", [step, step._replace(operation=Operation.GET)])[1][1] for step in steps]
    assert after == [255, -128, 2**62 - 1, 2**62 - 1]


def test_fields_are_read_past_the_end_and_grow_when_written() -> None:
    get = FieldOperation(Operation.GET, FieldType(True, 64), 100)
    assert bit_field(b"", [get]) == (b"", [0])
    too_big = FieldOperation(Operation.SET, FieldType(False, 4), 12, 16, Overflow.FAIL)
    assert bit_field(b"", [too_big]) == (b"\0\0", [None])
    assert bit_field(b"\xff", [FieldOperation(Operation.GET, FieldType(True, 4), 6)])[1] == [-4]


@pytest.mark.parametrize("text", [b"i0", b"u64", b"i65", b"I8", b"i", b"", b"u08", b"i+8", b"u999"])
def test_bad_field_types(text: bytes) -> None:
    with pytest.raises(CommandError) as refused:
        parse_field_type(text)
    assert str(refused.value) == BAD_FIELD_TYPE


@pytest.mark.parametrize("text", [b"-1", b"#-1", b"#", b"x", b"", b"4294967296", b"#536870912", b"01"])
def test_bad_offsets(text: bytes) -> None:
    with pytest.raises(CommandError) as refused:
        parse_offset(text, 8)
    assert str(refused.value) == BAD_OFFSET


def test_good_types_and_offsets() -> None:
    assert parse_field_type(b"i64") == FieldType(True, 64)
    assert parse_field_type(b"u63") == FieldType(False, 63)
    assert (FieldType(True, 64).low, FieldType(True, 64).high) == (-(2**63), 2**63 - 1)
    assert parse_offset(b"4294967295") == 2**32 - 1
    assert parse_offset(b"#3", 5) == 15
    with pytest.raises(CommandError):
        parse_offset(b"#3")  # SETBIT has no fields


# --- Against a real server ----------------------------------------------------------------------


def _check(server: Peer, cases: list[tuple[tuple[Word, ...], Any]]) -> None:
    for (words, expected), reply in zip(cases, server.batch([words for words, _ in cases]), strict=True):
        assert reply == expected, words


def test_bits_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(4)
    cases: list[tuple[tuple[Word, ...], Any]] = []
    for _ in range(1200):
        size = chance.choice([0, 1, 2, 3, 8, 30])
        value = bytes(chance.choices([0, 0, 255, 255, chance.randrange(256)], k=size))
        by_bit = chance.random() < 0.5
        scale = 6 if by_bit else 1
        start, end = scale * chance.randint(-40, 40), scale * chance.randint(-40, 40)
        unit = ("BIT",) if by_bit else chance.choice([(), ("BYTE",)])
        bit, offset = chance.randint(0, 1), chance.randint(0, 300)
        changed, old = set_bit(value, offset, bit)
        cases += [
            (("SET", "k", value), b"OK"),
            (("BITCOUNT", "k"), bit_count(value)),
            (("BITCOUNT", "k", start, end, *unit), bit_count(value, start, end, by_bit=by_bit)),
            (("BITPOS", "k", bit), bit_position(value, bit)),
            (("BITPOS", "k", bit, start), bit_position(value, bit, start)),
            (("BITPOS", "k", bit, start, end, *unit), bit_position(value, bit, start, end, by_bit=by_bit)),
            (("GETBIT", "k", offset), get_bit(value, offset)),
            (("SETBIT", "k", offset, bit), old),
            (("GET", "k"), changed),
        ]
    _check(server, cases)


def test_operations_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(5)
    cases: list[tuple[tuple[Word, ...], Any]] = []
    for name in (b"AND", b"OR", b"XOR", b"NOT"):
        for _ in range(150):
            values = [chance.randbytes(chance.randint(0, 9)) for _ in range(chance.randint(1, 4))]
            values = values[:1] if name == b"NOT" else values
            keys = [f"s{index}" for index in range(len(values))]
            result = bit_operation(name, values)
            cases += [(("SET", key, value), b"OK") for key, value in zip(keys, values, strict=True)]
            cases += [(("BITOP", name, "d", *keys), len(result)), (("GET", "d"), result or None)]
    _check(server, cases)


def test_fields_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(6)
    cases: list[tuple[tuple[Word, ...], Any]] = []
    for _ in range(2000):
        value = chance.randbytes(chance.randint(0, 12))
        words: list[Word] = []
        steps: list[FieldOperation] = []
        for _ in range(chance.randint(1, 6)):
            overflow, operation = chance.choice(list(Overflow)), chance.choice(list(Operation))
            type_text = (
                b"i%d" % chance.randint(1, 64) if chance.random() < 0.5 else b"u%d" % chance.randint(1, 63)
            )
            kind = parse_field_type(type_text)
            offset_text = chance.choice([b"#%d" % chance.randint(0, 3), b"%d" % chance.randint(0, 100)])
            operand = chance.choice([chance.randint(-(2**63), 2**63 - 1), chance.randint(-300, 300)])
            words += ["OVERFLOW", overflow.value, operation.value, type_text, offset_text]
            words += [] if operation is Operation.GET else [operand]
            offset = parse_offset(offset_text, kind.bits)
            steps.append(FieldOperation(operation, kind, offset, operand, overflow))
        changed, answers = bit_field(value, steps)
        cases += [(("SET", "k", value), b"OK"), (("BITFIELD", "k", *words), answers), (("GET", "k"), changed)]
    _check(server, cases)
