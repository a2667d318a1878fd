"""Bit commands on strings: replies, errors and what is left behind."""

from __future__ import annotations

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE

BAD_OFFSET = "ERR bit offset is not an integer or out of range"
BAD_BIT = "ERR bit is not an integer or out of range"
BAD_TYPE = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."


# ------------------------------------------------------------------------- single bits


def test_setbit_answers_the_bit_that_was_there(db):
    assert db.do("SETBIT", "k", 7, 1) == 0
    assert db.do("SETBIT", "k", 7, 1) == 1
    assert db.do("SETBIT", "k", 0, 1) == 0
    assert db.do("GET", "k") == b"\x81"
    assert db.do("SETBIT", "k", 7, 0) == 1
    assert db.do("GET", "k") == b"\x80"
    assert db.do("TYPE", "k") == b"string"


def test_setbit_grows_the_string_by_zeros(db):
    assert db.do("SETBIT", "k", 20, 0) == 0
    assert db.do("GET", "k") == b"\x00\x00\x00"
    db.do("SET", "k", "a")
    db.do("SETBIT", "k", 31, 1)
    assert db.do("GET", "k") == b"a\x00\x00\x01"


def test_getbit(db):
    db.do("SET", "k", b"\x01\x80")
    assert [db.do("GETBIT", "k", n) for n in range(6, 11)] == [0, 1, 1, 0, 0]
    assert db.do("GETBIT", "k", 100_000) == 0
    assert db.do("GETBIT", "k", (1 << 32) - 1) == 0
    assert db.do("GETBIT", "none", 5) == 0


def test_setbit_keeps_the_time_to_live(db):
    db.do("SET", "k", "a", "EX", 1000)
    db.do("SETBIT", "k", 100, 1)
    assert 0 < db.do("TTL", "k") <= 1000


@pytest.mark.parametrize("offset", ["-1", "x", "", "4294967296", "1.0", "#1", "99999999999999999999"])
def test_bad_offsets(db, offset):
    assert db.error("SETBIT", "k", offset, 1) == BAD_OFFSET
    assert db.error("GETBIT", "k", offset) == BAD_OFFSET
    assert db.do("EXISTS", "k") == 0


@pytest.mark.parametrize("bit", ["2", "-1", "x", "", "01"])
def test_bad_bits(db, bit):
    assert db.error("SETBIT", "k", 0, bit) == BAD_BIT
    assert db.do("EXISTS", "k") == 0


# ------------------------------------------------------------------------------ ranges


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ("", 26),
        ("0 0", 4),
        ("1 1", 6),
        ("0 -1", 26),
        ("-2 -1", 7),
        ("0 -5", 10),
        ("-100 100", 26),
        ("5 3", 0),
        ("100 200", 0),
        ("1 1 BYTE", 6),
        ("5 30 BIT", 17),
        ("0 -1 bit", 26),
        ("-8 -1 BIT", 4),
        ("1 1 BIT", 1),
        ("0 0 BIT", 0),
        ("-1 -2 BIT", 0),
    ],
)
def test_bitcount(db, arguments, count):
    db.do("SET", "k", "foobar")
    assert db.do("BITCOUNT", "k", *arguments.split()) == count


def test_bitcount_of_nothing(db):
    assert db.do("BITCOUNT", "none") == 0
    assert db.do("BITCOUNT", "none", 0, -1, "BIT") == 0
    db.do("SET", "k", "")
    assert db.do("BITCOUNT", "k", 0, -1) == 0


def test_bitcount_errors(db):
    db.do("SET", "k", "foobar")
    if db.kind != "valkey":
        assert db.error("BITCOUNT", "k", 1) == SYNTAX
    assert db.error("BITCOUNT", "k", "x", 1) == NOT_INTEGER
    assert db.error("BITCOUNT", "k", 1, "x") == NOT_INTEGER
    assert db.error("BITCOUNT", "k", 0, 1, "hello") == SYNTAX
    assert db.error("BITCOUNT", "k", 0, 1, "BIT", "more") == SYNTAX


@pytest.mark.parametrize(
    ("value", "arguments", "place"),
    [
        (b"\xff\xf0\x00", "0", 12),
        (b"\x00\xff\xf0", "1", 8),
        (b"\x00\xff\xf0", "1 0", 8),
        (b"\x00\xff\xf0", "1 2", 16),
        (b"\x00\xff\xf0", "1 2 -1 BYTE", 16),
        (b"\x00\xff\xf0", "1 7 15 BIT", 8),
        (b"\x00\xff\xf0", "1 9 15 bit", 9),
        (b"\x00\xff\xf0", "1 7 -3 BIT", 8),
        (b"\x00\xff\xf0", "0 8 19 BIT", -1),
        (b"\x00\xff\xf0", "0 8 -1 BIT", 20),
        (b"\x00\xff\xf0", "1 5 2", -1),
        (b"\x00\x00\x00", "1", -1),
        (b"\xff\xff\xff", "1 3", -1),
        # Without an end the zeros behind the string count.
        (b"\xff\xff\xff", "0", 24),
        (b"\xff\xff\xff", "0 1", 24),
        (b"\xff\xff\xff", "0 0 -1", -1),
        (b"\xff\xff\xff", "0 3", -1),
        (b"\xff\xff\xff", "0 -1", 24),
        (b"\x00", "0 -100", 0),
    ],
)
def test_bitpos(db, value, arguments, place):
    db.do("SET", "k", value)
    assert db.do("BITPOS", "k", *arguments.split()) == place


def test_bitpos_of_nothing(db):
    assert db.do("BITPOS", "none", 0) == 0
    assert db.do("BITPOS", "none", 1) == -1
    assert db.do("BITPOS", "none", 0, 5, 7) == 0
    db.do("SET", "k", "")
    assert db.do("BITPOS", "k", 1) == -1
    assert db.do("BITPOS", "k", 0) == -1


def test_bitpos_errors(db):
    db.do("SET", "k", "foobar")
    assert db.error("BITPOS", "k", "x") == NOT_INTEGER
    assert db.error("BITPOS", "k", 2) == "ERR The bit argument must be 1 or 0."
    assert db.error("BITPOS", "k", -1) == "ERR The bit argument must be 1 or 0."
    assert db.error("BITPOS", "k", 1, "x") == NOT_INTEGER
    assert db.error("BITPOS", "k", 1, 0, "x") == NOT_INTEGER
    assert db.error("BITPOS", "k", 1, 0, 1, "hello") == SYNTAX
    assert db.error("BITPOS", "k", 1, 0, 1, "BIT", "more") == SYNTAX


# ----------------------------------------------------------------------- whole strings


@pytest.mark.parametrize(
    ("operation", "keys", "result"),
    [
        ("AND", "a b", b"\x0c\x00"),
        ("OR", "a b", b"\x3f\x55"),
        ("XOR", "a b", b"\x33\x55"),
        ("xor", "a a", b"\x00"),
        ("NOT", "b", b"\xc3\xaa"),
        ("not", "a", b"\xf0"),
        ("AND", "a", b"\x0f"),
        ("OR", "a none", b"\x0f"),
        ("AND", "b none", b"\x00\x00"),
        ("OR", "a b c", b"\x3f\x55\x01"),
    ],
)
def test_bitop(db, operation, keys, result):
    db.do("MSET", "a", b"\x0f", "b", b"\x3c\x55", "c", b"\x00\x00\x01")
    assert db.do("BITOP", operation, "target", *keys.split()) == len(result)
    assert db.do("GET", "target") == result


def test_bitop_over_its_source(db):
    db.do("SET", "k", b"\x00\xff")
    assert db.do("BITOP", "NOT", "k", "k") == 2
    assert db.do("GET", "k") == b"\xff\x00"


def test_bitop_replaces_any_type_and_its_time_to_live(db):
    db.do("SET", "a", "x")
    db.do("RPUSH", "target", "element")
    assert db.do("BITOP", "AND", "target", "a") == 1
    assert db.do("GET", "target") == b"x"
    db.do("EXPIRE", "target", 1000)
    assert db.do("BITOP", "AND", "target", "a") == 1
    assert db.do("TTL", "target") == -1


def test_bitop_of_nothing_deletes_the_target(db):
    db.do("SET", "target", "x")
    assert db.do("BITOP", "OR", "target", "none", "other") == 0
    assert db.do("EXISTS", "target") == 0
    assert db.do("BITOP", "NOT", "target", "none") == 0


def test_bitop_errors_write_nothing(db):
    db.do("MSET", "a", "x", "target", "old")
    db.do("RPUSH", "l", "element")
    assert db.error("BITOP", "NAND", "target", "a") == SYNTAX
    text = "ERR BITOP NOT must be called with a single source key."
    assert db.error("BITOP", "NOT", "target", "a", "l") == text
    assert db.error("BITOP", "AND", "target", "a", "l") == WRONGTYPE
    assert db.error("BITOP", "NOT", "target", "l") == WRONGTYPE
    assert db.do("GET", "target") == b"old"


# ------------------------------------------------------------------------------ fields


def test_bitfield_reads_and_writes_in_order(db):
    assert db.do("BITFIELD", "k", "SET", "u8", 0, 255, "GET", "u4", 0, "INCRBY", "i5", 100, 1) == [0, 15, 1]
    assert db.do("BITFIELD", "k", "set", "i8", "#0", -1, "get", "i8", 0, "GET", "u8", 0) == [-1, -1, 255]
    assert db.do("STRLEN", "k") == 14


def test_bitfield_places_in_bits_and_in_fields(db):
    db.do("BITFIELD", "k", "SET", "u8", "#0", 65, "SET", "u8", "#1", 66, "SET", "u8", 16, 67)
    assert db.do("GET", "k") == b"ABC"
    assert db.do("BITFIELD", "k", "GET", "u8", "#2", "GET", "u16", 4, "GET", "i3", 5) == [67, 0x1424, 1]


def test_bitfield_past_the_end_is_zero_and_does_not_grow(db):
    assert db.do("BITFIELD", "none", "GET", "u8", 0, "GET", "i64", 1000) == [0, 0]
    assert db.do("EXISTS", "none") == 0
    db.do("SET", "k", b"\xff")
    assert db.do("BITFIELD", "k", "GET", "u16", 0) == [0xFF00]
    assert db.do("STRLEN", "k") == 1


@pytest.mark.parametrize(
    ("overflow", "type_", "start", "step", "answer"),
    [
        ("WRAP", "u8", 250, 10, 4),
        ("WRAP", "u8", 5, -10, 251),
        ("WRAP", "i8", 120, 10, -126),
        ("WRAP", "i8", -120, -10, 126),
        ("SAT", "u8", 250, 10, 255),
        ("SAT", "u8", 5, -10, 0),
        ("SAT", "i8", 120, 10, 127),
        ("SAT", "i8", -120, -10, -128),
        ("FAIL", "u8", 250, 10, None),
        ("FAIL", "u8", 250, 5, 255),
        ("FAIL", "i8", -120, -10, None),
        ("WRAP", "i64", (1 << 63) - 1, 1, -(1 << 63)),
        ("SAT", "i64", (1 << 63) - 1, 1, (1 << 63) - 1),
        ("SAT", "u63", 1, -(1 << 63), 0),
        ("wrap", "u1", 1, 1, 0),
    ],
)
def test_bitfield_overflow(db, overflow, type_, start, step, answer):
    assert db.do("BITFIELD", "k", "SET", type_, 3, start) == [0]
    assert db.do("BITFIELD", "k", "OVERFLOW", overflow, "INCRBY", type_, 3, step) == [answer]
    now = start if answer is None else answer
    assert db.do("BITFIELD", "k", "GET", type_, 3) == [now]


def test_bitfield_overflow_holds_for_what_follows(db):
    reply = db.do(
        "BITFIELD", "k", "INCRBY", "u2", 100, 5,
        "OVERFLOW", "SAT", "INCRBY", "u2", 102, 5, "SET", "u2", 104, 9,
        "OVERFLOW", "FAIL", "INCRBY", "u2", 106, 5, "SET", "u2", 108, 9,
    )  # fmt: skip
    assert reply == [1, 3, 0, None, None]
    assert db.do("BITFIELD", "k", "GET", "u10", 100) == [0b01_11_11_00_00]


def test_bitfield_of_no_steps(db):
    assert db.do("BITFIELD", "none") == []
    assert db.do("BITFIELD", "none", "OVERFLOW", "SAT") == []
    assert db.do("EXISTS", "none") == 0


def test_bitfield_keeps_the_time_to_live(db):
    db.do("SET", "k", "a", "EX", 1000)
    db.do("BITFIELD", "k", "SET", "u8", 0, 1)
    assert 0 < db.do("TTL", "k") <= 1000


@pytest.mark.parametrize("type_", ["u64", "i65", "u0", "i0", "x8", "8", "u", "", "U8", "u-1"])
def test_bitfield_types(db, type_):
    assert db.error("BITFIELD", "k", "GET", type_, 0) == BAD_TYPE
    assert db.error("BITFIELD_RO", "k", "GET", type_, 0) == BAD_TYPE


@pytest.mark.parametrize("command", ["BITFIELD", "BITFIELD_RO"])
def test_bitfield_errors(db, command):
    assert db.error(command, "k", "GET", "u8") == SYNTAX
    assert db.error(command, "k", "GET", "u8", 0, "more") == SYNTAX
    assert db.error(command, "k", "bad", "u8", 0) == SYNTAX
    assert db.error(command, "k", "SET", "u8", 0) == SYNTAX
    assert db.error(command, "k", "OVERFLOW") == SYNTAX
    assert db.error(command, "k", "OVERFLOW", "bad") == "ERR Invalid OVERFLOW type specified"
    assert db.error(command, "k", "GET", "u8", "-1") == BAD_OFFSET
    assert db.error(command, "k", "GET", "u8", "#x") == BAD_OFFSET
    assert db.error(command, "k", "GET", "u8", 1 << 32) == BAD_OFFSET
    assert db.error(command, "k", "INCRBY", "u8", 0, "x") == NOT_INTEGER


def test_bitfield_errors_write_nothing(db):
    assert db.error("BITFIELD", "k", "SET", "u8", 0, 1, "bad") == SYNTAX
    assert db.do("EXISTS", "k") == 0


def test_bitfield_ro(db):
    db.do("SET", "k", b"\x12\x34")
    assert db.do("BITFIELD_RO", "k", "GET", "u4", 0, "get", "u4", "#3") == [1, 4]
    assert db.do("BITFIELD_RO", "none", "GET", "u8", 0) == [0]
    text = "ERR BITFIELD_RO only supports the GET subcommand"
    assert db.error("BITFIELD_RO", "k", "SET", "u8", 0, 1) == text
    assert db.error("BITFIELD_RO", "k", "GET", "u8", 0, "INCRBY", "u8", 0, 1) == text
    assert db.do("GET", "k") == b"\x12\x34"


# ------------------------------------------------------------------------ other types


@pytest.mark.parametrize(
    "words",
    [
        "SETBIT l 0 1",
        "GETBIT l 0",
        "BITCOUNT l",
        "BITCOUNT l 0 -1 BIT",
        "BITPOS l 1",
        "BITFIELD l GET u8 0",
        "BITFIELD l SET u8 0 1",
        "BITFIELD l",
        "BITFIELD_RO l GET u8 0",
    ],
)
def test_a_key_of_another_type_is_left_alone(db, words):
    db.do("RPUSH", "l", "element")
    assert db.error(*words.split()) == WRONGTYPE
    assert db.do("LRANGE", "l", 0, -1) == [b"element"]


def test_arguments_are_looked_at_before_the_type(db):
    db.do("RPUSH", "l", "element")
    assert db.error("SETBIT", "l", "x", 1) == BAD_OFFSET
    assert db.error("SETBIT", "l", 1, "x") == BAD_BIT
    assert db.error("GETBIT", "l", "x") == BAD_OFFSET
    assert db.error("BITPOS", "l", "2") == "ERR The bit argument must be 1 or 0."
    assert db.error("BITFIELD", "l", "GET", "x", 0) == BAD_TYPE


# ----------------------------------------------------------------------------- events


def test_events(db):
    announced = announcer(db)
    assert announced("SETBIT", "k", 5, 1) == [("setbit", "k")]
    assert announced("BITFIELD", "k", "SET", "u8", 0, 9) == [("setbit", "k")]
    assert announced("BITFIELD", "k", "GET", "u8", 0) == []
    assert announced("BITFIELD", "k", "OVERFLOW", "FAIL", "INCRBY", "u8", 0, 500) == []
    assert announced("BITOP", "NOT", "target", "k") == [("set", "target")]
    assert announced("BITOP", "NOT", "target", "none") == [("del", "target")]
    assert announced("BITOP", "NOT", "target", "none") == []
