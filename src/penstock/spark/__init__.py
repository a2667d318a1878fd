"""The data pipeline: streams as Spark tables, the lake, and the jobs that keep it in step with a store.

    spark = penstock.spark.session()
    spark.read.format("penstock").option("url", "./shop.pen").option("stream", "orders").load()

The only room that knows PySpark, which comes with ``penstock[spark]``. What a table of the lake is made of is
known by ``penstock.lake``.
"""

from __future__ import annotations

from penstock.spark.session import session

__all__ = ["session"]
