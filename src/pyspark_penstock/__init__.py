"""Where Spark finds the format "penstock" by itself: it looks into every package whose name begins with
``pyspark_``.

Nothing else is here. The source is ``penstock.spark.source``.
"""

from __future__ import annotations

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
