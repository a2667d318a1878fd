"""Keys whatever they hold: delete, look, scan, rename, copy, move, flush, swap, OBJECT, MEMORY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.events import Listener
from tests.conformance.refusals import NOT_INTEGER, SYNTAX

NO_SUCH_KEY = "ERR no such key"
SAME_OBJECT = "ERR source and destination objects are the same"
NO_SUCH_DATABASE = "ERR DB index is out of range"
NOT_INT32 = "ERR value is out of range, value must between -2147483648 and 2147483647"

#: Names at the border where a name no longer fits a row, and beyond.
LONG_NAMES = [b"n" * 449, b"n" * 450, b"n" * 451, b"n" * 5000]

#: type → (how to create key "k", how to read it, what that gives)
VALUES: dict[str, tuple[list[str], list[str], Callable[[Any], Any]]] = {
    "string": (["SET", "k", "v"], ["GET"], lambda db: b"v"),
    "list": (["RPUSH", "k", "a", "b", "a"], ["LRANGE", "0", "-1"], lambda db: [b"a", b"b", b"a"]),
    "set": (["SADD", "k", "m"], ["SMEMBERS"], lambda db: [b"m"]),
    "zset": (["ZADD", "k", "1.5", "m"], ["ZSCORE", "m"], lambda db: db.double(1.5)),
    "hash": (["HSET", "k", "f", "v"], ["HGETALL"], lambda db: db.map({b"f": b"v"})),
}


def read(db: Any, kind: str, key: Any) -> Any:
    command, *rest = VALUES[kind][1]
    return db.do(command, key, *rest)


def scan_all(db: Any, *options: Any) -> list[bytes]:
    """Every key that a whole SCAN returns, repetitions included."""
    cursor, found = db.do("SCAN", "0", *options)
    while cursor != b"0":
        cursor, more = db.do("SCAN", cursor, *options)
        found += more
    return found


# ---------------------------------------------------------------------------- a few keys


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
def test_delete_counts_what_was_there(db, command):
    db.do("MSET", "a", "1", "b", "2")
    db.do("RPUSH", "l", *range(200))
    assert db.do(command, "a", "a", "nothing", "l") == 2
    assert db.do("KEYS", "*") == [b"b"]
    assert db.do("LRANGE", "l", "0", "-1") == []
    db.do("RPUSH", "l", "fresh")
    assert db.do("LRANGE", "l", "0", "-1") == [b"fresh"]
    assert db.error(command) == f"ERR wrong number of arguments for '{command.lower()}' command"


@pytest.mark.parametrize("command", ["EXISTS", "TOUCH"])
def test_exists_counts_repetitions(db, command):
    db.do("MSET", "a", "1", "b", "2")
    assert db.do(command, "a", "b", "a", "nothing") == 3
    assert db.do(command, "nothing") == 0


@pytest.mark.parametrize("kind", VALUES)
def test_type(db, kind):
    db.do(*VALUES[kind][0])
    assert db.do("TYPE", "k") == kind.encode()
    assert db.do("TYPE", "nothing") == b"none"


def test_long_and_binary_names_are_told_apart(db):
    names = [*LONG_NAMES, b"n" * 4999 + b"m", b"", b"\0", b"\xff\r\n"]
    for number, name in enumerate(names):
        assert db.do("SET", name, number) == b"OK"
    assert sorted(db.do("KEYS", "*")) == sorted(names)
    assert sorted(scan_all(db, "COUNT", "2")) == sorted(names)
    assert db.do("MGET", *names) == [b"%d" % number for number in range(len(names))]
    assert db.do("DEL", *names) == len(names)
    assert db.do("DBSIZE") == 0


# ---------------------------------------------------------------------- a whole database


def test_keys_filters_by_pattern(db):
    db.do("MSET", "hello", "", "hallo", "", "hxllo", "", "world", "", "h[llo", "")
    assert sorted(db.do("KEYS", "h?llo")) == [b"h[llo", b"hallo", b"hello", b"hxllo"]
    assert sorted(db.do("KEYS", "h[ae]llo")) == [b"hallo", b"hello"]
    assert sorted(db.do("KEYS", "h[^e]llo")) == [b"h[llo", b"hallo", b"hxllo"]
    assert db.do("KEYS", r"h\[llo") == [b"h[llo"]
    assert db.do("KEYS", "world") == [b"world"]
    assert db.do("KEYS", "*x*") == [b"hxllo"]
    assert db.do("KEYS", "nothing") == []
    assert len(db.do("KEYS", "*")) == 5


def test_scan_returns_every_key_once_if_nothing_changes(db):
    names = {b"key:%d" % number for number in range(300)}
    db.do("MSET", *(word for name in names for word in (name, "v")))
    found = scan_all(db, "COUNT", "7")
    assert set(found) == names
    assert len(found) == len(names)


def test_scan_returns_what_stays_while_others_come_and_go(db):
    staying = {b"stay:%d" % number for number in range(200)}
    for name in staying:
        db.do("SET", name, "v")
    found: set[bytes] = set()
    cursor, step = b"0", 0
    while cursor != b"0" or step == 0:
        cursor, some = db.do("SCAN", cursor, "COUNT", "10")
        found.update(some)
        for number in range(20):
            db.do("SET", f"come:{step}:{number}", "v")
            db.do("DEL", f"come:{step - 1}:{number}")
        step += 1
    assert staying <= found


def test_scan_options(db):
    db.do("MSET", "s1", "", "s2", "", "other", "")
    db.do("RPUSH", "s3", "x")
    assert sorted(scan_all(db, "MATCH", "s*")) == [b"s1", b"s2", b"s3"]
    assert sorted(scan_all(db, "match", "s*", "type", "STRING", "count", "1")) == [b"s1", b"s2"]
    assert scan_all(db, "TYPE", "list") == [b"s3"]
    assert scan_all(db, "TYPE", "hash") == []
    assert db.do("SCAN", "0", "COUNT", "100", "MATCH", "nothing") == [b"0", []]


def test_scan_refuses_bad_arguments(db):
    assert db.error("SCAN", "x") == "ERR invalid cursor"
    assert db.error("SCAN", "99999999999999999999999") == "ERR invalid cursor"
    assert db.error("SCAN", "0", "COUNT", "0") == SYNTAX
    assert db.error("SCAN", "0", "COUNT", "x") == NOT_INTEGER
    assert db.error("SCAN", "0", "MATCH") == SYNTAX
    assert db.error("SCAN", "0", "BOGUS", "1") == SYNTAX


def test_randomkey_finds_every_key(db):
    assert db.do("RANDOMKEY") is None
    names = {b"a", b"b", b"c"}
    for name in names:
        db.do("SET", name, "v")
    found = {db.do("RANDOMKEY") for _ in range(200)}
    assert found == names


def test_dbsize(db):
    assert db.do("DBSIZE") == 0
    db.do("MSET", "a", "1", "b", "2")
    db.do("SADD", "s", "1", "2", "3")
    assert db.do("DBSIZE") == 3
    db.do("SELECT", "1")
    assert db.do("DBSIZE") == 0


# ------------------------------------------------------------------------------- rename


@pytest.mark.parametrize("kind", VALUES)
def test_rename_takes_value_and_deadline_along(db, kind):
    db.do(*VALUES[kind][0])
    db.do("PEXPIREAT", "k", "99999999999999")
    db.do("RPUSH", "new", "old", "content")
    assert db.do("RENAME", "k", "new") == b"OK"
    assert db.do("EXISTS", "k") == 0
    assert read(db, kind, "new") == VALUES[kind][2](db)
    assert db.do("PEXPIRETIME", "new") == 99999999999999
    assert db.do("DBSIZE") == 1


def test_rename_over_an_expiring_key_drops_its_deadline(db):
    db.do("SET", "a", "1")
    db.do("SET", "b", "2", "EX", "1000")
    db.do("RENAME", "a", "b")
    assert db.do("GET", "b") == b"1"
    assert db.do("TTL", "b") == -1


def test_rename_to_itself_and_of_nothing(db):
    db.do("SET", "a", "1")
    assert db.do("RENAME", "a", "a") == b"OK"
    assert db.do("GET", "a") == b"1"
    assert db.do("RENAMENX", "a", "a") == 0
    assert db.error("RENAME", "nothing", "a") == NO_SUCH_KEY
    assert db.error("RENAME", "nothing", "nothing") == NO_SUCH_KEY
    assert db.error("RENAMENX", "nothing", "a") == NO_SUCH_KEY
    assert db.do("GET", "a") == b"1"


def test_renamenx_leaves_what_is_there(db):
    db.do("MSET", "a", "1", "b", "2")
    assert db.do("RENAMENX", "a", "b") == 0
    assert db.do("MGET", "a", "b") == [b"1", b"2"]
    assert db.do("RENAMENX", "a", "c") == 1
    assert db.do("MGET", "a", "b", "c") == [None, b"2", b"1"]


@pytest.mark.parametrize("name", LONG_NAMES, ids=len)
def test_rename_of_long_names(db, name):
    db.do("RPUSH", "short", "1", "2")
    assert db.do("RENAME", "short", name) == b"OK"
    assert db.do("LRANGE", name, "0", "-1") == [b"1", b"2"]
    assert db.do("RENAME", name, "back") == b"OK"
    assert db.do("LRANGE", "back", "0", "-1") == [b"1", b"2"]
    assert db.do("KEYS", "*") == [b"back"]


# ----------------------------------------------------------------------------- copy, move


@pytest.mark.parametrize("kind", VALUES)
def test_copy_is_independent(db, kind):
    db.do(*VALUES[kind][0])
    db.do("PEXPIREAT", "k", "99999999999999")
    assert db.do("COPY", "k", "twin") == 1
    assert db.do("PEXPIRETIME", "twin") == 99999999999999
    db.do("DEL", "k")
    assert read(db, kind, "twin") == VALUES[kind][2](db)
    assert db.do("COPY", "k", "twin") == 0


def test_copy_of_a_large_collection(db):
    db.do("RPUSH", "l", *range(500))
    assert db.do("COPY", "l", "m", "DB", "3") == 1
    db.do("LSET", "l", "0", "changed")
    db.do("SELECT", "3")
    assert db.do("LRANGE", "m", "0", "-1") == [b"%d" % number for number in range(500)]


def test_copy_replaces_only_if_told(db):
    db.do("MSET", "a", "1", "b", "2")
    assert db.do("COPY", "a", "b") == 0
    assert db.do("GET", "b") == b"2"
    db.do("EXPIRE", "b", "1000")
    assert db.do("COPY", "a", "b", "replace") == 1
    assert db.do("GET", "b") == b"1"
    assert db.do("TTL", "b") == -1


def test_copy_and_move_to_another_database(db):
    db.do("SET", "a", "1", "EX", "1000")
    assert db.do("COPY", "a", "a", "DB", "2") == 1
    assert db.do("MOVE", "a", "2") == 0
    assert db.do("MOVE", "a", "3") == 1
    assert db.do("EXISTS", "a") == 0
    assert db.do("MOVE", "a", "3") == 0
    for database in ("2", "3"):
        db.do("SELECT", database)
        assert db.do("GET", "a") == b"1"
        assert 990 < db.do("TTL", "a") <= 1000


@pytest.mark.parametrize("kind", VALUES)
def test_move_takes_the_elements_along(db, kind):
    db.do(*VALUES[kind][0])
    assert db.do("MOVE", "k", "5") == 1
    assert db.do("EXISTS", "k") == 0
    db.do("SELECT", "5")
    assert read(db, kind, "k") == VALUES[kind][2](db)


def test_copy_and_move_refuse_bad_arguments(db):
    db.do("SET", "a", "1")
    assert db.error("COPY", "a", "a") == SAME_OBJECT
    assert db.error("COPY", "a", "a", "DB", "0") == SAME_OBJECT
    assert db.error("COPY", "a", "b", "DB") == SYNTAX
    assert db.error("COPY", "a", "b", "BOGUS") == SYNTAX
    assert db.error("COPY", "a", "b", "DB", "x") == NOT_INTEGER
    assert db.error("COPY", "nothing", "b", "DB", "99") == NO_SUCH_DATABASE
    assert db.error("COPY", "a", "b", "DB", "9999999999") == NOT_INT32
    assert db.error("MOVE", "a", "0") == SAME_OBJECT
    assert db.error("MOVE", "a", "-1") == NO_SUCH_DATABASE
    assert db.error("MOVE", "a", "16") == NO_SUCH_DATABASE
    assert db.error("MOVE", "a", "x") == NOT_INTEGER
    assert db.error("MOVE", "a", "9999999999") == NOT_INT32
    assert db.do("KEYS", "*") == [b"a"]


# --------------------------------------------------------------------------- flush, swap


def test_flushdb_empties_one_database(db):
    db.do("RPUSH", "l", *range(100))
    db.do("SET", "e", "1", "EX", "1000")
    db.do("COPY", "l", "l", "DB", "1")
    assert db.do("FLUSHDB") == b"OK"
    assert db.do("DBSIZE") == 0
    db.do("RPUSH", "l", "fresh")
    assert db.do("LRANGE", "l", "0", "-1") == [b"fresh"]
    db.do("SELECT", "1")
    assert db.do("LLEN", "l") == 100


@pytest.mark.parametrize("mode", [(), ("ASYNC",), ("sync",)])
def test_flushall_empties_every_database(db, mode):
    db.do("SET", "a", "1")
    db.do("COPY", "a", "a", "DB", "15")
    assert db.do("FLUSHALL", *mode) == b"OK"
    assert db.do("DBSIZE") == 0
    db.do("SELECT", "15")
    assert db.do("DBSIZE") == 0


@pytest.mark.parametrize("command", ["FLUSHDB", "FLUSHALL"])
def test_flush_refuses_bad_arguments(db, command):
    db.do("SET", "a", "1")
    assert db.error(command, "BOGUS") == SYNTAX
    assert db.error(command, "ASYNC", "SYNC") == SYNTAX
    assert db.do("DBSIZE") == 1


def test_subscriptions_survive_flushall(db):
    listener = db.client()
    listener.do("SUBSCRIBE", "news")
    db.do("FLUSHALL")
    assert db.do("PUBLISH", "news", "still here") == 1


@pytest.mark.parametrize("command", ["FLUSHDB", "FLUSHALL"])
def test_flush_touches_watched_keys_that_were_there(db, command):
    watcher = db.client()
    watcher.do("SET", "a", "1")
    watcher.do("WATCH", "a")
    db.do(command)
    watcher.do("MULTI")
    watcher.do("PING")
    assert watcher.do("EXEC") is None

    watcher.do("WATCH", "never-there")
    db.do(command)
    watcher.do("MULTI")
    watcher.do("PING")
    assert watcher.do("EXEC") == [b"PONG"]


def test_swapdb_exchanges_everything(db):
    other = db.client()
    other.do("SELECT", "1")
    db.do("RPUSH", "l", *range(100))
    db.do("SET", "only-in-0", "1", "EX", "1000")
    other.do("SADD", "s", "member")
    assert db.do("SWAPDB", "0", "1") == b"OK"
    assert db.do("KEYS", "*") == [b"s"]
    assert db.do("SMEMBERS", "s") == [b"member"]
    assert sorted(other.do("KEYS", "*")) == [b"l", b"only-in-0"]
    assert other.do("LLEN", "l") == 100
    assert 990 < other.do("TTL", "only-in-0") <= 1000
    assert db.do("SWAPDB", "1", "1") == b"OK"
    assert db.do("SWAPDB", "1", "0") == b"OK"
    assert other.do("KEYS", "*") == [b"s"]


def test_swapdb_refuses_bad_arguments(db):
    assert db.error("SWAPDB", "x", "1") == "ERR invalid first DB index"
    assert db.error("SWAPDB", "0", "x") == "ERR invalid second DB index"
    assert db.error("SWAPDB", "99999999999", "1") == "ERR invalid first DB index"
    assert db.error("SWAPDB", "0", "16") == NO_SUCH_DATABASE
    assert db.error("SWAPDB", "-1", "0") == NO_SUCH_DATABASE


def test_swapdb_touches_watched_keys(db):
    other = db.client()
    other.do("SELECT", "1")
    other.do("SET", "a", "1")
    watcher = db.client()
    watcher.do("WATCH", "a")
    db.do("SWAPDB", "0", "1")
    watcher.do("MULTI")
    watcher.do("PING")
    assert watcher.do("EXEC") is None


# ---------------------------------------------------------------------- who must know


def test_events(db):
    db.do("MSET", "a", "1", "b", "2")
    listener = Listener(db)
    db.do("RENAME", "a", "b")
    db.do("RENAMENX", "b", "c")
    db.do("RENAME", "c", "c")
    db.do("COPY", "c", "d")
    db.do("MOVE", "c", "2")
    db.do("DEL", "d", "nothing")
    db.do("TOUCH", "c")
    assert listener.take() == [
        (0, "rename_from", b"a"),
        (0, "rename_to", b"b"),
        (0, "rename_from", b"b"),
        (0, "rename_to", b"c"),
        (0, "copy_to", b"d"),
        (0, "move_from", b"c"),
        (2, "move_to", b"c"),
        (0, "del", b"d"),
    ]
    db.do("FLUSHALL")
    assert listener.take() == []


def test_a_replaced_key_counts_as_new(db):
    db.do("MSET", "a", "1", "b", "2", "c", "3")
    listener = Listener(db, "En")
    db.do("COPY", "a", "b", "REPLACE")
    db.do("RENAME", "a", "c")
    db.do("MOVE", "c", "1")
    db.do("UNLINK", "b")
    assert listener.take() == [(0, "new", b"b"), (0, "new", b"c"), (1, "new", b"c")]


@pytest.mark.parametrize(
    ("command", "database"),
    [
        ("RENAME source awaited", 0),
        ("RENAMENX source awaited", 0),
        ("COPY source awaited", 0),
        ("COPY source awaited DB 1", 1),
        ("MOVE awaited 1", 1),
        ("SWAPDB 0 1", 1),
    ],
)
def test_a_list_that_arrives_serves_who_waits_for_it(db, command, database):
    source = "source" if "source" in command else "awaited"
    waiter = db.client()
    waiter.do("SELECT", database)
    db.do("RPUSH", source, "x", "y")
    waiter.send("BLPOP", "awaited", "0")
    assert waiter.nothing_arrives()
    db.do(*command.split())
    assert waiter.receive() == [b"awaited", b"x"]
    db.do("SELECT", database)
    assert db.do("LRANGE", "awaited", "0", "-1") == [b"y"]


# -------------------------------------------------------------------------- OBJECT, MEMORY


@pytest.mark.parametrize(
    ("create", "encoding"),
    [
        (["SET", "k", "12345"], b"int"),
        (["SET", "k", "-9223372036854775808"], b"int"),
        (["SET", "k", "9223372036854775808"], b"embstr"),
        (["SET", "k", "012"], b"embstr"),
        (["SET", "k", "x" * 44], b"embstr"),
        (["SET", "k", "x" * 45], b"raw"),
        (["SADD", "k", *range(512)], b"intset"),
        (["SADD", "k", *range(513)], b"hashtable"),
        (["HSET", "k", "f", "x" * 64], b"listpack"),
        (["HSET", "k", "f", "x" * 65], b"hashtable"),
        (["HSET", "k", "x" * 65, "v"], b"hashtable"),
        (["HSET", "k", *range(256)], b"listpack"),
        (["ZADD", "k", *range(256)], b"listpack"),
        (["ZADD", "k", *range(258)], b"skiplist"),
        (["ZADD", "k", "1", "x" * 64], b"listpack"),
        (["ZADD", "k", "1", "x" * 65], b"skiplist"),
    ],
    ids=lambda value: " ".join(map(str, value))[:30] if isinstance(value, list) else value.decode(),
)
def test_object_encoding(db, create, encoding):
    if db.kind == "valkey":
        pytest.skip("encodings follow Redis 7.0")
    db.do(*create)
    assert db.do("OBJECT", "ENCODING", "k") == encoding


def test_object_encoding_of_lists_and_mixed_sets(db):
    if db.kind == "valkey":
        pytest.skip("encodings follow Redis 7.0")
    db.do("RPUSH", "l", "1")
    db.do("SADD", "s", "1", "a")
    assert db.do("OBJECT", "ENCODING", "l") == b"quicklist"
    assert db.do("object", "encoding", "s") == b"hashtable"


def test_object_of_a_missing_key(db):
    for question in ("ENCODING", "REFCOUNT", "IDLETIME", "FREQ"):
        assert db.do("OBJECT", question, "nothing") is None


def test_object_questions(db):
    db.do("SET", "k", "some value")
    assert db.do("OBJECT", "REFCOUNT", "k") == 1
    assert db.do("OBJECT", "IDLETIME", "k") == 0
    assert db.error("OBJECT", "FREQ", "k").startswith("ERR An LFU maxmemory policy is not selected")
    assert b"HELP" in db.do("OBJECT", "HELP")
    assert db.error("OBJECT", "ENCODING") == "ERR wrong number of arguments for 'object|encoding' command"
    assert db.error("OBJECT", "BOGUS", "k") == "ERR unknown subcommand 'BOGUS'. Try OBJECT HELP."


def test_memory_usage_grows_with_the_value(db):
    assert db.do("MEMORY", "USAGE", "k") is None
    db.do("SET", "k", "x" * 10)
    small = db.do("MEMORY", "USAGE", "k")
    db.do("SET", "k", "x" * 10_000)
    assert 0 < small < 10_000 < db.do("MEMORY", "USAGE", "k")


@pytest.mark.parametrize("add", ["RPUSH", "SADD"])
def test_memory_usage_of_a_collection(db, add):
    db.do(add, "k", *(f"{number:050}" for number in range(1000)))
    counted = db.do("MEMORY", "USAGE", "k", "SAMPLES", "0")
    assert 50_000 < counted < 500_000
    # All elements are alike, so a few of them tell nearly all.
    assert db.do("MEMORY", "USAGE", "k") == pytest.approx(counted, rel=0.2)
    assert db.do("memory", "usage", "k", "samples", "3") == pytest.approx(counted, rel=0.2)


def test_memory_usage_refuses_bad_arguments(db):
    assert db.error("MEMORY", "USAGE", "k", "SAMPLES", "-1") == SYNTAX
    assert db.error("MEMORY", "USAGE", "k", "SAMPLES", "x") == NOT_INTEGER
    assert db.error("MEMORY", "USAGE", "k", "SAMPLES") == SYNTAX
    assert db.error("MEMORY", "USAGE", "k", "BOGUS", "1") == SYNTAX


def test_wait_without_replicas(db):
    assert db.do("WAIT", "0", "100") == 0
    assert db.do("WAIT", "1", "1") == 0
    assert db.error("WAIT", "x", "1") == NOT_INTEGER
    assert db.error("WAIT", "1", "x") == "ERR timeout is not an integer or out of range"
    assert db.error("WAIT", "1", "-1") == "ERR timeout is negative"
