"""A program that runs the whole data pipeline on one Spark session until it is killed: for
``test_crash_spark``.

    python -m tests.crash.spark_driver URL LAKE MASTER

It exports the stream ``orders`` to the lake, copies it to the stream ``copy`` by a query, archives
transactions, and runs their step ``score`` on executors. Each line that it prints tells that something new
was done.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import penstock
import penstock.blocking
from penstock.lake import Lake
from penstock.spark import session
from penstock.spark.jobs.archive import ArchiveJob, ArchiveOptions
from penstock.spark.jobs.export import ExportJob, ExportOptions
from penstock.spark.jobs.job import JobContext
from penstock.spark.steps import SparkWorker, spark_step
from penstock.transactions import App, Pipeline

app = App()

#: In a row, of one thread.
_MOST_FAILURES: Final = 4


@spark_step(app, "score", kind="python", linger_ms=50)
def score(call: Any) -> dict[str, int]:
    return {"n": call["n"], "score": call["n"] * 2}


app.pipeline(Pipeline("scored", ["score"], node_group="spark"))


def tell(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def repeatedly(name: str, run_once: Callable[[], Any]) -> None:
    """In a thread, for ever. What fails again and again ends the program: another one is started.

    A few failures are borne, since a busy machine may take longer to start a Python worker than Spark waits.
    """

    def go() -> None:
        failures = 0
        while failures < _MOST_FAILURES:
            try:
                report = run_once()
                failures = 0
                if report.rows:
                    tell(f"{name} {report.rows}")
                pause_s = 0.05
            except BaseException as error:  # noqa: BLE001 - whatever it was
                tell(f"failed {name}: {type(error).__name__}: {error}")
                failures += 1
                pause_s = 0.5
            threading.Event().wait(pause_s)
        os._exit(1)

    threading.Thread(target=go, daemon=True).start()


async def work(url: str, spark: Any) -> None:
    async with (
        penstock.open(url) as ps,
        SparkWorker(ps, app, node_groups=["spark"], spark=spark, lease_ms=5_000, concurrency=200) as worker,
    ):
        tell("ready")
        await worker.run()


def main(url: str, root: str, master: str) -> None:
    """Until it is killed."""
    spark = session("crash", master=master, conf={"spark.driver.memory": "1g", "spark.executor.memory": "1g"})
    lake = Lake.open(root)
    store = penstock.blocking.open(url).connect()
    context = JobContext(spark=spark, lake=lake, store=store, url=url)
    export = ExportJob(ExportOptions(streams=["orders"], max_messages_per_batch=500))
    archive = ArchiveJob(ArchiveOptions(batch=50, lock1_ms=500, lock2_ms=1_000))
    repeatedly("exported", lambda: export.run_once(context))
    repeatedly("archived", lambda: archive.run_once(context))
    # Here and not in its thread: which session is the active one, Spark knows by thread.
    copy = (
        spark.readStream.format("penstock")
        .options(url=url, stream="orders", maxMessagesPerBatch="300")
        .load()
        .writeStream.format("penstock")
        .options(url=url, stream="copy", checkpointLocation=f"file://{root}/_checkpoints/copy")
        .start()
    )

    def copied() -> Any:
        copy.awaitTermination()
        raise RuntimeError("the query has ended")

    repeatedly("copied", copied)
    asyncio.run(work(url, spark))


if __name__ == "__main__":
    main(*sys.argv[1:4])
