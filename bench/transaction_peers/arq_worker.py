"""arq on Redis, as it comes, except that it polls more often (its default is every 500 ms)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from arq import create_pool  # type: ignore[import-not-found]
from arq.connections import RedisSettings  # type: ignore[import-not-found]
from arq.constants import default_queue_name  # type: ignore[import-not-found]
from arq.worker import Worker  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import Arguments, Figures, Jobs, measure, parse, report, run

jobs = Jobs()


async def noop(context: Any) -> None:
    jobs.began()


async def main(arguments: Arguments) -> Figures:
    settings = RedisSettings(port=int(arguments.where))
    pool = await create_pool(settings)

    async def is_settled() -> bool:
        return bool(await pool.zcard(default_queue_name) == 0)

    @asynccontextmanager
    async def worker() -> AsyncIterator[None]:
        arq_worker = Worker(
            [noop],
            redis_settings=settings,
            max_jobs=arguments.concurrency,
            poll_delay=arguments.poll_s,
            handle_signals=False,
        )
        running = asyncio.create_task(arq_worker.async_run())
        yield
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await arq_worker.pool.aclose()

    figures = await measure(arguments, jobs, lambda: pool.enqueue_job("noop"), worker(), is_settled)
    await pool.aclose()
    return figures


if __name__ == "__main__":
    report("arq", run(main(parse(__doc__))), ("arq", "redis", "hiredis", "uvloop"))
