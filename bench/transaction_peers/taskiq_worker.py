"""taskiq on a Redis stream with acknowledgements, as it comes: no result is kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from taskiq.api import run_receiver_task  # type: ignore[import-not-found]
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import Arguments, Figures, Jobs, measure, parse, report, run

jobs = Jobs()


async def noop() -> None:
    jobs.began()


async def main(arguments: Arguments) -> Figures:
    broker = RedisStreamBroker(f"redis://127.0.0.1:{arguments.where}")
    task = broker.task(noop)
    await broker.startup()

    async def is_settled() -> bool:
        async with Redis(connection_pool=broker.connection_pool) as redis:
            pending = await redis.xpending(broker.queue_name, broker.consumer_group_name)
            return bool(pending["pending"] == 0)

    @asynccontextmanager
    async def worker() -> AsyncIterator[None]:
        running = asyncio.create_task(
            run_receiver_task(
                broker, max_async_tasks=arguments.concurrency, max_prefetch=arguments.concurrency
            )
        )
        yield
        assert not running.done()

    figures = await measure(arguments, jobs, task.kiq, worker(), is_settled)
    report("taskiq", figures, ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"))
    # Its listener misses a cancellation now and then and then waits for ever; nothing is left to measure.
    os._exit(0)


if __name__ == "__main__":
    run(main(parse(__doc__)))
