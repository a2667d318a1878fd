"""Hash commands: replies, errors and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_FLOAT, NOT_INTEGER, SYNTAX, WRONGTYPE

#: Fields longer than a database key, equal in what such a key keeps of them.
LONG_ONE = b"f" * 600 + b"1"
LONG_OTHER = b"f" * 600 + b"2"


def content(db: Any, key: str = "h") -> dict[bytes, bytes]:
    reply = db.do("HGETALL", key)
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def fill(db: Any, **fields: str) -> None:
    db.do("DEL", "h")
    words = [word for pair in fields.items() for word in pair]
    assert db.do("HSET", "h", *words) == len(fields)


# ------------------------------------------------------------------------------ write


def test_hset_counts_new_fields(db):
    assert db.do("HSET", "h", "a", "1") == 1
    assert db.do("HSET", "h", "a", "2", "b", "3") == 1
    assert db.do("HSET", "h", "a", "2") == 0
    assert content(db) == {b"a": b"2", b"b": b"3"}
    assert db.do("TYPE", "h") == b"hash"


def test_hset_the_same_field_twice_in_one_command(db):
    assert db.do("HSET", "h", "a", "1", "a", "2") == 1
    assert content(db) == {b"a": b"2"}
    assert db.do("HLEN", "h") == 1


def test_hmset_answers_ok(db):
    assert db.do("HMSET", "h", "a", "1", "b", "2") == b"OK"
    assert db.do("HMSET", "h", "b", "3") == b"OK"
    assert content(db) == {b"a": b"1", b"b": b"3"}


@pytest.mark.parametrize("name", ["HSET", "hset", "HMSET"])
def test_a_field_without_a_value_writes_nothing(db, name):
    text = f"ERR wrong number of arguments for '{name.lower()}' command"
    assert db.error(name, "h", "a", "1", "b") == text
    assert db.error(name, "h", "a") == text
    assert db.do("EXISTS", "h") == 0


def test_fields_and_values_are_any_bytes(db):
    fields = {b"": b"", b"\x00\r\n\xff": b"\xff\x00", b"x": b"v" * 100_000}
    assert db.do("HSET", "h", *[word for pair in fields.items() for word in pair]) == 3
    assert content(db) == fields
    assert db.do("HGET", "h", b"") == b""


@pytest.mark.parametrize("length", [449, 450, 451, 511, 5000])
def test_long_fields(db, length):
    field = b"x" * length
    assert db.do("HSET", "h", field, "v", "short", "w") == 2
    assert db.do("HSET", "h", field, "v2") == 0
    assert db.do("HSETNX", "h", field, "v3") == 0
    assert db.do("HGET", "h", field) == b"v2"
    assert db.do("HGET", "h", b"x" * (length - 1)) is None
    assert content(db) == {field: b"v2", b"short": b"w"}
    assert sorted(db.do("HKEYS", "h")) == sorted([field, b"short"])
    assert sorted(db.do("HVALS", "h")) == [b"v2", b"w"]
    assert db.do("HSTRLEN", "h", field) == 2
    assert db.do("HDEL", "h", field) == 1
    assert content(db) == {b"short": b"w"}


def test_long_fields_that_begin_alike_are_different(db):
    assert db.do("HSET", "h", LONG_ONE, "1", LONG_OTHER, "2") == 2
    assert db.do("HMGET", "h", LONG_OTHER, LONG_ONE) == [b"2", b"1"]
    assert db.do("HINCRBY", "h", LONG_ONE, "5") == 6
    assert content(db) == {LONG_ONE: b"6", LONG_OTHER: b"2"}


def test_keys_longer_than_a_database_key(db):
    key = "k" * 600
    assert db.do("HSET", key, "a", "1") == 1
    assert db.do("HGET", key, "a") == b"1"
    assert db.do("HDEL", key, "a") == 1
    assert db.do("EXISTS", key) == 0


def test_hsetnx_leaves_an_existing_field(db):
    assert db.do("HSETNX", "h", "a", "1") == 1
    assert db.do("HSETNX", "h", "a", "2") == 0
    assert db.do("HSETNX", "h", "b", "") == 1
    assert content(db) == {b"a": b"1", b"b": b""}


def test_hdel_counts_and_removes_the_empty_hash(db):
    fill(db, a="1", b="2", c="3")
    assert db.do("HDEL", "h", "a", "x", "a") == 1
    assert db.do("HDEL", "h", "x") == 0
    assert content(db) == {b"b": b"2", b"c": b"3"}
    assert db.do("HDEL", "h", "b", "c", "d") == 2
    assert db.do("EXISTS", "h") == 0
    assert db.do("HDEL", "h", "a") == 0


def test_writing_keeps_the_time_to_live(db):
    fill(db, a="1")
    db.do("PEXPIRE", "h", "100000")
    db.do("HSET", "h", "b", "2")
    db.do("HINCRBY", "h", "a", "1")
    db.do("HDEL", "h", "a")
    assert 0 < db.do("PTTL", "h") <= 100_000


# ---------------------------------------------------------------------------- counters


def test_hincrby(db):
    assert db.do("HINCRBY", "h", "n", "5") == 5
    assert db.do("HINCRBY", "h", "n", "-7") == -2
    assert db.do("HGET", "h", "n") == b"-2"
    assert db.do("HINCRBY", "h", "other", "0") == 0
    assert content(db) == {b"n": b"-2", b"other": b"0"}


def test_hincrby_up_to_the_limits(db):
    fill(db, n="9223372036854775806")
    assert db.do("HINCRBY", "h", "n", "1") == 9223372036854775807
    assert db.error("HINCRBY", "h", "n", "1") == "ERR increment or decrement would overflow"
    fill(db, n="-9223372036854775808")
    assert db.error("HINCRBY", "h", "n", "-1") == "ERR increment or decrement would overflow"
    assert db.do("HGET", "h", "n") == b"-9223372036854775808"


@pytest.mark.parametrize("value", ["x", "", " 1", "1 ", "01", "+1", "1.0", "9223372036854775808", "1e3"])
def test_hincrby_of_what_is_no_integer(db, value):
    fill(db, n=value)
    assert db.error("HINCRBY", "h", "n", "1") == "ERR hash value is not an integer"
    assert db.error("HINCRBY", "h", "m", value) == NOT_INTEGER
    assert content(db) == {b"n": value.encode()}


@pytest.mark.parametrize(
    ("start", "amount", "total"),
    [
        ("0", "1.5", b"1.5"),
        ("10.50", "0.1", b"10.6"),
        ("5.0e3", "2.0e2", b"5200"),
        ("1", "-1", b"0"),
        ("3", "1.000000000000000005", b"4.00000000000000001"),
        ("0", "1e-18", b"0"),
        ("1e18", "1", b"1000000000000000001"),
    ],
)
def test_hincrbyfloat(db, start, amount, total):
    fill(db, n=start)
    assert db.do("HINCRBYFLOAT", "h", "n", amount) == total
    assert db.do("HGET", "h", "n") == total


def test_hincrbyfloat_of_a_new_field(db):
    assert db.do("HINCRBYFLOAT", "h", "n", "2.5") == b"2.5"
    assert db.do("HINCRBYFLOAT", "h", "m", "3") == b"3"
    assert content(db) == {b"n": b"2.5", b"m": b"3"}


def test_hincrbyfloat_errors_leave_nothing(db):
    assert db.error("HINCRBYFLOAT", "h", "n", "x") == NOT_FLOAT
    assert db.error("HINCRBYFLOAT", "h", "n", "nan") == NOT_FLOAT
    assert db.error("HINCRBYFLOAT", "h", "n", " 1") == NOT_FLOAT
    for infinite in ("inf", "-inf"):
        assert db.error("HINCRBYFLOAT", "h", "n", infinite) == "ERR value is NaN or Infinity"
    assert db.do("EXISTS", "h") == 0
    fill(db, n="x", m="inf")
    assert db.error("HINCRBYFLOAT", "h", "n", "1") == "ERR hash value is not a float"
    assert db.error("HINCRBYFLOAT", "h", "m", "1") == "ERR increment would produce NaN or Infinity"
    assert content(db) == {b"n": b"x", b"m": b"inf"}


# ------------------------------------------------------------------------------- read


def test_reading_one_field(db):
    fill(db, a="1", b="hello")
    assert db.do("HGET", "h", "b") == b"hello"
    assert db.do("HGET", "h", "c") is None
    assert db.do("HGET", "none", "a") is None
    assert db.do("HEXISTS", "h", "a") == 1
    assert db.do("HEXISTS", "h", "c") == 0
    assert db.do("HEXISTS", "none", "a") == 0
    assert db.do("HSTRLEN", "h", "b") == 5
    assert db.do("HSTRLEN", "h", "c") == 0
    assert db.do("HSTRLEN", "none", "a") == 0


def test_hmget_answers_each_field_in_order(db):
    fill(db, a="1", b="2")
    assert db.do("HMGET", "h", "b", "x", "a", "b") == [b"2", None, b"1", b"2"]
    assert db.do("HMGET", "none", "a", "b") == [None, None]


def test_reading_all(db):
    fill(db, a="1", b="2", c="2")
    assert content(db) == {b"a": b"1", b"b": b"2", b"c": b"2"}
    assert sorted(db.do("HKEYS", "h")) == [b"a", b"b", b"c"]
    assert sorted(db.do("HVALS", "h")) == [b"1", b"2", b"2"]
    assert db.do("HLEN", "h") == 3


def test_keys_and_values_come_in_the_same_order(db):
    fields = {f"field {n}": f"value {n}" for n in range(300)}
    fill(db, **fields)
    names, values = db.do("HKEYS", "h"), db.do("HVALS", "h")
    assert len(names) == 300
    assert {name.decode(): value.decode() for name, value in zip(names, values, strict=True)} == fields


def test_reading_nothing(db):
    assert db.do("HGETALL", "none") == db.map({})
    assert db.do("HKEYS", "none") == []
    assert db.do("HVALS", "none") == []
    assert db.do("HLEN", "none") == 0


def test_hgetall_is_a_map_in_resp3(db):
    fill(db, a="1")
    assert db.do("HGETALL", "h") == db.map({b"a": b"1"})


# ------------------------------------------------------------------------- random picks


def test_hrandfield_of_one(db):
    fill(db, a="1", b="2")
    assert {db.do("HRANDFIELD", "h") for _ in range(60)} == {b"a", b"b"}
    assert db.do("HRANDFIELD", "none") is None


def test_hrandfield_of_different_fields(db):
    fields = {f"f{n}": f"v{n}" for n in range(10)}
    fill(db, **fields)
    names = {name.encode() for name in fields}
    for count in (1, 3, 9):
        picked = db.do("HRANDFIELD", "h", count)
        assert len(picked) == len(set(picked)) == count
        assert set(picked) <= names
    assert set(db.do("HRANDFIELD", "h", 10)) == names
    assert sorted(db.do("HRANDFIELD", "h", 1000)) == sorted(names)


def test_hrandfield_with_repetition(db):
    fill(db, a="1", b="2")
    picked = db.do("HRANDFIELD", "h", -50)
    assert len(picked) == 50
    assert set(picked) == {b"a", b"b"}


def test_hrandfield_with_values(db):
    fill(db, a="1")
    assert db.do("HRANDFIELD", "h", 5, "WITHVALUES") == db.pairs([(b"a", b"1")])
    assert db.do("HRANDFIELD", "h", -2, "withvalues") == db.pairs([(b"a", b"1"), (b"a", b"1")])
    fields = {f"f{n}": f"v{n}" for n in range(300)}
    fill(db, **fields)
    for count in (5, 200, 300, -5, -400):
        reply = db.do("HRANDFIELD", "h", count, "WITHVALUES")
        pairs = reply if db.resp == 3 else zip(reply[::2], reply[1::2], strict=True)
        assert all(fields[name.decode()] == value.decode() for name, value in pairs)
        assert len(reply) == abs(count) * (1 if db.resp == 3 else 2)


def test_hrandfield_of_nothing(db):
    fill(db, a="1")
    assert db.do("HRANDFIELD", "h", 0) == []
    assert db.do("HRANDFIELD", "h", 0, "WITHVALUES") == []
    assert db.do("HRANDFIELD", "none", 3) == []
    assert db.do("HRANDFIELD", "none", -3, "WITHVALUES") == []


def test_hrandfield_errors(db):
    fill(db, a="1")
    assert db.error("HRANDFIELD", "h", "x") == NOT_INTEGER
    assert db.error("HRANDFIELD", "h", "x", "bad") == NOT_INTEGER
    assert db.error("HRANDFIELD", "h", "1", "bad") == SYNTAX
    assert db.error("HRANDFIELD", "h", "1", "WITHVALUES", "more") == SYNTAX
    limit = (1 << 63) - 1
    assert (
        db.error("HRANDFIELD", "h", -limit - 1)
        == f"ERR value is out of range, value must between {-limit} and {limit}"
    )
    assert db.error("HRANDFIELD", "h", limit, "WITHVALUES") == "ERR value is out of range"


# ------------------------------------------------------------------------------- scan


def scan_all(db: Any, *options: Any, key: str = "h") -> list[bytes]:
    cursor, found = b"0", []
    while True:
        cursor, items = db.do("HSCAN", key, cursor, *options)
        found += items
        if cursor == b"0":
            return found


def test_hscan_gives_fields_and_values(db):
    fields = {f"f{n}": f"v{n}" for n in range(1000)}
    fill(db, **fields)
    for options in ((), ("COUNT", 7), ("count", 5000)):
        found = scan_all(db, *options)
        assert {a.decode(): b.decode() for a, b in zip(found[::2], found[1::2], strict=True)} == fields


def test_hscan_of_long_fields(db):
    db.do("HSET", "h", LONG_ONE, "1", LONG_OTHER, "2")
    found = scan_all(db, "COUNT", 1)
    assert dict(zip(found[::2], found[1::2], strict=True)) == {LONG_ONE: b"1", LONG_OTHER: b"2"}


def test_hscan_match_looks_at_fields(db):
    fill(db, apple="1", banana="apple", apricot="3")
    found = scan_all(db, "MATCH", "ap*")
    assert sorted(zip(found[::2], found[1::2], strict=True)) == [(b"apple", b"1"), (b"apricot", b"3")]
    assert scan_all(db, "MATCH", "*", "COUNT", 1) != []
    assert scan_all(db, "MATCH", "nothing*") == []
    assert len(scan_all(db, "MATCH", "nothing", "MATCH", "b*")) == 2


def test_hscan_of_nothing_does_not_look_at_the_options(db):
    assert db.do("HSCAN", "none", 0) == [b"0", []]
    assert db.error("HSCAN", "none", "x") == "ERR invalid cursor"
    if db.kind != "valkey":
        assert db.do("HSCAN", "none", 0, "bad") == [b"0", []]


@pytest.mark.parametrize("cursor", ["x", "-", "1x", "18446744073709551616", "1.0"])
def test_hscan_of_a_bad_cursor(db, cursor):
    fill(db, a="1")
    assert db.error("HSCAN", "h", cursor) == "ERR invalid cursor"


def test_hscan_option_errors(db):
    fill(db, a="1")
    assert db.error("HSCAN", "h", 0, "bad") == SYNTAX
    assert db.error("HSCAN", "h", 0, "COUNT") == SYNTAX
    assert db.error("HSCAN", "h", 0, "COUNT", 0) == SYNTAX
    assert db.error("HSCAN", "h", 0, "COUNT", -5) == SYNTAX
    assert db.error("HSCAN", "h", 0, "COUNT", "x") == NOT_INTEGER
    assert db.error("HSCAN", "h", 0, "MATCH") == SYNTAX
    assert db.error("HSCAN", "h", 0, "TYPE", "hash") == SYNTAX


# ------------------------------------------------------------------------ other types


@pytest.mark.parametrize(
    "words",
    [
        "HSET k f v",
        "HMSET k f v",
        "HSETNX k f v",
        "HGET k f",
        "HMGET k f g",
        "HGETALL k",
        "HDEL k f",
        "HEXISTS k f",
        "HLEN k",
        "HSTRLEN k f",
        "HKEYS k",
        "HVALS k",
        "HINCRBY k f 1",
        "HINCRBYFLOAT k f 1.5",
        "HRANDFIELD k",
        "HRANDFIELD k 2 WITHVALUES",
        "HSCAN k 0",
    ],
)
def test_a_key_of_another_type_is_left_alone(db, words):
    db.do("SET", "k", "text")
    assert db.error(*words.split()) == WRONGTYPE
    assert db.do("GET", "k") == b"text"


def test_arguments_are_looked_at_before_the_type(db):
    db.do("SET", "k", "text")
    assert db.error("HINCRBY", "k", "f", "x") == NOT_INTEGER
    assert db.error("HINCRBYFLOAT", "k", "f", "x") == NOT_FLOAT
    assert db.error("HRANDFIELD", "k", "x") == NOT_INTEGER
    assert db.error("HSCAN", "k", "x") == "ERR invalid cursor"


# ----------------------------------------------------------------------------- events


def test_events(db):
    announced = announcer(db)
    assert announced("HSET", "h", "a", "1", "b", "2") == [("hset", "h")]
    assert announced("HSET", "h", "a", "1") == [("hset", "h")]
    assert announced("HMSET", "h", "c", "3") == [("hset", "h")]
    assert announced("HSETNX", "h", "c", "4") == []
    assert announced("HSETNX", "h", "d", "4") == [("hset", "h")]
    assert announced("HINCRBY", "h", "a", "1") == [("hincrby", "h")]
    assert announced("HINCRBY", "h", "a", "x") == []
    assert announced("HINCRBYFLOAT", "h", "a", "0.5") == [("hincrbyfloat", "h")]
    assert announced("HDEL", "h", "x") == []
    assert announced("HDEL", "h", "a", "b", "c") == [("hdel", "h")]
    assert announced("HDEL", "h", "d") == [("hdel", "h"), ("del", "h")]


def test_a_new_key_is_announced_if_asked_for(db):
    announced = announcer(db, "Ehgn")
    assert announced("HSET", "h", "a", "1") == [("new", "h"), ("hset", "h")]
    assert announced("HSET", "h", "b", "1") == [("hset", "h")]
