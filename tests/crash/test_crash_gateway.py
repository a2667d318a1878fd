"""SIGKILL at any instant, for gateways: what a client was told over HTTP is true, whoever dies.

Several workers share a port and a store, publishers and subscribers call them, and all are killed and
replaced at random (see ``gateway_clients`` for what they do, ``gateway_ledger`` for how it is judged). In
rounds: at the end of each all are killed at once.

    PENSTOCK_CRASH_SECONDS   how long in all; 20 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from penstock.engine import Engine
from penstock.engine.check import check_store
from tests.crash import gateway_clients
from tests.crash.gateway_clients import PUBLISHERS, SUBSCRIBERS, Caller, polling, take_batch
from tests.crash.gateway_ledger import Books, Receipts, judge
from tests.crash.gateway_worker import listener, spawn
from tests.crash.stream_workers import StreamLog

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "20"))
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED", random.randrange(1 << 32)))

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 60.0
WORKERS = 3
CLIENTS = (*PUBLISHERS, *SUBSCRIBERS)
_ROUND_S = 10.0
_MEAN_PAUSE_S = 0.25
#: Of the kills: a worker takes a second or two to start.
_SHARE_OF_WORKERS = 0.15

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.crash.gateway_clients"])


class Storm:
    """Workers and clients that are killed and replaced."""

    def __init__(self, store: Path, logs: Path, chance: random.Random) -> None:
        self.kills = 0
        self._logs = logs
        self._chance = chance
        self._config = logs / "gateway.yaml"
        storage = {"embedded": {"directory": str(store), "durability": "relaxed"}}
        self._config.write_text(json.dumps({"storages": {"default": storage}}))
        self._listener = listener()
        self.port: int = self._listener.getsockname()[1]
        self._workers: list[subprocess.Popen[bytes]] = []
        self._clients: dict[str, ForkServerProcess] = {}

    def __enter__(self) -> Storm:
        self._workers = [self._start_worker() for _ in range(WORKERS)]
        caller = Caller(self.port)
        for name in SUBSCRIBERS:  # before the first message
            assert caller.ask("PUT", polling(name))[0] == 200
        caller.reconnect()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        for client in self._clients.values():
            client.kill()
            client.join(HANGS_S)
        self._listener.close()

    def round(self, seconds: float) -> None:
        """Start all clients, kill one or the other, then everybody at once."""
        self._clients = {name: self._start_client(name) for name in CLIENTS}
        self._wait_until_busy()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The point is that nobody can foresee the instant.
            time.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            if self._chance.random() < _SHARE_OF_WORKERS:
                place = self._chance.randrange(WORKERS)
                self._kill_worker(place)
                self._workers[place] = self._start_worker()
            else:
                name = self._chance.choice(CLIENTS)
                self._kill_client(name)
                self._clients[name] = self._start_client(name)
        for place in range(WORKERS):
            self._kill_worker(place)
        for name in CLIENTS:
            self._kill_client(name)
        self._workers = [self._start_worker() for _ in range(WORKERS)]
        failed = [path.read_text() for path in sorted(self._logs.glob("*.error"))]
        assert not failed, f"{len(failed)} clients failed:\n{failed[0]}\n{self.log()}"

    def _wait_until_busy(self) -> None:
        """Killing those who have not begun yet proves nothing."""
        before = len(Books.read(self._logs).confirmed)
        deadline = time.monotonic() + HANGS_S
        while len(Books.read(self._logs).confirmed) < before + 20:
            assert time.monotonic() < deadline, f"nobody gets anything done: {self.log()}"
            time.sleep(0.05)

    def log(self) -> str:
        """What workers have written."""
        return (self._logs / "workers.txt").read_text(errors="replace")

    def drain(self) -> None:
        """Let every subscriber come to its end."""
        caller = Caller(self.port)
        for name in SUBSCRIBERS:
            diary = StreamLog(self._logs / f"{name}.log")
            while take_batch(caller, diary, name, limit=1_000, timeout_ms=0):
                pass
        caller.reconnect()

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return spawn(self._config, self._listener, self._logs / "workers.txt")

    def _kill_worker(self, place: int) -> None:
        worker = self._workers[place]
        assert worker.poll() is None, f"a worker ended by itself: {self.log()}"
        worker.kill()
        worker.wait(HANGS_S)
        self.kills += 1

    def _start_client(self, name: str) -> ForkServerProcess:
        args = (name, self.port, str(self._logs / f"{name}.log"), self._chance.randrange(1 << 32))
        client = _CONTEXT.Process(target=gateway_clients.work, args=args)
        client.start()
        return client

    def _kill_client(self, name: str) -> None:
        client = self._clients[name]
        client.kill()
        client.join(HANGS_S)  # or two lives of it would overlap
        assert client.exitcode is not None, "a killed process does not end"
        self.kills += 1


def _report(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 3 + 4 * HANGS_S)
def test_killed_gateways_and_clients_break_no_promise(tmp_path: Path) -> None:
    _report(f"PENSTOCK_CRASH_SEED={SEED}")
    store, logs = tmp_path / "store.pen", tmp_path / "logs"
    logs.mkdir()
    deadline = time.monotonic() + BUDGET_S
    with Storm(store, logs, random.Random(SEED)) as storm:
        while time.monotonic() < deadline:
            storm.round(min(_ROUND_S, BUDGET_S / 2))
            with Engine.open(store, durability="relaxed") as engine:
                assert check_store(engine) == []
        storm.drain()
        assert "Traceback" not in storm.log(), storm.log()
    books = Books.read(logs)
    _report(
        f"{storm.kills} kills, {len(books.tried)} messages, {len(books.confirmed)} confirmed, "
        f"{[len(each.batches) for each in books.subscribers.values()]} batches"
    )
    assert len(books.confirmed) > 20, f"next to nothing happened: {storm.log()}"
    assert judge(books) == []


# --------------------------------------------------------- the judge, judged itself


def _peaceful() -> Books:
    order = ["p0-0", "p1-0", "p0-1", "p1-1"]
    books = Books(tried={*order, "p0-2"}, confirmed=set(order))
    for name in SUBSCRIBERS:
        receipts = books.subscribers[name] = Receipts()
        receipts.add(
            [["got", 10, order[:2]], ["acked", 20, order[:2]], ["got", 30, order[2:]], ["got", 40, order[2:]]]
        )
    return books


def test_peaceful_work_breaks_no_promise() -> None:
    assert judge(_peaceful()) == []


def _lose(books: Books) -> None:
    books.confirmed.add("p0-2")


def _invent(books: Books) -> None:
    books.subscribers["s1"].add([["got", 50, ["p9-0"]]])


def _swap(books: Books) -> None:
    books.subscribers["s1"].batches[1:] = [(30, ["p1-1", "p0-1"])]


def _turn_back(books: Books) -> None:
    books.tried.add("p2-1")
    books.tried.add("p2-0")
    books.subscribers["s1"].add([["got", 50, ["p2-1", "p2-0"]]])


def _give_again(books: Books) -> None:
    books.subscribers["s1"].add([["got", 50, ["p0-0"]]])


def _repeat(books: Books) -> None:
    books.subscribers["s1"].add([["got", 50, ["p0-1", "p0-1"]]])


@pytest.mark.parametrize(
    ("deed", "complaint"),
    [
        (_lose, "s0 never got p0-2, which was confirmed"),
        (_invent, "s1 got p9-0, which nobody published"),
        (_swap, "s1 got messages in another order than s0"),
        (_turn_back, "s1 got p2-0 after p2-1"),
        (_give_again, "s1 got p0-0 again after its acknowledgement"),
        (_repeat, "s1 got a message twice in one batch"),
    ],
)
def test_a_broken_promise_is_seen(deed: Callable[[Books], None], complaint: str) -> None:
    books = _peaceful()
    deed(books)
    assert complaint in judge(books)
