"""``spark.read.format("penstock")``: rows are the stream's messages; what is wrong is one sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from penstock.blocking import Client, Stream
from penstock.client.targets import parse_url
from penstock.errors import ConfigError, DataLossError, StoreError, UsageError
from penstock.spark.batch_reading import BatchReader
from penstock.spark.options import parse_options
from penstock.spark.ranges import OffsetRange
from penstock.spark.schemas import default_schema
from tests.spark.places import EVERYWHERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

Row = tuple[Any, ...]


def fill(stream: Stream, count: int = 1_000) -> None:
    """Tags, tombstones, bytes, sealed and open nodes, and what is gone at the beginning and between."""
    stream.policy(node_messages=100)
    stream.write_many([(("eu", "us", "ü")[number % 3], f"order {number}") for number in range(count)])
    stream.write("", b"\xff\x00")
    stream.write_many([("eu", None), ("gone", None)])
    stream.write("us", "")
    stream.drop((count // 2, count // 2 + 9))
    stream.evict(upto=50)


def messages(stream: Stream, **bounds: int) -> list[Row]:
    return [
        (one.offset, datetime.fromtimestamp(one.time_ms / 1000, UTC), one.tag.decode(), one.entry)
        for one in stream.read(**bounds)
    ]


def source(spark: SparkSession, url: str, **options: str) -> DataFrameReader:
    return spark.read.format("penstock").options(url=url, **options)


def rows(df: DataFrame) -> list[Row]:
    """Times in UTC, bytes as bytes; in the order in which Spark has them."""
    found = []
    for row in df.collect():
        values = row.asDict()
        if "time" in values:
            values["time"] = values["time"].astimezone(UTC)
        found.append(
            tuple(bytes(value) if isinstance(value, bytearray) else value for value in values.values())
        )
    return found


@EVERYWHERE
def test_rows_are_the_messages(spark: SparkSession, url: str, ps: Client) -> None:
    orders, bills = ps.stream("orders"), ps.stream("bills")
    fill(orders)
    bills.write_many([("eu", "a"), ("us", "b")])
    df = source(spark, url, stream="orders", minPartitions="3", failOnDataLoss="true").load()
    assert df.dtypes == [
        ("offset", "bigint"),
        ("time", "timestamp"),
        ("tag", "string"),
        ("message", "binary"),
    ]
    found = rows(df.withColumn("task", F.spark_partition_id()))
    assert [row[:-1] for row in found] == messages(orders)
    assert {row[-1] for row in found} == {0, 1, 2}
    both = source(spark, url, streams="bills,orders", tags="eu", endingOffset='{"orders": 100}').load()
    wanted = [("bills", *row) for row in messages(bills)] + [
        ("orders", *row) for row in messages(orders, to=99)
    ]
    assert rows(both) == [row for row in wanted if row[3] == "eu"]


def test_columns_and_types_as_the_user_asks(spark: SparkSession, url: str, ps: Client) -> None:
    ps.stream("orders").write_many([("eu", "grün"), (b"\xff", "x")])
    ps.stream("orders").write("us", None)
    df = source(spark, url, stream="orders").schema("message STRING, stream STRING, tag BINARY").load()
    assert rows(df) == [("grün", "orders", b"eu"), ("x", "orders", b"\xff"), (None, "orders", b"us")]
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW orders USING penstock OPTIONS (url '{url}', stream 'orders', tags 'us')"
    )
    assert rows(spark.sql("SELECT offset, message FROM orders")) == [(3, None)]
    spark.catalog.dropTempView("orders")
    ps.stream("empty").write("", "")
    ps.stream("empty").evict(upto=1)
    assert rows(source(spark, url, stream="empty").load()) == []


def test_what_is_wrong_reaches_the_user(spark: SparkSession, url: str, ps: Client) -> None:
    """Wrapped by Spark, whose text holds our sentence."""
    ps.stream("orders").write_many([("eu", "1"), ("eu", b"\xff")])
    with pytest.raises(PySparkException, match="there is no option 'strem': use one of url, stream, streams"):
        source(spark, url, strem="orders").load()
    with pytest.raises(PySparkException, match="there is no stream oders: check the options stream or"):
        source(spark, url, stream="oders").load().collect()
    text = source(spark, url, stream="orders").schema("message STRING").load()
    with pytest.raises(
        PySparkException, match="the message of message 2 of the stream orders is no UTF-8: ask"
    ):
        text.collect()


# ---------------------------------------------------------------------- without Spark's processes


def reader(url: str, **options: str) -> BatchReader:
    given = {"url": url, "stream": "orders", **options}
    return BatchReader(parse_options(given, "batch"), default_schema(has_stream=False))


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_where_to_begin_and_to_end(url: str, ps: Client) -> None:
    orders = ps.stream("orders")
    fill(orders, 300)
    times = {one.offset: one.time_ms for one in orders.read()}

    def span(start: str, end: str = "latest") -> tuple[int, int]:
        (only,) = reader(url, startingOffset=start, endingOffset=end).partitions()
        return only.first, only.end

    assert span("earliest") == span("0") == (51, 305)
    assert span("60", "70") == (60, 70)
    assert span("305") == (305, 305)
    assert span("@0", f"@{times[304] + 1}") == (51, 305)
    assert span(f"@{times[304] + 1}") == (305, 305)
    for offset in (51, 100, 149, 160, 301, 304):
        first, _ = span(f"@{times[offset]}")
        assert all(time < times[offset] for number, time in times.items() if number < first)
        assert all(time >= times[offset] for number, time in times.items() if number >= first)
    with pytest.raises(ConfigError, match="startingOffset 306 is beyond the end of the stream orders"):
        span("306")
    with pytest.raises(
        ConfigError, match=r"endingOffset 306 is beyond the end .*: use at most 305, or latest"
    ):
        span("earliest", "306")
    with pytest.raises(
        ConfigError, match="startingOffset 70 of the stream orders lies behind endingOffset 60"
    ):
        span("70", "60")
    with pytest.raises(DataLossError, match=r"offsets 5 to 50 .* set the option failOnDataLoss to false"):
        span("5")


def test_a_repeated_task_reads_the_same(url: str, ps: Client) -> None:
    """However the stream grows, and whatever is dropped elsewhere."""
    fill(ps.stream("orders"))
    source = reader(url, minPartitions="4")
    parts = source.partitions()
    before = [offsets(source.read(part)) for part in parts]
    fill(ps.stream("orders"), 10)
    assert [offsets(source.read(part)) for part in parts] == before
    assert [each for part in before for each in part] == [*range(51, 500), *range(510, 1005)]


def test_what_goes_between_planning_and_reading(
    url: str, ps: Client, caplog: pytest.LogCaptureFixture
) -> None:
    orders = ps.stream("orders")
    fill(orders)
    strict, lenient = reader(url), reader(url, failOnDataLoss="false", startingOffset="1")
    (part,) = strict.partitions()
    assert lenient.partitions() == [OffsetRange("orders", 1, 1005)]
    orders.evict(upto=900)
    with pytest.raises(
        DataLossError, match="offsets 51 to 900 of the stream orders are gone, it begins at 901"
    ) as lost:
        list(strict.read(part))
    assert lost.value.__notes__ == [
        f"while offsets 51 to 1004 of orders were read from {parse_url(url).redacted}"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert offsets(lenient.read(part)) == [*range(901, 1005)]
    assert [record.getMessage() for record in caplog.records] == [
        "offsets 51 to 900 of the stream orders are gone, it begins at 901: they were evicted;"
        " failOnDataLoss is false, so the query goes on without them"
    ]
    orders.delete()
    orders.write("eu", "anew")
    with pytest.raises(
        DataLossError, match=r"offsets 51 to 1004 .* are gone, its last one is 1: it was deleted"
    ):
        list(strict.read(part))
    assert offsets(lenient.read(part)) == []


def test_what_cannot_be_planned(url: str, ps: Client) -> None:
    ps.set("number", "1")
    with pytest.raises(
        UsageError, match="there is no stream orders: check the options stream or streams, and url"
    ):
        reader(url).partitions()
    with pytest.raises(UsageError, match="the key number is no stream: it holds another type"):
        reader(url, stream="number").partitions()
    with pytest.raises(StoreError, match=r"there is no store at /nowhere/x.pen: check the option url"):
        reader("/nowhere/x.pen").partitions()
    with pytest.raises(UsageError, match="a stream has no column 'key'"):
        BatchReader(
            parse_options({"url": url, "stream": "orders"}, "batch"), StructType().add("key", "string")
        )
