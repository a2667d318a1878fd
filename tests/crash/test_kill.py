"""SIGKILL at any instant: nothing acknowledged is lost, nothing is left behind, nobody hangs.

Real processes work on one directory, embedded and through a server, and are killed and
replaced at random (see ``workers`` for what they do, ``ledger`` for how it is judged).

    PENSTOCK_CRASH_SECONDS   how long in all; 15 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store, find_leftovers
from penstock.testing.own_server import PenstockServer
from tests.crash import ledger, workers
from tests.crash.ledger import Diary
from tests.effort import seed_of
from tests.forking import CONTEXT, ForkServerProcess

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "15"))
SEED = seed_of("PENSTOCK_CRASH_SEED")

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 60.0
_MEAN_PAUSE_S = 0.04
_SERVER_LIFE_S = 2.0
_CHECK_EVERY_S = 2.0

#: role, whether through the server
_VICTIMS = [
    ("writer", False), ("writer", False), ("writer", True), ("writer", True),
    ("popper", False), ("popper", False), ("popper", True),
    ("mover", False), ("mover", True),
    ("listener", False), ("listener", True),
]  # fmt: skip


@dataclass
class Victim:
    role: str
    remote: bool
    process: ForkServerProcess


class Siege:
    """One phase: processes are started, killed and replaced; survivors listen from beginning to end."""

    def __init__(self, store: Path, logs: Path, chance: random.Random, durability: Any) -> None:
        self.logs = logs
        self.survivors: list[str] = []
        self.kills = 0
        self._store = store
        self._chance = chance
        self._durability = durability
        self._count = 0
        self._port_file = logs / "port"
        self._server = PenstockServer(store, durability=durability)
        self._victims: list[Victim] = []
        self._faithful: list[ForkServerProcess] = []
        logs.mkdir(parents=True)

    def __enter__(self) -> Siege:
        self._open = ExitStack()
        self._open.enter_context(self._server)
        self._announce_server()
        return self

    def __exit__(self, *_: object) -> None:
        for process in [victim.process for victim in self._victims] + self._faithful:
            process.kill()
            process.join(HANGS_S)
        self._open.close()

    # ------------------------------------------------------------------- start

    def start(self, survivors: int) -> None:
        for _ in range(survivors):
            name, process = self._spawn("listener", False)
            self.survivors.append(name)
            self._faithful.append(process)
        for name in self.survivors:
            log = self.logs / f"{name}.log"
            _until(lambda log=log: log.exists() and b"listening" in log.read_bytes(), f"{name} listens")
        for role, remote in _VICTIMS:
            self._victims.append(Victim(role, remote, self._spawn(role, remote)[1]))

    def _spawn(self, role: str, remote: bool) -> tuple[str, ForkServerProcess]:
        self._count += 1
        name = f"{role}-{self.logs.name}-{self._count}"
        port_file = str(self._port_file) if remote else None
        log = str(self.logs / f"{name}.log")
        seed = self._chance.randrange(1 << 32)
        process = CONTEXT.Process(
            target=workers.work, args=(role, str(self._store), self._durability, port_file, log, seed)
        )
        process.start()
        return name, process

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

    # -------------------------------------------------------------------- kill

    def storm(self, seconds: float, *, all_at_once: bool = False) -> None:
        """Kill and replace until the time is over, looking after the store meanwhile."""
        now = time.monotonic()
        deadline, next_check = now + seconds, now + _CHECK_EVERY_S
        server_dies = now + self._chance.expovariate(1 / _SERVER_LIFE_S)
        while (now := time.monotonic()) < deadline:
            # The point is that nobody can foresee the instant.
            time.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S) * (10 if all_at_once else 1))
            if all_at_once:
                self._kill_all()
                self._revive()
            else:
                self._replace(self._chance.choice(self._victims))
                if now > server_dies:
                    server_dies = now + self._chance.expovariate(1 / _SERVER_LIFE_S)
                    self._kill_server()
                    self._start_server()
            if now > next_check:
                next_check = now + _CHECK_EVERY_S
                self._look_after_store()

    def _replace(self, victim: Victim) -> None:
        self._kill(victim)
        victim.process = self._spawn(victim.role, victim.remote)[1]

    def _kill(self, victim: Victim) -> None:
        victim.process.kill()
        self.kills += 1

    def _kill_all(self) -> None:
        for victim in self._victims:
            self._kill(victim)
        self._kill_server()
        for victim in self._victims:
            victim.process.join(HANGS_S)
            assert victim.process.exitcode is not None, "a killed process does not end"

    def _revive(self) -> None:
        self._start_server()
        for victim in self._victims:
            victim.process = self._spawn(victim.role, victim.remote)[1]

    def _look_after_store(self) -> None:
        """From a process that has just opened it: it can be written at once, and holds together."""
        started = time.monotonic()
        with Engine.open(self._store, durability=self._durability) as engine, LocalSession(engine) as session:
            session.execute("INCR", "looks")
            assert time.monotonic() - started < HANGS_S, "a lock was held"
            assert check_store(engine) == []

    # --------------------------------------------------------------------- end

    def finish(self) -> None:
        """Kill the victims, let the survivors hear the end, and see that no worker failed by itself."""
        self._kill_all()
        with Engine.open(self._store, durability=self._durability) as engine, LocalSession(engine) as session:
            session.execute("PUBLISH", workers.CHANNEL, workers.END)
        for name, process in zip(self.survivors, self._faithful, strict=True):
            process.join(HANGS_S)
            assert process.exitcode == 0, f"{name} ended with {process.exitcode}"
        failed = [path.read_text() for path in sorted(self.logs.glob("*.error"))]
        assert not failed, f"{len(failed)} workers failed:\n{failed[0]}"


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < deadline, f"does not happen: {what}"
        time.sleep(0.005)


def _report(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


def _signal_files(store: Path) -> list[str]:
    return [entry.name for entry in (store / "signals").iterdir()]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 2 + 4 * HANGS_S)
def test_killed_processes_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    _report(f"PENSTOCK_CRASH_SEED={SEED}")
    chance = random.Random(SEED)
    store = tmp_path / "store.pen"
    diaries: list[Diary] = []
    phases: list[tuple[str, float, dict[str, Any]]] = [
        ("relaxed", 0.45, {}),
        ("always", 0.20, {}),
        ("relaxed", 0.15, {"all_at_once": True}),
    ]
    for number, (durability, share, how) in enumerate(phases):
        with Siege(store, tmp_path / f"phase{number}", chance, durability) as siege:
            siege.start(survivors=0 if how else 2)
            siege.storm(BUDGET_S * share, **how)
            siege.finish()
        found = ledger.read_diaries(siege.logs)
        _report(f"{durability}: {siege.kills} kills, {_statistics(found)}")
        assert ledger.judge_messages(found, siege.survivors) == []
        diaries += found

    with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
        engine.duties.sweep_dead(0.0)
        assert find_leftovers(engine) == []
        assert _signal_files(store) == []
        assert _rows_of_processes(engine) == {}
        assert check_store(engine) == []
        assert ledger.judge_writes(diaries, session) == []
        assert ledger.judge_jobs(diaries, session) == []
        assert ledger.judge_safe_jobs(diaries, session) == []
        while engine.duties.tick():
            pass
        assert check_store(engine) == []


def _statistics(diaries: list[Diary]) -> str:
    done = sum(len(diary.done) for diary in diaries)
    tried = sum(len(diary.tries) for diary in diaries)
    heard = sum(len(texts) for diary in diaries for _, texts in diary.heard)
    return f"{done} of {tried} commands confirmed, {heard} messages heard, {len(diaries)} processes"


def _rows_of_processes(engine: Engine) -> dict[str, int]:
    counts: dict[str, int] = {}

    def count() -> None:
        for table in ("subscribed", "channels", "messages", "waiters", "waiting"):
            rows = engine.unit.entries(engine.unit.tables[table])
            if rows:
                counts[table] = rows
        queues = sum(1 for _ in engine.unit.rows(engine.unit.tables["system"], b"q"))
        if queues:
            counts["queues"] = queues

    engine.run_task(count, write=False)
    return counts


# --------------------------------------------------------- the judges, judged themselves


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LocalSession]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        yield session


def _work_in_peace(session: LocalSession) -> list[Diary]:
    """Diaries of a writer, a popper and a mover whom nobody disturbed."""
    writer = Diary("writer-1")
    kinds = "set incr push hash zset member exec big drop job safe-job compare-and-set".split()
    for number, what in enumerate(kinds * 3, 1):
        writer.tries[number] = what
        if what == "compare-and-set":
            session.execute("INCR", "optimistic")
            writer.done[number] = True
        else:
            for command in workers.commands_of(what, writer.worker, number):
                session.execute(*command)
            writer.done[number] = None
    popper = Diary("popper-1", tries={1: "1"}, done={1: [session.execute("LPOP", "jobs").decode()]})
    job = session.execute("LMOVE", workers.SAFE_QUEUE, "taken:mover-1", "LEFT", "RIGHT").decode()
    session.execute("LREM", "taken:mover-1", "1", job)
    mover = Diary("mover-1", tries={1: "take", 2: f"finish {job}"}, done={1: job, 2: 1})
    return [writer, popper, mover]


def _judge(diaries: list[Diary], session: LocalSession) -> list[str]:
    judges = (ledger.judge_writes, ledger.judge_jobs, ledger.judge_safe_jobs)
    return [line for judge in judges for line in judge(diaries, session)]


@pytest.mark.parametrize(
    ("deed", "complaint"),
    [
        (["DEL", "set:writer-1:1"], "set:writer-1:1 is None"),
        (["SET", "set:writer-1:1", "other"], "set:writer-1:1 is b'other'"),
        (["DECR", "total"], "total is 2, not between 3 and 3"),
        (["INCR", "optimistic"], "optimistic is 4, not between 3 and 3"),
        (["RPOP", "list:writer-1"], "list:writer-1: 27 was acknowledged and is lost"),
        (
            ["LPUSH", "list:writer-1", "27"],
            "list:writer-1 holds something that was not written in this order",
        ),
        (["HDEL", "hash", "writer-1:4"], "hash: writer-1:4 was acknowledged and is lost"),
        (["ZADD", "zset", "1", "ghost"], "zset: ghost was never written"),
        (["SREM", "members", "writer-1:6"], "member: writer-1:6 was acknowledged and is lost"),
        (["SET", "one:writer-1", "7"], "a transaction of writer-1 was applied by half"),
        (["SET", "big:writer-1", "8:x"], "big:writer-1 is of 8, although 32 was acknowledged"),
        (["RPUSH", "dropped:writer-1", "x"], "dropped:writer-1 was deleted and is there"),
        (["LPOP", "jobs"], "1 jobs are lost"),
        (["RPUSH", "jobs", "writer-1:10"], "job writer-1:10 exists 2 times"),
        (["RPUSH", "more-jobs", "ghost"], "job ghost was never pushed"),
        (["LPOP", "safe-jobs"], "job writer-1:23 is lost"),
        (["RPUSH", "safe-jobs", "writer-1:11"], "job writer-1:11 was finished and is there"),
        (["RPUSH", "taken:mover-1", "writer-1:23"], "job writer-1:23 is there 2 times"),
    ],
)
def test_a_lost_or_invented_write_is_seen(session: LocalSession, deed: list[str], complaint: str) -> None:
    diaries = _work_in_peace(session)
    assert _judge(diaries, session) == []
    session.execute(*deed)
    broken = _judge(diaries, session)
    assert any(line.startswith(complaint) for line in broken), broken


def test_an_unconfirmed_write_may_have_happened_or_not(session: LocalSession) -> None:
    diaries = _work_in_peace(session)
    for number, what in enumerate(("push", "set", "exec", "job", "incr", "big"), 101):
        diaries[0].tries[number] = what
    assert _judge(diaries, session) == []
    for number, what in list(diaries[0].tries.items())[-6:]:
        for command in workers.commands_of(what, "writer-1", number):
            session.execute(*command)
    assert _judge(diaries, session) == []


def _spoken(*heard: list[str]) -> list[Diary]:
    """A writer that published five messages, and those who heard them."""
    writer = Diary("writer-1")
    for number in range(1, 6):
        writer.tries[number] = "publish"
        writer.started_ns[number] = number
        if number != 4:
            writer.done[number] = 1
    return [writer, *(Diary(f"listener-{n}", heard=[(0, texts)]) for n, texts in enumerate(heard))]


_ALL = [*(f"writer-1:{number}" for number in (1, 2, 3, 5)), workers.END]


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        (_ALL, _ALL, None),
        ([*_ALL[:3], "writer-1:4", *_ALL[3:]], [*_ALL[:3], "writer-1:4", *_ALL[3:]], None),
        (_ALL[:1] + _ALL[2:], _ALL, "listener-0 missed writer-1:2, which was confirmed"),
        ([_ALL[0], *_ALL], _ALL, "listener-0 heard writer-1:1 2 times"),
        ([_ALL[1], _ALL[0], *_ALL[2:]], _ALL, "listener-1 heard a gap or another order"),
        (["ghost", *_ALL], _ALL, "listener-0 heard ghost, which nobody said"),
        (_ALL[:-1], _ALL, "listener-0 never heard the end"),
        (_ALL, [*_ALL[:3], "writer-1:4", *_ALL[3:]], "listener-0 heard a gap or another order"),
    ],
)
def test_a_lost_or_doubled_message_is_seen(
    first: list[str], second: list[str], complaint: str | None
) -> None:
    broken = ledger.judge_messages(_spoken(first, second), ["listener-0", "listener-1"])
    if complaint is None:
        assert broken == []
    else:
        assert any(line.startswith(complaint) for line in broken), broken


@pytest.mark.parametrize(
    ("heard", "is_sound"),
    [(_ALL[1:3], True), ([], True), ([_ALL[0], _ALL[2]], False), ([_ALL[2], _ALL[1]], False), (["x"], False)],
)
def test_who_dies_early_has_heard_a_piece_without_gaps(heard: list[str], is_sound: bool) -> None:
    broken = ledger.judge_messages(_spoken(_ALL, heard), ["listener-0"])
    assert (broken == []) is is_sound


def test_a_line_torn_by_a_kill_never_happened(tmp_path: Path) -> None:
    (tmp_path / "writer-1.log").write_text('["try", 1, "set", 10]\n["ok", 1, "OK"]\n["try", 2, "set", 2')
    (diary,) = ledger.read_diaries(tmp_path)
    assert (diary.tries, diary.done) == ({1: "set"}, {1: "OK"})
