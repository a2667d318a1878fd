"""DBOS on SQLite (rollback journal, every commit synced), a workflow of one step.

``--mode queued`` (the default) goes through a queue that is polled more often than its default of a
second; ``--mode inline`` calls the workflow in the thread of the caller, so there is nothing to enqueue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dbos import DBOS  # type: ignore[import-not-found]

from bench.transaction_peers.measuring import (
    Arguments,
    Figures,
    Jobs,
    measure_blocking,
    measure_calls,
    parse,
    report,
)

QUEUE: Final = "bench"

jobs = Jobs()


def noop() -> None:
    jobs.began()


noop_step = DBOS.step()(noop)


def one_step() -> None:
    noop_step()


one_step_workflow = DBOS.workflow()(one_step)


def launch(arguments: Arguments, *, is_worker: bool) -> None:
    url = f"sqlite:///{Path(arguments.where) / 'dbos.sqlite'}"
    config: dict[str, Any] = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    if not is_worker:
        DBOS.listen_queues([])
    DBOS.launch()


def inline(arguments: Arguments) -> Figures:
    launch(arguments, is_worker=False)
    figures = measure_calls(arguments, jobs, one_step_workflow)
    DBOS.destroy()
    return figures


def queued(arguments: Arguments) -> Figures:
    launch(arguments, is_worker=False)
    DBOS.register_queue(
        QUEUE, worker_concurrency=arguments.concurrency, polling_interval_sec=arguments.poll_s
    )

    @contextmanager
    def worker() -> Iterator[None]:
        DBOS.destroy()
        launch(arguments, is_worker=True)
        yield
        DBOS.destroy()

    return measure_blocking(
        arguments, jobs, lambda: DBOS.enqueue_workflow(QUEUE, one_step_workflow), worker(), is_settled
    )


def is_settled() -> bool:
    unfinished = DBOS.list_workflows(status=["ENQUEUED", "PENDING"], limit=1, load_input=False)
    return not unfinished


if __name__ == "__main__":
    arguments = parse(__doc__)
    measured = inline(arguments) if arguments.mode == "inline" else queued(arguments)
    report(f"DBOS, {arguments.mode or 'queued'}", measured, ("dbos", "sqlalchemy"))
