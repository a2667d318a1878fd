"""``spark.readStream.format("penstock")``: every message once, in batches that are the same when repeated."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.blocking import Client, Stream
from penstock.errors import ConfigError, DataLossError
from penstock.spark.options import parse_options
from penstock.spark.ranges import OffsetRange
from penstock.spark.schemas import default_schema
from penstock.spark.stream_reading import StreamReader
from tests.places import wait_until
from tests.spark.places import EVERYWHERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

Found = tuple[str, int]


class Seen:
    """What a query has handed over, by batch, as (stream, offset); repetitions one after the other."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[Found]]] = []

    def __call__(self, df: DataFrame, batch: int) -> None:
        self.batches.append((batch, sorted((row.stream, row.offset) for row in df.collect())))

    @property
    def all(self) -> list[Found]:
        return [one for _, found in self.batches for one in found]


def query(spark: SparkSession, url: str, seen: Seen, checkpoint: Path, **options: str) -> DataStreamWriter:
    source = (
        spark.readStream.format("penstock").options(url=url, **options).schema("stream STRING, offset BIGINT")
    )
    return source.load().writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))


def take_all(
    spark: SparkSession, url: str, checkpoint: Path, **options: str
) -> list[tuple[int, list[Found]]]:
    """Everything that is available now; the batches."""
    seen = Seen()
    running = query(spark, url, seen, checkpoint, **options).trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(180), "the query does not end"
    finally:
        running.stop()
    return seen.batches


def found(stream: str, offsets: Iterable[int]) -> list[Found]:
    return [(stream, offset) for offset in offsets]


def fill(stream: Stream, count: int) -> None:
    stream.write_many([("t", str(number)) for number in range(count)])


@pytest.mark.parametrize("url", ["embedded", "cluster"], indirect=True)
def test_each_message_once_also_after_a_restart(
    spark: SparkSession, url: str, ps: Client, tmp_path: Path
) -> None:
    orders, bills = ps.stream("orders"), ps.stream("bills")
    fill(orders, 120)
    fill(bills, 5)
    state = tmp_path / "state"
    first = take_all(spark, url, state, streams="orders,bills", maxMessagesPerBatch="50")
    assert first == [
        (0, [*found("bills", range(1, 6)), *found("orders", range(1, 46))]),
        (1, found("orders", range(46, 96))),
        (2, found("orders", range(96, 121))),
    ]
    # Killed before it was noted that the last batch is done; other limits, and more messages since.
    for file in (state / "commits").glob("*2*"):
        file.unlink()
    fill(orders, 10)
    again = take_all(spark, url, state, streams="orders,bills", maxMessagesPerBatch="7", minPartitions="3")
    assert again == [
        first[2],
        (3, found("orders", range(121, 128))),
        (4, found("orders", range(128, 131))),
    ]


def test_a_query_that_runs(spark: SparkSession, url: str, ps: Client, tmp_path: Path) -> None:
    """The group's cursor follows, and what was not read is spared."""
    orders = ps.stream("orders")
    fill(orders, 20)
    orders.evict(upto=10)
    seen = Seen()
    writer = query(spark, url, seen, tmp_path / "state", stream="orders", group="lake")
    running = writer.start()
    try:
        wait_until(lambda: seen.all == found("orders", range(11, 21)))
        assert [group.name for group in orders.groups()] == ["lake"]
        for last in (25, 30):
            fill(orders, 5)
            wait_until(lambda last=last: seen.all == found("orders", range(11, last + 1)))
            assert orders.groups()[0].cursor == last - 4, "where the batch began that was planned last"
        wait_until(lambda: _latest(running) == {"orders": 31})
    finally:
        running.stop()
    assert orders.evict(upto=30, acked=True) == 15
    fill(orders, 3)
    again = take_all(spark, url, tmp_path / "state", stream="orders", group="lake")
    assert [one for _, batch in again for one in batch if one not in seen.all] == found(
        "orders", [31, 32, 33]
    )


def _latest(running: StreamingQuery) -> Any:
    """What the query tells of the end of its streams."""
    progress = running.lastProgress
    return progress and json.loads(progress["sources"][0]["latestOffset"])


def test_what_is_gone_ends_the_query(spark: SparkSession, url: str, ps: Client, tmp_path: Path) -> None:
    orders = ps.stream("orders")
    fill(orders, 3)
    assert take_all(spark, url, tmp_path, stream="orders") == [(0, found("orders", [1, 2, 3]))]
    orders.delete()
    fill(orders, 2)
    with pytest.raises(
        StreamingQueryException, match="was read up to offset 3 and now ends at 2: it was deleted"
    ):
        take_all(spark, url, tmp_path, stream="orders")
    assert take_all(spark, url, tmp_path, stream="orders", failOnDataLoss="false") == [
        (1, found("orders", [1, 2]))
    ]


# ---------------------------------------------------------------------- without Spark's processes


def reader(url: str, **options: str) -> StreamReader:
    given = {"url": url, **({} if "streams" in options else {"stream": "orders"}), **options}
    return StreamReader(parse_options(given, "streaming"), default_schema(has_stream=False))


ALL = ReadAllAvailable()


def offsets(source: StreamReader, parts: list[OffsetRange]) -> list[int]:
    return [offset for part in parts for batch in source.read(part) for offset in batch["offset"].to_pylist()]


def test_where_a_new_query_begins(url: str, ps: Client) -> None:
    fill(ps.stream("orders"), 20)
    ps.stream("orders").evict(upto=5)
    assert reader(url).initialOffset() == {"orders": 6}
    assert reader(url, startingOffset="latest").initialOffset() == {"orders": 21}
    assert reader(url, startingOffset="9").initialOffset() == {"orders": 9}
    many = reader(url, streams="orders,new", startingOffset='{"orders": "@0"}')
    assert many.initialOffset() == {"new": 1, "orders": 6}
    with pytest.raises(ConfigError, match="startingOffset 22 is beyond the end"):
        reader(url, startingOffset="22").initialOffset()
    evicted = reader(url, startingOffset="2")
    with pytest.raises(DataLossError, match="offsets 2 to 5 of the stream orders are gone, it begins at 6"):
        evicted.latestOffset(evicted.initialOffset(), ALL)


@EVERYWHERE
def test_a_stream_that_comes_later(url: str, ps: Client) -> None:
    ps.set("other", "1")  # so that there is a store
    source = reader(url)
    assert source.latestOffset({"orders": 1}, ALL) == {"orders": 1}
    fill(ps.stream("orders"), 3)
    assert source.latestOffset({"orders": 1}, ALL) == {"orders": 4}
    assert source.reportLatestOffset() == {"orders": 4}
    assert source.latestOffset({"orders": 1}, ReadMaxRows(2)) == {"orders": 3}
    assert offsets(source, source.partitions({"orders": 1}, {"orders": 3})) == [1, 2]
    assert source.partitions({"orders": 3}, {"orders": 3}) == []


def test_only_what_was_available_then(url: str, ps: Client) -> None:
    fill(ps.stream("orders"), 3)
    source = reader(url)
    source.prepareForTriggerAvailableNow()
    fill(ps.stream("orders"), 3)
    assert source.latestOffset({"orders": 1}, ALL) == {"orders": 4}
    assert source.latestOffset({"orders": 4}, ALL) == {"orders": 4}


def test_streams_that_are_added_and_taken_away(url: str, ps: Client) -> None:
    for name in ("orders", "bills"):
        fill(ps.stream(name), 9)
    ps.stream("bills").evict(upto=4)
    start = {"gone": 7, "orders": 3}
    source = reader(url, streams="orders,bills")
    end = source.latestOffset(start, ReadMaxRows(4))
    assert end == {"bills": 7, "gone": 7, "orders": 5}
    assert source.partitions(start, end) == [OffsetRange("orders", 3, 5), OffsetRange("bills", 5, 7)]


@EVERYWHERE
def test_evicted_messages_are_left_out_by_consent(
    url: str, ps: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not count: a limit does not make the query crawl through what is not there."""
    orders = ps.stream("orders")
    fill(orders, 100)
    orders.evict(upto=90)
    with pytest.raises(DataLossError, match="offsets 11 to 90 of the stream orders are gone"):
        reader(url).latestOffset({"orders": 11}, ReadMaxRows(4))
    source = reader(url, failOnDataLoss="false")
    assert source.latestOffset({"orders": 11}, ReadMaxRows(4)) == {"orders": 95}
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert offsets(source, source.partitions({"orders": 11}, {"orders": 95})) == [91, 92, 93, 94]
    assert len(caplog.records) == 1
    assert "offsets 11 to 90 of the stream orders are gone" in caplog.text


@EVERYWHERE
def test_a_stream_that_was_made_anew(url: str, ps: Client) -> None:
    """Its batches end below their start, and so are the same when they are repeated."""
    orders = ps.stream("orders")
    fill(orders, 5)
    source = reader(url, failOnDataLoss="false")
    start = {"orders": 9}
    assert source.latestOffset(start, ReadMaxRows(3)) == {"orders": 4}
    assert offsets(source, source.partitions(start, {"orders": 4})) == [1, 2, 3]
    orders.delete()
    assert source.latestOffset({"orders": 4}, ALL) == {"orders": 1}
    assert source.partitions({"orders": 4}, {"orders": 1}) == []


@EVERYWHERE
def test_the_group_of_a_query(url: str, ps: Client) -> None:
    orders = ps.stream("orders")
    fill(orders, 9)
    source = reader(url, group="lake")
    source.latestOffset({"orders": 3}, ALL)
    group = orders.group("lake")
    assert orders.evict(upto=9, acked=True) == 2, "made before anything is read"
    source.commit({"orders": 6})
    assert (orders.evict(upto=9, acked=True), orders.groups()[0].cursor) == (3, 6)
    group.destroy()
    source.commit({"orders": 7})
    assert orders.groups()[0].cursor == 7
    reader(url, group="lake").latestOffset({"orders": 6}, ALL)
    assert orders.groups()[0].cursor == 7, "a restart does not move it"
