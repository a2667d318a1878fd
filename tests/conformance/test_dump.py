"""DUMP and RESTORE: there and back, to real servers and from them, and payloads that are none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.testing.servers import RealServer
from tests.conformance.events import Listener
from tests.conformance.refusals import NOT_INTEGER, SYNTAX

BAD_CHECKSUM = "ERR DUMP payload version or checksum are wrong"
BAD_FORMAT = "ERR Bad data format"
BUSY = "BUSYKEY Target key name already exists."
FAR_MS = 99_999_999_999_000

#: What Redis 7.0 answers to DUMP of the integer 10 and of "abc"; short strings have one form only.
TEN = b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb"
ABC = b"\x00\x03abc\n\x00\xd9\xac0=Ar\xa2\xe2"


def texts(count: int, seed: int) -> list[bytes]:
    """Distinct strings of every kind that has an encoding of its own."""
    chance = random.Random(seed)
    found = [b"", b"0", b"-1", b"127", b"128", b"4095", b"-4096", b"4096", b"32767", b"-32769", b"8388607"]
    found += [b"2147483647", b"-2147483649", b"9223372036854775807", b"007", b"1.5", b"x" * 63, b"y" * 64]
    found += [b"z" * 4095, b"q" * 20_000, chance.randbytes(5000), b"ab" * 3000]
    chance.shuffle(found)
    more = (b"%d:%b" % (n, chance.randbytes(chance.randrange(40))) for n in range(count))
    return (found + list(more))[:count] if count > 20 else [b"a%d" % n for n in range(count)]


def commands(kind: str, size: int) -> tuple[list[Any], list[Any]]:
    """How to create key "k" and how to read it."""
    names = texts(size, size)
    values = texts(size, size + 1)
    match kind:
        case "string":
            return ["SET", "k", b"".join(values)], ["GET", "k"]
        case "list":
            return ["RPUSH", "k", *names, *values], ["LRANGE", "k", "0", "-1"]
        case "set":
            return ["SADD", "k", *names], ["SORT", "k", "ALPHA"]
        case "integers":
            return ["SADD", "k", *(n * 1000 * (-1) ** n for n in range(size))], ["SORT", "k"]
        case "zset":
            scores = ["1", "-1.5", "inf", "-inf", "1e300", "0.1", "9007199254740993", "-0"]
            pairs = [word for n, name in enumerate(names) for word in (scores[n % 8], name)]
            return ["ZADD", "k", *pairs], ["ZRANGE", "k", "0", "-1", "WITHSCORES"]
        case _:
            pairs = [word for pair in zip(names, values, strict=True) for word in pair]
            return ["HSET", "k", *pairs], ["HMGET", "k", *names]


CONTENTS = [
    (kind, size) for kind in ("string", "list", "set", "integers", "zset", "hash") for size in (1, 10, 600)
]


# ----------------------------------------------------------------------------- there and back


@pytest.mark.parametrize(("kind", "size"), CONTENTS)
def test_round_trip(db, kind, size):
    create, read = commands(kind, size)
    db.do(*create)
    before, type_ = db.do(*read), db.do("TYPE", "k")
    payload = db.do("DUMP", "k")
    db.do("DEL", "k")
    assert db.do("RESTORE", "k", "0", payload) == b"OK"
    assert db.do(*read) == before
    assert db.do("TYPE", "k") == type_


@pytest.mark.parametrize(("kind", "size"), CONTENTS)
def test_values_travel_to_and_from_real_servers(db, real_server: RealServer, kind, size):
    if db.kind in ("redis", "valkey"):
        pytest.skip("what two real servers say to each other is their business")
    create, read = commands(kind, size)
    real_server.execute(*create)
    db.do(*create)
    before = db.do(*read)
    there, here = real_server.execute("DUMP", "k"), db.do("DUMP", "k")
    assert db.do("RESTORE", "k", "0", there, "REPLACE") == b"OK"
    assert db.do(*read) == before
    assert real_server.execute("RESTORE", "other", "0", here) == b"OK"
    assert real_server.execute("RENAME", "other", "k") == b"OK"
    assert db.do("RESTORE", "k", "0", real_server.execute("DUMP", "k"), "REPLACE") == b"OK"
    assert db.do(*read) == before


def test_dump_of_nothing(db):
    assert db.do("DUMP", "nothing") is None


def test_short_strings_have_the_bytes_of_redis(db):
    if db.kind == "valkey":
        pytest.skip("another version of the format")
    db.do("MSET", "ten", "10", "abc", "abc")
    assert db.do("DUMP", "ten") == TEN
    assert db.do("DUMP", "abc") == ABC


def test_a_large_string(db):
    value = random.Random(7).randbytes(300_000) + b"a" * 100_000
    db.do("SET", "k", value)
    assert db.do("RESTORE", "copy", "0", db.do("DUMP", "k")) == b"OK"
    assert db.do("GET", "copy") == value


# ---------------------------------------------------------------------------------- options


def test_time_to_live(db):
    assert db.do("RESTORE", "a", "100000", TEN) == b"OK"
    assert 90_000 < db.do("PTTL", "a") <= 100_000
    assert db.do("RESTORE", "b", FAR_MS, TEN, "absttl") == b"OK"
    assert db.do("PEXPIRETIME", "b") == FAR_MS
    assert db.do("RESTORE", "c", "0", TEN, "ABSTTL") == b"OK"
    assert db.do("PTTL", "c") == -1


def test_a_deadline_in_the_past_creates_nothing(db):
    assert db.do("RESTORE", "a", "1", TEN, "ABSTTL") == b"OK"
    assert db.do("EXISTS", "a") == 0
    db.do("SET", "b", "old")
    assert db.do("RESTORE", "b", "1", TEN, "ABSTTL", "REPLACE") == b"OK"
    assert db.do("EXISTS", "b") == 0


def test_replace(db):
    db.do("RPUSH", "k", *range(100))
    db.do("EXPIRE", "k", "1000")
    assert db.error("RESTORE", "k", "0", TEN) == BUSY
    assert db.do("LLEN", "k") == 100
    assert db.do("RESTORE", "k", "0", TEN, "replace") == b"OK"
    assert db.do("GET", "k") == b"10"
    assert db.do("TTL", "k") == -1


def test_idle_time_and_frequency_are_accepted(db):
    assert db.do("RESTORE", "a", "0", TEN, "IDLETIME", "0") == b"OK"
    assert db.do("RESTORE", "b", "0", TEN, "FREQ", "255") == b"OK"
    assert db.error("RESTORE", "c", "0", TEN, "IDLETIME", "-1") == "ERR Invalid IDLETIME value, must be >= 0"
    assert (
        db.error("RESTORE", "c", "0", TEN, "FREQ", "256") == "ERR Invalid FREQ value, must be >= 0 and <= 255"
    )
    assert db.error("RESTORE", "c", "0", TEN, "IDLETIME", "1", "FREQ", "1") == SYNTAX
    assert db.error("RESTORE", "c", "0", TEN, "FREQ", "1", "IDLETIME", "1") == SYNTAX
    assert db.do("EXISTS", "c") == 0


def test_a_restored_list_serves_who_waits_for_it(db):
    db.do("RPUSH", "l", "1", "2")
    payload = db.do("DUMP", "l")
    waiter = db.client()
    waiter.send("BLPOP", "k", "0")
    assert waiter.nothing_arrives()
    assert db.do("RESTORE", "k", "0", payload) == b"OK"
    assert waiter.receive() == [b"k", b"1"]
    assert db.do("LRANGE", "k", "0", "-1") == [b"2"]


def test_events(db):
    listener = Listener(db)
    db.do("RESTORE", "a", "0", TEN)
    db.do("RESTORE", "a", "100000", TEN, "REPLACE")
    db.do("RESTORE", "a", "1", TEN, "ABSTTL", "REPLACE")
    db.do("RESTORE", "a", "1", TEN, "ABSTTL", "REPLACE")
    assert listener.take() == [(0, "restore", b"a"), (0, "restore", b"a"), (0, "del", b"a")]


# ------------------------------------------------------------------------------ bad payloads


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        TEN[:-1] + b"\0",
        b"\x01" + TEN[1:],
        TEN[:-1],
        TEN + b"\0",
        b"\xff" * 30,
    ],
    ids=["empty", "short", "checksum", "type", "cut", "longer", "noise"],
)
def test_a_changed_payload_is_refused(db, payload):
    db.do("SET", "k", "old")
    assert db.error("RESTORE", "k", "0", payload, "REPLACE") == BAD_CHECKSUM
    assert db.error("RESTORE", "new", "0", payload) == BAD_CHECKSUM
    assert db.do("GET", "k") == b"old"
    assert db.do("DBSIZE") == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"\xfe\x00\n\x0031\xcd\rU\x00\x12~",
        b"\x01\x00\n\x00[\xf8%\xccl\x17CV",
    ],
    ids=["unknown type", "empty list"],
)
def test_an_intact_payload_that_means_nothing_is_refused(db, payload):
    db.do("SET", "k", "old")
    assert db.error("RESTORE", "k", "0", payload, "REPLACE") == BAD_FORMAT
    assert db.do("GET", "k") == b"old"


def test_refuses_bad_arguments(db):
    assert db.error("RESTORE", "k", "-1", TEN) == "ERR Invalid TTL value, must be >= 0"
    assert db.error("RESTORE", "k", "x", TEN) == NOT_INTEGER
    assert db.error("RESTORE", "k", "0", TEN, "BOGUS") == SYNTAX
    assert db.error("RESTORE", "k", "0", TEN, "IDLETIME") == SYNTAX
    assert db.error("RESTORE", "k", "x", b"", "BOGUS") == SYNTAX, "options come first"
    assert db.error("RESTORE", "k", "x", b"") == NOT_INTEGER, "then the time"
    assert db.do("EXISTS", "k") == 0
