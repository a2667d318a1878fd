"""The format "penstock": streams as tables of Spark.

    spark.read.format("penstock").option("stream", "orders").load("./shop.pen")
    spark.readStream.format("penstock").options(url="redis://localhost", streams="orders,bills").load()
    df.write.format("penstock").mode("append").options(url="./shop.pen", stream="copy").save()

Nothing has to be registered: Spark finds it through the package ``pyspark_penstock``. Rows are ``offset``,
``time``, ``tag``, ``message`` (``schemas`` tells their types), with ``streams`` also ``stream`` before
them. ``schema(…)`` leaves columns out, which saves time, and asks for text or bytes. ``options`` has the
table of options.

===============  ================================================================================
module           role
===============  ================================================================================
options          what the user has set, judged
positions        where to begin and to end, as offsets
ranges           what a task reads
schemas          the columns there are
columns          a scan's columns as Arrow batches
range_reading    what a task does
batch_reading    ``spark.read``
stream_reading   ``spark.readStream``
data_loss        messages that are gone
stores           one open client a process
sink             ``df.write`` and ``df.writeStream``
sink_options     what their user has set, judged
sink_rows        Arrow batches as rows, judged
staging          rows on their way from a task to the driver
appending        the driver decides on a batch, and writes it once
sink_targets     a row in a stream, or in a channel
===============  ================================================================================

Spark makes this object in one process, pickles it and asks it in others, of which many start for this
alone. So it holds the options as they were given, and imports what it needs when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class PenstockSource(DataSource):
    """What ``format("penstock")`` names."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        """Of a query that does not say which columns it wants. What is wrong is told early, here."""
        from penstock.spark.options import parse_options
        from penstock.spark.schemas import default_schema

        options = parse_options(self.options, "reading")
        return default_schema(has_stream=options.has_stream_column)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.batch_reading import BatchReader
        from penstock.spark.options import parse_options

        return BatchReader(parse_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from penstock.spark.options import parse_options
        from penstock.spark.stream_reading import StreamReader

        return StreamReader(parse_options(self.options, "streaming"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from penstock.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
