"""Huey on SQLite, as it comes (WAL, every commit synced), except that it polls more often (its default
is 100 ms, growing to 10 s). It takes a job out of the queue before running it, so a crash loses the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huey import SqliteHuey  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import Arguments, Figures, Jobs, measure_blocking, parse, report

jobs = Jobs()


def noop() -> None:
    jobs.began()


def main(arguments: Arguments) -> Figures:
    huey = SqliteHuey("bench", filename=str(Path(arguments.where) / "huey.db"))
    task = huey.task()(noop)

    @contextmanager
    def worker() -> Iterator[None]:
        consumer = huey.create_consumer(
            workers=arguments.concurrency,
            periodic=False,
            initial_delay=arguments.poll_s,
            max_delay=arguments.poll_s,
        )
        consumer.start()
        yield
        consumer.stop(graceful=True)

    def is_settled() -> bool:
        return bool(huey.storage.queue_size() == 0 and not huey._tasks_in_flight)

    return measure_blocking(arguments, jobs, task, worker(), is_settled)


if __name__ == "__main__":
    report("Huey", main(parse(__doc__)), ("huey",))
