"""``df.write.format("penstock")`` and ``df.writeStream``: rows become messages of streams or channels, once.

    df.write.format("penstock").mode("append").options(url="./shop.pen", stream="orders").save()
    df.writeStream.format("penstock").options(url=…, stream="orders", checkpointLocation=…).start()

A task stages its rows (``staging``); the driver decides, and writes them (``appending``). Rows of a partition
keep their order, and partitions come one after the other. ``sink_options`` tells options and columns.

Spark pickles these objects and makes several of them for one stream; what tasks know reaches the driver in
their messages. The id of the query, by which batches are counted unless the user gives a name, is known
to tasks alone."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.client.targets import parse_url
from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.spark.appending import abort, commit, rows_prefix
from penstock.spark.sink_options import Target, find_target
from penstock.spark.sink_targets import Batch
from penstock.spark.staging import Piece, Stager
from penstock.spark.stores import store

#: Where Spark tells tasks the id of their query.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has to say."""

    writer: str
    pieces: tuple[Piece, ...]


_Messages = Sequence[WriterCommitMessage | None]


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    target = find_target(given, schema)
    if overwrite:
        raise UsageError("messages cannot be overwritten: write with mode('append')")
    if bool(target.writer) != (target.batch is not None):
        raise ConfigError(
            "the options writer and batchId belong together: give both, so that a repetition is recognised,"
            " or none of them"
        )
    return BatchSink(target)


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    target = find_target(given, schema)
    if overwrite:
        raise UsageError("messages cannot be overwritten: use outputMode('append') or 'update', not complete")
    if target.batch is not None:
        raise ConfigError(
            "the option batchId is not for streaming queries, which count themselves: leave it out"
        )
    return StreamSink(target)


class BatchSink(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, target: Target) -> None:
        self._target = target
        is_named = target.batch is not None
        self._batch = Batch(
            target.writer if is_named else f"job-{secrets.token_hex(8)}", target.batch or 0, is_named
        )

    def write(self, iterator: Iterator[Any]) -> Staged:
        return _stage(self._target, self._batch.writer, iterator)

    def commit(self, messages: _Messages) -> None:
        _commit(self._target, self._batch, messages)

    def abort(self, messages: _Messages) -> None:
        _abort(self._target, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """``df.writeStream``."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[Any]) -> Staged:
        return _stage(self._target, self._target.writer or _query_id(), iterator)

    def commit(self, messages: _Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        for message in _staged(messages)[:1]:
            _commit(self._target, Batch(message.writer, batchId, is_named=True), messages)

    def abort(self, messages: _Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        _abort(self._target, messages)


def _query_id() -> str:
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if not query_id:
        raise ConfigError(
            "the option writer is missing, and Spark does not tell the id of the query: name this writer"
        )
    return query_id


# --------------------------------------------------------------------------------- in tasks


def _stage(target: Target, writer: str, batches: Iterator[Any]) -> Staged:
    from penstock.spark.sink_rows import RowTaker  # not at the top: the driver does without Arrow

    taker = RowTaker(target)
    stager = Stager(target.url, rows_prefix(writer))
    try:
        for batch in batches:
            for rows in taker.take(batch):
                stager.add(rows)
        return Staged(writer, stager.finish())
    except PenstockError as error:
        error.add_note(f"while rows were staged in {parse_url(target.url).redacted}")
        _discard(stager)
        raise


def _discard(stager: Stager) -> None:
    try:
        stager.discard()
    except PenstockError:
        pass  # what it has staged expires; the error that brought us here is the one to be seen


# ---------------------------------------------------------------------------- on the driver


def _commit(target: Target, batch: Batch, messages: _Messages) -> None:
    pieces = [piece for message in _staged(messages) for piece in message.pieces]
    commit(store(target.url), target.kind, batch, pieces, expire_ms=target.expire_ms)


def _abort(target: Target, messages: _Messages) -> None:
    for message in _staged(messages):
        if message.pieces:
            abort(store(target.url), message.writer, message.pieces)


def _staged(messages: _Messages) -> list[Staged]:
    """Messages of tasks that succeeded."""
    return [message for message in messages if isinstance(message, Staged)]
