"""Names for SQL: tables of the lake and streams of a store as temporary views of a session.

    register(spark, Lake.open("./lake"), url="./shop.pen", streams=["orders"])
    spark.sql("SELECT pipeline, count(*) FROM transactions GROUP BY pipeline").show()
    spark.sql("SELECT cast(message AS string) FROM orders WHERE tag = 'eu'").show()

A table's view is the table as it is now: it does not see what is committed later, and what it sees does not
change while it is read. Register again for what came since. Partial sums (``stats_…``) are added up: one row
a window, kind and name. A stream's view is read when it is used.

Rules: nothing is written. A stream whose name is no word of SQL is found under one: ``orders.eu`` is
``orders_eu``. Two things under one name are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import UsageError
from penstock.lake.lake import Lake
from penstock.lake.table import LakeTable
from penstock.spark.lake_writing import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Tables of partial sums.
_PARTIAL: Final = "stats_"


def register(
    spark: SparkSession, lake: Lake | None, *, url: str | None = None, streams: Sequence[str] = ()
) -> list[str]:
    """The names that queries may use from now on: of every table that exists, and of these streams."""
    if streams and not url:
        raise UsageError("streams need the url of their store")
    views = {} if lake is None else {name: _rows(spark, lake.table(name)) for name in lake.names()}
    for stream in streams:
        name = view_name(stream)
        if name in views:
            raise UsageError(f"stream {stream!r} is to be {name}, and so is something else: leave one out")
        views[name] = spark.read.format("penstock").options(url=url, stream=stream).load()
    for name, rows in views.items():
        rows.createOrReplaceTempView(name)
    return list(views)


def _rows(spark: SparkSession, table: LakeTable) -> DataFrame:
    from penstock.spark.jobs.rewriting import summed

    rows = read(spark, table)
    return summed(rows, table) if table.name.startswith(_PARTIAL) else rows


def view_name(stream: str) -> str:
    """A word of SQL for a stream."""
    name = re.sub(r"\W", "_", stream, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"
