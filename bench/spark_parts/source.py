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
from bench.spark_parts.common import (
    LOG,
    check,
    interleaved,
    rates,
    ratio,
    read_stream,
    spark_session,
    spread,
    store_url,
    to_noop,
    top_up,
)
from bench.spark_parts.settings import Settings, told
from bench.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NARROW = "offset BIGINT, tag BINARY"


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
        _compare(table, "all four", _whole(spark, url, count), spark.read.parquet(f"file://{files}"), count)
        narrow = _whole(spark, url, count, _NARROW), spark.read.schema(_NARROW).parquet(f"file://{files}")
        _compare(table, "offset, tag", *narrow, count)
        table.print()


def _whole(spark: SparkSession, url: str, count: int, schema: str | None = None) -> DataFrame:
    """The log as far as this part knows it."""
    return read_stream(spark, url, LOG, schema, endingOffset=count + 1, messagesPerPartition=-(-count // 2))


def _compare(table: Table, name: str, ours: DataFrame, theirs: DataFrame, count: int) -> None:
    for df in (ours, theirs):
        found = df.count()
        check(found == count, f"{found} rows instead of {count}")
        to_noop(df)  # warm
    taken = interleaved({"theirs": partial(to_noop, theirs), "ours": partial(to_noop, ours)})
    ours_rates, theirs_rates = rates(count, taken["ours"]), rates(count, taken["theirs"])
    table.row(name, spread(theirs_rates), spread(ours_rates), ratio(ours_rates, theirs_rates))


if __name__ == "__main__":
    main(told())
