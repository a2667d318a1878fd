"""A worker whose Spark fails, dies and stalls as it is told to: everything else of it is real."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.errors import SparkLostError
from penstock.spark.steps import SparkWorker, spark_step
from penstock.spark.steps import worker as worker_module
from penstock.spark.steps.batching import Call
from penstock.spark.steps.declaring import SparkStep
from penstock.spark.steps.executing import Plan
from penstock.spark.steps.jobs import StepJobs
from penstock.transactions import App, Pipeline
from penstock.transactions.worker.outcomes import Done, Failed
from tests.places import until


class FakeSpark:
    """A session that runs jobs where it is called, once ``go`` is set."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(get=lambda name, default: "fake")
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.is_dead))
        self.is_dead = False
        self.go = threading.Event()
        self.go.set()
        self.is_bad: Callable[[bytes], bool] = lambda _: False
        #: sizes of jobs, those first that only look whether a function is there
        self.jobs: list[int] = []
        self.under_way = 0
        self.interrupts = 0
        self.stops = 0

    def newSession(self) -> FakeSpark:  # noqa: N802 - Spark's name
        if self.is_dead:
            raise ConnectionRefusedError("nobody there")
        return self

    def createDataFrame(self, rows: pa.Table) -> Any:  # noqa: N802
        def collect(function: Any) -> pa.Table:
            self.jobs.append(rows.num_rows)
            self.under_way += 1
            assert self.go.wait(60)
            self.under_way -= 1
            if self.is_dead:
                raise ConnectionRefusedError("connection refused")
            if any(map(self.is_bad, rows.column("input").to_pylist())):
                raise RuntimeError("the process died")
            return pa.Table.from_batches(list(function(iter(rows.to_batches()))))

        return SimpleNamespace(
            mapInArrow=lambda function, schema: SimpleNamespace(toArrow=lambda: collect(function))
        )

    def interruptAll(self) -> None:  # noqa: N802
        self.interrupts += 1
        self.go.set()

    def stop(self) -> None:
        self.stops += 1


def new_app() -> App:
    app = App()
    spark_step(app, "double", max_batch=1, linger_ms=0)(lambda data: 2 * data)
    app.pipeline(Pipeline("double", ["double"], node_group="gpu"))
    return app


@pytest.fixture
async def ps(tmp_path: Path) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(f"embedded:{tmp_path / 'store.pen'}?durability=relaxed") as client:
        yield client


async def states(handles: list[Any]) -> list[str]:
    return [(await handle.get()).state for handle in handles]


# ---------------------------------------------------------------------------------------- a lost session


async def test_a_session_that_dies_in_a_job_ends_the_worker(ps: penstock.Penstock) -> None:
    spark = FakeSpark()
    worker = SparkWorker(ps, new_app(), node_groups=["gpu"], spark=spark)  # type: ignore[arg-type]
    with pytest.raises(SparkLostError, match="the Spark session is gone: ConnectionRefusedError"):
        async with worker:
            handles = [await ps.transactions.start("double", number) for number in range(4)]
            assert (await handles[3].wait(30_000)).output == 6
            spark.go.clear()
            handles = [await ps.transactions.start("double", number) for number in range(4)]
            await until(lambda: spark.under_way == 2 and worker.statistics().running == 4)
            spark.is_dead = True
            spark.go.set()
            await worker.run()
    found = await states(handles)
    assert "running" in found, "what was in a job is left to its lease"
    assert found.count("queued") >= 2, "what was not is handed back"
    assert set(found) == {"running", "queued"}, "nothing has failed"
    assert worker.statistics().lost == found.count("running")


async def test_a_session_that_dies_while_the_worker_stops(ps: penstock.Penstock) -> None:
    spark = FakeSpark()
    async with SparkWorker(ps, new_app(), node_groups=["gpu"], spark=spark) as worker:  # type: ignore[arg-type]
        spark.go.clear()
        handles = [await ps.transactions.start("double", number) for number in range(2)]
        await until(lambda: spark.under_way == 2)
        worker.stop()
        spark.is_dead = True
        spark.go.set()
        await worker.run()
    assert await states(handles) == ["queued", "queued"]


async def test_a_session_that_dies_without_a_job(
    ps: penstock.Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_LOOK_EVERY_S", 0.01)
    spark = FakeSpark()
    async with asyncio.timeout(30):
        with pytest.raises(SparkLostError, match="it does not answer"):
            async with SparkWorker(ps, new_app(), node_groups=["gpu"], spark=spark) as worker:  # type: ignore[arg-type]
                spark.is_dead = True
                await worker.run()
    with pytest.raises(SparkLostError, match="nobody there"):
        await SparkWorker(ps, new_app(), spark=spark).run()  # type: ignore[arg-type]


@pytest.mark.parametrize("is_started", [False, True])
async def test_only_a_session_that_it_has_made_is_stopped(
    ps: penstock.Penstock, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    spark = FakeSpark()
    monkeypatch.setattr(worker_module, "session", lambda app, **options: spark)
    monkeypatch.setattr(worker_module, "is_started", lambda: is_started)
    worker = SparkWorker(ps, new_app(), node_groups=["gpu"], master="local[3]")
    await ps.transactions.deploy(*new_app().pipelines)
    running = asyncio.create_task(worker.run())
    handle = await ps.transactions.start("double", 4)
    assert (await handle.wait(30_000)).output == 8
    (known,) = await ps.transactions.workers.list()
    assert known.labels == {"kind": "spark", "master": "local[3]"}
    worker.stop()
    await running
    assert spark.stops == (0 if is_started else 1)


# --------------------------------------------------------------------------------------------- failed jobs


async def run(spark: FakeSpark, inputs: list[bytes]) -> list[Any]:
    plan = Plan(SparkStep("double", lambda data: 2 * data))
    calls = [Call(f"tx-{place}", 1, "", b"{}", data) for place, data in enumerate(inputs)]
    with ThreadPoolExecutor(2) as threads:
        return await StepJobs(spark, plan, threads).run(calls)  # type: ignore[arg-type]


async def test_a_job_that_fails_is_divided_until_it_is_known_who_is_at_fault() -> None:
    spark = FakeSpark()
    spark.is_bad = lambda data: data == b"13"
    found = await run(spark, [str(number).encode() for number in range(1_000)])
    bad = {place: one for place, one in enumerate(found) if isinstance(one, Failed)}
    assert bad.keys() == {13}
    assert bad[13].note == "the Spark job of step 'double' failed: RuntimeError: the process died"
    assert (bad[13].status, "SparkJobError" in bad[13].names) == ("failed", True)
    assert found[14] == Done(b"28")
    assert (spark.jobs[0], len(spark.jobs)) == (1_000, 21), "two for each time that it was divided"


async def test_jobs_that_always_fail_are_not_divided_for_ever() -> None:
    spark = FakeSpark()
    spark.is_bad = lambda data: True
    found = await run(spark, [b"1"] * 5_000)
    assert all(isinstance(one, Failed) for one in found)
    assert len(spark.jobs) < 60


async def test_a_job_that_nobody_waits_for_is_interrupted() -> None:
    spark = FakeSpark()
    spark.go.clear()
    spark.is_bad = lambda data: True
    waiting = asyncio.create_task(run(spark, [b"1", b"2"]))
    await until(lambda: spark.under_way == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert spark.interrupts >= 1
    assert spark.jobs == [2], "and is not tried again"
