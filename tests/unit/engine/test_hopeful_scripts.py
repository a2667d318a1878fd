"""Scripts without a savepoint: one that fails after it wrote is undone, and nobody else notices.

Scripts run this way where their time is limited, as the host limits it: hence the limit in
every batch here. What was undone must be undone everywhere, be it in the store or in memory,
and what the rest of the batch did must have happened once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, Session, scripts
from penstock.engine.check import check_store
from penstock.engine.commands.registry import Argv
from penstock.engine.control import SlowScriptError
from penstock.engine.storage import environment
from penstock.errors import CommandError

_LIMIT_S = 60.0
_PUBLISHES = "redis.call('PUBLISH', 'news', ARGV[1]) return redis.call('RPUSH', KEYS[1], ARGV[1])"
_FAILS = "redis.call('RPUSH', KEYS[1], 'wrong') redis.call('PUBLISH', 'news', 'wrong') error('oops')"


class Caller:
    """A session; ``got`` is everything it was sent."""

    def __init__(self, engine: Engine) -> None:
        self.got: list[Any] = []
        self.session = engine.session(self.got.append)
        self.session.protocol = 3

    def take(self) -> list[Any]:
        got, self.got[:] = list(self.got), []
        return [str(item) if isinstance(item, CommandError) else item for item in got]


class Store:
    """An engine that says how often it began a transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.caller = Caller(engine)
        self.begun = 0
        begin = engine.unit.begin

        def count(write: bool) -> None:
            self.begun += 1
            begin(write)

        engine.unit.begin = count  # type: ignore[method-assign]

    def execute(self, *commands: Argv | str, caller: Caller | None = None) -> list[Any]:
        """What a batch answered its caller."""
        caller = caller or self.caller
        self.begun = 0
        batch = [command.encode().split() if isinstance(command, str) else command for command in commands]
        self.engine.execute([(caller.session, command) for command in batch], _LIMIT_S)
        return caller.take()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        yield Store(engine)
        assert check_store(engine) == []


def evaluate(source: str, key: str = "l", *args: str) -> Argv:
    return [b"EVAL", source.encode(), b"1", key.encode(), *(arg.encode() for arg in args)]


def is_oops(reply: Any) -> bool:
    return isinstance(reply, str) and "oops script: " in reply


# ------------------------------------------------------------------------------ the batch


def test_one_of_many_fails_and_the_others_happen_once(store: Store) -> None:
    listener = Caller(store.engine)
    store.execute("SUBSCRIBE news", caller=listener)
    first, error, second, failed_too, length = store.execute(
        evaluate(_PUBLISHES, "l", "a"),
        evaluate(_FAILS),
        evaluate(_PUBLISHES, "l", "b"),
        evaluate(_FAILS + " -- another script", "other"),
        "LLEN l",
    )
    assert [first, second, length] == [1, 2, 2]
    assert is_oops(error)
    assert is_oops(failed_too)
    assert store.begun == 2  # however many fail
    assert listener.take() == [[b"message", b"news", b"a"], [b"message", b"news", b"b"]]
    assert store.execute("LRANGE l 0 -1", "EXISTS other") == [[b"a", b"b"], 0]


def test_without_a_failure_nothing_is_done_again(store: Store) -> None:
    assert store.execute(evaluate(_PUBLISHES, "l", "a"), evaluate(_PUBLISHES, "l", "b")) == [1, 2]
    assert store.begun == 1


def test_who_only_read_has_nothing_to_undo(store: Store) -> None:
    (error,) = store.execute(evaluate("redis.call('GET', KEYS[1]) error('oops')"))
    assert is_oops(error)
    assert store.begun == 1
    assert store.engine.scripts._fallible == {}


@pytest.mark.parametrize(
    "failure", ["redis.call('GET')", "redis.call('INCR', KEYS[1])", "redis.call('NONE')"]
)
def test_a_refused_command_undoes_the_script_as_well(store: Store, failure: str) -> None:
    store.execute("RPUSH l a")
    reply, length = store.execute(evaluate("redis.call('RPUSH', KEYS[1], 'b') " + failure), "LLEN l")
    assert " script: " in reply
    assert length == 1


def test_an_error_that_is_returned_undoes_nothing(store: Store) -> None:
    source = "redis.call('RPUSH', KEYS[1], 'a') return redis.error_reply('MY words')"
    assert store.execute(evaluate(source), "LLEN l") == ["MY words", 1]
    assert store.begun == 1


def test_what_is_counted_and_logged_is_counted_and_logged_once(store: Store) -> None:
    engine = store.engine
    store.execute("CONFIG RESETSTAT", "CONFIG SET slowlog-log-slower-than 0")
    processed = engine.statistics.commands_processed
    engine.slowlog.entries.clear()
    store.execute("INCR s", "LPUSH s x", evaluate(_FAILS))
    # Three commands, and two that the script called.
    assert engine.statistics.commands_processed == processed + 5
    assert engine.statistics.errors_by_code == {"WRONGTYPE": 1, "ERR": 1}
    assert [entry.argv[0] for entry in engine.slowlog.entries] == [b"EVAL", b"LPUSH", b"INCR"]


def test_the_rest_of_a_transaction_stays(store: Store) -> None:
    replies = store.execute(
        "MULTI", "RPUSH l before", evaluate(_FAILS), "RPUSH l after", "EXEC", "LRANGE l 0 -1"
    )
    assert replies[:4] == [b"OK", b"QUEUED", b"QUEUED", b"QUEUED"]
    before, error, after = replies[4]
    assert (before, after) == (1, 2)
    assert is_oops(str(error))
    assert replies[5] == [b"before", b"after"]
    assert store.caller.session.queue is None


def test_sessions_are_as_if_it_had_run_once(store: Store) -> None:
    store.execute("WATCH k")
    replies = store.execute("SELECT 3", "CLIENT SETNAME me", evaluate(_FAILS), "MULTI", "SET k v")
    assert is_oops(replies.pop(2))
    assert replies == [b"OK", b"OK", b"OK", b"QUEUED"]
    assert repr(store.caller.session) == "<Session 1 db=3 resp=3 multi>"
    assert len(store.caller.session.queue or ()) == 1
    assert store.execute("EXEC") == [[b"OK"]]


def test_blocked_clients_are_served_by_what_stays(store: Store) -> None:
    waiter, patient = Caller(store.engine), Caller(store.engine)
    store.execute("BLPOP l 0", caller=waiter)
    store.execute("BLPOP other 0", caller=patient)
    store.execute(evaluate(_PUBLISHES, "l", "a"), evaluate(_FAILS, "other"), evaluate(_PUBLISHES, "l", "b"))
    assert waiter.take() == [[b"l", b"a"]]
    assert patient.take() == []
    assert patient.session.blocked is not None
    assert store.execute("LRANGE l 0 -1", "RPUSH other right") == [[b"b"], 1]
    assert patient.take() == [[b"other", b"right"]]


def test_who_keeps_copies_is_told_of_what_stays(store: Store) -> None:
    reader = Caller(store.engine)
    store.execute("CLIENT TRACKING ON", "LLEN l", "LLEN other", caller=reader)
    store.execute(evaluate(_PUBLISHES, "l", "a"), evaluate(_FAILS, "other"))
    assert reader.take() == [[b"invalidate", [b"l"]]]
    # It is still known to have read the other one.
    store.execute("RPUSH other x")
    assert reader.take() == [[b"invalidate", [b"other"]]]


# ------------------------------------------------------------------------ with other trouble


@pytest.mark.parametrize("last_bytes", [1, 700_000], ids=["full before it", "full before and after it"])
def test_the_map_is_full_and_a_script_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, last_bytes: int
) -> None:
    monkeypatch.setattr(environment, "INITIAL_MAP_BYTES", 1 << 20)
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        store, listener = Store(engine), Caller(engine)
        store.execute("SUBSCRIBE news", caller=listener)
        before = engine.env.map_bytes()
        large = "redis.call('SET', KEYS[1], string.rep('x', 700000)) "
        replies = store.execute(
            evaluate(large + "return 1", "a"),
            evaluate(large + _FAILS.replace("KEYS[1]", "'l'"), "b"),
            evaluate(
                large.replace("700000", str(last_bytes)) + "redis.call('PUBLISH', 'news', 'right') return 3",
                "c",
            ),
            "EXISTS a b c l",
        )
        assert is_oops(replies.pop(1))
        assert replies == [1, 3, 2]
        assert engine.env.map_bytes() > before
        assert store.begun > 2  # for the map and for the script
        assert listener.take() == [[b"message", b"news", b"right"]]
        assert check_store(engine) == []


def test_a_bug_and_a_script_that_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(store.engine, monkeypatch, b"ECHO")
    replies = store.execute("RPUSH l a", "ECHO x", evaluate(_FAILS), evaluate(_PUBLISHES, "l", "b"))
    assert replies[1] == "ERR internal error: ZeroDivisionError: a bug"
    assert is_oops(replies[2])
    assert [replies[0], replies[3]] == [1, 2]


def test_a_bug_and_a_script_that_is_slow(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(store.engine, monkeypatch, b"ECHO")
    slow = evaluate("redis.call('RPUSH', KEYS[1], 'a') while true do end")
    # The slow one comes last, so that the bug is found first.
    batch = [(store.caller.session, command) for command in ([b"ECHO", b"x"], slow)]
    monkeypatch.setattr(store.engine.clock, "monotonic_s", iter(range(10_000)).__next__)
    with pytest.raises(SlowScriptError):
        store.engine.execute(batch, 5.0)
    assert store.caller.take() == []
    assert store.execute("EXISTS l") == [0]


def _break(engine: Engine, monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    def fail(session: Session, argv: Argv) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(engine.dispatcher.table.simple[name], "handler", fail)


# --------------------------------------------------------------------------- those that failed


def test_who_failed_is_watched_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "_CAREFUL_RUNS", 2)
    begun = []
    for _ in range(4):
        assert is_oops(store.execute(evaluate(_FAILS))[0])
        begun.append(store.begun)
    assert begun == [2, 1, 1, 2]
    assert store.execute("EXISTS l") == [0]


def test_not_more_of_them_are_remembered_than_agreed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "_MAX_FALLIBLE", 3)
    for number in range(10):
        assert is_oops(store.execute(evaluate(f"{_FAILS} -- {number}"))[0])
    assert len(store.engine.scripts._fallible) == 3
    assert is_oops(store.execute(evaluate(f"{_FAILS} -- 9"))[0])
    assert store.begun == 1


def test_a_script_without_a_limit_never_starts_again(store: Store) -> None:
    """It may run for long, and whoever kills it means it."""
    store.engine.execute([(store.caller.session, evaluate(_FAILS))])
    assert is_oops(store.caller.take()[0])
    assert store.begun == 1
    assert store.execute("EXISTS l") == [0]


# ------------------------------------------------------------- what is remembered within a unit


def test_a_flushed_script_is_gone_within_its_batch(store: Store) -> None:
    (digest,) = store.execute([b"SCRIPT", b"LOAD", b"return 7"])
    call = [b"EVALSHA", digest, b"0"]
    seven, shouted, flushed, gone = store.execute(
        call, [b"EVALSHA", digest.upper(), b"0"], "SCRIPT FLUSH", call
    )
    assert [seven, shouted, flushed] == [7, 7, b"OK"]
    assert gone.startswith("NOSCRIPT")


def test_a_script_that_a_failed_batch_loaded_is_loaded_again(store: Store) -> None:
    source = "return 7"
    loaded = [b"SCRIPT", b"LOAD", source.encode()]
    digest, seven, error = store.execute(loaded, evaluate(source), evaluate(_FAILS))
    assert seven == 7
    assert is_oops(error)
    assert store.execute([b"EVALSHA", digest, b"0"]) == [7]


def test_subscriptions_change_between_messages_of_a_batch(store: Store) -> None:
    listener = Caller(store.engine)
    heard, publisher = listener.session, store.caller.session

    def words(line: str) -> Argv:
        return line.encode().split()

    lines = [
        (publisher, "PUBLISH c 1"), (heard, "PSUBSCRIBE c*"), (publisher, "PUBLISH c 2"),
        (heard, "PSUBSCRIBE ?"), (publisher, "PUBLISH c 3"), (heard, "PUNSUBSCRIBE c*"),
        (publisher, "PUBLISH c 4"), (heard, "PUNSUBSCRIBE ?"), (publisher, "PUBLISH c 5"),
    ]  # fmt: skip
    store.engine.execute([(session, words(line)) for session, line in lines], _LIMIT_S)
    assert store.caller.take() == [0, 1, 2, 1, 0]
    messages = [item[1:] for item in listener.take() if item[0] == b"pmessage"]
    assert messages == [[b"c*", b"c", b"2"], [b"?", b"c", b"3"], [b"c*", b"c", b"3"], [b"?", b"c", b"4"]]
