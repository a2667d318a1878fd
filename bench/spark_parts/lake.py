"""A stream into the lake by the job ``export``, and a DataFrame into a stream.

The export is beside the same query written as plain Parquet files (zstd, as the lake's): what is between
them is partitioning by stream and day, micro-batches, and commits. The sink is beside ``write_many`` of one
process, which has its messages at hand.
"""

from __future__ import annotations

from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

import penstock.blocking
from bench.results import OURS, Results
from bench.spark_parts.common import (
    LOG,
    check,
    interleaved,
    messages,
    rates,
    ratio,
    read_stream,
    spark_session,
    store_url,
    to_noop,
    top_up,
)
from bench.spark_parts.settings import Settings, told
from bench.tables import Table, spread
from penstock.blocking import Client
from penstock.lake import Lake
from penstock.spark.jobs.export import ExportJob, ExportOptions
from penstock.spark.jobs.job import JobContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rounds of them: one takes long.
_EXPORTS = 2
_WARM = "warm"
_WARM_MESSAGES = 20_000


def main(settings: Settings) -> None:
    url = store_url(settings)
    with spark_session() as spark, penstock.blocking.open(url) as ps:
        top_up(ps, LOG, settings.messages)
        top_up(ps, _WARM, min(_WARM_MESSAGES, settings.messages))
        results = Results()
        _export(spark, ps, url, settings, results)
        _sink(spark, ps, url, settings, results)
    results.save(Path(settings.results))


def _export(spark: SparkSession, ps: Client, url: str, settings: Settings, results: Results) -> None:
    count = ps.stream(LOG).info().length
    rounds = numbers()

    def export(stream: str = LOG) -> int:
        lake = Lake.open(Path(settings.directory) / f"lake-{next(rounds)}")
        context = JobContext(spark=spark, lake=lake, store=ps, url=url)
        return ExportJob(ExportOptions(streams=(stream,), group="")).run_once(context).rows

    def plain(stream: str = LOG) -> None:
        files = Path(settings.directory) / "plain"
        read_stream(spark, url, stream).write.mode("overwrite").parquet(f"file://{files}")

    export(_WARM)
    plain(_WARM)
    works = {"plain": plain, "lake": lambda: check(export() == count, "rows are missing")}
    taken = interleaved(works, min(_EXPORTS, settings.rounds))
    ours, theirs = rates(count, taken["lake"]), rates(count, taken["plain"])
    line = f"{count:,} messages to files"
    results.add("spark.lake", line, "plain Parquet, one query", "rows/s", theirs, role="limit")
    results.add("spark.lake", line, f"{OURS}, the job export", "rows/s", ours, role="ours")
    table = Table(
        f"Stream to files, {count:,} messages (rows/s, least–most)", ("where", "rate", "to plain files")
    )
    table.row("plain Parquet, one query", spread(theirs), "")
    table.row("lake: the job export, micro-batches of 500,000", spread(ours), ratio(ours, theirs))
    table.print()


def _sink(spark: SparkSession, ps: Client, url: str, settings: Settings, results: Results) -> None:
    count = settings.sunk
    df = _rows(spark, count).cache()
    to_noop(df)
    pairs = list(messages(0, count))
    rounds = numbers()

    def by_spark() -> None:
        name = f"copy-{next(rounds)}"
        df.write.format("penstock").mode("append").options(url=url, stream=name).save()
        check(ps.stream(name).info().length == count, f"{name} is too short")

    def by_us() -> None:
        ps.stream(f"own-{next(rounds)}").write_many(pairs)

    by_spark()
    taken = interleaved({"us": by_us, "spark": by_spark}, settings.rounds)
    ours, theirs = rates(count, taken["spark"]), rates(count, taken["us"])
    line = f"{count:,} messages into a stream"
    results.add("spark.lake", line, "write_many, one process", "messages/s", theirs, role="limit")
    results.add("spark.lake", line, f"{OURS}, a DataFrame", "messages/s", ours, role="ours")
    table = Table(
        f"{count:,} messages into a stream (messages/s, least–most)", ("how", "rate", "to one process")
    )
    table.row("write_many, one process", spread(theirs), "")
    table.row("DataFrame, exactly once, two cores", spread(ours), ratio(ours, theirs))
    table.print()


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """Messages that are much like those of the log."""
    number = fn.col("id")
    message = fn.format_string(
        '{"id":%d,"user":"user-%d","event":"click","amount":%d.25,"page":"/products/%d"}',
        number, number * 7 % 10_000, number * 3 % 100, number * 11 % 500,
    )  # fmt: skip
    tag = fn.format_string("shop-%03d", number * 7 % 300)
    return spark.range(count, numPartitions=2).select(tag.alias("tag"), message.alias("message"))


if __name__ == "__main__":
    main(told())
