"""A stream as a table of Spark, beside ``spark.read.parquet`` of the same rows, into nothing.

Both have four tasks on two cores: the source cuts two for each, and Spark has written as many files (snappy).
Spark tells a Python source neither columns nor conditions; ``schema(…)`` leaves columns out, and is beside
Parquet with the same columns.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import penstock.blocking
from bench.results import OURS, Results
from bench.spark_parts.common import (
    LOG,
    check,
    interleaved,
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NARROW = "offset BIGINT, tag BINARY"
_AIM = 0.7


def main(settings: Settings) -> None:
    count = settings.messages
    url = store_url(settings)
    with penstock.blocking.open(url) as ps:
        top_up(ps, LOG, count)
    with spark_session() as spark:
        files = Path(settings.directory) / "parquet"
        _whole(spark, url, count).write.option("compression", "snappy").parquet(f"file://{files}")
        table = Table(
            f"Source into nothing, {count:,} messages of about 100 bytes (rows/s, least–most)",
            ("columns", "Parquet", "Penstock", "ratio"),
        )
        results = Results()
        whole = _whole(spark, url, count), spark.read.parquet(f"file://{files}")
        _compare(settings, results, table, "all four", *whole)
        narrow = _whole(spark, url, count, _NARROW), spark.read.schema(_NARROW).parquet(f"file://{files}")
        _compare(settings, results, table, "offset, tag", *narrow)
    table.print()
    results.save(Path(settings.results))


def _whole(spark: SparkSession, url: str, count: int, schema: str | None = None) -> DataFrame:
    """The log as far as this part knows it."""
    return read_stream(spark, url, LOG, schema, endingOffset=count + 1, messagesPerPartition=-(-count // 2))


def _compare(
    settings: Settings, results: Results, table: Table, name: str, ours: DataFrame, theirs: DataFrame
) -> None:
    count = settings.messages
    for df in (ours, theirs):
        found = df.count()
        check(found == count, f"{found} rows instead of {count}")
        to_noop(df)  # warm
    taken = interleaved({"theirs": partial(to_noop, theirs), "ours": partial(to_noop, ours)}, settings.rounds)
    ours_rates, theirs_rates = rates(count, taken["ours"]), rates(count, taken["theirs"])
    line = f"{count:,} messages, columns: {name}"
    results.add("spark.source", line, "Parquet", "rows/s", theirs_rates, aim=_AIM)
    results.add("spark.source", line, OURS, "rows/s", ours_rates, role="ours")
    table.row(name, spread(theirs_rates), spread(ours_rates), ratio(ours_rates, theirs_rates))


if __name__ == "__main__":
    main(told())
