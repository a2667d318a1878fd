"""Expiry by a clock that only moves when told to: lazily by whoever touches a key, swept by the duties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.keyspace import INLINE_DELETE_SIZE
from penstock.errors import CommandError


@pytest.fixture
def db(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        yield session


def rows(engine: Engine, table: str) -> int:
    """How many rows a table has."""
    found: list[int] = []
    engine.run_task(lambda: found.append(engine.unit.entries(engine.unit.tables[table])), write=False)
    return found[0]


def sweep(engine: Engine) -> None:
    while engine.duties.tick():
        pass


def events(session: LocalSession) -> list[tuple[bytes, bytes]]:
    """(channel, key) of the keyspace events that have arrived."""
    found = []
    while (push := session.poll()) is not None:
        if push[0] == b"pmessage":
            found.append((push[2], push[3]))
    return found


@pytest.fixture
def listener(engine: Engine, db: LocalSession) -> Iterator[LocalSession]:
    db.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
    with LocalSession(engine) as session:
        session.execute("PSUBSCRIBE", "__keyevent@*")
        yield session


# -------------------------------------------------------------------------------- lazily


def test_a_key_lives_until_its_deadline(db: LocalSession, clock: ManualClock) -> None:
    db.execute("SET", "k", "v")
    assert db.execute("PEXPIRE", "k", "1500") == 1
    clock.advance_ms(999)
    assert db.execute("PTTL", "k") == 501
    assert db.execute("TTL", "k") == 1
    clock.advance_ms(500)
    assert db.execute("GET", "k") == b"v"
    clock.advance_ms(1)
    assert db.execute("GET", "k") is None
    assert db.execute("PTTL", "k") == -2


def test_a_read_hides_an_expired_key_and_a_write_removes_it(
    db: LocalSession, engine: Engine, clock: ManualClock
) -> None:
    db.execute("SET", "k", "v", "PX", "10")
    db.execute("SET", "other", "v")
    clock.advance_ms(10)
    assert db.execute("EXISTS", "k") == 0
    assert db.execute("KEYS", "*") == [b"other"]
    assert db.execute("SCAN", "0") == [b"0", [b"other"]]
    assert {db.execute("RANDOMKEY") for _ in range(20)} == {b"other"}
    assert db.execute("DBSIZE") == 2, "DBSIZE counts rows, and reading removes none"
    assert db.execute("DEL", "k") == 0
    assert db.execute("DBSIZE") == 1
    assert rows(engine, "expiry:0") == 0


def test_randomkey_when_all_have_expired(db: LocalSession, clock: ManualClock) -> None:
    for number in range(5):
        db.execute("SET", f"k{number}", "v", "PX", "10")
    clock.advance_ms(10)
    assert db.execute("RANDOMKEY") is None


@pytest.mark.parametrize(
    "write",
    [
        ("SET", "k", "new"),
        ("SETNX", "k", "new"),
        ("RENAME", "source", "k"),
        ("RENAMENX", "source", "k"),
        ("COPY", "source", "k"),
        ("RPUSH", "k", "new"),
        ("SORT", "numbers", "STORE", "k"),
    ],
    ids=lambda write: write[0],
)
def test_what_takes_the_place_of_an_expired_key_has_no_deadline(
    db: LocalSession, engine: Engine, clock: ManualClock, write: tuple[str, ...]
) -> None:
    db.execute("SADD", "k", *range(5))
    db.execute("PEXPIRE", "k", "10")
    db.execute("SET", "source", "new")
    db.execute("RPUSH", "numbers", "1")
    clock.advance_ms(10)
    db.execute(*write)
    assert db.execute("PTTL", "k") == -1
    assert rows(engine, "expiry:0") == 0


@pytest.mark.parametrize("name", ["k", "k" * 600], ids=["short", "long"])
@pytest.mark.parametrize("is_observed", [False, True], ids=["unseen", "observed"])
@pytest.mark.parametrize(
    ("commands", "left_ms"),
    [
        ("SET k a EX 10, SET k b EX 10", 10_000),
        ("SET k a EX 10, SET k b PX 10000", 10_000),
        ("SET k a EX 10, SET k b EX 20", 20_000),
        ("SET k a EX 10, SET k b", -1),
        ("SET k a, SET k b EX 10", 10_000),
        ("SET k a EX 10, SET k b KEEPTTL", 10_000),
        ("SET k a EX 10, EXPIRE k 10", 10_000),
        ("SET k a EX 10, EXPIRE k 20", 20_000),
        ("SET k a, EXPIRE k 20", 20_000),
        ("SET k a EX 10, PERSIST k", -1),
        ("SET k a PX 5, wait, SET k b EX 10", 10_000),
        ("SET k a PX 5, wait, SET k b NX EX 10", 10_000),
        ("RPUSH k a, EXPIRE k 10, EXPIRE k 10, SET k b EX 10", 10_000),
        ("RPUSH k a, EXPIRE k 10, RPUSH k b, EXPIRE k 10, RPUSH k c", 10_000),
    ],
)
def test_a_deadline_has_one_row(
    db: LocalSession,
    engine: Engine,
    clock: ManualClock,
    commands: str,
    left_ms: int,
    name: str,
    is_observed: bool,
) -> None:
    if is_observed:
        db.execute("CONFIG", "SET", "notify-keyspace-events", "KEA")
    for line in commands.split(", "):
        if line == "wait":
            clock.advance_ms(10)
        else:
            db.execute(*(name if word == "k" else word for word in line.split()))
    assert db.execute("PTTL", name) == left_ms
    assert rows(engine, "expiry:0") == (left_ms > 0)
    assert check_store(engine) == []


def test_many_values_without_those_that_are_gone(
    db: LocalSession, engine: Engine, clock: ManualClock
) -> None:
    long = "k" * 600
    for name, *lifetime in (("a",), ("b", "PX", "10"), ("c", "PX", "20"), (long, "PX", "20"), (long + "x",)):
        db.execute("SET", name, "value of " + name, *lifetime)
    db.execute("RPUSH", "l", "1")
    clock.advance_ms(10)
    names = ("a", "b", "c", long, long + "x", "l", "none", "a")
    values = [f"value of {name}".encode() for name in names]
    values[1] = values[5] = values[6] = None  # type: ignore[call-overload]
    assert db.execute("MGET", *names) == values
    # In a transaction that writes, what has expired is removed on the way.
    assert db.execute("EVAL", "return redis.call('MGET', unpack(KEYS))", str(len(names)), *names) == values
    assert db.execute("DBSIZE") == 5


def test_an_expired_key_cannot_be_renamed_moved_or_copied(db: LocalSession, clock: ManualClock) -> None:
    db.execute("SET", "k", "v", "PX", "10")
    clock.advance_ms(10)
    assert db.execute("COPY", "k", "new") == 0
    assert db.execute("MOVE", "k", "1") == 0
    with pytest.raises(CommandError, match="no such key"):
        db.execute("RENAME", "k", "new")


def test_a_lazy_removal_tells_so(db: LocalSession, listener: LocalSession, clock: ManualClock) -> None:
    db.execute("SET", "k", "v", "PX", "10")
    clock.advance_ms(10)
    db.execute("GET", "k")
    assert events(listener) == [], "a read cannot publish"
    db.execute("APPEND", "k", "x")
    assert events(listener) == [(b"__keyevent@0__:expired", b"k")]


# --------------------------------------------------------------------------------- swept


def test_the_sweep_removes_what_is_due_and_nothing_else(
    db: LocalSession, engine: Engine, listener: LocalSession, clock: ManualClock
) -> None:
    db.execute("SET", "late", "v", "PX", "20")
    db.execute("SET", "soon", "v", "PX", "10")
    db.execute("SET", "for ever", "v")
    db.execute("SELECT", "7")
    db.execute("RPUSH", "l", "1", "2")
    db.execute("PEXPIRE", "l", "10")
    db.execute("SELECT", "0")
    assert engine.duties.tick() is False
    assert events(listener) == []

    clock.advance_ms(10)
    sweep(engine)
    assert db.execute("DBSIZE") == 2
    assert rows(engine, "expiry:0") == 1
    assert rows(engine, "expiry:7") == rows(engine, "keys:7") == rows(engine, "data:7") == 0
    assert events(listener) == [(b"__keyevent@0__:expired", b"soon"), (b"__keyevent@7__:expired", b"l")]

    clock.advance_ms(10)
    sweep(engine)
    assert db.execute("KEYS", "*") == [b"for ever"]
    assert rows(engine, "expiry:0") == 0
    assert events(listener) == [(b"__keyevent@0__:expired", b"late")]


def test_the_sweep_follows_deadlines_that_moved(db: LocalSession, engine: Engine, clock: ManualClock) -> None:
    for key in ("later", "persistent", "replaced", "renamed"):
        db.execute("SET", key, "v", "PX", "10")
    db.execute("PEXPIRE", "later", "1000")
    db.execute("PERSIST", "persistent")
    db.execute("SET", "replaced", "new")
    db.execute("RENAME", "renamed", "other")
    clock.advance_ms(10)
    sweep(engine)
    assert sorted(db.execute("KEYS", "*")) == [b"later", b"persistent", b"replaced"]
    assert rows(engine, "expiry:0") == 1


def test_many_keys_are_swept_in_steps(db: LocalSession, engine: Engine, clock: ManualClock) -> None:
    for number in range(1200):
        db.execute("SET", f"k{number}", "v", "PX", "10")
    clock.advance_ms(10)
    assert engine.duties.tick() is True
    assert 0 < db.execute("DBSIZE") < 1200
    sweep(engine)
    assert db.execute("DBSIZE") == 0
    assert rows(engine, "expiry:0") == 0


@pytest.mark.parametrize("size", [1, INLINE_DELETE_SIZE, INLINE_DELETE_SIZE + 1, 5000])
def test_elements_of_an_expired_collection_go_too(
    db: LocalSession, engine: Engine, clock: ManualClock, size: int
) -> None:
    db.execute("ZADD", "z", *(word for number in range(size) for word in (number, number)))
    db.execute("PEXPIRE", "z", "10")
    assert rows(engine, "data:0") == 2 * size
    clock.advance_ms(10)
    sweep(engine)
    assert rows(engine, "data:0") == rows(engine, "garbage") == rows(engine, "keys:0") == 0


@pytest.mark.parametrize("key", [b"n" * 449, b"n" * 450, b"n" * 3000], ids=len)
def test_long_names_are_swept_and_told(
    db: LocalSession, engine: Engine, listener: LocalSession, clock: ManualClock, key: bytes
) -> None:
    db.execute("SET", key, "v", "PX", "10")
    clock.advance_ms(10)
    sweep(engine)
    assert db.execute("DBSIZE") == 0
    assert events(listener) == [(b"__keyevent@0__:expired", key)]


def test_a_watched_key_that_is_swept_refuses_exec(
    db: LocalSession, engine: Engine, clock: ManualClock
) -> None:
    db.execute("SET", "k", "v", "PX", "10")
    db.execute("WATCH", "k")
    clock.advance_ms(10)
    sweep(engine)
    db.execute("MULTI")
    db.execute("PING")
    reply: Any = db.execute("EXEC")
    assert not isinstance(reply, list)


def test_swapped_databases_keep_deadlines_and_garbage(
    db: LocalSession, engine: Engine, listener: LocalSession, clock: ManualClock
) -> None:
    db.execute("RPUSH", "large", *range(500))
    db.execute("DEL", "large")
    db.execute("SET", "k", "v", "PX", "10")
    db.execute("SWAPDB", "0", "1")
    assert rows(engine, "expiry:0") == 0
    assert rows(engine, "expiry:1") == 1
    clock.advance_ms(10)
    sweep(engine)
    assert events(listener) == [(b"__keyevent@1__:expired", b"k")]
    for table in ("keys:1", "data:0", "data:1", "expiry:1", "garbage"):
        assert rows(engine, table) == 0, table
