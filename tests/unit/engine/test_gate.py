"""The gate of the dispatcher: sessions in unusual states, and that the usual path stays open."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import Engine, Session
from penstock.engine.control import Close
from penstock.protocol.replies import Push


class Caller:
    """A session as a server would own it; ``got`` is everything it was sent."""

    def __init__(self, engine: Engine) -> None:
        self.got: list[Any] = []
        self.session: Session = engine.session(self.got.append)
        self.session.is_remote = True

    def call(self, words: str) -> tuple[Session, list[bytes]]:
        return self.session, [word.encode() for word in words.split()]

    def take(self) -> list[Any]:
        got, self.got[:] = list(self.got), []
        return got


@pytest.fixture
def one(engine: Engine) -> Caller:
    return Caller(engine)


@pytest.fixture
def two(engine: Engine) -> Caller:
    return Caller(engine)


def test_an_ordinary_session_is_not_gated(engine, one):
    engine.execute([one.call("SET k v"), one.call("SELECT 1"), one.call("GET k")])
    assert not one.session.gated


def test_deferred_commands_keep_their_order(engine, one, two):
    """A command that arrives after the wait is over may not overtake those that were deferred in it."""
    engine.execute(
        [one.call("BLPOP l 0"), one.call("SET k first"), two.call("RPUSH l x"), one.call("SET k second")]
    )
    assert one.take() == [[b"l", b"x"]]
    assert [argv[2] for argv in one.session.deferred] == [b"first", b"second"]
    deferred = [(one.session, argv) for argv in one.session.deferred]
    one.session.deferred.clear()
    engine.execute([*deferred, one.call("GET k")])
    assert one.take() == [b"OK", b"OK", b"second"]
    assert not one.session.gated


def test_monitoring_gates_every_session_and_lets_go_again(engine, one, two):
    engine.execute([two.call("MONITOR")])
    assert one.session.gated
    assert Caller(engine).session.gated
    engine.execute([one.call("PING")])
    line = two.take()[-1]
    assert line.endswith(b'"PING"')
    engine.end_session(two.session)
    assert not one.session.gated
    engine.execute([one.call("PING")])
    assert two.take() == []


def test_an_embedded_monitor_gets_pushes(engine, one, two):
    two.session.is_remote = False
    engine.execute([two.call("MONITOR"), one.call("PING")])
    ok, push = two.take()
    assert ok == b"OK"
    assert isinstance(push, Push)
    assert push[0] == b"monitor"
    assert push[1].endswith(b'"PING"')


def test_a_pause_holds_until_its_end(engine, one, two, clock):
    engine.execute([two.call("CLIENT PAUSE 100"), one.call("SET k v"), one.call("GET k")])
    assert one.take() == []
    assert one.session.blocked is not None
    assert one.session.blocked.deadline_ms == clock.now_ms() + 100
    assert Caller(engine).session.gated
    clock.advance_ms(100)
    engine.time_out(one.session)
    deferred = [(one.session, argv) for argv in one.session.deferred]
    one.session.deferred.clear()
    engine.execute(deferred)
    assert one.take() == [b"OK", b"v"]
    assert engine.pause is None
    assert not one.session.gated


def test_a_pause_does_not_hold_who_is_in_the_process(engine, one, two):
    two.session.is_remote = False
    engine.execute([one.call("CLIENT PAUSE 1000"), two.call("SET k v")])
    assert two.take() == [b"OK"]


def test_a_pause_is_no_wait_that_unblock_could_end(engine, one, two):
    engine.execute([two.call("CLIENT PAUSE 1000 WRITE"), one.call("SET k v")])
    engine.execute([two.call(f"CLIENT UNBLOCK {one.session.number}"), two.call("CLIENT UNPAUSE")])
    assert two.take() == [b"OK", 0, b"OK"]
    assert one.session.blocked is None


def test_after_hanging_up_nothing_is_executed(engine, one, two):
    engine.execute([one.call("QUIT"), one.call("SET k v"), two.call("EXISTS k")])
    assert one.take() == [b"OK", Close()]
    assert two.take() == [0]
