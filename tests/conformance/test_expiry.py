"""How long keys live. Deadlines far away, in the past, or passed by a loop that asks until they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.events import Listener
from tests.conformance.refusals import NOT_INTEGER

#: A moment in the year 5138, in seconds and in milliseconds.
FAR_S = 99_999_999_999
FAR_MS = FAR_S * 1000


def wait_until_gone(db: Any, key: str) -> None:
    """Ask until the key has expired; the test's own timeout ends a wait in vain."""
    while db.do("EXISTS", key):
        pass


def test_deadlines_in_all_units(db):
    db.do("MSET", "a", "1", "b", "2", "c", "3", "d", "4")
    assert db.do("EXPIRE", "a", "1000") == 1
    assert db.do("PEXPIRE", "b", "1000000") == 1
    assert db.do("EXPIREAT", "c", FAR_S) == 1
    assert db.do("PEXPIREAT", "d", FAR_MS + 1) == 1
    for key in ("a", "b"):
        assert 990 < db.do("TTL", key) <= 1000
        assert 990_000 < db.do("PTTL", key) <= 1_000_000
    assert db.do("EXPIRETIME", "c") == FAR_S
    assert db.do("PEXPIRETIME", "c") == FAR_MS
    assert db.do("PEXPIRETIME", "d") == FAR_MS + 1


def test_seconds_are_rounded(db):
    db.do("SET", "a", "1")
    db.do("PEXPIREAT", "a", FAR_MS + 499)
    assert db.do("EXPIRETIME", "a") == FAR_S
    db.do("PEXPIREAT", "a", FAR_MS + 500)
    assert db.do("EXPIRETIME", "a") == FAR_S + 1
    db.do("PEXPIRE", "a", "10700")
    assert db.do("TTL", "a") in (10, 11)


@pytest.mark.parametrize("command", ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"])
def test_no_deadline_and_no_key(db, command):
    db.do("SET", "a", "1")
    assert db.do(command, "a") == -1
    assert db.do(command, "nothing") == -2


def test_persist(db):
    db.do("SET", "a", "1", "EX", "1000")
    assert db.do("PERSIST", "a") == 1
    assert db.do("TTL", "a") == -1
    assert db.do("PERSIST", "a") == 0
    assert db.do("PERSIST", "nothing") == 0


@pytest.mark.parametrize("command", ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"])
def test_of_a_missing_key(db, command):
    assert db.do(command, "nothing", FAR_S) == 0
    assert db.do("EXISTS", "nothing") == 0


@pytest.mark.parametrize(
    ("command", "amount"),
    [("EXPIRE", 0), ("EXPIRE", -1), ("PEXPIRE", -1000), ("EXPIREAT", 1), ("EXPIREAT", -5), ("PEXPIREAT", 1)],
)
def test_a_deadline_in_the_past_deletes(db, command, amount):
    db.do("RPUSH", "l", *range(100))
    assert db.do(command, "l", amount) == 1
    assert db.do("EXISTS", "l") == 0
    assert db.do("DBSIZE") == 0


@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "hash"])
def test_every_type_expires(db, kind):
    create = {
        "string": ("SET", "k", "v"),
        "list": ("RPUSH", "k", "v"),
        "set": ("SADD", "k", "v"),
        "zset": ("ZADD", "k", "1", "v"),
        "hash": ("HSET", "k", "f", "v"),
    }[kind]
    db.do(*create)
    assert db.do("PEXPIRE", "k", "1") == 1
    wait_until_gone(db, "k")
    assert db.do("TYPE", "k") == b"none"
    assert db.do("TTL", "k") == -2
    assert db.do("KEYS", "*") == []
    assert db.do("SCAN", "0")[1] == []
    assert db.do("RANDOMKEY") is None
    assert db.do(*create) in (b"OK", 1)
    assert db.do("TTL", "k") == -1


def test_changing_a_value_keeps_the_deadline_and_replacing_it_does_not(db):
    db.do("SET", "counter", "1", "PXAT", FAR_MS)
    db.do("INCR", "counter")
    db.do("APPEND", "counter", "0")
    db.do("RPUSH", "l", "a")
    db.do("PEXPIREAT", "l", FAR_MS)
    db.do("RPUSH", "l", "b")
    db.do("LPOP", "l")
    assert db.do("PEXPIRETIME", "counter") == FAR_MS
    assert db.do("PEXPIRETIME", "l") == FAR_MS
    db.do("SET", "counter", "1")
    assert db.do("TTL", "counter") == -1


@pytest.mark.parametrize(
    ("current", "condition", "new", "is_set"),
    [
        (None, "NX", 200, True),
        (100, "NX", 200, False),
        (None, "XX", 200, False),
        (100, "XX", 50, True),
        (None, "GT", 200, False),
        (100, "GT", 200, True),
        (100, "GT", 50, False),
        (100, "GT", 100, False),
        (None, "LT", 200, True),
        (100, "LT", 50, True),
        (100, "LT", 200, False),
        (100, "LT", 100, False),
        (None, "XX LT", 50, False),
        (100, "XX GT", 200, True),
        (100, "lt xx", 50, True),
    ],
)
def test_conditions(db, current, condition, new, is_set):
    db.do("SET", "a", "1")
    if current is not None:
        db.do("EXPIREAT", "a", FAR_S + current)
    before = db.do("EXPIRETIME", "a")
    assert db.do("EXPIREAT", "a", FAR_S + new, *condition.split()) == is_set
    assert db.do("EXPIRETIME", "a") == (FAR_S + new if is_set else before)


def test_a_refused_condition_does_not_delete(db):
    db.do("SET", "a", "1")
    assert db.do("EXPIRE", "a", "-1", "XX") == 0
    assert db.do("EXPIRE", "a", "-1", "GT") == 0
    assert db.do("GET", "a") == b"1"
    assert db.do("EXPIRE", "a", "-1", "LT") == 1
    assert db.do("EXISTS", "a") == 0


@pytest.mark.parametrize("conditions", ["NX XX", "NX GT", "NX LT", "lt NX"])
def test_nx_stands_alone(db, conditions):
    expected = "ERR NX and XX, GT or LT options at the same time are not compatible"
    assert db.error("EXPIRE", "a", "1", *conditions.split()) == expected


def test_refuses_bad_arguments(db):
    db.do("SET", "a", "1")
    assert (
        db.error("EXPIRE", "a", "1", "GT", "LT")
        == "ERR GT and LT options at the same time are not compatible"
    )
    assert db.error("EXPIRE", "a", "1", "bogus") == "ERR Unsupported option bogus"
    assert db.error("EXPIRE", "a", "x") == NOT_INTEGER
    assert db.error("EXPIRE", "a", "1.5") == NOT_INTEGER
    assert db.error("EXPIRE", "a", "9223372036854775808") == NOT_INTEGER
    assert db.do("TTL", "a") == -1


@pytest.mark.parametrize(
    ("command", "amount"),
    [
        ("expire", 9223372036854775807),
        ("expire", 9223372036854775),
        ("expire", -9223372036854775808),
        ("pexpire", 9223372036854775807),
        ("expireat", 9223372036854776),
    ],
)
def test_refuses_times_out_of_range(db, command, amount):
    db.do("SET", "a", "1")
    assert db.error(command, "a", amount) == f"ERR invalid expire time in '{command}' command"
    assert db.do("TTL", "a") == -1


def test_the_last_moment_is_possible(db):
    db.do("SET", "a", "1")
    assert db.do("PEXPIREAT", "a", "9223372036854775807") == 1
    assert db.do("PEXPIRETIME", "a") == 9223372036854775807


def test_events(db):
    db.do("MSET", "a", "1", "b", "2", "c", "3")
    listener = Listener(db)
    db.do("EXPIRE", "a", "1000")
    db.do("EXPIRE", "a", "2000", "NX")
    db.do("PERSIST", "a")
    db.do("PERSIST", "a")
    db.do("EXPIRE", "b", "-1")
    gone = "expired" if db.kind == "valkey" else "del"
    assert listener.take() == [(0, "expire", b"a"), (0, "persist", b"a"), (0, gone, b"b")]


def test_an_expired_key_tells_so_once(db):
    listener = Listener(db, "Ex")
    db.do("SET", "a", "1", "PX", "1")
    wait_until_gone(db, "a")
    # A write to the name finds it expired, if nobody did before.
    db.do("SETNX", "a", "2")
    assert listener.take() == [(0, "expired", b"a")]
    assert db.do("GET", "a") == b"2"


def test_a_watched_key_that_expires_refuses_exec(db):
    watcher = db.client()
    for life_ms in (20, 200, 2000):
        db.do("SET", "a", "1", "PX", life_ms)
        watcher.do("WATCH", "a")
        if watcher.do("EXISTS", "a"):
            break  # it was alive while it was watched
        watcher.do("UNWATCH")
    wait_until_gone(db, "a")
    watcher.do("MULTI")
    watcher.do("PING")
    assert watcher.do("EXEC") is None
