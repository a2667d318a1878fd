"""Two engines on one directory, in one process: what travels between them, in which order, and what ends it.

They have an endpoint each, so they are to one another what two processes are, without
the trouble of starting any. Threads stand for callers that wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine import local as local_module
from penstock.engine.check import check_store
from penstock.errors import ClosedError, CommandError, StoreError

_LONG_S = 30.0


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    path = tmp_path / "store.pen"
    with Engine.open(path, durability="relaxed") as one, Engine.open(path, durability="relaxed") as two:
        yield one, two
        assert check_store(one) == []


@pytest.fixture
def here(engines: tuple[Engine, Engine]) -> Iterator[LocalSession]:
    with LocalSession(engines[0]) as session:
        yield session


@pytest.fixture
def there(engines: tuple[Engine, Engine]) -> Iterator[LocalSession]:
    with LocalSession(engines[1]) as session:
        yield session


class Waiter:
    """A caller of the second engine that blocks in a thread of its own; refusals are values."""

    def __init__(self, engine: Engine, *command: Any) -> None:
        self.session = LocalSession(engine)
        self._reply: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(command,), daemon=True)
        self._thread.start()
        until(lambda: self.state.blocked is not None, "it blocks")

    @property
    def state(self) -> Any:
        return self.session._session

    def _run(self, command: tuple[Any, ...]) -> None:
        try:
            self._reply.append(self.session.execute(*command))
        except (CommandError, ClosedError) as error:
            self._reply.append(error)

    def reply(self) -> Any:
        self._thread.join(_LONG_S)
        assert self._reply, "no reply arrived"
        self.session.close()
        return self._reply[0]


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LONG_S
    while not is_so():
        assert time.monotonic() < deadline, f"does not happen: {what}"


def rows(engine: Engine, table: str, prefix: bytes = b"") -> int:
    counts: list[int] = []
    engine.run_task(
        lambda: counts.append(sum(1 for _ in engine.unit.rows(engine.unit.tables[table], prefix))),
        write=False,
    )
    return counts[-1]


def without_listener(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """From now on the engine takes no mail by itself, as a process that is stopped."""
    monkeypatch.setattr(engine, "collect", lambda: None)


# --------------------------------------------------------------------------------- blocked


def test_an_error_that_ends_a_wait_travels(engines: tuple[Engine, Engine], here: LocalSession) -> None:
    here.execute("SET", "target", "no list")
    waiter = Waiter(engines[1], "BLMOVE", "source", "target", "LEFT", "LEFT", "0")
    here.execute("RPUSH", "source", "x")
    reply = waiter.reply()
    assert isinstance(reply, CommandError)
    assert str(reply).startswith("WRONGTYPE")
    assert here.execute("LRANGE", "source", "0", "-1") == [b"x"]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (["BLPOP", "l", "0"], [b"l", b"1"]),
        (["BLMPOP", "0", "2", "none", "l", "RIGHT", "COUNT", "2"], [b"l", [b"3", b"2"]]),
        (["BLMOVE", "l", "m", "LEFT", "RIGHT", "0"], b"1"),
    ],
)
def test_a_reply_arrives_as_it_was(
    engines: tuple[Engine, Engine], here: LocalSession, command: list[str], reply: Any
) -> None:
    waiter = Waiter(engines[1], *command)
    here.execute("RPUSH", "l", "1", "2", "3")
    assert waiter.reply() == reply


def test_scores_arrive_as_numbers(engines: tuple[Engine, Engine], here: LocalSession) -> None:
    waiter = Waiter(engines[1], "BZPOPMIN", "z", "0")
    here.execute("ZADD", "z", "1.5", "a")
    assert waiter.reply() == [b"z", b"a", 1.5]


def test_whichever_key_was_written_first_serves(engines: tuple[Engine, Engine], here: LocalSession) -> None:
    waiters = [
        Waiter(engines[1], "BLPOP", "a", "b", "0"),
        Waiter(engines[0], "BLMPOP", "0", "2", "a", "b", "LEFT"),
    ]
    for words in (["MULTI"], ["RPUSH", "b", "1", "2"], ["RPUSH", "a", "3"]):
        here.execute(*words)
    here.execute("EXEC")
    assert [waiter.reply() for waiter in waiters] == [[b"b", b"1"], [b"b", [b"2"]]]


def test_who_is_served_cannot_be_interrupted(
    engines: tuple[Engine, Engine], here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_listener(monkeypatch, engines[1])
    waiter = Waiter(engines[1], "BLPOP", "l", "0")
    here.execute("RPUSH", "l", "x")
    with LocalSession(engines[1]) as beside:
        beside.execute("CLIENT", "UNBLOCK", str(waiter.state.number), "ERROR")
    assert waiter.reply() == [b"l", b"x"]
    assert rows(engines[0], "messages") == 0


def test_time_is_up_just_when_the_reply_is_there(
    engines: tuple[Engine, Engine], here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_listener(monkeypatch, engines[1])
    waiter = Waiter(engines[1], "BLPOP", "l", "0.5")
    here.execute("RPUSH", "l", "x")
    assert waiter.reply() == [b"l", b"x"]


def test_what_a_closed_session_never_took_goes_back_in_order(
    engines: tuple[Engine, Engine], here: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_listener(monkeypatch, engines[1])
    # Served in the order of their arrival, not of their numbers.
    sessions = [engines[1].session(lambda _: None) for _ in range(4)]
    for session in (sessions[2], sessions[0], sessions[3], sessions[1]):
        engines[1].execute([(session, [b"BLPOP", b"l", b"0"])])
    here.execute("RPUSH", "l", "1", "2", "3", "4", "5")
    assert here.execute("LRANGE", "l", "0", "-1") == [b"5"]
    endpoint = engines[1].mailboxes.own_endpoint()
    engines[0].run_task(lambda: engines[0].bury(endpoint.id))
    assert here.execute("LRANGE", "l", "0", "-1") == [b"1", b"2", b"3", b"4", b"5"]


def test_closing_the_engine_ends_a_wait(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "other.pen", durability="relaxed")
    waiter = Waiter(engine, "BLPOP", "l", "0")
    engine.close()
    assert isinstance(waiter.reply(), ClosedError)


def test_an_interrupted_wait_answers_no_later_command(
    here: LocalSession, engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def interrupt(_: LocalSession) -> bool:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalSession, "_await_reply", interrupt)
        with pytest.raises(KeyboardInterrupt):
            here.execute("BLPOP", "l", "0")
    assert calls == 1
    assert rows(engines[0], "waiting") == rows(engines[0], "waiters") == 0
    assert here.execute("RPUSH", "l", "x") == 1
    assert here.execute("LRANGE", "l", "0", "-1") == [b"x"]


def test_a_wait_that_cannot_be_ended_now_is_ended_before_the_next_command(
    here: LocalSession, engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise StoreError("cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(engines[0], "time_out", fail)
        with pytest.raises(StoreError):
            here.execute("BLPOP", "l", "0.001")
    assert rows(engines[0], "waiting") == 1
    assert here.execute("PING") == b"PONG"
    assert rows(engines[0], "waiting") == 0


def test_waiting_often_does_not_gather_threads(
    engines: tuple[Engine, Engine], here: LocalSession, there: LocalSession
) -> None:
    there.execute("SUBSCRIBE", "c")
    assert there.wait(1000) == [b"subscribe", b"c", 1]
    for _ in range(50):
        assert here.execute("BLPOP", "l", "0.001") is None
        assert there.wait(1) is None

    def listeners() -> int:
        return sum(thread.name == "penstock-listener" for thread in threading.enumerate())

    assert 1 <= listeners() <= 2
    until(lambda: listeners() == 0, "who is not needed goes")


def test_nobody_keeps_an_engine_that_is_closed(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "other.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        assert session.execute("BLPOP", "l", "0.001") is None
    until(lambda: engine not in local_module._listeners, "the listener retires")


# -------------------------------------------------------------------------------- messages


def test_messages_come_before_the_confirmation_that_ends_them(
    here: LocalSession, there: LocalSession, engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    there.execute("SUBSCRIBE", "a", "b")
    there.execute("PSUBSCRIBE", "a*")
    without_listener(monkeypatch, engines[1])
    for number in range(3):
        assert here.execute("PUBLISH", "a", str(number)) == 2
    there.execute("UNSUBSCRIBE", "a")
    heard = [list(item) for item in iter(there.poll, None)][3:]
    assert [item[-1] for item in heard] == [b"0", b"0", b"1", b"1", b"2", b"2", 2]
    assert heard[-1] == [b"unsubscribe", b"a", 2]


def test_a_later_message_of_ours_does_not_overtake_an_earlier_one_of_theirs(
    here: LocalSession, there: LocalSession, engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    there.execute("SUBSCRIBE", "c")
    without_listener(monkeypatch, engines[1])
    with LocalSession(engines[1]) as beside:
        for number in range(10):
            speaker = (here, beside)[number % 2]
            assert speaker.execute("PUBLISH", "c", str(number)) == 1
    heard = [item[-1] for item in iter(there.poll, None)][1:]
    assert heard == [b"%d" % number for number in range(10)]


def test_a_queue_has_an_end_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "store.pen"
    with (
        Engine.open(path, durability="relaxed", queue_limit=5) as one,
        Engine.open(path, durability="relaxed") as two,
        LocalSession(one) as here,
    ):
        listener = two.session(lambda _: None)
        two.execute([(listener, [b"SUBSCRIBE", b"c"])])
        for number in range(12):
            assert here.execute("PUBLISH", "c", str(number)) == 1
        assert rows(one, "messages") == 5
        assert check_store(one) == []
        # Buried by somebody else, or ended by its owner: nothing remains.
        one.run_task(lambda: one.bury(two.mailboxes.own_endpoint().id))
        assert rows(one, "messages") == rows(one, "system", b"q") == 0
        two.execute([(listener, [b"SUBSCRIBE", b"d"])])
        assert here.execute("PUBLISH", "d", "m") == 1
        two.end_session(listener)
        assert rows(one, "messages") == rows(one, "system", b"q") == 0


def test_many_subscriptions_of_one_session(here: LocalSession, engines: tuple[Engine, Engine]) -> None:
    names = [f"c{number}" for number in range(3000)]
    here.execute("SUBSCRIBE", *names)
    here.execute("UNSUBSCRIBE", *names[1:])
    assert rows(engines[0], "subscribed") == rows(engines[0], "channels") == 1
    assert here.execute("PUBSUB", "CHANNELS") == [b"c0"]


def test_who_is_refused_keeps_what_he_had(
    here: LocalSession, engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that could not be stored is none, in the session's own mind either."""
    here.execute("SUBSCRIBE", "old")
    commit = engines[0].unit.commit

    def fail() -> None:
        monkeypatch.setattr(engines[0].unit, "commit", commit)
        raise OSError(5, "Input/output error")

    for words in (["SUBSCRIBE", "new"], ["UNSUBSCRIBE", "old"]):
        monkeypatch.setattr(engines[0].unit, "commit", fail)
        with pytest.raises(CommandError, match="full or failing"):
            here.execute(*words)
        assert here._session.channels == {b"old"}
        assert here.execute("PUBSUB", "CHANNELS") == [b"old"]


# ------------------------------------------------------------------------------- delivery


def test_a_receiver_that_fails_has_its_command_done_once(
    engines: tuple[Engine, Engine], here: LocalSession, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("nobody can hear this")

    heard: list[Any] = []
    deaf, attentive = engines[0].session(fail), engines[0].session(heard.append)
    engines[0].execute([(deaf, [b"INCR", b"n"]), (attentive, [b"INCR", b"n"])])
    assert heard == [2]
    assert here.execute("GET", "n") == b"2"
    assert "could not be delivered" in caplog.text
