"""SIGKILL at any instant, for channels: everybody gets what was confirmed, in order, until it is acked.

Processes publish and subscribe on one embedded store, and are killed and replaced at random (see
``channel_workers`` for what they do, ``channel_ledger`` for how it is judged). A subscriber is its name: the
next process of the name goes on where the last one was killed. At the end each is read to its end.

    PENSTOCK_CRASH_SECONDS   how long; 5 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine import Engine
from penstock.engine.check import check_store, find_leftovers
from tests.crash import channel_workers
from tests.crash.channel_ledger import Books, judge, judge_order, judge_subscriber
from tests.crash.channel_workers import PUBLISHERS, SUBSCRIBERS, url_of
from tests.effort import seed_of
from tests.forking import CONTEXT, ForkServerProcess

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "5"))
SEED = seed_of("PENSTOCK_CRASH_SEED")

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 60.0
_MEAN_PAUSE_S = 0.08


class Storm:
    """Workers that are killed and replaced."""

    def __init__(self, store: Path, logs: Path, chance: random.Random) -> None:
        self.kills = 0
        self._store = store
        self._logs = logs
        self._chance = chance
        self._processes: dict[str, ForkServerProcess] = {}

    def __enter__(self) -> Storm:
        for name in (*PUBLISHERS, *SUBSCRIBERS):
            self._spawn(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._processes:
            self._kill(name)

    def rage(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The point is that nobody can foresee the instant.
            time.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            name = self._chance.choice(list(self._processes))
            self._kill(name)
            self._spawn(name)

    def _spawn(self, name: str) -> None:
        args = (str(self._store), str(self._logs / f"{name}.log"), self._chance.randrange(1 << 32))
        self._processes[name] = CONTEXT.Process(target=channel_workers.work, args=args)
        self._processes[name].start()

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        process.kill()
        process.join(HANGS_S)  # or two lives of a subscriber would overlap
        assert process.exitcode is not None, "a killed process does not end"
        self.kills += 1


async def _prepare(store: Path) -> None:
    async with penstock.open(url_of(store)) as ps:
        for subscriber, channel in SUBSCRIBERS.items():
            assert await ps.channel(channel).subscription(subscriber).create()


async def _drain(store: Path, books: Books) -> None:
    """Read every subscriber to its end, and write it down like the others."""
    async with penstock.open(url_of(store)) as ps, asyncio.timeout(HANGS_S):
        for subscriber, channel in SUBSCRIBERS.items():
            subscription = ps.channel(channel).subscription(subscriber)
            # The first look may have to wait for the end of a pause.
            while (batch := await subscription.fetch(1_000, timeout_ms=200)).messages:
                books.lines[subscriber].append(["got", [[each.id, each.clock] for each in batch.messages]])
                assert await subscription.ack(batch)
                books.lines[subscriber].append(["acked", batch.messages[-1].clock])


def _report(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 3 + 4 * HANGS_S)
def test_killed_processes_break_no_promise_of_a_channel(tmp_path: Path) -> None:
    _report(f"PENSTOCK_CRASH_SEED={SEED}")
    store, logs = tmp_path / "store.pen", tmp_path / "logs"
    logs.mkdir()
    asyncio.run(_prepare(store))
    with Storm(store, logs, random.Random(SEED)) as storm:
        storm.rage(BUDGET_S)
    failed = [path.read_text() for path in sorted(logs.glob("*.error"))]
    assert not failed, f"{len(failed)} workers failed:\n{failed[0]}"

    books = Books.read(logs)
    asyncio.run(_drain(store, books))
    confirmed = sum(is_confirmed for tried in books.tried.values() for _, is_confirmed in tried)
    batches = sum(line[0] == "got" for lines in books.lines.values() for line in lines)
    _report(f"{storm.kills} kills, {confirmed} publications confirmed, {batches} batches")
    assert confirmed > 0
    assert all(any(line[0] == "acked" for line in lines) for lines in books.lines.values())
    assert judge(books) == []
    with Engine.open(store, durability="relaxed") as engine:
        engine.duties.sweep_dead(0.0)
        assert find_leftovers(engine) == []
        assert check_store(engine) == []


# --------------------------------------------------------- the judges, judged themselves


def _books(**lines: list[Any]) -> Books:
    books = Books({}, {name: [] for name in SUBSCRIBERS})
    books.add_publisher([["publish", "one", ["p0-0", "p0-1"]], ["published", "one", ["p0-0", "p0-1"]]])
    books.add_publisher([["publish", "one", ["p1-0"]]])
    whole: list[list[Any]] = [["got", [["p0-0", 1], ["p0-1", 2]]]]
    books.lines.update({"s0": whole, "s1": whole})
    books.lines.update(lines)
    return books


def test_the_judge_has_nothing_to_say_about_a_good_run() -> None:
    assert judge(_books()) == []
    repeated: list[Any] = [["got", [["p0-0", 1]]], ["ack", 1], ["got", [["p0-0", 1], ["p0-1", 2]]]]
    assert judge(_books(s1=repeated)) == []
    assert judge(_books(s1=[*repeated, ["ack", 2], ["got", [["p1-0", 3]]]])) == []


def test_the_judge_finds_lost_messages() -> None:
    assert judge(_books(s0=[["got", [["p0-0", 1]]]])) == ["s0 never got p0-1, which was confirmed"]
    assert len(judge(_books(s1=[]))) == 2


def test_the_judge_finds_what_comes_after_its_acknowledgement() -> None:
    again: list[Any] = [["got", [["p0-0", 1], ["p0-1", 2]]], ["ack", 2], ["acked", 2], ["got", [["p0-1", 2]]]]
    assert judge_subscriber("s0", again) == ["s0 got 2 first, although it had acknowledged [2]"]


def test_the_judge_finds_what_was_left_out() -> None:
    assert judge_subscriber("s0", [["got", [["a", 2]]]]) == [
        "s0 got 2 first, although it had acknowledged [0]"
    ]
    assert judge_subscriber("s0", [["got", [["a", 1], ["c", 3]]]]) == [
        "s0 got a batch with gaps or out of order: [1, 3]"
    ]


def test_the_judge_finds_another_order() -> None:
    other = [["got", [["p0-1", 1], ["p0-0", 2]]]]
    assert any("where others got p0-0" in line for line in judge(_books(s1=other)))
    tried = [(("p0-0", "p0-1"), True), (("p0-2",), False)]
    assert judge_order("one", {1: "p0-0", 2: "p0-1"}, tried) == []
    assert len(judge_order("one", {1: "p0-0"}, tried)) == 1  # half of it
    assert len(judge_order("one", {1: "p0-0", 2: "p0-2", 3: "p0-1"}, tried)) == 2  # torn
    assert len(judge_order("one", {1: "p0-2", 2: "p0-0", 3: "p0-1"}, tried)) == 1  # too early
    assert len(judge_order("one", {1: "p0-0", 2: "p0-1", 3: "p0-0"}, tried)) == 1  # twice
    assert len(judge_order("one", {1: "x"}, tried)) == 1  # of nobody
