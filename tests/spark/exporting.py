"""What tests of exported streams share: a context for jobs, and the lake's messages to compare with.

assert in_lake(lake) == in_store(ps, "orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.blocking import Client
from penstock.spark.jobs.export import ExportJob, ExportOptions
from penstock.spark.jobs.job import JobContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake import Lake

#: stream, offset, time in ms, tag, message
Row = tuple[str, int, int, bytes, bytes | None]


def context_of(spark: SparkSession, lake: Lake, ps: Client, url: str, **more: Any) -> JobContext:
    return JobContext(spark=spark, lake=lake, store=ps, url=url, **more)


def export(context: JobContext, **options: Any) -> Any:
    return ExportJob(ExportOptions(**options)).run_once(context)


def in_store(ps: Client, *streams: str) -> list[Row]:
    return [
        (name, one.offset, one.time_ms, one.tag, one.entry)
        for name in sorted(streams)
        for one in ps.stream(name).read()
    ]


def in_lake(lake: Lake) -> list[Row]:
    """By stream and offset, as a program without Spark reads it; the day must be the one of the time."""
    found = []
    for row in lake.table("messages").dataset().to_table().to_pylist():
        assert row["day"] == row["time"].date()
        time_ms = round(row["time"].timestamp() * 1000)
        found.append((row["stream"], row["offset"], time_ms, row["tag"], row["message"]))
    return sorted(found, key=lambda row: row[:2])
