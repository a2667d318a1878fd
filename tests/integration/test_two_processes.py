"""Two processes on one directory: everything is shared, blocking reads and pub/sub included."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from penstock.engine import Engine, LocalSession
from tests.integration.peers import LONG_S, Peer

StartPeer = Callable[[], Peer]


def _wait_until_blocked(session: LocalSession, count: int, engine: Engine) -> None:
    """Until so many clients of any process wait; the table tells, no sleeping for luck."""
    found = [0]

    def look() -> None:
        found[0] = engine.unit.entries(engine.unit.tables["waiting"])

    while found[0] < count:
        engine.run_task(look, write=False)


def test_writes_are_seen_by_the_other_process(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    session.execute("SET", "k", "from here")
    assert other.do("GET", "k") == b"from here"
    other.do("APPEND", "k", " and there")
    assert session.execute("GET", "k") == b"from here and there"


def test_watch_sees_writes_of_the_other_process(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    session.execute("SET", "k", "1")
    session.execute("WATCH", "k")
    other.do("SET", "k", "1")
    session.execute("MULTI")
    session.execute("SET", "k", "mine")
    assert session.execute("EXEC") is None
    assert session.execute("GET", "k") == b"1"


def test_publish_reaches_subscribers_of_other_processes_in_order(
    session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.do("SUBSCRIBE", "news")
    assert other.do("wait", LONG_S * 1000) == [b"subscribe", b"news", 1]
    session.execute("PSUBSCRIBE", "n*")
    assert session.poll() == [b"psubscribe", b"n*", 1]
    for number in range(100):
        assert session.execute("PUBLISH", "news", str(number)) == 2
    assert [other.do("wait", LONG_S * 1000)[2] for _ in range(100)] == [b"%d" % n for n in range(100)]
    assert [session.poll()[3] for _ in range(100)] == [b"%d" % n for n in range(100)]
    assert other.do("poll") is None
    assert session.execute("PUBSUB", "NUMSUB", "news") == [b"news", 1]


def test_a_blocked_pop_is_woken_by_a_push_of_another_process(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.send("BLPOP", "jobs", "0")
    _wait_until_blocked(session, 1, engine)
    assert session.execute("RPUSH", "jobs", "one") == 1
    assert other.receive() == [b"jobs", b"one"]
    assert session.execute("LLEN", "jobs") == 0


def test_blocked_clients_are_served_in_order_of_arrival_across_processes(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    peers = [start_peer() for _ in range(3)]
    for index in (2, 0, 1):
        peers[index].send("BLPOP", "jobs", "0")
        _wait_until_blocked(session, 1 + [2, 0, 1].index(index), engine)
    session.execute("RPUSH", "jobs", "first", "second", "third")
    assert [peers[index].receive()[1] for index in (2, 0, 1)] == [b"first", b"second", b"third"]


def test_a_dead_waiter_is_skipped_and_its_rows_are_removed(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    dead, living = start_peer(), start_peer()
    dead.send("BLPOP", "jobs", "0")
    _wait_until_blocked(session, 1, engine)
    living.send("BLPOP", "jobs", "0")
    _wait_until_blocked(session, 2, engine)
    dead.kill()
    session.execute("RPUSH", "jobs", "precious")
    assert living.receive() == [b"jobs", b"precious"]
    engine.duties.sweep_dead()
    assert sorted(name.suffix for name in (engine.path / "signals").iterdir()) == [".fifo", ".lock"]


def test_an_element_handed_to_a_process_that_dies_before_taking_it_comes_back(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.send("BLPOP", "jobs", "0")
    _wait_until_blocked(session, 1, engine)
    assert other.process.pid is not None
    os.kill(other.process.pid, signal.SIGSTOP)  # alive, but it cannot take anything
    session.execute("RPUSH", "jobs", "precious", "later")
    assert session.execute("LRANGE", "jobs", "0", "-1") == [b"later"]
    other.kill()
    engine.duties.sweep_dead()
    assert session.execute("LRANGE", "jobs", "0", "-1") == [b"precious", b"later"]


def test_a_dead_subscriber_is_cleaned_up_by_the_next_publish(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.do("SUBSCRIBE", "news")
    assert session.execute("PUBLISH", "news", "1") == 1
    other.kill()
    assert session.execute("PUBLISH", "news", "2") == 0
    assert session.execute("PUBSUB", "CHANNELS") == []
    assert list((engine.path / "signals").iterdir()) == []


def test_a_stopped_subscriber_loses_the_oldest_and_is_told_how_many(
    store: Path, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.do("SUBSCRIBE", "news")
    other.do("poll")
    assert other.process.pid is not None
    with Engine.open(store, durability="relaxed", queue_limit=10) as engine, LocalSession(engine) as session:
        os.kill(other.process.pid, signal.SIGSTOP)
        for number in range(15):
            assert session.execute("PUBLISH", "news", str(number)) == 1
        os.kill(other.process.pid, signal.SIGCONT)
        assert other.do("wait", LONG_S * 1000) == [b"overflow", 5]
        assert [other.do("poll")[2] for _ in range(10)] == [b"%d" % n for n in range(5, 15)]


def said_by_child(work: Callable[[], object]) -> str:
    """What a forked child gets for this, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writing, b"no error")
        except Exception as error:  # noqa: BLE001  (whatever it is, the parent judges it)
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        return said.read().decode()


def test_use_after_fork_is_a_clear_error(engine: Engine, session: LocalSession) -> None:
    session.execute("SET", "k", "v")
    assert said_by_child(lambda: session.execute("GET", "k")).startswith("ClosedError")
    assert session.execute("GET", "k") == b"v"


def test_a_store_that_was_open_at_the_fork_cannot_be_opened_in_the_child(engine: Engine) -> None:
    said = said_by_child(lambda: Engine.open(engine.path, durability="relaxed"))
    assert said.startswith("StoreError")
    assert "start the process by spawn, or fork before opening" in said
