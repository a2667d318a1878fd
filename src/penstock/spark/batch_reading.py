"""``spark.read.format("penstock")``: the messages between two offsets, as they are when it is planned.

A stream that is not there is an error: a misspelt name should not look like an empty table. Messages that
are evicted between planning and reading are judged by ``data_loss``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.blocking import Client
from penstock.errors import ConfigError, UsageError
from penstock.spark.columns import BatchMaker
from penstock.spark.data_loss import check_range
from penstock.spark.options import Options
from penstock.spark.positions import find_bounds, find_offset
from penstock.spark.range_reading import read_range
from penstock.spark.ranges import OffsetRange, split
from penstock.spark.schemas import check_schema
from penstock.spark.stores import store


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[OffsetRange]:
        """At least one, if only an empty one: otherwise Spark makes one up."""
        client = store(self._options.url, create=False)
        wholes = [self._whole(client, name) for name in self._options.streams]
        return split(wholes, self._options) or wholes[:1]

    def _whole(self, client: Client, name: str) -> OffsetRange:
        stream = client.stream(name)
        bounds = find_bounds(stream)
        if bounds is None:
            raise UsageError(f"there is no stream {name}: check the options stream or streams, and url")
        first = find_offset("startingOffset", self._options.starting.of(name), stream, bounds)
        end = find_offset("endingOffset", self._options.ending.of(name), stream, bounds)
        if first > end:
            raise ConfigError(
                f"startingOffset {first} of the stream {name} lies behind endingOffset {end}: exchange them"
            )
        check_range(name, first, end, bounds, fails=self._options.fails_on_data_loss)
        return OffsetRange(name, first, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, OffsetRange)
        maker = BatchMaker(self._schema, partition.stream, self._options.tags)
        return read_range(partition, maker, self._options)
