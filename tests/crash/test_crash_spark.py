"""SIGKILL at any instant, for the data pipeline: the lake has everything once, and so has a copied stream.

A driver (``spark_driver``) exports a stream, copies it to another one by a query, runs a step of transactions
on executors and archives them, all at once, while messages are written and transactions started. It is killed
at random moments, with its JVM, or its JVM alone; on a server the store is killed as well. Then a last one is
left in peace until everything has arrived, and the books are judged against what this process has written
itself (``spark_ledger`` has the promises).

    PENSTOCK_SPARK_KILLS     how many; 2 unless given (``make soak`` has more)
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock.blocking
from penstock.blocking.portal import PORTAL
from penstock.lake import Lake
from penstock.testing.clusters import start_cluster
from penstock.testing.servers import RealServer, find_server
from tests.crash.spark_driver import app
from tests.crash.spark_ledger import PIPELINE, Record, judge
from tests.crash.spark_process import Driver
from tests.effort import seed_of

KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "2"))
SEED = seed_of("PENSTOCK_CRASH_SEED")
HANGS_S = 240.0


def _wait_for(driver: Driver, word: str) -> bool:
    """Whether it said so before it ended."""
    end_s = time.monotonic() + HANGS_S
    while word not in driver.said():
        if not driver.is_alive():
            return False
        assert time.monotonic() < end_s, f"no {word!r} in {HANGS_S} s: {driver.said()[-3_000:]}"
        time.sleep(0.05)
    return True


class Load:
    """What this process writes, and therefore knows."""

    def __init__(self, ps: penstock.blocking.Client, chance: random.Random) -> None:
        self._ps = ps
        self._chance = chance
        self.record = Record()

    def more(self) -> None:
        count = self._chance.randrange(1, 400)
        first = len(self.record.messages)
        pairs = [(f"tag {n % 9}".encode(), os.urandom(self._chance.randrange(40))) for n in range(count)]
        last = self._ps.stream("orders").write_many(pairs)
        for place, pair in enumerate(pairs, 1):
            self.record.messages[last - count + place] = pair
        for n in range(first, first + self._chance.randrange(20)):
            self.record.transactions[self._ps.transactions.start(PIPELINE, {"n": n}).id] = n


def _is_all_there(record: Record, ps: penstock.blocking.Client, lake: Lake) -> bool:
    rows = {
        name: sum(file.rows for file in lake.table(name).files()) for name in ("messages", "transactions")
    }
    copied = ps.stream("copy").info().last if ps.exists("copy") else 0
    has_messages = min(rows["messages"], copied) >= len(record.messages)
    return has_messages and rows["transactions"] >= len(record.transactions)


def _run(url: str, tmp_path: Path, *, master: str, kills: int, restart: Any = None) -> int:
    """Storm, calm, judgement; how many kills there were."""
    print(f"PENSTOCK_CRASH_SEED={SEED}")  # noqa: T201  (shown when it fails)
    chance = random.Random(SEED)
    log, root = tmp_path / "driver.log", tmp_path / "lake"
    lake = Lake.open(root)
    command = ["tests.crash.spark_driver", url, str(root), master]
    with penstock.blocking.open(url) as ps:
        for pipeline in app.pipelines:
            ps.transactions.deploy(pipeline)
        # A killed driver is a worker that fell silent: that must not be the end of a transaction here.
        PORTAL.run(ps._client.transactions.store.configure(archive_delay_ms=0, max_losses=1_000))
        load = Load(ps, chance)
        for number in range(kills):
            driver = Driver(command, log)
            load.more()
            # Some die while they start, most in the midst of something.
            if _wait_for(driver, "ready") and chance.random() < 0.9:
                for _ in range(chance.randrange(1, 6)):
                    load.more()
                    time.sleep(chance.random() * 2)
            if restart is not None and number % 2:
                restart()
            driver.kill(whole=chance.random() < 0.7)
        load.more()
        _calm(lambda: Driver(command, log), load.record, ps, lake)
        copies = [(one.tag, one.entry) for one in ps.stream("copy").read()]
        assert judge(load.record, copies, lake) == []
    return kills


def _calm(start: Callable[[], Driver], record: Record, ps: penstock.blocking.Client, lake: Lake) -> None:
    """Until everything has arrived. A driver that ends by itself (its store was away) is replaced."""
    driver = start()
    end_s = time.monotonic() + HANGS_S
    try:
        while not _is_all_there(record, ps, lake):
            assert time.monotonic() < end_s, f"not everything arrived: {driver.said()[-3_000:]}"
            if not driver.is_alive():
                driver = start()
            time.sleep(0.1)
    finally:
        driver.kill()


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_killed_drivers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store.pen'}"
    assert _run(url, tmp_path, master="local[2]", kills=KILLS) == KILLS


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kind", ["valkey", "cluster-of-executors"])
def test_also_on_a_server_that_is_killed_and_on_executors(tmp_path: Path, kind: str) -> None:
    """A store of its own process, which is killed and started again from its file; executors of their own."""
    durable = {"appendonly": "yes", "appendfsync": "always"}
    with RealServer(find_server("valkey"), options=durable) as server:

        def restart() -> None:
            server.kill()
            server.restart()

        master = "local-cluster[2,1,1024]" if kind == "cluster-of-executors" else "local[2]"
        assert _run(server.url, tmp_path, master=master, kills=max(KILLS, 6), restart=restart) >= 6


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_also_on_a_cluster(tmp_path: Path) -> None:
    """Of three servers, among which the partitions of transactions are spread."""
    with start_cluster(3, 0) as nodes:
        url = nodes.url.replace("redis://", "redis-cluster://")
        assert _run(url, tmp_path, master="local[2]", kills=max(KILLS, 6)) >= 6
