"""dramatiq on Redis, as it comes, except that it backs off no further than the poll; a thread a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]
from dramatiq.worker import Worker  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import Arguments, Figures, Jobs, measure_blocking, parse, report

jobs = Jobs()


def noop() -> None:
    jobs.began()


def main(arguments: Arguments) -> Figures:
    broker = RedisBroker(url=f"redis://127.0.0.1:{arguments.where}")
    dramatiq.set_broker(broker)
    actor = dramatiq.actor(noop)

    @contextmanager
    def worker() -> Iterator[None]:
        timeout_ms = int(arguments.poll_s * 1_000)
        threads = Worker(broker, worker_threads=arguments.concurrency, worker_timeout=timeout_ms)
        threads.start()
        yield
        threads.stop()

    def is_settled() -> bool:
        # Messages waiting, taken and not acknowledged, delayed.
        return bool(broker.do_qsize(actor.queue_name) == 0)

    return measure_blocking(arguments, jobs, actor.send, worker(), is_settled)


if __name__ == "__main__":
    report("dramatiq", main(parse(__doc__)), ("dramatiq", "redis", "hiredis"))
