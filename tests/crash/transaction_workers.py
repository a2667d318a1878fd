"""The processes of the crash test of transactions: what they do, and what they write down about it.

A process keeps its name and its log over all its lives. A line is a JSON array with the time (ns), written by
one system call:

    ["start", time, external id, pipeline]      before it is sent
    ["started", time, external id, tx]          after it was confirmed
    ["effect", time, key]                       a side effect is about to happen
    ["noted", time, key]                        ``once`` has written it down

Roles by the first letter of the name: ``s`` starts transactions, ``h`` does so over HTTP, ``w`` works, ``t``
sets switches, ``a`` archives, ``n`` sends webhooks. (Gateways, ``g``, are processes of ``gateway_worker``.)
They must not import pytest: many of them are started.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import penstock
from penstock.errors import PenstockError, StepFailedError
from penstock.lake import archives
from penstock.transactions import App, Function, Parallel, Pipeline, Query, Retry, StepContext, Wait
from penstock.transactions.archive import Archiver
from penstock.transactions.notifying import run_webhooks
from penstock.webhooks import WorkerSettings, addresses
from tests.crash import lives
from tests.crash.gateway_clients import Caller
from tests.crash.lives import Life, Role, persistently
from tests.crash.stream_workers import StreamLog, read_lines

STARTERS: Final = ("s0", "s1", "h0")
WORKERS: Final = ("w0", "w1", "w2")
NAMES: Final = (*STARTERS, *WORKERS, "t0", "a0", "a1", "n0")
GROUP: Final = "storm"
STREAM: Final = "told"
EFFECTS: Final = "{effects}"
#: pipeline -> how its transactions end
ENDINGS: Final = {
    "plain": "success",
    "sleepy": "success",
    "family": "success",
    "patient": "success",
    "flaky": "success",
    "sad": "failed",
}
#: steps that tell the stream, by pipeline; children tell for themselves
TELLING: Final = {"plain": 2, "sleepy": 1, "family": 1, "patient": 1, "flaky": 1, "sad": 1}
LEASE_MS: Final = 1_500


def app_of(ps: penstock.Penstock, diary: StreamLog) -> App:
    app = App()

    async def effect(tx: StepContext) -> str:
        """Something outside that recognises a repetition by its key."""
        key = tx.idempotency_key
        diary.write("effect", time.time_ns(), key)
        await persistently(lambda: ps.execute("HSETNX", EFFECTS, key, 1))
        return key

    async def act(tx: StepContext) -> None:
        key = await tx.once("act", effect, tx)
        diary.write("noted", time.time_ns(), key)
        tx.write_stream(STREAM, f"{tx.id} {tx.number}".encode())

    @app.step("act")
    async def act_step(tx: StepContext) -> Any:
        await act(tx)
        return {**tx.input, "acted": tx.input.get("acted", 0) + 1}

    @app.step("nap")
    async def nap(tx: StepContext) -> None:
        await act(tx)
        await tx.sleep(30)
        await tx.sleep(20)

    @app.step("stumble")
    async def stumble(tx: StepContext) -> None:
        if tx.attempt < 3:
            raise RuntimeError("not yet")
        await act(tx)

    @app.step("fail")
    async def fail(tx: StepContext) -> None:
        raise StepFailedError("as it must")

    @app.step("undo")
    async def undo(tx: StepContext) -> None:
        await tx.once("undone", effect, tx)

    again = Retry(limit=10, backoff_ms=5, factor=1.5)
    for pipeline in (
        Pipeline("plain", ["act", Function("act", id="act-2")], node_group=GROUP),
        Pipeline("sleepy", ["nap"], node_group=GROUP),
        Pipeline("family", ["act", Parallel({"left": ["act"], "right": ["nap"]})], node_group=GROUP),
        Pipeline("patient", [Wait("go"), "act"], node_group=GROUP),
        Pipeline("flaky", [Function("stumble", retry=again)], node_group=GROUP),
        Pipeline("sad", [Function("act", compensate="undo"), "fail"], node_group=GROUP),
    ):
        app.pipeline(pipeline)
    return app


async def start(life: Life) -> None:
    """Start transactions for ever; what was not confirmed is started again under the same id."""
    used, pending = 0, None
    for line in read_lines(life.diary.path):
        if line[0] == "start":
            used += 1
            pending = (line[2], line[3])
        elif line[0] == "started":
            pending = None
    ask = partial(_start_over_http, Caller(int(life.extra["port"]))) if life.name[0] == "h" else _start
    while True:
        if pending is None:
            pending = (f"{life.name}-{used}", life.chance.choice(list(ENDINGS)))
            used += 1
            life.diary.write("start", time.time_ns(), *pending)
        external_id, pipeline = pending
        tx = await persistently(partial(ask, life, pipeline, external_id))
        life.diary.write("started", time.time_ns(), external_id, tx)
        pending = None
        await life.pause(0.005)


async def _start(life: Life, pipeline: str, external_id: str) -> str:
    handle = await life.ps.transactions.start(
        pipeline, {"of": external_id}, external_id=external_id, webhook=life.extra["webhook"]
    )
    return handle.id


async def _start_over_http(caller: Caller, life: Life, pipeline: str, external_id: str) -> str:
    wish = {
        "pipeline": pipeline,
        "input": {"of": external_id},
        "external_id": external_id,
        "webhook": life.extra["webhook"],
    }
    status, answer = await asyncio.to_thread(
        caller.ask, "POST", "/v1/transactions", json.dumps(wish).encode()
    )
    assert status in (200, 202), (status, answer)
    return str(answer["id"])


async def work(life: Life) -> None:
    app = app_of(life.ps, life.diary)
    worker = life.ps.transactions.worker(app, node_group=GROUP, concurrency=16, lease_ms=LEASE_MS)
    await worker.run()


async def set_switches(life: Life) -> None:
    """Whoever waits is let go."""
    while True:
        page = await persistently(lambda: life.ps.transactions.list(Query(state="waiting"), limit=100))
        for transaction in page.items:
            try:
                await life.ps.transactions.set_switch(transaction.id, "go", "yes")
            except PenstockError:
                pass  # it has gone on meanwhile, or the store is away
        await life.pause(0.05)


async def archive(life: Life) -> None:
    """``slower``: how many times as long roles and pauses last as in a storm of seconds."""
    sink = await asyncio.to_thread(archives.open, life.extra["archive"])
    slower = int(life.extra.get("slower", "1"))
    archiver = Archiver(
        life.ps.transactions.store,
        sink,
        node=life.name,
        batch=50,
        lock1_ms=300 * slower,
        lock2_ms=500 * slower,
        idle_ms=50 * slower,
    )
    await archiver.run()


async def notify(life: Life) -> None:
    policy = addresses.policy(["127.0.0.0/8"])
    store, leases = life.ps.transactions.store, WorkerSettings(lease_ms=1_000)
    async with run_webhooks(life.ps, store, policy=policy, worker=leases):
        await asyncio.Event().wait()


ROLES: Final[dict[str, Role]] = {
    "s": start,
    "h": start,
    "w": work,
    "t": set_switches,
    "a": archive,
    "n": notify,
}


def live(url: str, log: str, seed: int, extra: dict[str, str]) -> None:
    """The whole life of a process, in the role that the first letter of its name tells."""
    lives.live(ROLES[Path(log).stem[0]], url, log, seed, extra)
