"""What tests of the command line share: a store with pipelines, a worker in a thread, words without noise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.errors import StepFailedError
from penstock.transactions import App, Delay, Function, Pipeline, Retry, StepContext, Wait

app = App()


@app.step("check-total")
async def check_total(tx: StepContext) -> None:
    if tx.input["total"] < 0:
        raise StepFailedError("total must not be negative")


@app.step("charge")
async def charge(tx: StepContext) -> dict[str, Any]:
    tx.log("charged")
    await tx.progress({"charged": True})
    return {**tx.input, "receipt": f"r-{tx.input['total']}"}


@app.step("boom")
async def boom(tx: StepContext) -> None:
    raise RuntimeError("boom")


@app.step("once-bad")
async def once_bad(tx: StepContext) -> None:
    raise StepFailedError("not yet")


PIPELINES = (
    Pipeline("checkout", ["check-total", "charge"], node_group="shop"),
    Pipeline("approval", ["check-total", Wait("approved", into="approved"), "charge"], node_group="shop"),
    Pipeline("boom", ["boom"], node_group="shop"),
    Pipeline("napping", [Delay(600_000)], node_group="shop"),
    Pipeline(
        "stubborn", [Function("once-bad", retry=Retry(limit=9, backoff_ms=3_600_000))], node_group="shop"
    ),
)
for pipeline in PIPELINES:
    app.pipeline(pipeline)


def on_store(where: str, work: Callable[[penstock.Penstock], Any]) -> Any:
    """What an async function makes of an open client."""

    async def run() -> Any:
        async with penstock.open(where) as ps:
            return await work(ps)

    return asyncio.run(run())


def deploy(where: str) -> None:
    on_store(where, lambda ps: ps.transactions.deploy(app))


@contextmanager
def working(where: str) -> Iterator[None]:
    """A worker in a thread while the block runs."""
    ready, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def work() -> None:
        async with penstock.open(where) as ps, ps.transactions.worker(app, node_group="shop"):
            ready.set()
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
    assert not failures, failures
