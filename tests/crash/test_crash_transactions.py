"""SIGKILL at any instant, for transactions: each ends once, acts once, is told of, and is archived once.

Processes start (some through gateways), work, set switches, archive and send webhooks on one store, and are
killed and replaced at random; so is the store itself, where it is a process (``transaction_workers`` has what
they do). Then nobody is killed any more until everything that was confirmed is in the archive, and the books
are judged:

1. Every start that was confirmed is one transaction, which ended as its pipeline must, and no other exists.
2. Each step has succeeded once; what failed was undone once.
3. Each side effect has happened; after ``once`` had noted it, never again.
4. The stream has what each step wrote with its success, once.
5. Each end was told by webhook, at least once, always under the same id.
6. The archive holds each transaction once, children too, and the store none.

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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing.servers import RealServer, find_server
from penstock.transactions.archive import ArchiveQuery, open_archive
from penstock.transactions.model import Transaction
from tests.crash import gateway_worker, transaction_workers
from tests.crash.stream_workers import read_lines
from tests.crash.transaction_workers import EFFECTS, ENDINGS, NAMES, STARTERS, STREAM
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


class Books:
    """What the processes wrote down, and what is left in the end."""

    def __init__(self, logs: Path) -> None:
        self.started: dict[str, tuple[str, str]] = {}
        self.tried: dict[str, str] = {}
        self.effects: list[tuple[int, str]] = []
        self.noted: dict[str, int] = {}
        for path in sorted(logs.glob("*.log")):
            for line in read_lines(path):
                match line:
                    case ["start", _, external_id, pipeline]:
                        self.tried[external_id] = pipeline
                    case ["started", _, external_id, tx]:
                        self.started[external_id] = (tx, self.tried[external_id])
                    case ["effect", at, key]:
                        self.effects.append((at, key))
                    case ["noted", at, key]:
                        self.noted[key] = min(at, self.noted.get(key, at))
        self.archived: list[Transaction] = []
        self.told: Counter[str] = Counter()
        self.happened: set[str] = set()
        self.webhooks: list[tuple[str, str]] = []


def judge(books: Books) -> list[str]:
    """Every promise that was broken."""
    roots = {tx.id: tx for tx in books.archived if tx.parent is None}
    wrong = [
        f"{tx} is in the archive {count} times"
        for tx, count in Counter(tx.id for tx in books.archived).items()
        if count > 1
    ]
    wrong += [
        f"{external_id} was confirmed and is nowhere"
        for external_id, (tx, _) in books.started.items()
        if tx not in roots
    ]
    by_external = Counter(tx.external_id for tx in roots.values())
    wrong += [f"{name} is {count} transactions" for name, count in by_external.items() if count > 1]
    for transaction in books.archived:
        wrong += _judge_one(transaction, books)
    for at, key in books.effects:
        if at > books.noted.get(key, at):
            wrong.append(f"{key} acted after it was noted")
    told = set(books.webhooks)
    wrong += [f"{tx} was not told of" for tx in roots.keys() - {tx for tx, _ in told}]
    ids = Counter(tx for tx, _ in told)
    wrong += [f"{tx} was told of under {count} ids" for tx, count in ids.items() if count > 1]
    return wrong


def _judge_one(transaction: Transaction, books: Books) -> list[str]:
    wrong = []
    expected = "success" if transaction.parent else ENDINGS[transaction.pipeline]
    if transaction.status != expected:
        wrong.append(
            f"{transaction.id} ({transaction.pipeline}) ended as {transaction.status}: {transaction.note}"
        )
    done = Counter((entry.kind, entry.step) for entry in transaction.trail if entry.status == "success")
    wrong += [
        f"{transaction.id}: {step} succeeded {count} times" for step, count in done.items() if count > 1
    ]
    if transaction.pipeline == "sad" and done["undo", 0] != 1:
        wrong.append(f"{transaction.id} was not undone")
    for entry in transaction.trail:
        if (
            entry.status != "success"
            or entry.kind != "step"
            or entry.name not in ("act", "act-2", "nap", "stumble")
        ):
            continue
        key = f"{transaction.id}:0:{entry.step}"
        if key not in books.happened:
            wrong.append(f"{key} succeeded and did nothing")
        if books.told[f"{transaction.id} {entry.step}"] != 1:
            wrong.append(f"{key} wrote {books.told[f'{transaction.id} {entry.step}']} messages")
    return wrong


def _errors(logs: Path) -> list[str]:
    return [path.read_text() for path in sorted(logs.glob("*.error"))]


async def _settle(ps: penstock.Penstock, archive: Path, logs: Path) -> Books:
    """Until everything that was confirmed is archived, and nothing is left to do."""
    deadline = time.monotonic() + HANGS_S
    while True:
        books = Books(logs)
        assert not (errors := _errors(logs)), f"{len(errors)} processes failed:\n{errors[0]}"
        overview = await ps.transactions.looking.overview()
        if not any((overview.total, overview.webhooks, overview.outbox)):
            break
        assert time.monotonic() < deadline, f"it does not come to an end: {overview}"
        await asyncio.sleep(0.1)
    sink = open_archive(archive)
    cursor = None
    while True:
        page = sink.search(ArchiveQuery(limit=500, cursor=cursor))
        books.archived += [record.transaction() for record in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    async for message in ps.stream(STREAM).read():
        books.told[message.entry.decode()] += 1
    books.happened = {key.decode() for key in await ps.hgetall(EFFECTS)}
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
