"""Streams with readers in several processes: shares, turns, streams that go away, readers that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.check import find_leftovers
from penstock.errors import CommandError
from tests.integration.peers import Peer

StartPeer = Callable[[], Peer]

_READ = ("TREAD", "jobs", 0, 100, "GROUP", "g", "BLOCK", 0)
#: Short enough to wait for.
_RETRY_MS = 300


def _wait_until_blocked(engine: Engine, count: int) -> None:
    """Until so many clients of any process wait; the table tells, no sleeping for luck."""
    found = [0]

    def look() -> None:
        found[0] = engine.unit.entries(engine.unit.tables["waiting"])

    while found[0] < count:
        engine.run_task(look, write=False)


def _write(session: LocalSession, count: int) -> None:
    session.execute("TWRITE", "jobs", "ENTRIES", *("t", "x") * count)


def _offsets(reply: Any) -> list[int]:
    assert isinstance(reply, list), reply
    return [row[0] for row in reply]


def _block_all(engine: Engine, peers: list[Peer], *command: Any) -> None:
    """In this order."""
    for count, peer in enumerate(peers, 1):
        peer.send(*command)
        _wait_until_blocked(engine, count)


def test_readers_of_all_processes_share_what_there_is(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    peers = [start_peer() for _ in range(3)]
    _block_all(engine, peers, *_READ)
    _write(session, 7)
    assert [_offsets(peer.receive()) for peer in peers] == [[1, 2, 3], [4, 5], [6, 7]]


def test_readers_of_all_processes_take_turns(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    peers = [start_peer() for _ in range(2)]
    _block_all(engine, peers, *_READ)
    for number in range(1, 7):
        served = peers[(number - 1) % 2]
        _write(session, 1)
        assert _offsets(served.receive()) == [number]
        served.send(*_READ)
        _wait_until_blocked(engine, 2)


def test_plain_readers_of_all_processes_get_the_same(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    peers = [start_peer() for _ in range(2)]
    _block_all(engine, peers, "TREAD", "jobs", 2, 5, "BLOCK", 0, "WITHINFO")
    _write(session, 1)
    _write(session, 1)
    assert [peer.receive() for peer in peers] == [[[1, 2], [2, b"t", b"x"]]] * 2


def test_an_acknowledgement_of_one_process_wakes_a_reader_of_another(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    peer = start_peer()
    _write(session, 2)
    session.execute("TGROUP", "CREATE", "jobs", "g", 0, "MAXPENDING", 1)
    session.execute("TREAD", "jobs", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    _block_all(engine, [peer], *_READ, "RETRY", 60_000, 0)
    session.execute("TACK", "jobs", "g", 1)
    assert _offsets(peer.receive()) == [2]


@pytest.mark.parametrize("command", ["DEL jobs", "SET jobs x", "FLUSHALL", "RENAME jobs other"])
def test_readers_of_all_processes_learn_that_their_stream_is_gone(
    engine: Engine, session: LocalSession, start_peer: StartPeer, command: str
) -> None:
    peers = [start_peer() for _ in range(2)]
    _write(session, 1)
    peers[0].send("TREAD", "jobs", 2, 1, "BLOCK", 0)
    _wait_until_blocked(engine, 1)
    peers[1].send("TREAD", "jobs", "$", 1, "GROUP", "g", "BLOCK", 0)
    _wait_until_blocked(engine, 2)
    session.execute(*command.split())
    for peer in peers:
        reply = peer.receive()
        assert isinstance(reply, CommandError)
        assert str(reply) == "UNBLOCKED the stream jobs is gone"


def test_a_dead_reader_has_no_share(engine: Engine, session: LocalSession, start_peer: StartPeer) -> None:
    peers = [start_peer() for _ in range(3)]
    _block_all(engine, peers, *_READ)
    peers[1].kill()
    _write(session, 4)
    assert [_offsets(peer.receive()) for peer in (peers[0], peers[2])] == [[1, 2], [3, 4]]


def test_messages_of_a_killed_reader_come_back(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    victim, other = start_peer(), start_peer()
    _write(session, 2)
    assert _offsets(victim.do("TREAD", "jobs", 0, 2, "GROUP", "g", "RETRY", _RETRY_MS, 0)) == [1, 2]
    victim.kill()
    # Nobody writes from now on: a timer has to wake it.
    other.send(*_READ, "RETRY", 60_000, 0, "WITHCOUNT")
    assert [(row[0], row[3]) for row in other.receive()] == [(1, 2), (2, 2)]
    assert session.execute("TACK", "jobs", "g", "1-2") == 2


def test_what_a_reader_was_handed_and_never_took_comes_back(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    victim, other = start_peer(), start_peer()
    _block_all(engine, [victim], *_READ, "RETRY", _RETRY_MS, 0)
    assert victim.process.pid is not None
    os.kill(victim.process.pid, signal.SIGSTOP)  # alive, but it cannot take anything
    _write(session, 2)
    assert session.execute("TPENDING", "jobs", "g")[:3] == [2, 1, 2]
    victim.kill()
    other.send(*_READ, "RETRY", 60_000, 0)
    assert _offsets(other.receive()) == [1, 2]
    engine.duties.sweep_dead()
    assert find_leftovers(engine) == []


def test_groups_survive_closing_the_store(tmp_path: Path) -> None:
    path = tmp_path / "kept.pen"
    with Engine.open(path) as engine, LocalSession(engine) as session:
        _write(session, 3)
        session.execute("TREAD", "jobs", 0, 2, "GROUP", "g", "RETRY", 60_000, 0, "CONSUMER", "c")
        session.execute("TACK", "jobs", "g", 1)
    with Engine.open(path) as engine, LocalSession(engine) as session:
        assert [row[:3] for row in session.execute("TPENDING", "jobs", "g", 0, 9, 9)] == [[2, b"c", 1]]
        assert _offsets(session.execute("TREAD", "jobs", 0, 9, "GROUP", "g")) == [3]
