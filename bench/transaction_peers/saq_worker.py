"""SAQ on Redis, as it comes: a list with BLMOVE, the result kept for ten minutes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import Arguments, Figures, Jobs, measure, parse, report, run

jobs = Jobs()


async def noop(context: Any) -> None:
    jobs.began()


async def main(arguments: Arguments) -> Figures:
    queue = Queue.from_url(f"redis://127.0.0.1:{arguments.where}")
    await queue.connect()

    async def is_settled() -> bool:
        return bool(await queue.count("incomplete") == 0)

    @asynccontextmanager
    async def worker() -> AsyncIterator[None]:
        saq_worker = Worker(queue, [noop], concurrency=arguments.concurrency)
        running = asyncio.create_task(saq_worker.start())
        yield
        await saq_worker.stop()
        await running

    figures = await measure(arguments, jobs, lambda: queue.enqueue("noop"), worker(), is_settled)
    await queue.disconnect()
    return figures


if __name__ == "__main__":
    report("SAQ", run(main(parse(__doc__))), ("saq", "redis", "hiredis", "uvloop"))
