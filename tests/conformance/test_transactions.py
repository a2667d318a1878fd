"""MULTI, EXEC, DISCARD, WATCH: what is queued, what is refused, what a watch notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from tests.conformance.refusals import WRONGTYPE

ABORTED = "EXECABORT Transaction discarded because of previous errors."


def execute(db: Any, *commands: tuple[Any, ...]) -> Any:
    """The reply of EXEC after these commands."""
    assert db.do("MULTI") == b"OK"
    for words in commands:
        assert db.do(*words) == b"QUEUED"
    return db.do("EXEC")


# ------------------------------------------------------------------------ queue and run


def test_commands_run_together(db):
    assert execute(db, ("SET", "k", "1"), ("INCR", "k"), ("GET", "nothing")) == [b"OK", 2, None]
    assert db.do("GET", "k") == b"2"


def test_nothing_runs_before_exec(db):
    other = db.client()
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert other.do("GET", "k") is None
    db.do("EXEC")
    assert other.do("GET", "k") == b"v"


def test_an_empty_transaction(db):
    assert execute(db) == []


def test_discard_drops_the_queue(db):
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert db.do("DISCARD") == b"OK"
    assert db.do("GET", "k") is None
    assert db.error("DISCARD") == "ERR DISCARD without MULTI"


def test_exec_and_discard_need_multi(db):
    assert db.error("EXEC") == "ERR EXEC without MULTI"
    assert db.error("DISCARD") == "ERR DISCARD without MULTI"


def test_multi_inside_multi_is_refused_but_breaks_nothing(db):
    if db.kind == "valkey":
        pytest.skip("Valkey breaks the transaction")
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert db.error("MULTI") == "ERR MULTI calls can not be nested"
    assert db.error("WATCH", "k") == "ERR WATCH inside MULTI is not allowed"
    assert db.do("EXEC") == [b"OK"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("NOSUCH", "a"), "ERR unknown command 'NOSUCH', with args beginning with: 'a' "),
        (("GET",), "ERR wrong number of arguments for 'get' command"),
        (("WATCH",), "ERR wrong number of arguments for 'watch' command"),
        (("CLIENT", "NOSUCH"), "ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
    ],
)
def test_a_command_that_cannot_be_queued_spoils_the_transaction(db, words, error):
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert db.error(*words) == error
    assert db.do("SET", "k", "w") == b"QUEUED"
    assert db.error("EXEC") == ABORTED
    assert db.do("EXISTS", "k") == 0
    assert db.error("EXEC") == "ERR EXEC without MULTI"


def test_a_command_that_has_no_place_in_a_transaction_spoils_it(db):
    db.do("MULTI")
    name = "'save' " if db.kind == "valkey" else ""
    assert db.error("SAVE") == f"ERR Command {name}not allowed inside a transaction"
    assert db.error("EXEC") == ABORTED


def test_discard_forgets_that_the_transaction_was_spoilt(db):
    db.do("MULTI")
    db.error("NOSUCH")
    db.do("DISCARD")
    assert execute(db, ("SET", "k", "v")) == [b"OK"]


def test_a_command_that_fails_does_not_stop_the_others(db):
    replies = execute(db, ("SET", "k", "v"), ("LPUSH", "k", "x"), ("INCR", "k"), ("SET", "l", "w"))
    assert replies[0] == replies[3] == b"OK"
    assert [str(reply) for reply in replies[1:3]] == [
        WRONGTYPE,
        "ERR value is not an integer or out of range",
    ]
    assert all(isinstance(reply, CommandError) for reply in replies[1:3])
    assert db.do("GET", "l") == b"w"


def test_exec_takes_no_arguments_and_ends_the_transaction(db):
    abort = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert db.error("EXEC", "now") == abort
    assert db.error("EXEC") == "ERR EXEC without MULTI"
    assert db.do("EXISTS", "k") == 0


def test_the_database_selected_inside_stays(db):
    assert execute(db, ("SET", "k", "0"), ("SELECT", "1"), ("SET", "k", "1")) == [b"OK"] * 3
    assert db.do("GET", "k") == b"1"
    db.do("SELECT", "0")
    assert db.do("GET", "k") == b"0"


def test_reset_leaves_the_transaction(db):
    db.do("MULTI")
    db.do("SET", "k", "v")
    assert db.do("RESET") == b"RESET"
    assert db.error("EXEC") == "ERR EXEC without MULTI"


# -------------------------------------------------------------------------------- watch


def test_a_change_by_another_client_is_noticed(db):
    other = db.client()
    db.do("SET", "k", "1")
    assert db.do("WATCH", "k", "l") == b"OK"
    other.do("SET", "l", "2")
    assert execute(db, ("SET", "k", "3")) is None
    assert db.do("GET", "k") == b"1"


def test_the_watch_ends_with_exec(db):
    other = db.client()
    db.do("WATCH", "k")
    other.do("SET", "k", "v")
    assert execute(db, ("PING",)) is None
    assert execute(db, ("PING",)) == [b"PONG"]


def test_ones_own_change_counts(db):
    db.do("WATCH", "k")
    db.do("SET", "k", "v")
    assert execute(db, ("PING",)) is None


def test_reading_and_failing_are_no_changes(db):
    other = db.client()
    db.do("SET", "k", "v")
    db.do("WATCH", "k", "missing")
    other.do("GET", "k")
    other.error("INCR", "k")
    other.do("SET", "k", "w", "NX")
    other.do("DEL", "missing")
    assert execute(db, ("GET", "k")) == [b"v"]


@pytest.mark.parametrize(
    "change",
    [
        ("DEL", "k"),
        ("RENAME", "k", "l"),
        ("EXPIRE", "k", "100"),
        ("SET", "k", "v"),
        ("MOVE", "k", "1"),
        ("FLUSHDB",),
        ("FLUSHALL",),
        ("SWAPDB", "0", "1"),
        ("COPY", "from", "k", "REPLACE"),
    ],
)
def test_what_counts_as_a_change(db, change):
    other = db.client()
    db.do("SET", "k", "v")
    db.do("SET", "from", "v")
    db.do("WATCH", "k")
    assert not isinstance(other.do(*change), CommandError)
    assert execute(db, ("PING",)) is None


def test_a_missing_key_that_is_created(db):
    other = db.client()
    db.do("WATCH", "k")
    other.do("LPUSH", "k", "v")
    other.do("DEL", "k")
    assert execute(db, ("PING",)) is None


def test_flushing_does_not_change_a_missing_key(db):
    other = db.client()
    db.do("SET", "other", "v")
    db.do("WATCH", "k")
    other.do("FLUSHALL")
    assert execute(db, ("PING",)) == [b"PONG"]


def test_databases_have_keys_of_their_own(db):
    other = db.client()
    db.do("WATCH", "k")
    other.do("SELECT", "1")
    other.do("SET", "k", "v")
    assert execute(db, ("PING",)) == [b"PONG"]
    db.do("WATCH", "k")
    db.do("SELECT", "1")
    other.do("SELECT", "0")
    other.do("SET", "k", "v")
    assert execute(db, ("PING",)) is None


@pytest.mark.parametrize("forget", [("UNWATCH",), ("RESET",), ("DISCARD",)])
def test_a_watch_can_be_given_up(db, forget):
    other = db.client()
    db.do("WATCH", "k")
    if forget == ("DISCARD",):
        db.do("MULTI")
    db.do(*forget)
    other.do("SET", "k", "v")
    assert execute(db, ("PING",)) == [b"PONG"]


def test_unwatch_inside_comes_too_late(db):
    other = db.client()
    db.do("WATCH", "k")
    db.do("MULTI")
    assert db.do("UNWATCH") == b"QUEUED"
    other.do("SET", "k", "v")
    assert db.do("EXEC") is None


def test_watching_again_does_not_forget_a_change(db):
    other = db.client()
    db.do("WATCH", "k")
    other.do("SET", "k", "v")
    db.do("WATCH", "k")
    assert execute(db, ("PING",)) is None


def test_an_error_comes_before_a_changed_watch(db):
    other = db.client()
    db.do("WATCH", "k")
    other.do("SET", "k", "v")
    db.do("MULTI")
    db.error("NOSUCH")
    assert db.error("EXEC") == ABORTED


def test_expiry_counts_as_a_change(tmp_path: Path):
    clock = ManualClock()
    with Engine.open(tmp_path / "store.pen", clock=clock) as engine, LocalSession(engine) as session:
        session.execute("SET", "k", "v", "PX", "100")
        session.execute("WATCH", "k")
        clock.advance_ms(99)
        assert execute(_Local(session), ("PING",)) == [b"PONG"]
        session.execute("WATCH", "k")
        clock.advance_ms(1)
        assert execute(_Local(session), ("PING",)) is None


def test_a_key_that_had_expired_before_the_watch_is_a_missing_key(tmp_path: Path):
    clock = ManualClock()
    with Engine.open(tmp_path / "store.pen", clock=clock) as engine, LocalSession(engine) as session:
        session.execute("SET", "k", "v", "PX", "100")
        clock.advance_ms(100)
        session.execute("WATCH", "k")
        session.execute("DEL", "k")
        assert execute(_Local(session), ("PING",)) == [b"PONG"]


class _Local:
    def __init__(self, session: LocalSession) -> None:
        self.do = session.execute


# ------------------------------------------------------------- waiting and subscribing


def test_blocking_commands_do_not_wait(db):
    assert execute(db, ("BLPOP", "l", "0"), ("BLMOVE", "l", "m", "LEFT", "LEFT", "0")) == [None, None]
    assert execute(db, ("RPUSH", "l", "a"), ("BLPOP", "l", "0")) == [1, [b"l", b"a"]]


def test_waiters_are_served_after_the_whole_transaction(db):
    waiter = db.client()
    waiter.send("BLPOP", "l", "0")
    assert waiter.nothing_arrives()
    assert execute(db, ("RPUSH", "l", "gone"), ("DEL", "l")) == [1, 1]
    assert waiter.nothing_arrives()
    assert execute(db, ("RPUSH", "l", "a"), ("LPUSH", "l", "b")) == [1, 2]
    assert waiter.receive() == [b"l", b"b"]


def test_subscribing_inside(db):
    db.do("MULTI")
    db.do("SUBSCRIBE", "c")
    replies = db.do("EXEC")
    assert [list(reply) for reply in replies] == [[b"subscribe", b"c", 1]]
    assert db.client().do("PUBLISH", "c", "hello") == 1
    assert db.receive() == [b"message", b"c", b"hello"]


def test_a_message_to_oneself_follows_the_reply(db):
    if db.kind == "redis":
        pytest.skip("Redis 7.0 writes the message into the middle of the reply")
    db.do("MULTI")
    db.do("SUBSCRIBE", "c")
    db.do("PUBLISH", "c", "hello")
    db.do("PUBLISH", "d", "nobody")
    replies = db.do("EXEC")
    assert [list(replies[0]), *replies[1:]] == [[b"subscribe", b"c", 1], 1, 0]
    assert db.receive() == [b"message", b"c", b"hello"]


def test_publishing_inside_reaches_others(db):
    listener = db.client()
    (listener.do if db.kind == "engine" else listener.send)("SUBSCRIBE", "c")
    assert listener.receive() == [b"subscribe", b"c", 1]
    assert execute(db, ("PUBLISH", "c", "1"), ("PUBLISH", "c", "2")) == [1, 1]
    assert [listener.receive()[2], listener.receive()[2]] == [b"1", b"2"]


def test_monitor_inside_is_refused(db):
    replies = execute(db, ("MONITOR",), ("PING",))
    assert str(replies[0]) == "ERR MONITOR isn't allowed for DENY BLOCKING client"
    assert replies[1] == b"PONG"
