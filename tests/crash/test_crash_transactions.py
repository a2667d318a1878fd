"""SIGKILL at any instant, for transactions: each ends once, acts once, is told of, and is archived once.

Processes start (some through gateways), work, set switches, archive and send webhooks on one store, and are
killed and replaced at random; so is the store itself, where it is a process (``transaction_workers`` has what
they do). Then nobody is killed any more until everything that was confirmed is in the archive, and the books
are judged (``transaction_ledger`` has the promises).

    PENSTOCK_CRASH_SECONDS   how long; 4 unless given
    PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing.servers import RealServer, find_server
from tests.crash import gateway_worker, transaction_workers
from tests.crash.stream_workers import read_lines
from tests.crash.transaction_ledger import Books, judge
from tests.crash.transaction_workers import NAMES, STARTERS
from tests.effort import seed_of
from tests.forking import CONTEXT, ForkServerProcess
from tests.webhooks.receiver import Receiver

BUDGET_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "4"))
SEED = seed_of("PENSTOCK_CRASH_SEED")

#: Nothing takes so long on a living machine, however busy.
HANGS_S = 120.0
_MEAN_PAUSE_S = 0.12
GATEWAYS = ("g0", "g1")


class Storm:
    """Processes that are killed and replaced; and perhaps the server that they use."""

    def __init__(
        self, url: str, logs: Path, extra: dict[str, str], chance: random.Random, server: RealServer | None
    ) -> None:
        self.kills = 0
        self.server_kills = 0
        self._url = url
        self._logs = logs
        self._extra = extra
        self._chance = chance
        self._server = server
        self._processes: dict[str, ForkServerProcess | subprocess.Popen[bytes]] = {}
        self._listener = gateway_worker.listener()
        self._extra["port"] = str(self._listener.getsockname()[1])
        self._config = logs / "gateway.yaml"
        self._config.write_text(json.dumps(_gateway_settings(url, server)))

    def __enter__(self) -> Storm:
        for name in (*NAMES, *GATEWAYS):
            self._spawn(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._listener.close()

    async def rage(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The point is that nobody can foresee the instant.
            await asyncio.sleep(self._chance.expovariate(1 / _MEAN_PAUSE_S))
            if self._server is not None and self._chance.random() < 0.1:
                self._server.kill()
                await asyncio.sleep(self._chance.random() / 2)
                await asyncio.to_thread(self._server.restart)
                self.server_kills += 1
                continue
            # A gateway takes a while to start, and is to do something before it dies.
            names = [name for name in self._processes if name not in GATEWAYS or self._chance.random() < 0.2]
            name = self._chance.choice(names)
            await asyncio.to_thread(self.kill, name)
            self._spawn(name)

    def _spawn(self, name: str) -> None:
        if name in GATEWAYS:
            log = self._logs / f"{name}.output"
            self._processes[name] = gateway_worker.spawn(self._config, self._listener, log)
            return
        args = (self._url, str(self._logs / f"{name}.log"), self._chance.randrange(1 << 32), self._extra)
        self._processes[name] = CONTEXT.Process(target=transaction_workers.live, args=args)
        self._processes[name].start()

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        if isinstance(process, subprocess.Popen):
            process.wait(HANGS_S)
        else:
            process.join(HANGS_S)
            assert process.exitcode is not None, "a killed process does not end"
        self.kills += 1


def _gateway_settings(url: str, server: RealServer | None) -> dict[str, Any]:
    if server is None:
        directory = url.removeprefix("embedded:").partition("?")[0]
        storage: dict[str, Any] = {"embedded": {"directory": directory, "durability": "relaxed"}}
    else:
        storage = {"redis": {"singleNode": f"127.0.0.1:{server.port}"}}
    return {
        "storages": {"default": storage},
        "transactions": {"webhooks": {"allowedNetworks": ["127.0.0.0/8"]}},
        "logging": {"category": {"*": "WARN"}},
    }


@contextmanager
def _place(kind: str, directory: Path) -> Iterator[tuple[str, RealServer | None]]:
    if kind == "embedded":
        yield f"embedded:{directory / 'store.pen'}?durability=relaxed", None
        return
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RealServer(find_server("valkey"), options=options) as server:
        yield server.url, server


def _errors(logs: Path) -> list[str]:
    return [path.read_text() for path in sorted(logs.glob("*.error"))]


async def _settle(ps: penstock.Penstock, archive: Path, logs: Path) -> Books:
    """Until everything that was confirmed is archived, and nothing is left to do."""
    deadline = time.monotonic() + HANGS_S
    while True:
        assert not (errors := _errors(logs)), f"{len(errors)} processes failed:\n{errors[0]}"
        overview = await ps.transactions.looking.overview()
        if not any((overview.total, overview.webhooks, overview.outbox)):
            break
        assert time.monotonic() < deadline, f"it does not come to an end: {overview}"
        await asyncio.sleep(0.1)
    books = Books(logs)
    await books.complete(ps, archive)
    return books


async def _until_each_has_started(logs: Path) -> None:
    deadline = time.monotonic() + HANGS_S
    for name in STARTERS:
        while not any(line[0] == "started" for line in read_lines(logs / f"{name}.log")):
            assert not (errors := _errors(logs)), f"{len(errors)} processes failed:\n{errors[0]}"
            assert time.monotonic() < deadline, f"{name} starts nothing"
            await asyncio.sleep(0.1)


async def _run(kind: str, directory: Path) -> tuple[Books, Storm]:
    logs, archive = directory / "logs", directory / "archive"
    logs.mkdir()
    with _place(kind, directory) as (url, server):
        async with penstock.open(url) as ps, Receiver() as receiver:
            await ps.transactions.deploy(transaction_workers.app_of(ps, None))  # type: ignore[arg-type]
            await ps.transactions.store.configure(archive_delay_ms=200, max_losses=1_000)
            extra = {"webhook": receiver.url, "archive": str(archive)}
            with Storm(url, logs, extra, random.Random(SEED), server) as storm:
                await storm.rage(BUDGET_S)
                await _until_each_has_started(logs)
                for name in STARTERS:
                    await asyncio.to_thread(storm.kill, name)
                books = await _settle(ps, archive, logs)
            for received in receiver.received:
                body = json.loads(received.body)
                books.webhooks.append((body["data"]["metadata"]["txId"], received.id))
    return books, storm


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(BUDGET_S * 3 + 4 * HANGS_S)
@pytest.mark.parametrize("kind", ["embedded", "valkey"])
def test_killed_processes_break_no_promise_of_a_transaction(kind: str, tmp_path: Path) -> None:
    sys.stdout.write(f"PENSTOCK_CRASH_SEED={SEED}\n")
    books, storm = asyncio.run(_run(kind, tmp_path))
    sys.stdout.write(
        f"{storm.kills} kills, {storm.server_kills} of the store, {len(books.started)} starts confirmed,"
        f" {len(books.archived)} archived, {len(books.effects)} effects, {len(books.webhooks)} webhooks\n"
    )
    assert len(books.started) > 10
    assert judge(books) == []
