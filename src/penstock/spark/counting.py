"""Lets Python workers of a session count, to see that they start and have what they need.

Rules: nothing but pyarrow is needed over there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count(spark: SparkSession, upto: int) -> int:
    """``upto``, if everything works."""

    def counted(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    return spark.range(upto).mapInArrow(counted, "id long").count()
