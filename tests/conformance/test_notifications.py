"""Keyspace notifications: which commands announce what, on which channels, in which order."""

from __future__ import annotations

from typing import Any

import pytest

Words = list[Any]
Event = tuple[str, str]

_END = "end of events"


class Listener:
    """Another client that hears every notification of every database."""

    def __init__(self, db: Any, classes: str) -> None:
        self._db = db
        assert db.do("CONFIG", "SET", "notify-keyspace-events", classes) == b"OK"
        self._client = db.client()
        self._client.do("PSUBSCRIBE", "__key*", _END)

    def next(self) -> tuple[str, bytes]:
        """Channel and message of the next notification, waiting for it."""
        while True:
            kind, *_, channel, message = self._client.receive()
            if kind == b"pmessage":
                return channel.decode(), message

    def all(self) -> list[tuple[str, bytes]]:
        """Everything announced up to now: a message of our own marks the end."""
        self._db.do("PUBLISH", _END, "")
        heard = []
        while (item := self.next())[0] != _END:
            heard.append(item)
        return heard

    def events(self) -> list[Event]:
        """As ``all``, for listeners of class E and database 0: (event, key)."""
        prefix = "__keyevent@0__:"
        heard = self.all()
        assert all(channel.startswith(prefix) for channel, _ in heard)
        return [(channel.removeprefix(prefix), key.decode()) for channel, key in heard]


# ---------------------------------------------------------------------------- channels


def test_nothing_is_announced_by_default(db):
    listener = Listener(db, "")
    db.do("SET", "k", "v")
    db.do("DEL", "k")
    assert listener.all() == []


@pytest.mark.parametrize("classes", ["K", "E", "KE", "A", "g$lshzxetdn"])
def test_it_takes_a_channel_and_a_class(db, classes):
    listener = Listener(db, classes)
    db.do("SET", "k", "v")
    assert listener.all() == []


def test_the_two_kinds_of_channel(db):
    listener = Listener(db, "K$")
    db.do("SET", "k", "v")
    assert listener.all() == [("__keyspace@0__:k", b"set")]
    db.do("CONFIG", "SET", "notify-keyspace-events", "E$")
    db.do("SET", "k", "v")
    assert listener.all() == [("__keyevent@0__:set", b"k")]
    db.do("CONFIG", "SET", "notify-keyspace-events", "KE$")
    db.do("SET", "k", "v")
    assert listener.all() == [("__keyspace@0__:k", b"set"), ("__keyevent@0__:set", b"k")]
    db.do("CONFIG", "SET", "notify-keyspace-events", "")
    db.do("SET", "k", "v")
    assert listener.all() == []


def test_the_channel_names_the_database(db):
    listener = Listener(db, "KEA")
    db.do("SELECT", "11")
    db.do("SET", "k", "v")
    db.do("MOVE", "k", "7")
    assert listener.all() == [
        ("__keyspace@11__:k", b"set"),
        ("__keyevent@11__:set", b"k"),
        ("__keyspace@11__:k", b"move_from"),
        ("__keyevent@11__:move_from", b"k"),
        ("__keyspace@7__:k", b"move_to"),
        ("__keyevent@7__:move_to", b"k"),
    ]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ("Eg", [("expire", "s"), ("del", "l"), ("rename_from", "h"), ("rename_to", "i"), ("del", "s")]),
        ("E$", [("set", "s"), ("append", "s")]),
        ("El", [("rpush", "l"), ("lpop", "l")]),
        ("Es", [("sadd", "m"), ("srem", "m")]),
        ("Eh", [("hset", "h")]),
        ("Ez", [("zadd", "z")]),
        ("Ex", []),
        ("Elz", [("rpush", "l"), ("lpop", "l"), ("zadd", "z")]),
        ("En", [("new", key) for key in ("s", "l", "m", "h", "z", "i")]),
    ],
)
def test_a_class_is_a_kind_of_event(db, classes, expected):
    listener = Listener(db, classes)
    for words in (
        ["SET", "s", "v"],
        ["APPEND", "s", "w"],
        ["EXPIRE", "s", "100"],
        ["RPUSH", "l", "a"],
        ["LPOP", "l"],
        ["SADD", "m", "a", "b"],
        ["SREM", "m", "a"],
        ["HSET", "h", "f", "v"],
        ["ZADD", "z", "1", "a"],
        ["RENAME", "h", "i"],
        ["DEL", "s"],
    ):
        db.do(*words)
    assert listener.events() == expected


# ------------------------------------------------------------------------------ commands

#: what was there before, the command, what it announces
_CASES: list[tuple[list[Words], Words, list[Event]]] = [
    # strings
    ([], ["SET", "k", "v"], [("set", "k")]),
    ([], ["SET", "k", "v", "EX", "100"], [("set", "k"), ("expire", "k")]),
    ([["SET", "k", "v"]], ["SET", "k", "w", "NX"], []),
    ([], ["SETEX", "k", "100", "v"], [("set", "k"), ("expire", "k")]),
    ([["SET", "k", "1"]], ["INCR", "k"], [("incrby", "k")]),
    ([], ["INCRBYFLOAT", "k", "1.5"], [("incrbyfloat", "k")]),
    ([], ["MSET", "a", "1", "b", "2"], [("set", "a"), ("set", "b")]),
    ([["SET", "k", "v"]], ["GETDEL", "k"], [("del", "k")]),
    ([["SET", "k", "v"]], ["GETEX", "k", "PERSIST"], []),
    ([["SET", "k", "v", "EX", "9"]], ["GETEX", "k", "PERSIST"], [("persist", "k")]),
    ([["SET", "k", "v"]], ["GETSET", "k", "w"], [("set", "k")]),
    ([["SET", "k", "v"]], ["SETRANGE", "k", "1", "x"], [("setrange", "k")]),
    ([], ["SETBIT", "k", "7", "1"], [("setbit", "k")]),
    ([["SET", "k", "v"]], ["GET", "k"], []),
    # keys
    ([["MSET", "a", "1", "b", "2"]], ["DEL", "a", "none", "b"], [("del", "a"), ("del", "b")]),
    ([["SET", "k", "v"]], ["UNLINK", "k"], [("del", "k")]),
    ([["SET", "k", "v"]], ["EXPIRE", "k", "100"], [("expire", "k")]),
    ([["SET", "k", "v", "EX", "9"]], ["PERSIST", "k"], [("persist", "k")]),
    ([["SET", "k", "v"]], ["PERSIST", "k"], []),
    ([["SET", "k", "v"]], ["RENAME", "k", "n"], [("rename_from", "k"), ("rename_to", "n")]),
    ([["SET", "k", "v"]], ["COPY", "k", "n"], [("copy_to", "n")]),
    ([["SET", "k", "v"]], ["FLUSHALL"], []),
    # lists
    ([], ["LPUSH", "l", "a", "b"], [("lpush", "l")]),
    ([], ["LPUSHX", "l", "a"], []),
    ([["RPUSH", "l", "a", "b"]], ["RPOP", "l"], [("rpop", "l")]),
    ([["RPUSH", "l", "a"]], ["LPOP", "l"], [("lpop", "l"), ("del", "l")]),
    ([["RPUSH", "l", "a", "b"]], ["LPOP", "l", "5"], [("lpop", "l"), ("del", "l")]),
    ([["RPUSH", "l", "a"]], ["LINSERT", "l", "BEFORE", "a", "b"], [("linsert", "l")]),
    ([["RPUSH", "l", "a"]], ["LSET", "l", "0", "b"], [("lset", "l")]),
    ([["RPUSH", "l", "a", "b"]], ["LREM", "l", "0", "a"], [("lrem", "l")]),
    ([["RPUSH", "l", "a", "b"]], ["LTRIM", "l", "1", "0"], [("ltrim", "l"), ("del", "l")]),
    ([["RPUSH", "l", "a", "b"]], ["RPOPLPUSH", "l", "m"], [("lpush", "m"), ("rpop", "l")]),
    ([["RPUSH", "l", "a"]], ["BLPOP", "l", "0"], [("lpop", "l"), ("del", "l")]),
    # hashes
    ([], ["HSET", "h", "f", "1", "g", "2"], [("hset", "h")]),
    ([["HSET", "h", "f", "1"]], ["HSETNX", "h", "f", "2"], []),
    ([["HSET", "h", "f", "1"]], ["HINCRBY", "h", "f", "2"], [("hincrby", "h")]),
    ([["HSET", "h", "f", "1"]], ["HINCRBYFLOAT", "h", "f", "2"], [("hincrbyfloat", "h")]),
    ([["HSET", "h", "f", "1"]], ["HDEL", "h", "f", "x"], [("hdel", "h"), ("del", "h")]),
    ([["HSET", "h", "f", "1"]], ["HDEL", "h", "x"], []),
    # sets
    ([], ["SADD", "s", "a", "b"], [("sadd", "s")]),
    ([["SADD", "s", "a"]], ["SADD", "s", "a"], []),
    ([["SADD", "s", "a"]], ["SREM", "s", "a"], [("srem", "s"), ("del", "s")]),
    ([["SADD", "s", "a"]], ["SPOP", "s"], [("spop", "s"), ("del", "s")]),
    ([["SADD", "s", "a"]], ["SMOVE", "s", "t", "a"], [("srem", "s"), ("del", "s"), ("sadd", "t")]),
    ([["SADD", "s", "a"]], ["SUNIONSTORE", "t", "s", "none"], [("sunionstore", "t")]),
    ([["SADD", "t", "a"]], ["SINTERSTORE", "t", "none"], [("del", "t")]),
    # sorted sets
    ([], ["ZADD", "z", "1", "a", "2", "b"], [("zadd", "z")]),
    ([["ZADD", "z", "1", "a"]], ["ZADD", "z", "1", "a"], []),
    ([["ZADD", "z", "1", "a"]], ["ZINCRBY", "z", "1", "a"], [("zincr", "z")]),
    ([["ZADD", "z", "1", "a"]], ["ZREM", "z", "a"], [("zrem", "z"), ("del", "z")]),
    ([["ZADD", "z", "1", "a"]], ["ZPOPMIN", "z"], [("zpopmin", "z"), ("del", "z")]),
    (
        [["ZADD", "z", "1", "a", "2", "b"]],
        ["ZREMRANGEBYSCORE", "z", "1", "1"],
        [("zremrangebyscore", "z")],
    ),
    (
        [["ZADD", "z", "1", "a"]],
        ["ZREMRANGEBYRANK", "z", "0", "-1"],
        [("zremrangebyrank", "z"), ("del", "z")],
    ),
    ([["ZADD", "z", "1", "a"]], ["ZUNIONSTORE", "y", "1", "z"], [("zunionstore", "y")]),
    ([["ZADD", "z", "1", "a"]], ["ZRANGESTORE", "y", "z", "0", "-1"], [("zrangestore", "y")]),
    # others
    ([], ["PFADD", "p", "a"], [("pfadd", "p")]),
    ([], ["GEOADD", "g", "13.361389", "38.115556", "Palermo"], [("zadd", "g")]),
    ([["RPUSH", "l", "2", "1"]], ["SORT", "l", "STORE", "m"], [("sortstore", "m")]),
]


def test_what_commands_announce(db):
    listener = Listener(db, "EA")
    for before, words, expected in _CASES:
        for preparation in before:
            db.do(*preparation)
        listener.all()
        db.do(*words)
        assert listener.events() == expected, words
        db.do("FLUSHALL")


def test_a_refused_command_announces_nothing(db):
    db.do("SET", "k", "v")
    listener = Listener(db, "KEA")
    assert db.error("LPUSH", "k", "a").startswith("WRONGTYPE")
    assert db.error("INCR", "k").startswith("ERR")
    assert db.error("SET", "k").startswith("ERR")
    assert listener.all() == []


def test_a_transaction_announces_when_it_runs(db):
    listener = Listener(db, "EA")
    db.do("MULTI")
    db.do("SET", "a", "1")
    db.do("RPUSH", "b", "x")
    assert db.client().do("PUBLISH", _END, "") == 1
    assert listener.next() == (_END, b"")
    db.do("EXEC")
    assert listener.events() == [("set", "a"), ("rpush", "b")]


def test_events_of_one_client_keep_their_order(db):
    listener = Listener(db, "KA")
    for number in range(100):
        db.do("SET", f"k{number}", "v")
    assert listener.all() == [(f"__keyspace@0__:k{number}", b"set") for number in range(100)]


def test_keys_of_any_bytes(db):
    listener = Listener(db, "E$")
    for key in (b"", b"\x00\xff \r\n", b"x" * 2000):
        db.do("SET", key, "v")
        assert listener.all() == [("__keyevent@0__:set", key)]


# -------------------------------------------------------------------------------- expiry


def test_a_key_that_expires_untouched_is_announced(db):
    listener = Listener(db, "KEx")
    db.do("SET", "k", "v", "PX", "1")
    assert listener.next() == ("__keyspace@0__:k", b"expired")
    assert listener.next() == ("__keyevent@0__:expired", b"k")
    assert db.do("EXISTS", "k") == 0


def test_a_write_to_an_expired_key_announces_its_end_first(db):
    listener = Listener(db, "E$lx")
    db.do("SET", "k", "v", "PX", "1")
    while db.do("PTTL", "k") != -2:
        pass
    db.do("RPUSH", "k", "a")
    assert listener.events() == [("set", "k"), ("expired", "k"), ("rpush", "k")]


def test_a_deadline_in_the_past_deletes(db):
    listener = Listener(db, "Egx")
    event = "expired" if db.kind == "valkey" else "del"
    for words in (["EXPIRE", "k", "-1"], ["PEXPIREAT", "k", "1"]):
        db.do("SET", "k", "v")
        db.do(*words)
        assert listener.events() == [(event, "k")]


def test_collections_expire_as_strings_do(db):
    for words in (["RPUSH", "l", "a"], ["HSET", "h", "f", "v"], ["ZADD", "z", "1", "a"], ["SADD", "s", "a"]):
        db.do(*words)
    listener = Listener(db, "Ex")
    for key in ("l", "h", "z", "s"):
        db.do("PEXPIRE", key, "1")
    assert sorted(listener.next()[1] for _ in range(4)) == [b"h", b"l", b"s", b"z"]


# -------------------------------------------------------------------------------- CONFIG


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", b""),
        ("K", b"K"),
        ("EK", b"KE"),
        ("A", b"A"),
        ("KEA", b"AKE"),
        ("Kg$", b"g$K"),
        ("KElshzxetd$g", b"AKE"),
        ("xE", b"xE"),
        ("ggg", b"g"),
        ("KEmn", b"nKEm"),
        ("KEAm", b"AKEm"),
        ("KEAn", b"AKE"),
    ],
)
def test_the_setting_is_shown_in_one_way(db, given, shown):
    assert db.do("CONFIG", "SET", "notify-keyspace-events", given) == b"OK"
    assert db.do("CONFIG", "GET", "notify-keyspace-events") == db.map({b"notify-keyspace-events": shown})


@pytest.mark.parametrize("given", ["Q", "KEq", "KE g", "a"])
def test_unknown_classes_are_refused(db, given):
    db.do("CONFIG", "SET", "notify-keyspace-events", "K$")
    assert db.error("CONFIG", "SET", "notify-keyspace-events", given) == (
        "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events')"
        " - Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
    )
    assert db.do("CONFIG", "GET", "notify-keyspace-events") == db.map({b"notify-keyspace-events": b"$K"})
