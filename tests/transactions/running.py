"""A shop for tests of steps and workers: an app with some steps, pipelines of them, and their results.

shop = Shop(ps)
ended = await shop.run("add", Delay(5), "add", input={"n": 1})
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import penstock
from penstock.errors import StepAbortedError, StepFailedError
from penstock.transactions import App, Handle, Pipeline, Transaction, Worker
from penstock.transactions.pipelines import AnyStep
from tests.places import until

GROUP = "shop"
LIMIT_MS = 15_000


def new_app() -> App:
    """Steps that most tests need."""
    app = App()

    @app.step("noop")
    async def noop(tx: Any) -> None:
        pass

    @app.step("add")
    async def add(tx: Any) -> Any:
        return {**tx.input, "n": tx.input.get("n", 0) + 1}

    @app.step("fail")
    async def fail(tx: Any) -> Any:
        raise StepFailedError("no money", {"why": 1})

    @app.step("abort")
    async def abort(tx: Any) -> Any:
        raise StepAbortedError("fraud", {"who": "bob"})

    @app.step("throw")
    async def throw(tx: Any) -> Any:
        raise ValueError("boom")

    return app


class Shop:
    """Everything of one group, on one client."""

    def __init__(self, ps: penstock.Penstock) -> None:
        self.ps = ps
        self.transactions = ps.transactions
        self.app = new_app()
        self.step = self.app.step

    async def deploy(
        self, *steps: str | AnyStep, name: str = "main", group: str = GROUP, **options: Any
    ) -> str:
        (version,) = await self.transactions.deploy(Pipeline(name, steps, node_group=group, **options))
        return version

    def worker(self, app: App | None = None, *, group: str = GROUP, **options: Any) -> Worker:
        return self.transactions.worker(app or self.app, node_group=group, **options)

    async def start(self, pipeline: str = "main", input: Any = None, **options: Any) -> Handle:
        return await self.transactions.start(pipeline, {} if input is None else input, **options)

    async def ended(self, handle: Handle) -> Transaction:
        """As it is when it has ended, which it must; with its trail."""
        found = await handle.wait(LIMIT_MS)
        assert found.has_ended, found
        return await handle.get(trail=True)

    async def run(self, *steps: str | AnyStep, input: Any = None, **options: Any) -> Transaction:
        """Deploy these steps, start them, and let a worker carry them to their end."""
        await self.deploy(*steps, **options)
        async with self.worker():
            return await self.ended(await self.start(input=input))

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker that has heard of everything it listens to."""
        async with self.worker(**options) as worker:
            yield worker

    async def reaches(self, handle: Handle, state: str) -> None:
        async def is_there() -> bool:
            return (await handle.get()).state == state

        await until(is_there)


def statuses(transaction: Transaction) -> list[str]:
    """Of its steps, as the trail has them: ``add success``."""
    return [f"{entry.name} {entry.status}" for entry in transaction.trail if entry.kind == "step"]


def undone(transaction: Transaction) -> list[str]:
    return [f"{entry.name} {entry.status}" for entry in transaction.trail if entry.kind == "undo"]
