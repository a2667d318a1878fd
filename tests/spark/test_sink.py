"""Spark writes streams and channels: every row once, whoever dies; what is wrong is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from penstock.blocking import Client
from penstock.errors import ConnectionLostError, ContentError, StoreError, UsageError
from penstock.spark import appending, sink_targets, staging
from penstock.spark.sink import BatchSink, Staged, StreamSink, batch_writer, stream_writer
from penstock.spark.sink_options import Kind
from penstock.spark.sink_targets import Batch
from penstock.spark.stores import store
from tests.spark.places import EVERYWHERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[str | None, ...]
BOTH = "tag STRING, message STRING"
MANY = "stream STRING, tag STRING, message STRING"


def schema_of(ddl: str) -> StructType:
    """Of texts; DDL itself needs a session."""
    schema = StructType()
    for column in ddl.split(", "):
        name, type_ = column.split()
        schema = schema.add(name, type_.lower())
    return schema


def stream_sink(url: str, ddl: str = BOTH, **options: str) -> StreamSink:
    sink = stream_writer({"url": url, "writer": "w", **options}, schema_of(ddl), False)
    assert isinstance(sink, StreamSink)
    return sink


def batch_sink(url: str, ddl: str = BOTH, **options: str) -> BatchSink:
    sink = batch_writer({"url": url, **options}, schema_of(ddl), False)
    assert isinstance(sink, BatchSink)
    return sink


def staged(sink: StreamSink | BatchSink, ddl: str, *partitions: list[Row]) -> list[Staged]:
    """What tasks answer, each for its rows."""
    names = [column.split()[0] for column in ddl.split(", ")]
    schema = pa.schema([(name, pa.string()) for name in names])

    def batches(rows: list[Row]) -> Iterator[Any]:
        for row in rows:
            yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True))], schema=schema)

    return [sink.write(batches(rows)) for rows in partitions]


def entries(ps: Client, stream: str) -> list[tuple[str, str | None]]:
    return [
        (one.tag.decode(), one.entry.decode() if one.entry is not None else None)
        for one in ps.stream(stream).read()
    ]


def leftovers(ps: Client) -> list[bytes]:
    """Keys of the sink that a finished batch must not leave."""
    return [key for key in ps.keys("spark.sink:*") if not key.endswith(b":done")]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows are a piece, none is small enough for a message, and more are not one call."""
    monkeypatch.setattr(staging, "PIECE_ROWS", 3)
    monkeypatch.setattr(sink_targets, "fits", lambda messages, _: messages <= 3)
    monkeypatch.setattr(staging, "INLINE_BYTES", 10)


# ------------------------------------------------------------------------------ on Spark


@EVERYWHERE
def test_a_table_is_appended(spark: SparkSession, url: str, ps: Client) -> None:
    """In the order of partitions and of their rows, tombstones among them; large and small."""
    df = spark.range(0, 25_000, 1, 3).select(
        F.when(F.col("id") % 5_000 != 7, F.concat(F.lit("order "), F.col("id"))).alias("message"),
        F.when(F.col("id") % 2 == 0, "eu").otherwise("us").alias("tag"),
    )
    write(df, url, stream="orders")
    wanted = [
        ("us" if number % 2 else "eu", None if number % 5_000 == 7 else f"order {number}")
        for number in range(25_000)
    ]
    assert entries(ps, "orders") == wanted
    few = df.limit(2).select(F.col("message").cast("binary"), F.lit("bills").alias("stream"))
    write(few, url, tag="new")
    assert entries(ps, "bills") == [("new", "order 0"), ("new", "order 1")]
    assert leftovers(ps) == []


@EVERYWHERE
def test_a_query_that_repeats_its_last_batch(
    spark: SparkSession, url: str, ps: Client, tmp_path: Path
) -> None:
    """A large batch, which is staged, comes again before the next one, which is one call."""
    wanted: list[tuple[str, str | None]] = []
    for count, batch in ((12_000, 0), (100, 1)):
        new = [("eu", f"order {len(wanted) + number}") for number in range(count)]
        wanted += new
        ps.stream("orders").write_many(new)
        copy(spark, url, tmp_path)
        assert entries(ps, "copy") == wanted
        (tmp_path / "commits" / str(batch)).unlink()
    assert leftovers(ps) == []


def write(df: DataFrame, url: str, **options: str) -> None:
    df.write.format("penstock").mode("append").options(url=url, **options).save()


def copy(spark: SparkSession, url: str, checkpoint: Path) -> None:
    """What is there now, from orders to copy."""
    source = spark.readStream.format("penstock").options(url=url, stream="orders").load()
    sink = source.writeStream.format("penstock").options(url=url, stream="copy")
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_what_is_wrong_reaches_the_user(spark: SparkSession, url: str) -> None:
    df = spark.range(2).select(F.lit("x").alias("message"), "id")
    with pytest.raises(PySparkException, match="there is no place for the column 'id': drop it, or put"):
        write(df, url, stream="orders")
    with pytest.raises(PySparkException, match="messages cannot be overwritten: write with mode"):
        df.drop("id").write.format("penstock").mode("overwrite").options(url=url, stream="x").save()
    with pytest.raises(PySparkException, match="the column message is null in a row without a tag"):
        write(df.select(F.lit(None).cast("string").alias("message")), url, stream="orders")


# ---------------------------------------------------------------------- without Spark's processes


@EVERYWHERE
def test_a_small_batch_is_one_call(url: str, ps: Client) -> None:
    sink = stream_sink(url, stream="orders")
    rows = [("eu", "1"), ("", "2"), (None, "3")]
    messages = staged(sink, BOTH, rows, [], [("us", "4")])
    sink.commit(messages, 5)
    sink.commit(messages, 5)
    wanted = [("eu", "1"), ("", "2"), ("", "3"), ("us", "4")]
    assert entries(ps, "orders") == wanted
    info = ps.stream("orders").producer_info("spark:w")
    assert info is not None
    assert (info.sequence, info.kept) == ((5 << 24) + 4, True)
    sink.commit(staged(sink, BOTH, []), 6)
    sink.commit(staged(sink, BOTH, [("eu", None)]), 7)
    assert entries(ps, "orders") == [*wanted, ("eu", None)]
    assert ps.keys("spark.sink:*") == []


class Died(BaseException):
    """The driver is killed."""


class Mortal:
    """A client, or a stream of it, whose process dies when one of its calls was made."""

    def __init__(self, original: Any, calls_left: list[int]) -> None:
        self._original, self._calls_left = original, calls_left

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._original, name)
        if name in ("stream", "channel"):
            return lambda *a, **k: Mortal(method(*a, **k), self._calls_left)

        def call(*arguments: Any, **options: Any) -> Any:
            reply = method(*arguments, **options)
            self._calls_left[0] -= 1
            if not self._calls_left[0]:
                raise Died
            return reply

        return call


def survivors(url: str, kind: Kind, stage: Callable[[str], list[Staged]]) -> Iterator[str]:
    """For every call of a commit: the writer that died behind it, and has repeated the batch since."""
    client = store(url)
    for calls in range(1, 100):
        writer = f"{kind}-{calls}"
        first, again = [[piece for message in stage(writer) for piece in message.pieces] for _ in range(2)]
        mortal: Any = Mortal(client, [calls])
        batch = Batch(writer, 3, is_named=True)
        try:
            appending.commit(mortal, kind, batch, first)
        except Died:
            appending.commit(client, kind, batch, again)
            assert not client.exists(appending.key_of(writer))
            assert not any(client.exists(piece.key) for piece in again)
            yield writer
        else:
            assert calls > 15
            return
    raise AssertionError("it never got through")


@EVERYWHERE
@pytest.mark.usefixtures("small_pieces")
def test_a_driver_that_dies_anywhere(url: str, ps: Client) -> None:
    """Streams, pieces, tombstones: whichever call was the last one, the repetition ends it."""

    def stage(writer: str) -> list[Staged]:
        a, b = f"{writer}.a", f"{writer}.b"
        left = [(a, "t", "1"), (b, "t", "2"), (a, "t", None), (a, "u", "3")]
        return staged(stream_sink(url, MANY, writer=writer), MANY, left, [(a, "t", "4"), (b, "t", None)])

    for writer in survivors(url, "stream", stage):
        assert entries(ps, f"{writer}.a") == [("t", "1"), ("t", None), ("u", "3"), ("t", "4")], writer
        assert entries(ps, f"{writer}.b") == [("t", "2"), ("t", None)], writer
    # What the dead could not remove expires.
    assert all(ps.ttl(key) > 0 for key in leftovers(ps))


@EVERYWHERE
@pytest.mark.usefixtures("small_pieces")
def test_channels(url: str, ps: Client) -> None:
    ddl = "channel STRING, message STRING"

    def stage(writer: str) -> list[Staged]:
        ps.channel(f"{writer}-room").subscribe("alice")
        rows: list[Row] = [
            (f"{writer}-{room}", json.dumps({"n": n})) for n in range(4) for room in ("room", "hall")
        ]
        return staged(stream_sink(url, ddl, writer=writer), ddl, rows[:5], rows[5:])

    for writer in survivors(url, "channel", stage):
        found = ps.channel(f"{writer}-room").subscription("alice").fetch()
        assert [message.content for message in found.messages] == [{"n": n} for n in range(4)], writer


def test_a_channel_for_all_rows(url: str, ps: Client) -> None:
    sink = stream_sink(url, "message STRING", channel="single", expireMs="60000")
    ps.channel("single").subscribe("bob")
    messages = staged(sink, "message STRING", [("[1]",), ('"x"',)])
    sink.commit(messages, 0)
    sink.commit(messages, 0)
    found = ps.channel("single").subscription("bob").fetch()
    assert [message.content for message in found.messages] == [[1], "x"]
    with pytest.raises(ContentError, match="the column message is no JSON in a row"):
        staged(sink, "message STRING", [("{",)])
    with pytest.raises(UsageError, match="channels have no tombstones"):
        staged(sink, "message STRING", [(None,)])


@pytest.mark.usefixtures("small_pieces")
def test_a_repetition_with_other_rows_changes_nothing(url: str, ps: Client) -> None:
    """A query that is not deterministic, against the rules: the batch that was decided stands."""
    sink = stream_sink(url, MANY)
    first = staged(sink, MANY, [("a", "t", str(n)) for n in range(10)])
    pieces = [piece for message in first for piece in message.pieces]
    mortal: Any = Mortal(store(url), [15])
    with pytest.raises(Died):
        appending.commit(mortal, "stream", Batch("w", 0, is_named=True), pieces)
    assert 0 < len(entries(ps, "a")) < 10
    sink.commit(staged(sink, MANY, [("b", "t", "other")]), 0)
    sink.commit(staged(sink, MANY, [("b", "t", "other")]), 0)
    assert [entry for _, entry in entries(ps, "a")] == [str(n) for n in range(10)]
    assert entries(ps, "b") == []
    sink.commit(staged(sink, MANY, [("b", "t", "next")]), 1)
    assert entries(ps, "b") == [("t", "next")]


def test_a_decision_outlives_an_abort(
    url: str, ps: Client, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts what failed in commit(): rows that were decided on stay."""
    sink = batch_sink(url, stream="orders")
    messages = staged(sink, BOTH, [("t", str(n)) for n in range(7)])
    monkeypatch.setattr(appending, "PATIENCE_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(appending, "load", away)
        with pytest.raises(ConnectionLostError) as lost:
            sink.commit(messages)
    (note,) = lost.value.__notes__
    assert "is decided and written in part" in note
    sink.abort([*messages, None])
    assert entries(ps, "orders") == []
    writer = messages[0].writer
    assert f"writer={writer!r} and batchId=0" in note
    assert 0 < ps.ttl(appending.key_of(writer)) <= 43_200
    again = batch_sink(url, stream="orders", writer=writer, batchId="0")
    again.commit(staged(again, BOTH, [("t", "not this one")]))
    assert [entry for _, entry in entries(ps, "orders")] == [str(n) for n in range(7)]
    assert leftovers(ps) == []


def away(*_: object) -> Any:
    raise ConnectionLostError("the way to the server is cut")


def test_a_store_that_comes_back_is_waited_for(
    url: str, ps: Client, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([True, True])
    original = appending.load

    def load(client: Client, key: str) -> staging.Rows:
        if next(failures, False):
            raise ConnectionLostError("the way to the server is cut")
        return original(client, key)

    monkeypatch.setattr(appending, "load", load)
    monkeypatch.setattr(appending, "_PAUSE_S", 0.01)
    sink = stream_sink(url, stream="orders")
    sink.commit(staged(sink, BOTH, [("t", str(n)) for n in range(7)]), 0)
    assert [entry for _, entry in entries(ps, "orders")] == [str(n) for n in range(7)]


@pytest.mark.usefixtures("small_pieces")
def test_what_is_refused_before_anything_is_decided(url: str, ps: Client) -> None:
    sink = stream_sink(url, MANY)
    ps.set("number", "1")
    rows = [("a", "t", str(n)) for n in range(5)]
    with pytest.raises(UsageError, match="the key number is no stream, it holds another type"):
        sink.commit(staged(sink, MANY, [*rows, ("number", "t", "x")]), 0)
    gone = staged(sink, MANY, rows)
    ps.delete(gone[0].pieces[1].key)
    with pytest.raises(StoreError, match="are gone before batch 0 was decided: write it again"):
        sink.commit(gone, 0)
    with pytest.raises(UsageError, match="batch 536870912 of the writer w is beyond the last one"):
        sink.commit(staged(sink, MANY, rows), 1 << 29)
    for bad, sentence in (
        ((None, "t", "x"), "the column stream is null in a row"),
        (("", "t", "x"), "the column stream is empty in a row"),
        (("a", "", None), "the column message is null in a row without a tag"),
        (("a", None, None), "the column message is null in a row without a tag"),
    ):
        with pytest.raises(UsageError, match=sentence):
            staged(sink, MANY, [*rows, bad])
    assert entries(ps, "a") == []
    assert not ps.exists(appending.key_of("w"))


@pytest.mark.usefixtures("small_pieces")
def test_a_new_checkpoint_under_an_old_name(url: str, ps: Client) -> None:
    """Its batches would be taken for repetitions, and be lost."""
    sink = stream_sink(url, stream="orders")
    sink.commit(staged(sink, BOTH, [("t", "1")]), 4)
    with pytest.raises(UsageError, match="the writer w has written batch 4 already, and this is batch 0"):
        sink.commit(staged(sink, BOTH, [("t", "2")]), 0)
    sink.commit(staged(sink, BOTH, [("t", "1"), ("t", None)]), 5)
    other = stream_sink(url, stream="bills")
    with pytest.raises(
        UsageError, match="has written batch 5 already, and this is batch 1: a query with a new"
    ):
        other.commit(staged(other, BOTH, [("t", "2")]), 1)
    assert entries(ps, "orders") == [("t", "1"), ("t", "1"), ("t", None)]


@pytest.mark.usefixtures("small_pieces")
def test_a_failed_job_leaves_nothing(url: str, ps: Client) -> None:
    sink = batch_sink(url, stream="orders")
    messages = staged(sink, BOTH, [("t", str(n)) for n in range(7)])
    assert len(leftovers(ps)) == 3
    sink.abort([*messages, None])
    with pytest.raises(UsageError):
        staged(sink, BOTH, [*[("t", "x")] * 4, ("", None)])
    assert (leftovers(ps), entries(ps, "orders")) == ([], [])
