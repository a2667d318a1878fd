"""Live streams counted in windows of 5 seconds by Structured Streaming, and these summed to longer ones.

    counted = count_streams(context, RollupOptions(streams=["orders"]))     # Counted(batches, rows, dropped)

How a window comes to its table:

1. Spark counts messages and bytes by window, stream and tag. A window is closed when a message came that is
   ``lateness`` younger than its end (Spark's watermark); only closed windows leave the query (append mode),
   once.
2. Each micro-batch of them is committed to ``stream_stats_5s`` with the number of the batch as progress,
   under a name that lies in the query's checkpoint. A batch that Spark repeats is recognised.
3. ``stream_stats_60s`` and ``_600s`` take in what joined ``stream_stats_5s``: partial sums, each row once.

Who loses the checkpoint begins a new query at the streams' first messages, so its windows would be there
twice: that is refused (``begin anew`` means to remove the tables as well).

Rules: a message that is later than the watermark is not counted in any window, and is told (``dropped``).
Times of the store never run backwards, so without ``event_time`` there are none. Nothing here knows
transactions.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as fn

from penstock.errors import LakeError
from penstock.lake.alone import alone
from penstock.spark.jobs.derive import take_in
from penstock.spark.jobs.rollup import LEVELS
from penstock.spark.lake_writing import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.lake.lake import Lake
    from penstock.spark.jobs.job import JobContext
    from penstock.spark.jobs.rollup import RollupOptions

_TABLE: Final = "stream_stats_5s"
_WORK: Final = "rollup-streams"
_ID: Final = "penstock-id"
_SCHEMA: Final = "stream STRING, time TIMESTAMP, tag BINARY, message BINARY"
_POLL_S: Final = 1
#: Larger numbers are milliseconds.
_LATEST_S: Final = 100_000_000_000


@dataclass(slots=True)
class Counted:
    """What one pass did."""

    batches: int = 0
    rows: int = 0
    #: messages that came after their window was closed
    dropped: int = 0


def count_streams(context: JobContext, options: RollupOptions) -> Counted:
    """Everything that is there now; who finds another process at it does nothing."""
    done = Counted()
    with alone(context.lake, _WORK) as is_mine:
        if is_mine:
            _run_query(context, options, done)
            for seconds, level in LEVELS.items():
                if seconds > 5 and not context.stopping.is_set():
                    done.rows += take_in(context, f"stream_stats_{level}", partial(_longer, seconds))
    return done


def _run_query(context: JobContext, options: RollupOptions, done: Counted) -> None:
    checkpoint = context.lake.checkpoint(_WORK)
    app = f"{_TABLE}:rollup:{_query_id(context.lake, checkpoint)}"
    table = context.lake.table(_TABLE)

    def land(df: DataFrame, batch: int) -> None:
        # Written in any case: a query with state must see its rows taken, also those of a batch that it
        # repeats.
        files = write(df, table, f"rollup-{batch}", sort_by=("window",), files=1)
        if not files:
            return
        result = table.commit(files, progress={app: batch})
        done.batches += result.is_new
        done.rows += result.rows
        context.report(batches=done.batches, rows=done.rows)

    query = (
        _windows(_messages(context, options), options)
        .writeStream.foreachBatch(land)
        .outputMode("append")
        .option("checkpointLocation", f"file://{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    _finish(query, context)
    done.dropped = sum(_dropped(progress) for progress in query.recentProgress)


def _finish(query: StreamingQuery, context: JobContext) -> None:
    """Until all that was there is counted, or somebody wants an end."""
    while not query.awaitTermination(_POLL_S):
        if context.stopping.is_set():
            query.stop()


def _messages(context: JobContext, options: RollupOptions) -> DataFrame:
    return (
        context.spark.readStream.format("penstock")
        .schema(_SCHEMA)
        .option("url", context.url)
        .option("streams", msgspec.json.encode(options.streams).decode())
        .option("startingOffset", "earliest")
        .option("maxMessagesPerBatch", str(options.max_messages_per_batch))
        .load()
    )


def _windows(messages: DataFrame, options: RollupOptions) -> DataFrame:
    event = fn.col("time") if options.event_time is None else _event_time(options.event_time)
    return (
        messages.withColumn("event", event)
        .withWatermark("event", f"{options.lateness_ms} milliseconds")
        .groupBy(fn.window("event", "5 seconds").alias("span"), "stream", "tag")
        .agg(fn.count("*").alias("messages"), fn.sum(fn.octet_length("message")).alias("bytes"))
        .select(
            fn.col("span.start").alias("window"),
            "stream",
            fn.decode("tag", "UTF-8").alias("tag"),
            "messages",
            "bytes",
        )
    )


def _event_time(path: str) -> Column:
    """From a JSON message: seconds or milliseconds since 1970, or an ISO time; else when it was written."""
    text = fn.get_json_object(fn.decode("message", "UTF-8"), path)
    number = text.try_cast("double")
    seconds = fn.when(number < _LATEST_S, number).otherwise(number / 1_000)
    by_number = fn.timestamp_micros((seconds * 1_000_000).cast("bigint"))
    return fn.coalesce(by_number, fn.try_to_timestamp(text), fn.col("time"))


def _longer(seconds: int, closed: DataFrame) -> DataFrame:
    """Windows of 5 seconds as parts of longer ones."""
    window = fn.window("window", f"{seconds} seconds").getField("start")
    return closed.groupBy(window.alias("window"), "stream", "tag").agg(
        fn.sum("messages").alias("messages"), fn.sum("bytes").alias("bytes")
    )


def _dropped(progress: Any) -> int:
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])


def _query_id(lake: Lake, checkpoint: Path) -> str:
    """By which the table knows the query; made with its checkpoint."""
    path = checkpoint / _ID
    if path.exists():
        return path.read_text().strip()
    if lake.table(_TABLE).files():
        raise LakeError(
            f"table {_TABLE} has windows of a query whose checkpoint {checkpoint} is gone: put it back,"
            f" or remove the tables stream_stats_5s, _60s and _600s to count anew"
        )
    checkpoint.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{_ID}.tmp")
    staged.write_text(secrets.token_hex(8))
    staged.replace(path)
    return path.read_text().strip()
