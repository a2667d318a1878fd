"""CLIENT TRACKING: who read a key is told when it changes.

Redis 7.0 remembers the declared keys of a script, its successors those that it read: the scripts here read
what they declare.
"""

from __future__ import annotations

import pytest

from tests.conformance.tracking.trackers import Tracker, needs_resp3, needs_socket


def test_who_read_a_key_is_told_once(db):
    tracker = Tracker(db)
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()
    assert tracker.do("GET", "k") == b"1"
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]
    db.do("SET", "k", "3")
    assert tracker.is_told_nothing()
    assert tracker.do("GET", "k") == b"3"
    db.do("DEL", "k")
    assert tracker.told() == [b"k"]


def test_every_tracker_is_told(db):
    one, other, idle = Tracker(db), Tracker(db), Tracker(db)
    one.do("GET", "k")
    other.do("GET", "k")
    idle.do("GET", "another")
    db.do("SET", "k", "1")
    assert one.told() == other.told() == [b"k"]
    assert idle.is_told_nothing()


def test_each_key_of_a_command_counts_alone(db):
    tracker = Tracker(db)
    tracker.do("MGET", "a", "b", "c", "a")
    db.do("MSET", "b", "1", "d", "1", "a", "1")
    assert [tracker.told(), tracker.told()] == [[b"b"], [b"a"]]
    assert tracker.is_told_nothing()


@pytest.mark.parametrize(
    "read", ["EXISTS k", "TYPE k", "TTL k", "STRLEN k", "GETRANGE k 0 1", "OBJECT ENCODING k", "DUMP k"]
)
def test_what_only_reads_is_remembered(db, read):
    db.do("SET", "k", "1")
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do("APPEND", "k", "2")
    assert tracker.told() == [b"k"]


@pytest.mark.parametrize("read", ["GETDEL k", "GETEX k", "APPEND k x", "KEYS *", "SCAN 0", "PING k"])
def test_what_also_writes_or_names_no_key_is_not(db, read):
    db.do("SET", "k", "1")
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do("SET", "k", "2")
    assert tracker.is_told_nothing()


def test_refused_reads_and_missing_keys_count(db):
    tracker = Tracker(db)
    db.do("RPUSH", "l", "x")
    assert tracker.do("GET", "nothing") is None
    assert "WRONGTYPE" in tracker.client.error("GET", "l")
    db.do("SET", "nothing", "1")
    db.do("RPUSH", "l", "y")
    assert [tracker.told(), tracker.told()] == [[b"nothing"], [b"l"]]


def test_what_changed_nothing_tells_nobody(db):
    tracker = Tracker(db)
    db.do("SET", "k", "1")
    tracker.do("MGET", "k", "missing")
    db.do("SETNX", "k", "2")
    db.do("DEL", "missing")
    db.do("SREM", "missing", "x")
    assert tracker.is_told_nothing()


@pytest.mark.parametrize(
    "change",
    ["SET k 1", "EXPIRE k 100", "RENAME other k", "RENAME k other", "COPY other k REPLACE", "MOVE k 1",
     "SETRANGE k 0 z", "GETDEL k", "SET other 2 EX 100"],
)  # fmt: skip
def test_changes_of_all_kinds(db, change):
    db.do("MSET", "k", "0", "other", "1")
    tracker = Tracker(db)
    tracker.do("GET", "k" if " k" in change else "other")
    db.do(*change.split())
    assert tracker.told() == [b"k" if " k" in change else b"other"]


@pytest.mark.parametrize(
    ("write", "read", "change"),
    [
        ("RPUSH k a b", "LRANGE k 0 -1", "LPOP k"),
        ("SADD k a b", "SMEMBERS k", "SREM k a"),
        ("HSET k f v", "HGET k f", "HINCRBY k n 1"),
        ("ZADD k 1 a", "ZRANGE k 0 -1", "ZINCRBY k 1 a"),
        ("SETBIT k 7 1", "BITCOUNT k", "SETBIT k 3 1"),
        ("PFADD k a", "PFCOUNT k", "PFADD k b c d"),
        ("RPUSH k a b", "LLEN k", "LMOVE k other LEFT LEFT"),
        ("SADD k a", "SCARD k", "SINTERSTORE k k other"),
        ("RPUSH k 2 1", "LINDEX k 0", "SORT k STORE k"),
    ],
)
def test_every_type(db, write, read, change):
    db.do(*write.split())
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do(*change.split())
    assert tracker.told() == [b"k"]


def test_a_key_is_a_name_in_any_database(db):
    tracker = Tracker(db)
    tracker.do("GET", "k")
    db.do("SELECT", 3)
    db.do("SET", "k", "1")
    assert tracker.told() == [b"k"]


def test_a_key_that_expires(db):
    db.do("SET", "k", "1", "PX", "50")
    tracker = Tracker(db)
    tracker.do("GET", "k")
    while db.do("GET", "k") is not None:
        pass
    if db.kind == "engine":  # nobody does the duties of an idle engine
        db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


@pytest.mark.parametrize("flush", ["FLUSHALL", "FLUSHDB"])
def test_a_flush_is_one_message_for_all_keys(db, flush):
    tracker, broadcaster = Tracker(db), Tracker(db, "BCAST", "PREFIX", "p")
    tracker.do("MGET", "a", "b")
    db.do(flush)
    assert tracker.told() is None
    assert broadcaster.told() is None
    db.do("SET", "a", "1")
    assert tracker.is_told_nothing()
    assert broadcaster.is_told_nothing()


def test_scripts_read_and_write_for_their_caller(db):
    tracker = Tracker(db)
    tracker.do("EVAL", "return redis.call('GET', KEYS[1])", 1, "k")
    db.do("EVAL", "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[1], 2)", 1, "k")
    assert tracker.told() == [b"k"]
    tracker.do("EVAL", "return 1", 1, "k")
    db.do("SET", "k", "3")
    assert tracker.is_told_nothing()


def test_transactions_read_and_write(db):
    tracker = Tracker(db)
    tracker.do("MULTI")
    tracker.do("GET", "k")
    tracker.do("EXEC")
    db.do("MULTI")
    db.do("SET", "k", "1")
    db.do("SET", "k", "2")
    db.do("EXEC")
    assert tracker.told() == [b"k"]
    assert tracker.is_told_nothing()


# --------------------------------------------------------------------------- its own changes, order


def test_own_changes_are_told_too(db):
    tracker = Tracker(db)
    tracker.do("GET", "k")
    tracker.do("SET", "k", "1")
    assert tracker.told() == [b"k"]


def test_own_changes_follow_the_reply(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    for words in (("SET", "k", "1"), ("GET", "k"), ("SET", "k", "2"), ("GET", "k"), ("FLUSHALL",), ("PING",)):
        client.send(*words)
    replies = [client.receive() for _ in range(8)]
    assert replies == [
        b"OK", b"1", b"OK", [b"invalidate", [b"k"]], b"2", b"OK", [b"invalidate", None], b"PONG",
    ]  # fmt: skip


def test_own_changes_follow_the_whole_transaction(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    client.do("GET", "k")
    for words in (("MULTI",), ("SET", "k", "1"), ("GET", "k"), ("SET", "k", "2"), ("EXEC",), ("PING",)):
        client.send(*words)
    replies = [client.receive() for _ in range(8)]
    told = [b"invalidate", [b"k"]]
    assert replies[4:] == [[b"OK", b"1", b"OK"], told, told, b"PONG"]


def test_noloop_spares_own_changes(db):
    tracker = Tracker(db, "NOLOOP")
    tracker.do("MGET", "k", "l")
    tracker.do("SET", "k", "1")
    db.do("SET", "l", "1")
    assert tracker.told() == [b"l"]
    assert tracker.is_told_nothing()
    tracker.do("GET", "k")
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


def test_noloop_what_is_read_again_in_the_same_transaction_counts(db):
    tracker = Tracker(db, "NOLOOP")
    tracker.do("MULTI")
    tracker.do("SET", "k", "1")
    tracker.do("GET", "k")
    tracker.do("EXEC")
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


def test_a_blocked_client_is_told_before_it_is_served(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    client.do("LRANGE", "l", "0", "-1")
    client.send("BLPOP", "l", "0")
    assert client.nothing_arrives()
    db.do("RPUSH", "l", "x")
    assert client.receive() == [b"invalidate", [b"l"]]
    assert client.receive() == [b"l", b"x"]
