"""String commands: replies, errors and what is left behind."""

from __future__ import annotations

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_FLOAT, NOT_INTEGER, SYNTAX, WRONGTYPE

OVERFLOW = "ERR increment or decrement would overflow"
MAX_INT64 = (1 << 63) - 1
#: In the year 2100, and in 1970.
FUTURE_S, FUTURE_MS = 4_102_444_800, 4_102_444_800_000
PAST_S, PAST_MS = 1000, 1_000_000


# ---------------------------------------------------------------------------- get, set


def test_set_and_get(db):
    assert db.do("SET", "k", "v") == b"OK"
    assert db.do("GET", "k") == b"v"
    assert db.do("SET", "k", "") == b"OK"
    assert db.do("GET", "k") == b""
    assert db.do("GET", "none") is None
    assert db.do("TYPE", "k") == b"string"


@pytest.mark.parametrize("size", [0, 1, 1000, 5_000_000])
def test_values_are_any_bytes(db, size):
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    db.do("SET", "k", value)
    assert db.do("GET", "k") == value


@pytest.mark.parametrize("length", [0, 449, 450, 451, 511, 5000])
def test_keys_of_any_length(db, length):
    key, other = b"k" * length + b"1", b"k" * length + b"2"
    db.do("SET", key, "v")
    db.do("SET", other, "w")
    assert db.do("MGET", key, other, key + b"1") == [b"v", b"w", None]
    assert db.do("APPEND", key, "v") == 2
    assert db.do("GETDEL", key) == b"vv"
    assert db.do("GET", other) == b"w"


def test_set_replaces_any_type_and_its_time_to_live(db):
    db.do("RPUSH", "k", "a", "b")
    db.do("EXPIRE", "k", 1000)
    assert db.do("SET", "k", "v") == b"OK"
    assert db.do("GET", "k") == b"v"
    assert db.do("TTL", "k") == -1


def test_set_nx_and_xx(db):
    assert db.do("SET", "k", "1", "XX") is None
    assert db.do("EXISTS", "k") == 0
    assert db.do("SET", "k", "1", "NX") == b"OK"
    assert db.do("SET", "k", "2", "nx") is None
    assert db.do("GET", "k") == b"1"
    assert db.do("SET", "k", "3", "xx") == b"OK"
    assert db.do("GET", "k") == b"3"


def test_set_get_answers_the_old_value(db):
    assert db.do("SET", "k", "1", "GET") is None
    assert db.do("SET", "k", "2", "GET") == b"1"
    assert db.do("SET", "k", "3", "NX", "GET") == b"2"
    assert db.do("GET", "k") == b"2"
    assert db.do("SET", "k", "3", "GET", "XX") == b"2"
    assert db.do("SET", "none", "3", "XX", "GET") is None
    assert db.do("SET", "new", "3", "NX", "GET") is None
    assert db.do("MGET", "k", "none", "new") == [b"3", None, b"3"]


def test_set_get_refuses_another_type(db):
    db.do("RPUSH", "l", "a")
    assert db.error("SET", "l", "v", "GET") == WRONGTYPE
    assert db.error("SET", "l", "v", "NX", "GET") == WRONGTYPE
    assert db.do("LRANGE", "l", 0, -1) == [b"a"]


@pytest.mark.parametrize(
    ("option", "amount"),
    [("EX", 100), ("ex", 100), ("PX", 100_000), ("EXAT", FUTURE_S), ("PXAT", FUTURE_MS)],
)
def test_set_with_a_time_to_live(db, option, amount):
    assert db.do("SET", "k", "v", option, amount) == b"OK"
    assert db.do("GET", "k") == b"v"
    if "AT" in option:
        assert db.do("PEXPIRETIME", "k") == FUTURE_MS
    else:
        assert 90_000 < db.do("PTTL", "k") <= 100_000
    db.do("SET", "k", "w")
    assert db.do("PTTL", "k") == -1


def test_set_keepttl(db):
    db.do("SET", "k", "v", "EX", 1000)
    assert db.do("SET", "k", "w", "KEEPTTL") == b"OK"
    assert db.do("GET", "k") == b"w"
    assert 0 < db.do("TTL", "k") <= 1000
    assert db.do("SET", "new", "v", "KEEPTTL") == b"OK"
    assert db.do("TTL", "new") == -1
    db.do("RPUSH", "l", "a")
    db.do("EXPIRE", "l", 1000)
    assert db.do("SET", "l", "v", "keepttl", "xx") == b"OK"
    assert 0 < db.do("TTL", "l") <= 1000


@pytest.mark.parametrize(("option", "amount"), [("EXAT", PAST_S), ("PXAT", PAST_MS), ("PXAT", 1)])
def test_set_with_a_deadline_that_has_passed(db, option, amount):
    db.do("SET", "k", "old")
    assert db.do("SET", "k", "v", option, amount) == b"OK"
    assert db.do("GET", "k") is None
    assert db.do("EXISTS", "k") == 0
    assert db.do("SET", "k", "again", "NX") == b"OK"
    assert db.do("TTL", "k") == -1


@pytest.mark.parametrize(
    "options",
    [
        "NX XX",
        "XX NX",
        "EX 10 PX 10",
        "EX 10 KEEPTTL",
        "KEEPTTL EX 10",
        "EXAT 10 PXAT 10",
        "EX",
        "PERSIST",
        "bad",
        "GET bad",
        "NX EX",
    ],
)
def test_set_options_that_make_no_sense(db, options):
    assert db.error("SET", "k", "v", *options.split()) == SYNTAX
    assert db.do("EXISTS", "k") == 0


def test_the_last_of_equal_options_counts(db):
    assert db.do("SET", "k", "v", "EX", 10, "NX", "EX", 1000, "NX") == b"OK"
    assert 900 < db.do("TTL", "k") <= 1000


@pytest.mark.parametrize("option", ["EX", "PX", "EXAT", "PXAT"])
def test_set_times_out_of_range(db, option):
    invalid = "ERR invalid expire time in 'set' command"
    assert db.error("SET", "k", "v", option, "0") == invalid
    assert db.error("SET", "k", "v", option, "-1") == invalid
    assert db.error("SET", "k", "v", option, "x") == NOT_INTEGER
    assert db.error("SET", "k", "v", option, "1.5") == NOT_INTEGER
    assert db.error("SET", "k", "v", option, MAX_INT64 + 1) == NOT_INTEGER
    if option != "PXAT":
        assert db.error("SET", "k", "v", option, MAX_INT64) == invalid
    assert db.do("EXISTS", "k") == 0


def test_setnx(db):
    assert db.do("SETNX", "k", "1") == 1
    assert db.do("SETNX", "k", "2") == 0
    assert db.do("GET", "k") == b"1"
    db.do("RPUSH", "l", "a")
    assert db.do("SETNX", "l", "v") == 0


@pytest.mark.parametrize(("command", "amount"), [("SETEX", 100), ("PSETEX", 100_000)])
def test_setex_and_psetex(db, command, amount):
    assert db.do(command, "k", amount, "v") == b"OK"
    assert db.do("GET", "k") == b"v"
    assert 90_000 < db.do("PTTL", "k") <= 100_000
    invalid = f"ERR invalid expire time in '{command.lower()}' command"
    assert db.error(command, "k", "0", "w") == invalid
    assert db.error(command, "k", "-5", "w") == invalid
    assert db.error(command, "k", MAX_INT64, "w") == invalid
    assert db.error(command, "k", "x", "w") == NOT_INTEGER
    assert db.do("GET", "k") == b"v"


def test_getset(db):
    assert db.do("GETSET", "k", "1") is None
    db.do("EXPIRE", "k", 1000)
    assert db.do("GETSET", "k", "2") == b"1"
    assert db.do("GET", "k") == b"2"
    assert db.do("TTL", "k") == -1


def test_getdel(db):
    db.do("SET", "k", "v")
    assert db.do("GETDEL", "k") == b"v"
    assert db.do("GETDEL", "k") is None
    assert db.do("EXISTS", "k") == 0


# ------------------------------------------------------------------------------- getex


def test_getex_without_options_leaves_the_time_to_live(db):
    db.do("SET", "k", "v", "EX", 1000)
    assert db.do("GETEX", "k") == b"v"
    assert 0 < db.do("TTL", "k") <= 1000


@pytest.mark.parametrize(
    ("option", "amount"),
    [("EX", 100), ("px", 100_000), ("EXAT", FUTURE_S), ("PXAT", FUTURE_MS)],
)
def test_getex_sets_the_time_to_live(db, option, amount):
    db.do("SET", "k", "v")
    assert db.do("GETEX", "k", option, amount) == b"v"
    if "AT" in option:
        assert db.do("PEXPIRETIME", "k") == FUTURE_MS
    else:
        assert 90_000 < db.do("PTTL", "k") <= 100_000


def test_getex_persist(db):
    db.do("SET", "k", "v", "EX", 1000)
    assert db.do("GETEX", "k", "persist") == b"v"
    assert db.do("TTL", "k") == -1
    assert db.do("GETEX", "k", "PERSIST") == b"v"


def test_getex_with_a_deadline_that_has_passed(db):
    db.do("SET", "k", "v")
    assert db.do("GETEX", "k", "PXAT", PAST_MS) == b"v"
    assert db.do("EXISTS", "k") == 0


def test_getex_of_nothing(db):
    assert db.do("GETEX", "none") is None
    assert db.do("GETEX", "none", "EX", 100) is None
    assert db.do("GETEX", "none", "PERSIST") is None
    assert db.do("EXISTS", "none") == 0


@pytest.mark.parametrize(
    "options",
    ["EX", "bad", "EX 10 PX 10", "PERSIST EX 10", "EX 10 PERSIST", "KEEPTTL", "NX", "GET", "bad 10"],
)
def test_getex_options_that_make_no_sense(db, options):
    db.do("SET", "k", "v")
    assert db.error("GETEX", "k", *options.split()) == SYNTAX
    assert db.error("GETEX", "none", *options.split()) == SYNTAX
    assert db.do("TTL", "k") == -1


def test_getex_times_out_of_range(db):
    db.do("SET", "k", "v")
    invalid = "ERR invalid expire time in 'getex' command"
    assert db.error("GETEX", "k", "EX", "0") == invalid
    assert db.error("GETEX", "k", "PX", "-1") == invalid
    assert db.error("GETEX", "k", "EX", MAX_INT64) == invalid
    assert db.error("GETEX", "k", "EX", "x") == NOT_INTEGER
    assert db.do("GETEX", "k") == b"v"


# ------------------------------------------------------------------------ several keys


def test_mget_answers_null_for_what_is_no_string(db):
    db.do("MSET", "a", "1", "b", "2")
    db.do("RPUSH", "l", "x")
    assert db.do("MGET", "b", "none", "l", "a", "b") == [b"2", None, None, b"1", b"2"]


def test_mset_replaces_anything(db):
    db.do("RPUSH", "l", "x")
    db.do("SET", "a", "0", "EX", 1000)
    assert db.do("MSET", "a", "1", "l", "2", "c", "3", "c", "4") == b"OK"
    assert db.do("MGET", "a", "l", "c") == [b"1", b"2", b"4"]
    assert db.do("TTL", "a") == -1


def test_msetnx_writes_all_or_nothing(db):
    assert db.do("MSETNX", "a", "1", "b", "2") == 1
    assert db.do("MSETNX", "c", "3", "b", "4") == 0
    assert db.do("MGET", "a", "b", "c") == [b"1", b"2", None]
    assert db.do("MSETNX", "d", "1", "d", "2") == 1
    assert db.do("GET", "d") == b"2"


@pytest.mark.parametrize("command", ["MSET", "MSETNX"])
def test_a_key_without_a_value_writes_nothing(db, command):
    text = f"ERR wrong number of arguments for '{command.lower()}' command"
    assert db.error(command, "a", "1", "b") == text
    assert db.error(command, "a") == text
    assert db.do("EXISTS", "a") == 0


# ------------------------------------------------------------------------- parts of it


def test_strlen(db):
    db.do("SET", "k", b"\x00\xff")
    assert db.do("STRLEN", "k") == 2
    assert db.do("STRLEN", "none") == 0


def test_append(db):
    assert db.do("APPEND", "k", "foo") == 3
    db.do("EXPIRE", "k", 1000)
    assert db.do("APPEND", "k", "bar") == 6
    assert db.do("APPEND", "k", "") == 6
    assert db.do("GET", "k") == b"foobar"
    assert 0 < db.do("TTL", "k") <= 1000
    assert db.do("APPEND", "new", "") == 0
    assert db.do("EXISTS", "new") == 1


@pytest.mark.parametrize("command", ["GETRANGE", "SUBSTR"])
@pytest.mark.parametrize(
    ("start", "end", "part"),
    [
        (0, -1, b"foobar"),
        (0, 0, b"f"),
        (1, 3, b"oob"),
        (-3, -1, b"bar"),
        (-100, 100, b"foobar"),
        (4, 2, b""),
        (-1, -3, b""),
        (6, 10, b""),
        (-100, -99, b"f"),
        (0, -100, b"f"),
        (5, MAX_INT64, b"r"),
        (-MAX_INT64 - 1, MAX_INT64, b"foobar"),
    ],
)
def test_getrange(db, command, start, end, part):
    db.do("SET", "k", "foobar")
    assert db.do(command, "k", start, end) == part


def test_getrange_of_nothing(db):
    assert db.do("GETRANGE", "none", 0, -1) == b""
    db.do("SET", "k", "")
    assert db.do("GETRANGE", "k", 0, -1) == b""
    assert db.error("GETRANGE", "k", "x", 1) == NOT_INTEGER
    assert db.error("GETRANGE", "k", 1, "x") == NOT_INTEGER


@pytest.mark.parametrize(
    ("old", "offset", "patch", "new"),
    [
        ("Hello World", 6, "Redis", b"Hello Redis"),
        ("foo", 0, "b", b"boo"),
        ("foo", 1, "xyz", b"fxyz"),
        ("foo", 3, "bar", b"foobar"),
        ("foo", 5, "x", b"foo\x00\x00x"),
        (None, 2, "x", b"\x00\x00x"),
        (None, 0, "x", b"x"),
    ],
)
def test_setrange(db, old, offset, patch, new):
    if old is not None:
        db.do("SET", "k", old)
    assert db.do("SETRANGE", "k", offset, patch) == len(new)
    assert db.do("GET", "k") == new


def test_setrange_of_nothing_changes_nothing(db):
    assert db.do("SETRANGE", "none", 5, "") == 0
    assert db.do("EXISTS", "none") == 0
    db.do("SET", "k", "foo", "EX", 1000)
    assert db.do("SETRANGE", "k", 100, "") == 3
    assert db.do("SETRANGE", "k", 0, "b") == 3
    assert db.do("GET", "k") == b"boo"
    assert 0 < db.do("TTL", "k") <= 1000


def test_setrange_errors(db):
    too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    assert db.error("SETRANGE", "k", "-1", "x") == "ERR offset is out of range"
    assert db.error("SETRANGE", "k", "x", "x") == NOT_INTEGER
    assert db.error("SETRANGE", "k", 512 * 1024 * 1024, "x") == too_long
    assert db.error("SETRANGE", "k", 512 * 1024 * 1024 - 3, "long") == too_long
    assert db.error("SETRANGE", "k", MAX_INT64, "x") == too_long
    assert db.do("EXISTS", "k") == 0


# ---------------------------------------------------------------------------- counters


def test_counting(db):
    assert db.do("INCR", "n") == 1
    assert db.do("INCRBY", "n", 10) == 11
    assert db.do("DECR", "n") == 10
    assert db.do("DECRBY", "n", 15) == -5
    assert db.do("INCRBY", "n", -5) == -10
    assert db.do("DECRBY", "n", -10) == 0
    assert db.do("GET", "n") == b"0"
    assert db.do("DECR", "new") == -1


def test_counting_keeps_the_time_to_live(db):
    db.do("SET", "n", "1", "EX", 1000)
    db.do("INCR", "n")
    db.do("INCRBYFLOAT", "n", "0.5")
    assert db.do("GET", "n") == b"2.5"
    assert 0 < db.do("TTL", "n") <= 1000


def test_counting_up_to_the_limits(db):
    db.do("SET", "n", MAX_INT64 - 1)
    assert db.do("INCR", "n") == MAX_INT64
    assert db.error("INCR", "n") == OVERFLOW
    assert db.error("INCRBY", "n", MAX_INT64) == OVERFLOW
    db.do("SET", "n", -MAX_INT64)
    assert db.do("DECR", "n") == -MAX_INT64 - 1
    assert db.error("DECR", "n") == OVERFLOW
    assert db.error("DECRBY", "n", 1) == OVERFLOW
    assert db.error("DECRBY", "n", -MAX_INT64 - 1) == "ERR decrement would overflow"
    assert db.do("GET", "n") == b"-9223372036854775808"


@pytest.mark.parametrize(
    "value", ["x", "", " 1", "1 ", "01", "+1", "-0", "1.0", "9223372036854775808", "0x1"]
)
def test_counting_what_is_no_integer(db, value):
    db.do("SET", "n", value)
    for words in (("INCR", "n"), ("DECR", "n"), ("INCRBY", "n", 1), ("DECRBY", "n", 1)):
        assert db.error(*words) == NOT_INTEGER
    assert db.error("INCRBY", "m", value) == NOT_INTEGER
    assert db.error("DECRBY", "m", value) == NOT_INTEGER
    assert db.do("GET", "n") == value.encode()
    assert db.do("EXISTS", "m") == 0


@pytest.mark.parametrize(
    ("start", "amount", "total"),
    [
        (None, "1.5", b"1.5"),
        ("10.50", "0.1", b"10.6"),
        ("5.0e3", "2.0e2", b"5200"),
        ("3", "-3", b"0"),
        ("1", "0x10", b"17"),
        ("1.5", "-0.5", b"1"),
        ("1", "1e-17", b"1.00000000000000001"),
        ("1e18", "1", b"1000000000000000001"),
        ("123456789012345678", "0.5", b"123456789012345678.5"),
    ],
)
def test_incrbyfloat(db, start, amount, total):
    if start is not None:
        db.do("SET", "n", start)
    assert db.do("INCRBYFLOAT", "n", amount) == total
    assert db.do("GET", "n") == total


@pytest.mark.parametrize("value", ["x", "", " 1", "1 ", "nan", "1,5", "1e10000"])
def test_incrbyfloat_of_what_is_no_number(db, value):
    assert db.error("INCRBYFLOAT", "m", value) == NOT_FLOAT
    db.do("SET", "n", value)
    assert db.error("INCRBYFLOAT", "n", "1") == NOT_FLOAT
    assert db.do("GET", "n") == value.encode()
    assert db.do("EXISTS", "m") == 0


def test_incrbyfloat_to_infinity(db):
    db.do("SET", "n", "1")
    for amount in ("inf", "-inf", "+inf", "infinity"):
        assert db.error("INCRBYFLOAT", "n", amount) == "ERR increment would produce NaN or Infinity"
    assert db.do("GET", "n") == b"1"


# --------------------------------------------------------------------------------- LCS


@pytest.fixture
def texts(db):
    db.do("MSET", "a", "ohmytext", "b", "mynewtext")
    return db


def test_lcs(texts):
    assert texts.do("LCS", "a", "b") == b"mytext"
    assert texts.do("LCS", "a", "b", "LEN") == 6
    assert texts.do("LCS", "a", "none") == b""
    assert texts.do("LCS", "a", "none", "len") == 0


def test_lcs_idx(texts):
    db = texts
    both = [[[4, 7], [5, 8]], [[2, 3], [0, 1]]]
    assert db.do("LCS", "a", "b", "IDX") == db.map({b"matches": both, b"len": 6})
    assert db.do("LCS", "a", "b", "IDX", "MINMATCHLEN", 4) == db.map({b"matches": both[:1], b"len": 6})
    assert db.do("LCS", "a", "b", "MINMATCHLEN", -5, "idx") == db.map({b"matches": both, b"len": 6})
    lengths = [[*both[0], 4], [*both[1], 2]]
    assert db.do("LCS", "a", "b", "IDX", "WITHMATCHLEN") == db.map({b"matches": lengths, b"len": 6})
    assert db.do("LCS", "none", "b", "IDX") == db.map({b"matches": [], b"len": 0})


def test_lcs_errors(texts):
    db = texts
    both = "ERR If you want both the length and indexes, please just use IDX."
    assert db.error("LCS", "a", "b", "LEN", "IDX") == both
    assert db.error("LCS", "a", "b", "bad") == SYNTAX
    assert db.error("LCS", "a", "b", "MINMATCHLEN") == SYNTAX
    assert db.error("LCS", "a", "b", "MINMATCHLEN", "x") == NOT_INTEGER
    db.do("RPUSH", "l", "element")
    for options in ((), ("LEN",), ("bad",)):
        assert db.error("LCS", "a", "l", *options) == "ERR The specified keys must contain string values"


# ------------------------------------------------------------------------ other types


@pytest.mark.parametrize(
    "words",
    [
        "GET l",
        "GETSET l v",
        "GETDEL l",
        "GETEX l",
        "GETEX l EX 10",
        "GETEX l PERSIST",
        "STRLEN l",
        "APPEND l v",
        "GETRANGE l 0 -1",
        "SUBSTR l 0 -1",
        "SETRANGE l 0 v",
        "SETRANGE l 600000000 v",
        "INCR l",
        "DECR l",
        "INCRBY l 1",
        "DECRBY l 1",
        "INCRBYFLOAT l 1",
        "INCRBYFLOAT l x",
    ],
)
def test_a_key_of_another_type_is_left_alone(db, words):
    db.do("RPUSH", "l", "element")
    assert db.error(*words.split()) == WRONGTYPE
    assert db.do("LRANGE", "l", 0, -1) == [b"element"]
    assert db.do("TTL", "l") == -1


def test_arguments_are_looked_at_before_the_type(db):
    db.do("RPUSH", "l", "element")
    assert db.error("INCRBY", "l", "x") == NOT_INTEGER
    assert db.error("GETRANGE", "l", "x", "1") == NOT_INTEGER
    assert db.error("SETRANGE", "l", "-1", "v") == "ERR offset is out of range"
    assert db.error("GETEX", "l", "bad") == SYNTAX


# ----------------------------------------------------------------------------- events


def test_events(db):
    announced = announcer(db)
    assert announced("SET", "k", "v") == [("set", "k")]
    assert announced("SET", "k", "v", "NX") == []
    assert announced("SET", "k", "v", "EX", 1000) == [("set", "k"), ("expire", "k")]
    assert announced("SET", "k", "v", "KEEPTTL") == [("set", "k")]
    assert announced("SETNX", "k", "v") == []
    assert announced("SETNX", "new", "v") == [("set", "new")]
    assert announced("SETEX", "k", 1000, "v") == [("set", "k"), ("expire", "k")]
    assert announced("PSETEX", "k", 100_000, "v") == [("set", "k"), ("expire", "k")]
    assert announced("GETEX", "k") == []
    assert announced("GETEX", "k", "PERSIST") == [("persist", "k")]
    assert announced("GETEX", "k", "PERSIST") == []
    assert announced("GETEX", "k", "EX", 1000) == [("expire", "k")]
    gone = "expired" if db.kind == "valkey" else "del"
    assert announced("GETEX", "k", "PXAT", PAST_MS) == [(gone, "k")]
    assert announced("GETSET", "k", "v") == [("set", "k")]
    assert announced("GETDEL", "k") == [("del", "k")]
    assert announced("MSET", "a", "1", "b", "2") == [("set", "a"), ("set", "b")]
    assert announced("MSETNX", "a", "1", "c", "2") == []
    assert announced("MSETNX", "c", "1", "d", "2") == [("set", "c"), ("set", "d")]
    assert announced("APPEND", "a", "1") == [("append", "a")]
    assert announced("SETRANGE", "a", 0, "2") == [("setrange", "a")]
    assert announced("SETRANGE", "a", 0, "") == []
    for command in ("INCR", "DECR"):
        assert announced(command, "b") == [("incrby", "b")]
    assert announced("INCRBY", "b", 2) == [("incrby", "b")]
    assert announced("DECRBY", "b", 2) == [("incrby", "b")]
    assert announced("INCRBYFLOAT", "b", "0.5") == [("incrbyfloat", "b")]
    assert announced("INCR", "b") == []
