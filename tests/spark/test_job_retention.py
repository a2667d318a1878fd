"""``retention``: what is too old goes, no row more; streams give up nothing that the lake has not got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.blocking import Client
from penstock.clock import ManualClock, SystemClock
from penstock.errors import ConfigError
from penstock.lake import Lake
from penstock.spark.jobs.derive import derive
from penstock.spark.jobs.job import JobContext
from penstock.spark.jobs.retention import RetentionJob, RetentionOptions
from tests.spark.exporting import context_of, export, in_lake
from tests.spark.test_job_rollup import _T0, archive, transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOUR_MS = 3_600_000


def retain(context: JobContext, **options: Any) -> Any:
    return RetentionJob(RetentionOptions(**options)).run_once(context)


def ids(lake: Lake) -> list[str]:
    return sorted(lake.table("transactions").dataset().to_table(columns=["id"]).column("id").to_pylist())


def test_tables(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    """A file that is wholly old, one of both kinds, one that is young; and nothing that others still need."""
    old = [transaction(number) for number in range(3)]
    young = [transaction(number, created=_T0 + 5 * _HOUR_MS) for number in range(3, 6)]
    archive(lake, 1, *old[:2])
    archive(lake, 2, old[2], young[0])
    archive(lake, 3, *young[1:])
    context = context_of(spark, lake, ps, url, clock=ManualClock(_T0 + 6 * _HOUR_MS))
    keep = {"tables_ms": {"transactions": 2 * _HOUR_MS, "steps": 2 * _HOUR_MS}}
    lake.table("steps")
    assert retain(context, **keep).rows == 0, "steps have not been taken in"
    assert derive(context)["steps"] == 12
    dry = retain(context, **keep, dry_run=True)
    assert (dry.notes["transactions"], len(ids(lake))) == (2, 6)
    version = lake.table("transactions").version()
    report = retain(context, **keep)
    assert report.notes == {"transactions": 3, "steps": 6}
    assert ids(lake) == sorted(record.id for record in young)
    assert lake.table("transactions").changes(version) == [], "nothing is new"
    assert derive(context) == {}
    assert lake.table("steps").dataset().to_table().num_rows == 6
    assert retain(context, **keep).rows == 0


def test_streams(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    stream = ps.stream("orders")
    stream.write_many([("", str(number)) for number in range(10)])
    now_ms = SystemClock().now_ms()
    later = context_of(spark, lake, ps, url, clock=ManualClock(now_ms + 2 * _HOUR_MS))
    keep = {"streams_ms": {"orders": _HOUR_MS, "absent": _HOUR_MS}}
    assert retain(later, **keep).rows == 0, "the lake has nothing of it"
    export(context_of(spark, lake, ps, url), streams=("orders",))
    stream.write_many([("", "new"), ("", "er")])
    assert retain(context_of(spark, lake, ps, url), **keep).rows == 0, "nothing is old"
    assert retain(later, **keep, dry_run=True).rows == 10
    assert stream.info().first == 1
    assert retain(later, **keep).notes == {"stream orders": 10}
    assert (stream.info().first, stream.info().last) == (11, 12), "the lake has not got the last two"
    export(context_of(spark, lake, ps, url), streams=("orders",))
    assert [row[1] for row in in_lake(lake)] == list(range(1, 13))


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match=r"tables must be of transactions, .*, not 'bills'"):
        RetentionOptions(tables_ms={"bills": 1})
    with pytest.raises(ConfigError, match=r"streams\.orders must be more than 0, not 0 ms"):
        RetentionOptions(streams_ms={"orders": 0})
