"""The table ``orders``: every message of the stream, parsed, once. A view of it adds up what was sold.

The store is the one that ``PENSTOCK_STORE`` names. ``spark-pipelines`` runs this file and calls its
functions; Spark finds the format "penstock" by itself.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

STORE = os.environ.get("PENSTOCK_STORE", "/tmp/penstock-declarative/shop.pen")


@dp.table
def orders() -> DataFrame:
    """What came since the last run is added: Spark's checkpoint lies in the pipeline's storage."""
    rows = (
        SparkSession.active()
        .readStream.format("penstock")
        .schema("offset BIGINT, time TIMESTAMP, tag STRING, message STRING")
        .options(url=STORE, stream="orders", maxMessagesPerBatch=100_000)
        .load()
    )
    it = fn.from_json("message", "order LONG, total DOUBLE")
    return rows.select("offset", "time", fn.col("tag").alias("country"), it.alias("it")).select(
        "offset", "time", "country", "it.order", "it.total"
    )


@dp.materialized_view
def sales() -> DataFrame:
    """Computed anew with each run."""
    sold = SparkSession.active().read.table("orders")
    return sold.groupBy("country").agg(
        fn.count("*").alias("orders"), fn.round(fn.sum("total"), 2).alias("total")
    )
