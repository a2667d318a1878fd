"""``replay``: messages of the lake come into a stream in their order, each once, whoever was killed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import penstock.blocking
from penstock.blocking import Client, Stream
from penstock.clock import SystemClock
from penstock.errors import ConfigError, LakeError
from penstock.lake import Lake
from penstock.spark.jobs import replay as replaying
from penstock.spark.jobs.replay import Piece, ReplayJob, ReplayOptions, joined
from penstock.spark.jobs.replay_writing import Message, ReplayWriter, chunks
from penstock.spark.rate import TokenBucket
from tests.spark.exporting import context_of, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KilledError(Exception):
    """The process went here."""


def replay(context: Any, **options: Any) -> Any:
    return ReplayJob(ReplayOptions(stream="orders", **options)).run_once(context)


def pairs(stream: Stream) -> list[tuple[bytes, bytes | None]]:
    return [(one.tag, one.entry) for one in stream.read()]


def test_each_once_in_order(
    spark: SparkSession,
    lake: Lake,
    ps: Client,
    url: str,
    real_servers: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By several runs that are killed, from several files, in several pieces."""
    monkeypatch.setattr(replaying, "_PIECE_MESSAGES", 400)
    orders = ps.stream("orders")
    orders.write_many([(f"tag {number % 3}", f"order {number}") for number in range(700)])
    orders.write("tag 1", None)
    orders.write_many([("", b"\xff"), ("tag 1", "")])
    orders.drop((5, 9), (600, 620))
    context = context_of(spark, lake, ps, url)
    export(context, streams=("orders",), max_messages_per_batch=400)
    wanted = pairs(orders)
    real = Stream.write_many
    faults = iter(("after", "", "before"))

    def cut_off(self: Stream, *arguments: Any, **named: Any) -> Any:
        """Now the reply is lost, now the command."""
        fault = next(faults)
        if fault == "before":
            raise KilledError(fault)
        reply = real(self, *arguments, **named)
        if fault == "after":
            raise KilledError(fault)
        return reply

    monkeypatch.setattr(Stream, "write_many", cut_off)
    for fault in ("after", "before"):
        with pytest.raises(KilledError, match=fault):
            replay(context, target="again")
    monkeypatch.setattr(Stream, "write_many", real)
    done = len(pairs(ps.stream("again")))
    assert 0 < done < len(wanted)
    report = replay(context, target="again")
    assert pairs(ps.stream("again")) == wanted
    assert (report.rows, report.lag, report.notes) == (len(wanted) - done, 0, {"last": 703})
    # To another store, and only what is asked for.
    times = {one.offset: one.time_ms for one in orders.read()}
    other_url = real_servers.get("valkey").url
    with penstock.blocking.open(other_url) as other:
        options = {"target_url": other_url, "tags": ("tag 1", ""), "first": 100, "last": 702}
        replay(context, **options, since=f"@{times[1]}", until=f"@{times[703] + 1}")
        chosen = [one for one in orders.read(100, 702) if one.tag in (b"tag 1", b"")]
        assert pairs(other.stream("orders")) == [(one.tag, one.entry) for one in chosen]


def test_a_rate_and_a_stop(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    ps.stream("orders").write_many([("a", f"{number}") for number in range(200)])
    context = context_of(spark, lake, ps, url)
    export(context, streams=("orders",))
    began_s = context.clock.monotonic_s()
    report = replay(context, target="slow", rate=400)
    assert context.clock.monotonic_s() - began_s >= 0.45
    assert (report.rows, report.batches) == (200, 5)
    stopping = threading.Event()
    stopped = context_of(spark, lake, ps, url, stopping=stopping, listener=lambda _: stopping.set())
    stopping.set()
    assert replay(stopped, target="stopped").lag == 200
    assert replay(context, target="stopped").rows == 200


def test_what_makes_no_sense(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    for options, sentence in (
        ({}, "stream is missing"),
        ({"stream": "a"}, "target is missing"),
        ({"stream": "a", "target": "a"}, "target is missing"),
        ({"stream": "a", "target": "b", "rate": -1.0}, "rate must be at least 0"),
        ({"stream": "a", "target": "b", "since": "17"}, "since must be a time as"),
        ({"stream": "a", "target": "b", "name": ""}, "name is empty"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            ReplayOptions(**options)  # type: ignore[arg-type]
    context = context_of(spark, lake, ps, url)
    with pytest.raises(ConfigError, match="target_url is the store that the lake is of"):
        replay(context, target_url=url)
    ps.stream("orders").write("a", "b")
    export(context, streams=("orders",))
    table = lake.table("messages")
    source = table.root / table.files()[0].path
    twin = table.data_directory("twin")
    twin.mkdir()
    (twin / "part-0.parquet").write_bytes(source.read_bytes())
    table.commit(table.written("twin"), progress={})
    with pytest.raises(LakeError, match="has offset 1 of the stream orders twice"):
        replay(context, target="again")


# ------------------------------------------------------------------------------ without Spark


def writer_of(ps: Client) -> ReplayWriter:
    stopping = threading.Event()
    bucket = TokenBucket(0, SystemClock(), stopping.wait)
    writer = ReplayWriter(ps.stream("copy"), "replay:test", bucket, stopping)
    writer.position()
    return writer


def messages(*offsets: int) -> list[Message]:
    return [Message(offset, b"t", b"%d" % offset) for offset in offsets]


@pytest.mark.parametrize("url", ["embedded", "server"], indirect=True)
def test_calls_that_overlap(ps: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was thought to be dead writes in between: nothing comes twice, with and without holes."""
    cases = [
        (messages(5, 9, 12), messages(5, 9)),
        (messages(5, 9), messages(5, 9, 12)),
        (messages(5, 6, 7), messages(5, 6, 7, 8)),
        (messages(5, 6, 7, 8), messages(5, 6)),
        (messages(5, 6, 9), messages(5, 6)),
        (messages(5, 6), messages(5, 6, 9)),
    ]
    real = Stream.write_many
    for ours, theirs in cases:
        ps.stream("copy").delete()
        one, other = writer_of(ps), writer_of(ps)

        def overtaken(
            self: Stream, *arguments: Any, other: Any = other, theirs: Any = theirs, **named: Any
        ) -> Any:
            """The other one's command arrives just before this one."""
            monkeypatch.setattr(Stream, "write_many", real)
            other.write(theirs)
            return real(self, *arguments, **named)

        monkeypatch.setattr(Stream, "write_many", overtaken)
        one.write(ours)
        writer_of(ps).write(messages(*sorted({message.offset for message in ours + theirs})))
        expected = sorted({message.offset for message in ours + theirs})
        assert [int(one.entry or b"") for one in ps.stream("copy").read()] == expected


def test_a_target_that_others_write_to(ps: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holes are not waited for for ever."""
    real = Stream.write_many
    copy = ps.stream("copy")

    def disturbed(self: Stream, *arguments: Any, **named: Any) -> Any:
        copy.write("other", "")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Stream, "write_many", disturbed)
    writer_of(ps).write(messages(1, 2, 5, 9))
    assert [int(one.entry or b"") for one in copy.read() if one.tag == b"t"] == [1, 2, 5, 9]


def test_chunks_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [*messages(1, 2, 3), Message(4, b"t", None), *messages(5), Message(6, b"t", bytes(8 << 20))]
    cut = [[one.offset for one in chunk] for chunk in chunks(many, 2)]
    assert cut == [[1, 2], [3], [4], [5], [6]]
    monkeypatch.setattr(replaying, "_PIECE_MESSAGES", 10)
    monkeypatch.setattr(replaying, "_PIECE_BYTES", 100)
    ranges = [Piece(0, 4, 4, 4), Piece(4, 8, 4, 4), Piece(12, 16, 4, 4), Piece(16, 20, 1, 99)]
    assert joined(ranges) == [Piece(0, 8, 8, 8), Piece(12, 16, 4, 4), Piece(16, 20, 1, 99)]
