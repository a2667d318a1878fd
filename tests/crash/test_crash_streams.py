"""SIGKILL at any instant, for streams: nothing confirmed is lost, written twice, or delivered after its end.

Processes write, read for groups, evict and compact, embedded and through a server, and are killed and
replaced at random (see ``stream_workers`` for what they do, ``stream_ledger`` for how it is judged). In
rounds: at the end of each all are killed at once, and the store is judged.

    PENSTOCK_CRASH_SECONDS   how long in all; 8 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store, find_leftovers
from penstock.testing.own_server import PenstockServer
from tests.crash import stream_ledger, stream_workers
from tests.crash.stream_ledger import Books, Try
from tests.crash.stream_workers import GROUPS, SETUP
from tests.effort import seed_of
from tests.forking import CONTEXT, ForkServerProcess

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "8"))
SEED = seed_of("PENSTOCK_CRASH_SEED")

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 60.0
_ROUND_S = 4.0
_MEAN_PAUSE_S = 0.04

#: role, whether through the server
_CREW = [
    ("writer", False), ("writer", False), ("writer", True),
    ("producer", False), ("producer", True),
    ("reader", False), ("reader", False), ("reader", True),
    ("once", False), ("tender", False), ("tender", True),
]  # fmt: skip


class Storm:
    """Workers that are killed and replaced."""

    def __init__(self, store: Path, logs: Path, chance: random.Random) -> None:
        self.kills = 0
        self._store = store
        self._logs = logs
        self._chance = chance
        self._count = 0
        self._port_file = logs / "port"
        self._server = PenstockServer(store, durability="relaxed")
        self._processes: list[ForkServerProcess] = []

    def __enter__(self) -> Storm:
        self._open = ExitStack()
        self._open.enter_context(self._server)
        self._announce_server()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join(HANGS_S)
        self._open.close()

    def round(self, seconds: float) -> None:
        """Start everybody, kill one after the other, then all at once."""
        self._processes = [self._spawn(place) for place in range(len(_CREW))]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The point is that nobody can foresee the instant.
            time.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            place = self._chance.randrange(len(_CREW))
            self._kill(place)
            self._processes[place] = self._spawn(place)
            if self._chance.random() < 0.02:
                self._kill_server()
                self._start_server()
        self._kill_server()
        for place in range(len(_CREW)):
            self._kill(place)
        self._start_server()
        failed = [path.read_text() for path in sorted(self._logs.glob("*.error"))]
        assert not failed, f"{len(failed)} workers failed:\n{failed[0]}"

    def _spawn(self, place: int) -> ForkServerProcess:
        role, remote = _CREW[place]
        self._count += 1
        # A producer goes on under its name; its log is that of all its lives.
        name = f"{role}-{place if role == 'producer' else f'n{self._count}'}"
        port_file = str(self._port_file) if remote else None
        args = (
            role,
            str(self._store),
            port_file,
            str(self._logs / f"{name}.log"),
            self._chance.randrange(1 << 32),
        )
        process = CONTEXT.Process(target=stream_workers.work, args=args)
        process.start()
        return process

    def _kill(self, place: int) -> None:
        process = self._processes[place]
        process.kill()
        process.join(HANGS_S)  # or two lives of a producer would overlap
        assert process.exitcode is not None, "a killed process does not end"
        self.kills += 1

    def _start_server(self) -> None:
        self._server.start()
        self._announce_server()

    def _announce_server(self) -> None:
        fresh = self._port_file.with_suffix(".new")
        fresh.write_text(str(self._server.port))
        fresh.rename(self._port_file)

    def _kill_server(self) -> None:
        assert self._server.process.poll() is None, f"the server ended by itself: {self._server.log}"
        self._server.kill()
        assert "Traceback" not in self._server.log, self._server.log
        self.kills += 1


def _report(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 3 + 4 * HANGS_S)
def test_killed_processes_break_no_promise_of_a_stream(tmp_path: Path) -> None:
    _report(f"PENSTOCK_CRASH_SEED={SEED}")
    store, logs = tmp_path / "store.pen", tmp_path / "logs"
    logs.mkdir()
    with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
        for command in SETUP:
            session.execute(*command)
    deadline = time.monotonic() + BUDGET_S
    with Storm(store, logs, random.Random(SEED)) as storm:
        while time.monotonic() < deadline:
            storm.round(min(_ROUND_S, BUDGET_S / 4))
            with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
                assert check_store(engine) == []
                assert stream_ledger.judge_writes(Books.read(logs), session) == []
    books = Books.read(logs)
    confirmed = sum(map(len, books.done.values()))
    _report(f"{storm.kills} kills, {confirmed} commands confirmed, {len(books.begun_ns)} tried")
    with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
        engine.duties.sweep_dead(0.0)
        assert find_leftovers(engine) == []
        assert _judge_all(books, session) == []
        assert check_store(engine) == []
        while engine.duties.tick():
            pass
        assert check_store(engine) == []
        _report(f"streams: {[session.execute('TINFO', 'STREAM', key)[b'last'] for key in GROUPS]}")


def _judge_all(books: Books, session: LocalSession) -> list[str]:
    last = session.execute("TINFO", "STREAM", "plain")[b"last"]
    broken = stream_ledger.judge_writes(books, session) + stream_ledger.judge_once(books)
    drained = {
        (stream, group): _drain(session, stream, group) for stream in GROUPS for group in GROUPS[stream]
    }
    for (stream, group), offsets in drained.items():
        letters = _letters(session) if group == "picky" else []
        broken += stream_ledger.judge_group(stream, group, books, offsets, letters, last)
    return broken + _judge_counters(session, last)


def _drain(session: LocalSession, stream: str, group: str) -> list[int]:
    """Read and acknowledge whatever a group still has."""
    found: list[int] = []
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        rows = session.execute("TREAD", stream, 0, 500, "GROUP", group, "RETRY", 60_000, 0)
        if rows:
            offsets = [row[0] for row in rows]
            found += offsets
            session.execute("TACK", stream, group, *offsets)
            continue
        info = _info(session, stream, group)
        if (info[b"pending"], info[b"lag"]) == (0, 0):
            return found
        time.sleep(0.01)  # until what dead readers have in hand is due
    raise AssertionError(f"{stream} {group} never comes to its end: {_info(session, stream, group)}")


def _info(session: LocalSession, stream: str, group: str) -> dict[bytes, Any]:
    groups = session.execute("TINFO", "GROUPS", stream)
    return next(each for each in groups if each[b"name"] == group.encode())


def _letters(session: LocalSession) -> list[int]:
    """Offsets of dead letters."""
    entries = [row[2] for row in session.execute("TREAD", "dead", 1, 1_000_000)]
    return [int(entry.split(b"offset: ")[1].split(b"\n")[0]) for entry in entries]


def _judge_counters(session: LocalSession, last: int) -> list[str]:
    broken: list[str] = []
    for group in GROUPS["plain"]:
        info = _info(session, "plain", group)
        given_up = info[b"dead"] + info[b"expired"]
        broken += stream_ledger.judge_ends("plain", group, last, info[b"acked"], given_up, info[b"lost"])
    return broken


# --------------------------------------------------------- the judges, judged themselves


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LocalSession]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        for command in SETUP:
            session.execute(*command)
        yield session


def _work_in_peace(session: LocalSession) -> Books:
    """Some writes, and a reader that acknowledges every second message."""
    books = Books()
    number = 0
    for what in [
        "plain one",
        "plain bulk",
        "plain tombstones",
        "short bulk",
        "tags bulk",
        "plain producer",
    ] * 4:
        number += 20
        tried = Try("writer-1", number, what)
        books.begun_ns[tried] = number
        reply = session.execute(*stream_workers.command_of(what, tried.worker, number))
        books.done[tried] = [(reply, number)]
    read = Try("reader-1", 1, "plain work read")
    command = ["TREAD", "plain", 0, 20, "GROUP", "work", "RETRY", 1, 0, "WITHCOUNT"]
    books.begun_ns[read] = 1_000
    books.done[read] = [([[row[0], "", "", row[-1]] for row in session.execute(*command)], 1_001)]
    ack = Try("reader-1", 2, "plain work TACK 2,4,6")
    books.begun_ns[ack] = 1_002
    books.done[ack] = [(session.execute("TACK", "plain", "work", 2, 4, 6), 1_003)]
    return books


def test_peaceful_work_breaks_no_promise(session: LocalSession) -> None:
    assert _judge_all(_work_in_peace(session), session) == []


def _redelivered(books: Books, session: LocalSession) -> None:
    again = Try("reader-2", 1, "plain work read")
    books.begun_ns[again] = 2_000
    books.done[again] = [([[4, "", "", 2]], 2_001)]


def _delivered_twice(books: Books, session: LocalSession) -> None:
    again = Try("reader-2", 1, "plain work read")
    books.begun_ns[again] = 999
    books.done[again] = [([[5, "", "", 1]], 2_001)]


def _repeated_elsewhere(books: Books, session: LocalSession) -> None:
    tried = next(each for each in books.done if each.what == "plain producer")
    books.done[tried].append((books.done[tried][0][0] + 1, 5))


def _given_up_after_all(books: Books, session: LocalSession) -> None:
    session.execute("TREAD", "plain", 0, 2, "GROUP", "picky", "RETRY", 1000, 0)
    session.execute("TDEAD", "plain", "picky", "why", 1)
    ack = Try("reader-2", 1, "plain picky TACK 1")
    books.begun_ns[ack] = 2_000
    books.done[ack] = [(1, 2_001)]


def _lost_by_a_group(books: Books, session: LocalSession) -> None:
    session.execute("TACK", "plain", "work", 3)


def _written_twice(books: Books, session: LocalSession) -> None:
    session.execute("TWRITE", "plain", *stream_workers.messages_of("plain one", "writer-1", 20)[0])


def _written_by_nobody(books: Books, session: LocalSession) -> None:
    session.execute("TWRITE", "tags", "tag1", "ghost")


def _evicted(books: Books, session: LocalSession) -> None:
    session.execute("TEVICT", "plain", 1)


def _compacted_too_much(books: Books, session: LocalSession) -> None:
    session.execute("TEVICT", "tags", 60)


@pytest.mark.parametrize(
    ("deed", "complaint"),
    [
        (_redelivered, "plain work: 4 was acknowledged and came again"),
        (_delivered_twice, "plain work: delivery (5, 1) happened twice"),
        (_repeated_elsewhere, "was answered with"),
        (_given_up_after_all, "plain picky: 1 was acknowledged and given up"),
        (_lost_by_a_group, "plain work: 3 was never acknowledged and never came again"),
        (_written_twice, "more than once"),
        (_written_by_nobody, "which nobody wrote"),
        (_evicted, "plain has holes"),
        (_compacted_too_much, "was confirmed and is lost"),
    ],
)
def test_a_broken_promise_is_seen(
    session: LocalSession, deed: Callable[[Books, LocalSession], None], complaint: str
) -> None:
    books = _work_in_peace(session)
    deed(books, session)
    broken = _judge_all(books, session)
    assert any(complaint in line for line in broken), broken
