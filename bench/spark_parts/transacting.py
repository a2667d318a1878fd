"""Transactions that have run, for the parts that need them: a pipeline of one step, carried by a worker."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from bench.spark_parts.common import check
from penstock.front import Penstock
from penstock.spark.steps import SparkWorker
from penstock.transactions import App, Pipeline, Worker

GROUP: Final = "bench"
_TASKS: Final = 32
_LOOK_S: Final = 0.005
_STUCK_S: Final = 120.0

app = App()


@app.step("charge")
async def charge(tx: Any) -> Any:
    return {**tx.input, "paid": True}


CHECKOUT: Final = app.pipeline(Pipeline("checkout", ["charge"], node_group=GROUP))


async def start_many(ps: Penstock, pipeline: str, count: int) -> None:
    """So many that wait for a worker."""
    left = iter(range(count))

    async def some() -> None:
        for number in left:
            order = {"n": number, "amount": number * 7 % 1_000 / 4, "shop": f"shop-{number % 300}"}
            await ps.transactions.start(pipeline, order, owner=f"owner-{number % 50}")

    await asyncio.gather(*(some() for _ in range(_TASKS)))


async def until_ended(worker: Worker | SparkWorker, count: int) -> float:
    """How long a worker took, from now on, until it had ended so many."""
    started = changed = time.perf_counter()
    seen = 0
    while (ended := worker.statistics().ended) < count:
        now = time.perf_counter()
        if ended != seen:
            seen, changed = ended, now
        check(now - changed < _STUCK_S, f"{ended} of {count} transactions ended, and then none")
        await asyncio.sleep(_LOOK_S)
    return time.perf_counter() - started


async def run_checkouts(ps: Penstock, count: int) -> None:
    """So many more have ended, and may be archived."""
    await ps.transactions.deploy(CHECKOUT)
    await ps.transactions.store.configure(archive_delay_ms=0, dead_keep_ms=0)
    await start_many(ps, CHECKOUT.name, count)
    async with ps.transactions.worker(app, node_group=GROUP) as worker:
        await until_ended(worker, count)
