"""The runner: times, failures, stopping, and what it tells, over jobs that do what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock.blocking
from penstock.errors import ConfigError, StoreError, UsageError
from penstock.lake import Lake
from penstock.spark import running
from penstock.spark.config import JobConfig, PipelineConfig, SessionConfig, load
from penstock.spark.jobs.job import JobContext
from penstock.spark.noticeboard import KEY, JobStatus, Notice
from penstock.spark.running import Runner, Sessions
from penstock.spark.views import register
from tests.places import wait_until
from tests.spark.archiving import run_shop
from tests.unit.spark.fake_jobs import FakeJob, FakeOptions, FakeStreamingJob, Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 30


class NoSpark(Sessions):
    """Jobs of tests need none; counts how often it is asked whether Spark has died."""

    def __init__(self) -> None:
        super().__init__(SessionConfig())
        self.suspected = 0

    def get(self) -> Any:
        return None

    def suspect(self) -> None:
        self.suspected += 1


def made(name: str, kind: type[FakeJob] = FakeJob, *passes: Callable[[JobContext], int]) -> FakeJob:
    job = kind(FakeOptions(streams=[]))
    job.name = name
    for each in passes:
        job.passes.put(each)
    return job


def failing(error: Exception) -> Callable[[JobContext], int]:
    def work(_: JobContext) -> int:
        raise error

    return work


class Place:
    """Makes runners over one store and lake."""

    def __init__(self, url: str, lake: Path) -> None:
        self.url = url
        self.lake = lake
        self.heard: list[JobStatus] = []
        self.sessions = NoSpark()

    def runner(self, *jobs: FakeJob, every_ms: int | None = 1, node: str = "etl-1", **more: Any) -> Runner:
        configs = tuple(JobConfig(job.name, "export", job, every_ms) for job in jobs)
        config = PipelineConfig(self.url, self.lake, node, SessionConfig(), configs)
        return Runner(config, sessions=self.sessions, listener=self.heard.append, retry_ms=1, **more)

    @contextmanager
    def running(self, *jobs: FakeJob, **more: Any) -> Iterator[Runner]:
        with self.runner(*jobs, **more) as runner:
            thread = threading.Thread(target=runner.run)
            thread.start()
            try:
                yield runner
            finally:
                runner.stop()
                thread.join(LIMIT_S)
            assert not thread.is_alive()


@pytest.fixture
def place(url: str, tmp_path: Path) -> Place:
    return Place(url, tmp_path / "lake")


def status(notices: list[Notice], name: str) -> Notice:
    (found,) = (each for each in notices if each.status.job == name)
    return found


def test_a_pass_that_fails_is_tried_again_and_others_do_not_notice(place: Place) -> None:
    ill = made(
        "ill", FakeJob, failing(StoreError("no room")), failing(ValueError("odd\nat line 7")), lambda _: 5
    )
    well = made("well", FakeJob, *[lambda _, rows=rows: rows for rows in range(10)])
    last = Gate()
    for job in (ill, well):
        job.passes.put(last)
    with place.running(ill, well) as runner:
        wait_until(lambda: ill.begun == 4 and well.begun == 11)
        known = {each.job: each for each in runner.statuses()}
        last.may_end.set()
    assert (known["well"].passes, known["well"].failed_passes, known["well"].error) == (10, 0, None)
    assert (known["ill"].passes, known["ill"].failed_passes, known["ill"].failures) == (1, 2, 0)
    assert known["ill"].report is not None
    assert (known["ill"].report.rows, known["ill"].error) == (5, "ValueError: odd")
    states = [each.state for each in place.heard if each.job == "ill"]
    assert states.count("failed") == 2
    assert [each.error for each in place.heard if each.state == "failed"] == ["no room", "ValueError: odd"]
    assert place.sessions.suspected == 2


def test_stopping_lets_the_pass_end_and_starts_no_other(place: Place) -> None:
    gate = Gate()
    job = made("slow", FakeJob, gate)
    with place.runner(job) as runner:
        thread = threading.Thread(target=runner.run)
        thread.start()
        assert gate.has_begun.wait(LIMIT_S)
        runner.stop()
        assert runner.is_stopping
        assert thread.is_alive()
        assert [each.state for each in runner.statuses()] == ["running"]
        gate.may_end.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        (known,) = runner.statuses()
    assert (job.begun, known.state, known.passes, known.next_ms) == (1, "stopped", 1, None)


def test_a_pass_begins_at_its_time(place: Place) -> None:
    job = made("hourly", FakeJob, lambda _: 1)
    with place.running(job, every_ms=3_600_000) as runner:
        wait_until(lambda: runner.statuses()[0].state == "waiting" and runner.statuses()[0].passes == 1)
        (known,) = runner.statuses()
        began_ms = next(each.at_ms for each in place.heard if each.state == "running")
        assert known.next_ms == pytest.approx(began_ms + 3_600_000, abs=5_000)
    assert job.begun == 1


def test_a_job_that_can_be_kept_running_is_and_begins_anew_when_it_failed(place: Place) -> None:
    def told(context: JobContext) -> int:
        context.report(batches=1, rows=3)
        context.report(rows=9, lag=2)
        return 9

    kept = made("kept", FakeStreamingJob, failing(StoreError("gone")), told)
    rare = made("rare", FakeStreamingJob, lambda _: 1)
    with place.running(kept, every_ms=1) as runner:
        wait_until(lambda: runner.statuses()[0].progress == {"batches": 1, "rows": 9, "lag": 2})
        assert runner.statuses()[0].failed_passes == 1
    assert place.heard[-1].report is not None
    assert (place.heard[-1].report.rows, kept.begun) == (9, 2)
    # What is due once an hour is started each time: this one would not end before it is stopped.
    with place.running(rare, every_ms=3_600_000) as runner:
        wait_until(lambda: runner.statuses()[0].passes == 1)


def test_each_once_in_order_and_one_that_fails_keeps_nobody_back(place: Place) -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[[JobContext], int]:
        return lambda context: order.append(name) or len(order)

    jobs = [
        made("first", FakeJob, noting("first")),
        made("second", FakeJob, failing(UsageError("there is no stream"))),
        made("third", FakeStreamingJob, noting("third")),
    ]
    with place.runner(*jobs, every_ms=None) as runner:
        found = runner.run_available()
        with pytest.raises(ConfigError, match="no job has its times"):
            runner.run()
    assert order == ["first", "third"]
    assert [(each.job, each.state, each.failures, each.error) for each in found] == [
        ("first", "stopped", 0, None),
        ("second", "stopped", 1, "there is no stream"),
        ("third", "stopped", 0, None),
    ]
    with pytest.raises(ConfigError, match="there is no job to run"):
        place.runner()


def test_what_jobs_do_is_in_the_store_while_they_run_and_afterwards(
    place: Place, ps: penstock.blocking.Client
) -> None:
    old = JobStatus(job="gone", kind="export", node="etl-0", state="running", at_ms=0)
    ps.hset(KEY, {"gone@etl-0": msgspec.json.encode(old), "odd@etl-0": b"{}"})
    gate = Gate()
    job = made("export", FakeJob, lambda _: 4, gate)
    with place.running(job):
        wait_until(
            lambda: any(each.status.progress == {"batches": 1, "rows": 7} for each in Runner.status(ps))
        )
        # Two nodes may run the same job.
        with place.running(made("export"), node="etl-2"):
            wait_until(lambda: len(Runner.status(ps)) == 2)
        here, there = Runner.status(ps)
        assert (here.status.node, here.is_alive, here.status.state) == ("etl-1", True, "running")
        assert here.status.report is not None
        assert here.status.report.rows == 4
        assert here.status.lake == str(place.lake)
        assert (there.status.node, there.is_alive) == ("etl-2", False)
        gate.may_end.set()
    left = status([each for each in Runner.status(ps) if each.status.node == "etl-1"], "export")
    assert (left.is_alive, left.status.state, left.status.passes) == (False, "stopped", 2)
    assert not [key for key in ps.scan_iter() if b"node:" in key]


@pytest.mark.parametrize("url", ["server"], indirect=True)
def test_a_store_that_is_away_is_told_when_it_is_back(
    place: Place, ps: penstock.blocking.Client, real_servers: Any
) -> None:
    server = real_servers.get("valkey")
    gate = Gate()
    job = made("export", FakeJob, gate, *[lambda _: 1] * 5)
    with place.running(job) as runner:
        assert gate.has_begun.wait(LIMIT_S)
        server.restart()
        gate.may_end.set()
        wait_until(lambda: runner.statuses()[0].passes == 6)
        wait_until(lambda: [each.status.passes for each in Runner.status(ps) if each.is_alive] == [6])


@pytest.mark.timeout(300)
def test_real_jobs_keep_a_lake_in_step_with_a_store_and_sql_sees_both(
    spark: SparkSession, url: str, ps: penstock.blocking.Client, tmp_path: Path
) -> None:
    run_shop(ps, 10)
    ps.stream("orders.eu").write_many([("eu", b"%d" % number) for number in range(50)])
    overrides = {
        ("store",): url,
        ("lake",): str(tmp_path / "lake"),
        ("jobs", "export", "streams"): ["orders.eu"],
    }
    wanted = ("archive", "export", "maintain")
    config = load(None, environment={}, overrides=overrides, wanted=wanted)
    with Runner(config, sessions=Sessions(config.session, spark)) as runner:
        done = {each.job: each for each in runner.run_available()}
    assert {name: each.error for name, each in done.items()} == dict.fromkeys(wanted)
    assert [each.report.rows for each in done.values() if each.report] == [10, 50, 0]
    lake = Lake.open(config.lake, create=False)
    keep_two_partial_sums(lake)
    names = register(spark, lake, url=config.store, streams=["orders.eu"])
    assert {"transactions", "steps", "messages", "stats_60s", "orders_eu"} <= set(names)
    (found,) = spark.sql(
        """
        SELECT (SELECT count(*) FROM transactions), (SELECT max(queued) FROM stats_60s),
               (SELECT count(*) FROM messages JOIN orders_eu USING (offset, tag, message))
        """
    ).collect()
    assert tuple(found) == (10, 7, 50)
    with pytest.raises(UsageError, match=r"'steps' is to be steps, and so is something else"):
        register(spark, lake, url=config.store, streams=["steps"])
    with pytest.raises(UsageError, match="need the url"):
        register(spark, lake, streams=["orders.eu"])


def keep_two_partial_sums(lake: Lake) -> None:
    """Of one window, which is 7 altogether."""
    table = lake.table("stats_60s")
    rows = [{"kind": "all", "name": "", "queued": queued, "latency": [queued]} for queued in (3, 4)]
    directory = table.data_directory("two")
    directory.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), directory / "part-0.parquet")
    table.commit(table.written("two"), progress={"test": 1})


def test_spark_is_started_again_when_it_has_died_and_stopped_if_it_was_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Session:
        is_alive = True

        def stop(self) -> None:
            self.is_alive = False

    made: list[Session] = []
    monkeypatch.setattr(running, "session", lambda **_: made.append(Session()) or made[-1])
    monkeypatch.setattr(running, "is_alive", lambda session: session.is_alive)
    monkeypatch.setattr(running, "is_started", lambda: bool(made))
    sessions = Sessions(SessionConfig())
    first = sessions.get()
    sessions.suspect()
    assert sessions.get() is first
    made[0].is_alive = False
    sessions.suspect()
    assert sessions.get() is not first
    # Whoever comes second does not stop what the first one uses.
    second = Sessions(SessionConfig())
    second.get()
    second.close()
    assert made[-1].is_alive
    given = Sessions(SessionConfig(), made[-1])  # type: ignore[arg-type]
    given.close()
    assert made[-1].is_alive
    sessions.close()
    assert not made[1].is_alive
    assert len(made) == 3


def test_a_store_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    place = Place("redis://127.0.0.1:1", tmp_path / "lake")
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"), place.runner(made("export")):
        pass
