"""Only ours: a script that fails, or may not go on, leaves nothing behind, whatever it did before.

Real servers keep what a failed script did. These cases run on the engine and on our
server; those about batches and limits on the engine alone, the limits of a server being
the business of its own tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession, scripts
from penstock.engine.check import check_store
from penstock.engine.control import SlowScriptError
from penstock.errors import CommandError


def calls(*lines: str) -> str:
    """A script that calls these commands."""
    return " ".join("redis.call('" + "', '".join(line.split()) + "')" for line in lines)


def run(db: Any, source: str) -> Any:
    return db.do("EVAL", source, "0")


def fail(db: Any, source: str) -> None:
    """Run a script that ends with an error."""
    assert "oops" in db.error("EVAL", source + " error('oops')", "0")


ours = pytest.mark.parametrize("db", ["engine", "server-2", "server-3"], indirect=True)


@pytest.fixture
def own(db: Any) -> Iterator[Any]:
    yield db
    if db.kind == "engine":
        assert check_store(db._engine) == []


# ------------------------------------------------------------------------ all or nothing


def contents(db: Any) -> dict[tuple[int, bytes], tuple[bytes, int]]:
    """Every key of the first two databases with value and deadline."""
    found = {}
    for database in (1, 0):
        db.do("SELECT", database)
        for key in db.do("KEYS", "*"):
            found[database, key] = (db.do("DUMP", key), db.do("PEXPIRETIME", key))
    return found


_FILL = (
    *("SET s 10", "SET timed v EX 1000", "RPUSH l a b c", "HSET h f 1 g 2", "SADD set x y z"),
    *("ZADD z 1 one 2 two", "RPUSH long " + "element " * 200, "SELECT 1", "HSET there f 1"),
)
_CHANGES = {
    "strings": ("INCR s", "APPEND s x", "SETRANGE s 9 y", "SET new 1", "GETDEL timed"),
    "lists": ("LPOP l", "RPUSH l d", "LSET l 0 x", "LPUSH new 1 2", "LMOVE l long LEFT RIGHT"),
    "hashes": ("HINCRBY h f 5", "HDEL h g", "HSET new f v"),
    "sets": ("SREM set x y z", "SADD new 1", "SADD set again"),
    "sorted sets": ("ZINCRBY z 5 one", "ZPOPMAX z", "ZADD new 1 m"),
    "deadlines": ("PERSIST timed", "EXPIRE s 10", "PEXPIRE l -1", "EXPIRE h 5"),
    "names": ("RENAME l new", "RENAME z l", "COPY set z", "MOVE h 1"),
    "deletions": ("DEL s l h set z timed", "UNLINK long"),
    "stores": ("SORT l ALPHA DESC STORE l", "ZUNIONSTORE z 2 z set", "SINTERSTORE set set none"),
    "types": ("DEL l", "SET l 1", "DEL s", "RPUSH s 1", "SET h 1"),
    "databases": ("SELECT 1", "FLUSHDB", "SET k 1"),
    "swapping": ("SWAPDB 0 1", "RPUSH l x", "DEL there"),
    "everything": ("FLUSHALL", "RPUSH l x"),
}


@ours
@pytest.mark.parametrize("changes", _CHANGES.values(), ids=_CHANGES.keys())
@pytest.mark.parametrize("failure", ["error('oops')", "redis.call('GET')", calls("SET f 1", "LPUSH f 1")])
def test_an_error_undoes_all_that_a_script_did(own, changes, failure):
    run(own, calls(*_FILL))
    before = contents(own)
    assert len(before) == 8
    own.error("EVAL", calls(*changes, "SELECT 0") + " " + failure, "0")
    assert contents(own) == before
    # The same without the failure: it did something that could be undone.
    assert run(own, calls(*changes)) is None
    assert contents(own) != before


@ours
def test_what_is_caught_or_returned_undoes_nothing(own):
    own.error("EVAL", calls("SET a 1") + " return redis.error_reply('MY words')", "0")
    own.error("EVAL", calls("SET b 1") + " return redis.pcall('GET')", "0")
    assert run(own, calls("SET c 1") + " redis.pcall('GET') pcall(error, 'x') return 1") == 1
    run(own, f"pcall(function() {calls('RPUSH d 1')} error('x') end)")
    assert sorted(own.do("KEYS", "*")) == [b"a", b"b", b"c", b"d"]


@ours
def test_the_rest_of_a_transaction_stays(own):
    own.do("MULTI")
    own.do("RPUSH", "l", "before")
    own.do("SET", "s", "before")
    run(own, calls("RPUSH l wrong", "DEL s", "SELECT 1") + " error('oops')")
    own.do("RPUSH", "l", "after")
    own.do("APPEND", "s", " and after")
    replies = own.do("EXEC")
    assert isinstance(replies.pop(2), CommandError)
    assert replies == [1, b"OK", 2, 16]
    assert own.do("LRANGE", "l", "0", "-1") == [b"before", b"after"]
    assert own.do("GET", "s") == b"before and after"


@ours
def test_what_it_published_is_heard_by_nobody(own):
    own.do("CONFIG", "SET", "notify-keyspace-events", "EA")
    listener = own.client()
    listener.do("PSUBSCRIBE", "*")
    fail(own, calls("PUBLISH news wrong", "SET k wrong", "PUBLISH news wrong"))
    run(own, calls("SET k right"))
    own.do("PUBLISH", "news", "right")
    heard = []
    while heard[-1:] != [b"right"]:
        message = listener.receive()
        heard += [message[3]] if message[0] == b"pmessage" else []
    assert heard == [b"k", b"right"]


@ours
def test_it_serves_nobody(own):
    waiter = own.client()
    waiter.send("BLPOP", "l", "0")
    assert waiter.nothing_arrives()
    fail(own, calls("RPUSH l wrong"))
    assert waiter.nothing_arrives()
    own.do("MULTI")
    run(own, calls("RPUSH l wrong") + " error('oops')")
    own.do("RPUSH", "l", "right")
    own.do("EXEC")
    assert waiter.receive() == [b"l", b"right"]
    assert own.do("EXISTS", "l") == 0


@ours
def test_it_touches_no_watched_key(own):
    own.do("SET", "k", "1")
    own.do("WATCH", "k")
    fail(own, calls("INCR k", "FLUSHALL"))
    own.do("MULTI")
    own.do("GET", "k")
    assert own.do("EXEC") == [b"1"]


@ours
def test_it_is_known_by_its_digest_all_the_same(own):
    source = calls("INCR n") + " if redis.call('GET', 'n') == '1' then error('oops') end return 'done'"
    own.error("EVAL", source, "0")
    digest = hashlib.sha1(source.encode()).hexdigest()
    own.do("SET", "n", "1")
    assert own.do("EVALSHA", digest, "0") == b"done"


# ------------------------------------------------------------------------------- batches


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        yield engine
        assert check_store(engine) == []


@pytest.fixture
def session(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        yield session


def split(line: str) -> list[bytes]:
    return line.encode().split()


def evaluation(source: str) -> list[bytes]:
    return [b"EVAL", source.encode(), b"0"]


@pytest.mark.parametrize(
    ("line", "again", "wrong", "replies", "look", "expected"),
    [
        ("RPUSH k a", "RPUSH k b", "RPUSH k x y", [1, 2], "LRANGE k 0 -1", [b"a", b"b"]),
        ("RPUSH k a", "LPUSH k b", "DEL k", [1, 2], "LRANGE k 0 -1", [b"b", b"a"]),
        ("HSET k a 1", "HINCRBY k a 1", "HINCRBY k a 5", [1, 2], "HGETALL k", {b"a": b"2"}),
        ("SADD k a", "SADD k x", "SADD k x", [1, 1], "SCARD k", 2),
        ("ZADD k 1 a", "ZINCRBY k 1 a", "ZADD k 7 a 8 x", [1, 2.0], "ZCARD k", 1),
        ("INCR k", "INCR k", "INCRBY k 5", [1, 2], "GET k", b"2"),
        ("SADD k a", "SREM k a", "SREM k a", [1, 1], "EXISTS k", 0),
    ],
)
def test_the_rest_of_a_batch_stays(session, line, again, wrong, replies, look, expected):
    """What commands before and after use is the same: nothing that was undone may stay at hand."""
    failing = evaluation(calls(wrong, "RPUSH new 1") + " error('oops')")
    first, error, second, shown = session.execute_many([split(line), failing, split(again), split(look)])
    assert [first, second] == replies
    assert isinstance(error, CommandError)
    assert shown == expected
    assert session.execute("EXISTS", "new") == 0


def test_a_key_that_a_failed_script_found_expired_ends_once(session, clock):
    session.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
    session.execute("SUBSCRIBE", "__keyevent@0__:expired")
    assert session.poll() is not None
    session.execute("SET", "k", "v", "PX", "10")
    clock.advance_ms(20)
    with pytest.raises(CommandError, match="oops"):
        session.execute(*evaluation(calls("GET k", "SET other 1") + " error('oops')"))
    assert session.execute(*evaluation("return redis.call('GET', 'k')")) is None
    assert session.poll() == [b"message", b"__keyevent@0__:expired", b"k"]
    assert session.poll() is None


# -------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    "greed",
    [
        "local t = {} while true do t[#t + 1] = {} end",
        "return string.rep('x', 100000000)",
        "while true do redis.call('APPEND', 's', string.rep('x', 1000000)) redis.call('GET', 's') end",
    ],
)
def test_a_script_that_wants_too_much_memory(session, monkeypatch, greed):
    monkeypatch.setattr(scripts, "MEMORY_LIMIT_BYTES", 8 * 1024 * 1024)
    session.execute("SET", "k", "v")
    with pytest.raises(CommandError, match="not enough memory"):
        session.execute(*evaluation(calls("SET k wrong", "RPUSH l 1 2 3") + greed))
    assert session.execute("KEYS", "*") == [b"k"]
    assert session.execute(*evaluation("return redis.call('GET', 'k')")) == b"v"


def test_a_script_that_is_killed_although_it_wrote(engine, session):
    class Killer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            thread = threading.Thread(target=engine.scripts.kill)
            thread.start()
            thread.join()

    source = calls("SET k 1", "RPUSH l 1") + " redis.log(redis.LOG_WARNING, 'wrote') while true do end"
    with _handling("penstock.script", Killer()), pytest.raises(CommandError, match="Script killed by user"):
        session.execute(*evaluation(source))
    assert session.execute("DBSIZE") == 0
    assert session.execute(*evaluation("return 1")) == 1


@contextlib.contextmanager
def _handling(name: str, handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_scripts_are_compiled_again_when_too_many_are_at_hand(engine, session, monkeypatch):
    monkeypatch.setattr(scripts, "COMPILED_SOURCE_BYTES", 10_000)
    for number in range(100):
        source = f"return {number}"
        assert session.execute("EVAL", source, "0") == number
        assert len(engine.scripts._compiled) < 10
    for number in range(100):
        digest = hashlib.sha1(f"return {number}".encode()).hexdigest()
        assert session.execute("EVALSHA", digest, "0") == number


# A count that no machine reaches within the limit, and every machine soon.
_SLOW = "local n = 0 for i = 1, 2000000 do n = n + 1 end redis.call('RPUSH', 'l', 'slow') return n"
_LIMIT_S = 0.0001


@pytest.fixture
def live_engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine whose time passes."""
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine:
        yield engine
        assert check_store(engine) == []


def test_a_slow_script_undoes_its_batch_which_can_be_run_again(live_engine):
    replies: list[Any] = []
    session = live_engine.session(replies.append)
    live_engine.execute([(session, split(line)) for line in ("HELLO 3", "WATCH k", "MULTI", "SET queued 1")])
    replies.clear()
    lines = ("EXEC", "SELECT 3", "SET k v", "SUBSCRIBE c", "CLIENT SETNAME me", "RPUSH l first")
    batch = [(session, split(line)) for line in lines]
    batch += [(session, evaluation(_SLOW)), (session, split("RPUSH l last")), (session, split("MULTI"))]

    with pytest.raises(SlowScriptError):
        live_engine.execute(batch, script_limit_s=_LIMIT_S)
    assert replies == []
    assert repr(session) == "<Session 1 db=0 resp=3 multi>"
    assert session.watches.keys() == {(0, b"k")}
    assert (session.name, session.is_subscribed, session.in_exec) == (b"", False, False)
    with LocalSession(live_engine) as other:
        assert [other.execute("SELECT", n) and other.execute("DBSIZE") for n in ("3", "0")] == [0, 0]
    assert check_store(live_engine) == []

    live_engine.execute(batch)
    assert replies == [[b"OK"], b"OK", b"OK", [b"subscribe", b"c", 1], b"OK", 1, 2_000_000, 3, b"OK"]
    assert repr(session) == "<Session 1 db=3 resp=3 multi>"


@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "in a transaction"])
def test_a_slow_script_serves_and_tells_nobody_until_it_is_run_again(live_engine, in_transaction):
    boxes: list[list[Any]] = [[], [], []]
    waiter, listener, caller = (live_engine.session(box.append) for box in boxes)
    live_engine.execute([(waiter, split("BLPOP l 0")), (listener, split("SUBSCRIBE c"))])
    boxes[1].clear()
    commands = [split("PUBLISH c m"), split("RPUSH l first"), evaluation(_SLOW)]
    if in_transaction:
        commands = [split("MULTI"), *commands, split("EXEC")]
    batch = [(caller, command) for command in commands]
    with pytest.raises(SlowScriptError):
        live_engine.execute(batch, script_limit_s=_LIMIT_S)
    assert boxes == [[], [], []]
    assert waiter.blocked is not None
    assert caller.queue is None

    live_engine.execute(batch)
    assert boxes[:2] == [[[b"l", b"first"]], [[b"message", b"c", b"m"]]]
    assert boxes[2][-1] == ([1, 1, 2_000_000] if in_transaction else 2_000_000)
    assert waiter.blocked is None


def test_a_read_only_script_that_is_slow_is_undone_as_well(live_engine):
    replies: list[Any] = []
    session = live_engine.session(replies.append)
    slow = [b"EVAL_RO", b"local n = 0 for i = 1, 2000000 do n = n + 1 end return n", b"0"]
    batch = [(session, split("SELECT 3")), (session, slow)]
    with pytest.raises(SlowScriptError):
        live_engine.execute(batch, script_limit_s=_LIMIT_S)
    assert (replies, session.ks.index) == ([], 0)
    live_engine.execute(batch)
    assert replies == [b"OK", 2_000_000]


def test_the_limit_is_of_each_script_not_of_all(live_engine):
    replies: list[Any] = []
    session = live_engine.session(replies.append)
    quick = evaluation("return redis.call('INCR', 'n')")
    live_engine.execute([(session, quick)] * 1000, script_limit_s=10.0)
    assert replies == list(range(1, 1001))
