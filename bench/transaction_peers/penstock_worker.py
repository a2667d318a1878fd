"""Penstock: a pipeline of one step that does nothing, on the store that the address names.

``--durability always`` or ``relaxed`` is for a directory; a server has its own rule. ``--fill N`` runs N
transactions through first, so that the others are measured while as many ended ones are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import penstock
from bench.transaction_peers.measuring import (
    Arguments,
    Figures,
    Jobs,
    enqueue_many,
    measure,
    parse,
    report,
    run,
    settle,
)
from penstock.transactions import App, Pipeline, StepContext, Transactions, Worker

NOOP: Final = "noop"
NODE_GROUP: Final = "bench"
#: Of a fill, started before the worker may catch up: a bound on the queue.
_FILL_BATCH: Final = 10_000

jobs = Jobs()
app = App()


@app.step(NOOP)
async def noop(tx: StepContext) -> None:
    jobs.began()


pipeline = app.pipeline(Pipeline(NOOP, [NOOP], node_group=NODE_GROUP))


async def main(arguments: Arguments) -> Figures:
    settings: dict[str, Any] = {"durability": arguments.durability} if arguments.durability else {}
    async with penstock.open(arguments.where, **settings) as ps:
        transactions = ps.transactions
        await transactions.deploy(pipeline)
        await _fill(transactions, arguments)
        worker = transactions.worker(app, node_group=NODE_GROUP, concurrency=arguments.concurrency)
        return await measure(
            arguments, jobs, lambda: transactions.start(NOOP, {}), worker, _all_ended(worker)
        )


async def _fill(transactions: Transactions, arguments: Arguments) -> None:
    if not arguments.fill:
        return
    worker = transactions.worker(app, node_group=NODE_GROUP, concurrency=arguments.concurrency)
    async with worker:
        for done in range(0, arguments.fill, _FILL_BATCH):
            batch = min(_FILL_BATCH, arguments.fill - done)
            await enqueue_many(batch, arguments.concurrency, lambda: transactions.start(NOOP, {}))
            await settle(jobs, done + batch, _all_ended(worker))
    jobs.starts.clear()


def _all_ended(worker: Worker) -> Callable[[], Awaitable[bool]]:
    """Whether this worker's transactions have all ended, on disk as the store's durability has it."""

    async def is_settled() -> bool:
        return worker.statistics().ended >= len(jobs)

    return is_settled


if __name__ == "__main__":
    report("Penstock", run(main(parse(__doc__))), ("penstock", "hiredis", "uvloop", "lmdb"))
