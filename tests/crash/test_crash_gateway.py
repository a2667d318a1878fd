"""SIGKILL at any instant, for gateways: what a client was told over HTTP is true, whoever dies.

Several workers share a port and a store, publishers and subscribers call them, and all are killed and
replaced at random (see ``gateway_clients`` for what they do, ``gateway_ledger`` for how it is judged). In
rounds: at the end of each all are killed at once.

    PENSTOCK_CRASH_SECONDS   how long in all; 8 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine import Engine
from penstock.engine.check import check_store
from tests.crash import gateway_clients
from tests.crash.gateway_clients import PUBLISHERS, SUBSCRIBERS, Caller, polling, take_batch
from tests.crash.gateway_ledger import Books, Receipts, judge
from tests.crash.gateway_worker import listener, spawn
from tests.crash.stream_workers import StreamLog
from tests.effort import seed_of
from tests.forking import CONTEXT, ForkServerProcess

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "8"))
SEED = seed_of("PENSTOCK_CRASH_SEED")

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 60.0
WORKERS = 3
CLIENTS = (*PUBLISHERS, *SUBSCRIBERS)
_ROUND_S = 10.0
_MEAN_PAUSE_S = 0.25
#: Of the kills: a worker takes a second or two to start.
_SHARE_OF_WORKERS = 0.15


class Crowd:
    """Clients of a port that are killed and replaced."""

    def __init__(self, port: int, logs: Path, chance: random.Random) -> None:
        self.kills = 0
        self._port = port
        self._logs = logs
        self._chance = chance
        self._clients: dict[str, ForkServerProcess] = {}

    def subscribe(self) -> None:
        """Before the first message, so that every subscriber must get all of them."""
        caller = Caller(self._port)
        for name in SUBSCRIBERS:
            assert caller.ask("PUT", polling(name))[0] == 200
        caller.reconnect()

    def start(self) -> None:
        """All of them; returns when they are at work."""
        self._clients = {name: self._start(name) for name in CLIENTS}
        self.wait_until_busy()

    def wait_until_busy(self) -> None:
        """Killing those who have not begun yet proves nothing."""
        before = len(Books.read(self._logs).confirmed)
        deadline = time.monotonic() + HANGS_S
        while len(Books.read(self._logs).confirmed) < before + 20:
            assert time.monotonic() < deadline, "nobody gets anything done"
            time.sleep(0.05)

    def replace_one(self) -> None:
        name = self._chance.choice(CLIENTS)
        self._kill(name)
        self._clients[name] = self._start(name)

    def kill(self) -> None:
        """All of them; none may have failed before."""
        for name in list(self._clients):
            self._kill(name)
        failed = [path.read_text() for path in sorted(self._logs.glob("*.error"))]
        assert not failed, f"{len(failed)} clients failed:\n{failed[0]}"

    def drain(self, port: int) -> None:
        """Let every subscriber come to its end.

        At a port that no client knew: what dead ones have sent to the old one could still be published
        when the first subscriber is through.
        """
        caller = Caller(port)
        for name in SUBSCRIBERS:
            diary = StreamLog(self._logs / f"{name}.log")
            while take_batch(caller, diary, name, limit=1_000, timeout_ms=0):
                pass
        caller.reconnect()

    def abandon(self) -> None:
        for client in self._clients.values():
            client.kill()
            client.join(HANGS_S)

    def _start(self, name: str) -> ForkServerProcess:
        args = (name, self._port, str(self._logs / f"{name}.log"), self._chance.randrange(1 << 32))
        client = CONTEXT.Process(target=gateway_clients.work, args=args)
        client.start()
        return client

    def _kill(self, name: str) -> None:
        client = self._clients.pop(name)
        client.kill()
        client.join(HANGS_S)  # or two lives of it would overlap
        assert client.exitcode is not None, "a killed process does not end"
        self.kills += 1


class Storm:
    """Workers of one port, and their clients, killed and replaced."""

    def __init__(self, store: Path, logs: Path, chance: random.Random) -> None:
        self.kills = 0
        self._log = logs / "workers.txt"
        self._chance = chance
        self._config = logs / "gateway.yaml"
        storage = {"embedded": {"directory": str(store), "durability": "relaxed"}}
        settings = {"storages": {"default": storage}, "logging": {"category": {"*": "WARN"}}}
        self._config.write_text(json.dumps(settings))
        self._listener = listener()
        self._workers: list[subprocess.Popen[bytes]] = []
        self.crowd = Crowd(self._listener.getsockname()[1], logs, chance)

    def __enter__(self) -> Storm:
        self._workers = [self._start_worker() for _ in range(WORKERS)]
        self.crowd.subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self.crowd.abandon()
        self._listener.close()

    def round(self, seconds: float) -> None:
        """Start all clients, kill one or the other, then everybody at once."""
        self.crowd.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The point is that nobody can foresee the instant.
            time.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            if self._chance.random() < _SHARE_OF_WORKERS:
                place = self._chance.randrange(WORKERS)
                self._kill_worker(place)
                self._workers[place] = self._start_worker()
            else:
                self.crowd.replace_one()
        for place in range(WORKERS):
            self._kill_worker(place)
        self.crowd.kill()
        self._workers = [self._start_worker() for _ in range(WORKERS)]

    def drain(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait(HANGS_S)
        self._listener.close()
        self._listener = listener()
        self._workers = [self._start_worker()]
        self.crowd.drain(self._listener.getsockname()[1])

    def log(self) -> str:
        """What workers have written."""
        return self._log.read_text(errors="replace")

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return spawn(self._config, self._listener, self._log)

    def _kill_worker(self, place: int) -> None:
        worker = self._workers[place]
        assert worker.poll() is None, f"a worker ended by itself: {self.log()}"
        worker.kill()
        worker.wait(HANGS_S)
        self.kills += 1


def _report(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


def _judge(logs: Path, kills: int) -> None:
    books = Books.read(logs)
    _report(
        f"{kills} kills, {len(books.tried)} messages, {len(books.confirmed)} confirmed, "
        f"{[len(each.batches) for each in books.subscribers.values()]} batches"
    )
    assert judge(books) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 3 + 4 * HANGS_S)
def test_killed_workers_and_clients_break_no_promise(tmp_path: Path) -> None:
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
    _judge(logs, storm.kills + storm.crowd.kills)


# ------------------------------------------------------------------ the whole product


class Product:
    """``penstock serve DIR --http-port N --http-workers 2``, and the processes that belong to it."""

    def __init__(self, store: Path, log: Path) -> None:
        self.port = 0
        self._store = store
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Also while those that a killed one left behind still hold the port."""
        deadline = time.monotonic() + HANGS_S
        while (found := self._try_to_start()) is None:
            assert time.monotonic() < deadline, f"it does not start: {self.log()}"
            time.sleep(0.1)
        self.port = found

    def _try_to_start(self) -> int | None:
        command = [sys.executable, "-m", "penstock.cli.main", "serve", str(self._store), "--port", "0"]
        options = ["--durability", "relaxed", "--http-port", str(self.port), "--http-workers", "2"]
        said = self._log.with_suffix(".out")
        with said.open("wb") as output, self._log.open("ab") as errors:
            self._process = subprocess.Popen([*command, *options], stdout=output, stderr=errors)
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline:
            found = re.search(r"HTTP on http://127.0.0.1:(\d+) .*\n", said.read_text())
            if found is not None:
                return int(found[1])
            if self._process.poll() is not None:
                return None
            time.sleep(0.02)
        raise AssertionError(f"it neither starts nor ends: {self.log()}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def workers(self) -> list[int]:
        """Who answers HTTP: children of the supervisor, which is a child of the server."""
        assert self._process is not None
        return [worker for supervisor in _children(self._process.pid) for worker in _children(supervisor)]

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(HANGS_S)

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(HANGS_S)


def _is_alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def _wait_for_the_end_of(orphans: list[int]) -> None:
    deadline = time.monotonic() + HANGS_S
    while any(map(_is_alive, orphans)):
        assert time.monotonic() < deadline, "workers outlive the server that they belong to"
        time.sleep(0.05)


def _children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(6 * HANGS_S)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes through /proc")
def test_a_server_with_http_beside_it_is_killed_in_parts_and_as_a_whole(tmp_path: Path) -> None:
    """A worker is replaced by its supervisor; what a killed server leaves behind stops by itself."""
    _report(f"PENSTOCK_CRASH_SEED={SEED}")
    store, logs = tmp_path / "store.pen", tmp_path / "logs"
    logs.mkdir()
    chance = random.Random(SEED)
    product = Product(store, logs / "server.txt")
    product.start()
    crowd = Crowd(product.port, logs, chance)
    try:
        crowd.subscribe()
        crowd.start()
        for _ in range(2):
            crowd.replace_one()
            os.kill(chance.choice(product.workers()), signal.SIGKILL)
            crowd.wait_until_busy()
            orphans = product.workers()
            product.kill()
            product.start()
            crowd.wait_until_busy()
            _wait_for_the_end_of(orphans)
        crowd.kill()
        assert product.stop() == 0
        product.port = 0
        product.start()
        crowd.drain(product.port)
        assert product.stop() == 0
        assert "Traceback" not in product.log(), product.log()
    finally:
        crowd.abandon()
        product.kill()
    with Engine.open(store, durability="relaxed") as engine:
        assert check_store(engine) == []
    _judge(logs, crowd.kills + 4)


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
