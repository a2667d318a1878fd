"""Rows of statistics out of rows of ``transactions``; ``rollup`` has the table of what is counted.

    counted(new_transactions, seconds=60, closed=None)      # partial sums, for stats_60s
    stats(spark, lake, "60s")                               # one row a window, kind and name

A transaction becomes an array of events, events are counted by window and by whom they belong to. The buckets
of latencies are those of the live statistics (``transactions/statistics.py``): bucket b begins at 2^(b/2) - 1
ms.

Rules: pure functions on DataFrames. Nothing here knows what was counted before.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from penstock.errors import UsageError
from penstock.lake.tables import ENDINGS
from penstock.spark.jobs.rewriting import summed
from penstock.spark.jobs.rollup import LEVELS
from penstock.spark.lake_writing import read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.lake.lake import Lake

_KINDS: Final = ("pipeline", "node_group", "owner")
_KEY: Final = ("window", "kind", "name")


def stats(spark: SparkSession, lake: Lake, level: str) -> DataFrame:
    """The statistics of a level ("5s", "60s", "600s"), one row a window, kind and name."""
    if level not in LEVELS.values():
        raise UsageError(f"level must be one of {', '.join(LEVELS.values())}, not {level!r}")
    table = lake.table(f"stats_{level}")
    return summed(read(spark, table), table)


def counted(transactions: DataFrame, seconds: int, closed: dt.datetime | None) -> DataFrame:
    """Partial sums of new rows of ``transactions``; windows that began before ``closed`` are late."""
    window = fn.window("event.at", f"{seconds} seconds").getField("start")
    late = fn.lit(0) if closed is None else (fn.col("window") < fn.lit(closed)).cast("long")
    events = (
        transactions.select(*_KINDS, fn.explode(_events()).alias("event"))
        .where("event.at is not null")
        .select(window.alias("window"), "event.what", "event.latency", fn.explode(_belongs_to()).alias("of"))
        .select("window", "of.kind", "of.name", "what", "latency", late.alias("is_late"))
    )
    return events.groupBy(*_KEY).agg(*_counts()).join(_histograms(events), list(_KEY), "left")


def _belongs_to() -> Column:
    """Whose windows count an event: everybody's, and those of three names."""
    return fn.array(
        fn.struct(fn.lit("all").alias("kind"), fn.lit("").alias("name")),
        *(
            fn.struct(fn.lit(kind).alias("kind"), fn.coalesce(kind, fn.lit("")).alias("name"))
            for kind in _KINDS
        ),
    )


def _events() -> Column:
    """What happened in this run of a transaction."""
    steps = _own_steps()
    began = fn.coalesce(fn.array_min(fn.transform(steps, lambda entry: entry["started"])), fn.col("taken"))
    again = fn.filter(steps, lambda entry: entry["attempt"] > 1)
    took_ms = fn.greatest(fn.unix_millis("ended") - fn.unix_millis("created"), fn.lit(0))
    first_run = fn.coalesce("run", fn.lit(0)) == 0
    return fn.filter(
        fn.concat(
            fn.array(_event(fn.when(first_run, fn.col("created")), fn.lit("queued"))),
            fn.array(_event(began, fn.lit("started"))),
            fn.transform(again, lambda entry: _event(entry["at"], fn.lit("retries"))),
            fn.array(_event(fn.col("ended"), fn.translate("status", "-", "_"), took_ms)),
        ),
        lambda event: event["at"].isNotNull(),
    )


def _event(at: Column, what: Column, latency: Column | None = None) -> Column:
    took_ms = fn.lit(None) if latency is None else latency
    return fn.struct(at.alias("at"), what.alias("what"), took_ms.cast("bigint").alias("latency"))


def _own_steps() -> Column:
    """Steps of this run: its trail begins with those of the runs before, and ``replay`` stands between."""
    trail = fn.coalesce("trail", fn.array())
    places = fn.transform(
        trail, lambda entry, place: fn.when(entry["kind"] == "replay", place).otherwise(fn.lit(-1))
    )
    begin = fn.coalesce(fn.array_max(places), fn.lit(-1))
    return fn.filter(trail, lambda entry, place: (place > begin) & (entry["kind"] == "step"))


def _counts() -> list[Column]:
    return [
        *(
            fn.count_if(fn.col("what") == what).alias(what)
            for what in ("queued", "started", "retries", *ENDINGS)
        ),
        fn.coalesce(fn.sum("latency"), fn.lit(0)).alias("latency_sum_ms"),
        fn.coalesce(fn.max("latency"), fn.lit(0)).alias("latency_max_ms"),
        fn.sum("is_late").cast("bigint").alias("late"),
    ]


def _histograms(events: DataFrame) -> DataFrame:
    """Of the runs that ended: how many in each bucket, up to the last that has some."""
    bucket = fn.floor(fn.lit(2) * fn.log2(fn.col("latency") + 1)).cast("int")
    filled = (
        events.where("latency is not null")
        .groupBy(*_KEY, bucket.alias("bucket"))
        .agg(fn.count("*").alias("n"))
    )
    by_bucket = fn.map_from_entries(fn.collect_list(fn.struct("bucket", "n")))
    places = fn.sequence(fn.lit(0), fn.max("bucket"))
    gathered = filled.groupBy(*_KEY).agg(by_bucket.alias("by_bucket"), places.alias("places"))
    spread = fn.transform(
        fn.col("places"),
        lambda place: fn.coalesce(fn.col("by_bucket")[place], fn.lit(0).cast("bigint")),
    )
    return gathered.select(*_KEY, spread.alias("latency"))
