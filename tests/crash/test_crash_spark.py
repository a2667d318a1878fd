"""SIGKILL at any instant, for the data pipeline: the lake has everything once, and so has a copied stream.

A driver (``spark_driver``) exports a stream, copies it to another one by a query, runs a step of transactions
on executors and archives them, all at once, while messages are written and transactions started. It is killed
at random moments, with its JVM, or its JVM alone; on a server the store is killed as well. Then a last one is
left in peace until everything has arrived, and the books are judged against what this process has written
itself:

1. ``messages`` has every message once: offset, tag, bytes. So has the copied stream, in order.
2. Every transaction is in ``transactions`` once, ended with success and the right result; its step succeeded
   once.
3. The same, read by DuckDB from the files and by delta-rs.

    PENSTOCK_SPARK_KILLS     how many; 2 unless given (``make soak`` has more)
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import penstock.blocking
from penstock.blocking.portal import PORTAL
from penstock.lake import Lake
from penstock.testing.servers import RealServer, find_server, start_cluster
from tests.crash.spark_driver import app
from tests.effort import seed_of
from tests.lake.duck import by_duckdb

KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "2"))
SEED = seed_of("PENSTOCK_CRASH_SEED")
HANGS_S = 240.0
ROOT = Path(__file__).parents[2]


class Driver:
    """One process and its JVM."""

    def __init__(self, url: str, lake: Path, log: Path, master: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.spark_driver", url, str(lake), master],
                stdout=output,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )
        self._begin = log.stat().st_size

    def said(self) -> str:
        return self._log.read_bytes()[self._begin :].decode("utf-8", "replace")

    def wait_for(self, word: str) -> bool:
        """Whether it said so before it ended."""
        end_s = time.monotonic() + HANGS_S
        while word not in self.said():
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < end_s, f"no {word!r} in {HANGS_S} s: {self.said()[-3_000:]}"
            time.sleep(0.05)
        return True

    def kill(self, whole: bool) -> None:
        """With its JVM, or the JVM alone: then it has to notice by itself."""
        group = os.getpgid(self._process.pid) if self._process.poll() is None else None
        if not whole:
            for pid in _children(self._process.pid):
                os.kill(pid, signal.SIGKILL)
            end_s = time.monotonic() + 60
            while self._process.poll() is None and time.monotonic() < end_s:
                time.sleep(0.05)
        if group is not None:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in tasks.read_text().split()] if tasks.exists() else []


class Load:
    """What this process writes, and therefore knows."""

    def __init__(self, ps: penstock.blocking.Client, chance: random.Random) -> None:
        self._ps = ps
        self._chance = chance
        #: offset -> tag, message
        self.messages: dict[int, tuple[bytes, bytes]] = {}
        #: id -> n
        self.transactions: dict[str, int] = {}

    def more(self) -> None:
        count = self._chance.randrange(1, 400)
        first = len(self.messages)
        pairs = [(f"tag {n % 9}".encode(), os.urandom(self._chance.randrange(40))) for n in range(count)]
        last = self._ps.stream("orders").write_many(pairs)
        for place, pair in enumerate(pairs, 1):
            self.messages[last - count + place] = pair
        for n in range(first, first + self._chance.randrange(20)):
            self.transactions[self._ps.transactions.start("scored", {"n": n}).id] = n


def _is_all_there(load: Load, ps: penstock.blocking.Client, lake: Lake) -> bool:
    has_messages = sum(file.rows for file in lake.table("messages").files()) >= len(load.messages)
    has_copies = ps.stream("copy").info().last >= len(load.messages) if ps.exists("copy") else False
    has_transactions = sum(file.rows for file in lake.table("transactions").files()) >= len(load.transactions)
    return has_messages and has_copies and has_transactions


def _judge(load: Load, ps: penstock.blocking.Client, lake: Lake) -> None:
    rows = lake.table("messages").dataset().to_table().to_pylist()
    assert len(rows) == len(load.messages)
    assert {row["offset"]: (row["tag"], row["message"]) for row in rows} == load.messages
    copies = [(one.tag, one.entry) for one in ps.stream("copy").read()]
    assert copies == [load.messages[offset] for offset in sorted(load.messages)]
    ended = lake.table("transactions").dataset().to_table().to_pylist()
    assert Counter(row["id"] for row in ended) == Counter(load.transactions.keys())
    for row in ended:
        n = load.transactions[row["id"]]
        assert (row["status"], json.loads(row["output"])) == ("success", {"n": n, "score": 2 * n})
        assert [e["status"] for e in row["trail"] if e["kind"] == "step"] == ["success"], row["trail"]
    _judge_by_others(load, lake)


def _judge_by_others(load: Load, lake: Lake) -> None:
    """Programs that know nothing of us: DuckDB over the files, delta-rs over its own log."""
    sums = 'count(*) AS n, count(DISTINCT "offset") AS offsets, sum(octet_length(message)) AS bytes'
    [found] = by_duckdb(lake.table("messages"), f"SELECT {sums} FROM files").to_pylist()
    size = sum(len(message) for _, message in load.messages.values())
    assert found == {"n": len(load.messages), "offsets": len(load.messages), "bytes": size}
    table = DeltaTable(lake.table("transactions").root).to_pyarrow_table(columns=["id"])
    assert sorted(table.column("id").to_pylist()) == sorted(load.transactions)


def _run(url: str, tmp_path: Path, *, master: str, kills: int, restart: Any = None) -> int:
    """Storm, calm, judgement; how many kills there were."""
    print(f"PENSTOCK_CRASH_SEED={SEED}")  # noqa: T201  (shown when it fails)
    chance = random.Random(SEED)
    log, root = tmp_path / "driver.log", tmp_path / "lake"
    lake = Lake.open(root)
    with penstock.blocking.open(url) as ps:
        for pipeline in app.pipelines:
            ps.transactions.deploy(pipeline)
        # A killed driver is a worker that fell silent: that must not be the end of a transaction here.
        PORTAL.run(ps._client.transactions.store.configure(archive_delay_ms=0, max_losses=1_000))
        load = Load(ps, chance)
        for number in range(kills):
            driver = Driver(url, root, log, master)
            load.more()
            # Some die while they start, most in the midst of something.
            if driver.wait_for("ready") and chance.random() < 0.9:
                for _ in range(chance.randrange(1, 6)):
                    load.more()
                    time.sleep(chance.random() * 2)
            if restart is not None and number % 2:
                restart()
            driver.kill(whole=chance.random() < 0.7)
        load.more()
        _calm(Driver(url, root, log, master), load, ps, lake, url, root, log, master)
        _judge(load, ps, lake)
    return kills


def _calm(
    driver: Driver, load: Load, ps: Any, lake: Lake, url: str, root: Path, log: Path, master: str
) -> None:
    """Until everything has arrived. A driver that ends by itself (its store was away) is replaced."""
    end_s = time.monotonic() + HANGS_S
    try:
        while not _is_all_there(load, ps, lake):
            assert time.monotonic() < end_s, f"not everything arrived: {driver.said()[-3_000:]}"
            if driver._process.poll() is not None:
                driver = Driver(url, root, log, master)
            time.sleep(0.1)
    finally:
        driver.kill(whole=True)


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
