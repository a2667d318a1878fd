"""The rows of a batch, appended to streams or channels, each at most once however often it is tried.

    appender = make_appender(client, kind, Batch("nightly", 17), expire_ms)
    if not appender.has_any(counts):
        appender.append(rows)

=========  ===================================================================================================
stream     Row ``r`` of batch ``b`` for this stream, both from 0, has the number ``b * 2^24 + r + 1`` in the
           count of the producer ``spark:<writer>``. A call and its numbers are written together, so the
           producer's position tells exactly which rows are there. Numbers end at 2^53 where scripts keep
           them: up to 2^24 - 1 rows of a batch for one stream, and 2^29 batches.
channel    Row ``r`` of batch ``b`` for this channel has the id ``<hash of writer>-b-r``. The channel knows an
           id for as long as it keeps the message.
=========  ===================================================================================================

Rows of several pieces are handed over in their order, by one appender. Whether a batch is complete is known
by ``appending``."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Final

from penstock.blocking import Client
from penstock.errors import CommandError, UsageError
from penstock.spark.sink_options import Kind
from penstock.spark.staging import Piece, Rows
from penstock.streams.writing import fits

_ROW_BITS: Final = 24
_BATCH_BITS: Final = 29
#: Most messages of one call to a channel.
_PUBLISHED: Final = 1_000

_Pair = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch of whom."""

    writer: str
    number: int
    #: the writer has a name that comes again: it is remembered for ever
    is_named: bool


class Appender(ABC):
    """Appends the rows of one batch."""

    def __init__(self, client: Client, batch: Batch) -> None:
        self._client = client
        self._batch = batch
        #: rows that were handed over, for each stream or channel
        self._seen: dict[str, int] = {}

    def append(self, rows: Rows) -> None:
        """Those that are not there yet."""
        for name, pairs in _by_name(rows).items():
            start = self._seen.get(name, 0)
            self._append(name, start, pairs)
            self._seen[name] = start + len(pairs)

    @property
    @abstractmethod
    def remembers_batches(self) -> bool:
        """Whether a batch that was written by one call is known to be there without anything else."""

    @abstractmethod
    def has_any(self, counts: Mapping[str, int]) -> bool:
        """Whether rows of this batch are there. Refuses what could never be written."""

    @abstractmethod
    def takes_at_once(self, pieces: Sequence[Piece]) -> bool:
        """Whether all of this is one call: all or none."""

    @abstractmethod
    def _append(self, name: str, start: int, pairs: list[_Pair]) -> None:
        """``start``: the place of the first one among the rows of this name."""


def make_appender(client: Client, kind: Kind, batch: Batch, expire_ms: int) -> Appender:
    if kind == "stream":
        return StreamAppender(client, batch)
    return ChannelAppender(client, batch, expire_ms)


class StreamAppender(Appender):
    def __init__(self, client: Client, batch: Batch) -> None:
        super().__init__(client, batch)
        self._producer = f"spark:{batch.writer}"
        #: below the number of the first row
        self._base = batch.number << _ROW_BITS
        #: stream -> rows of this batch that are there
        self._there: dict[str, int] = {}

    @property
    def remembers_batches(self) -> bool:
        return True

    def has_any(self, counts: Mapping[str, int]) -> bool:
        if self._batch.number >> _BATCH_BITS:
            raise UsageError(
                f"batch {self._batch.number} of the writer {self._batch.writer} is beyond the last one,"
                f" {(1 << _BATCH_BITS) - 1}: begin with a new checkpoint or another writer"
            )
        for name, rows in counts.items():
            if self._batch.is_named and rows >> _ROW_BITS:
                raise UsageError(
                    f"a batch of {rows} rows for the stream {name} is too large, at most"
                    f" {(1 << _ROW_BITS) - 1} are allowed: limit it by maxMessagesPerBatch of the source"
                )
        positions = [self._position(name) for name in counts]  # all of them, since each may be refused
        return any(position > self._base for position in positions)

    def takes_at_once(self, pieces: Sequence[Piece]) -> bool:
        rows = sum(piece.rows for piece in pieces)
        tombstones = sum(piece.tombstones for piece in pieces)
        return (
            len({name for piece in pieces for name in piece.counts}) == 1
            and tombstones in (0, rows)
            and fits(rows, sum(piece.size_bytes for piece in pieces))
        )

    def _position(self, name: str) -> int:
        """The number of the last row that this writer wrote there."""
        try:
            info = self._client.stream(name).producer_info(self._producer)
        except CommandError as error:
            if error.code != "WRONGTYPE":
                raise
            raise UsageError(
                f"the key {name} is no stream, it holds another type: name another stream"
            ) from None
        position = info.sequence if info is not None else 0
        if self._batch.is_named and position > self._base + (1 << _ROW_BITS):
            raise ahead(self._batch, position >> _ROW_BITS)
        return position

    def _append(self, name: str, start: int, pairs: list[_Pair]) -> None:
        if name not in self._there:
            self._there[name] = max(0, self._position(name) - self._base)
        stream = self._client.stream(name)
        done = min(max(0, self._there[name] - start), len(pairs))
        number = self._base + start + done + 1
        for run in _alike(pairs[done:]):
            stream.write_many(run, producer=(self._producer, number), keep_producer=self._batch.is_named)
            number += len(run)


class ChannelAppender(Appender):
    def __init__(self, client: Client, batch: Batch, expire_ms: int) -> None:
        super().__init__(client, batch)
        self._expire_ms = expire_ms
        self._prefix = f"{sha256(batch.writer.encode()).hexdigest()[:20]}-{batch.number}"

    @property
    def remembers_batches(self) -> bool:
        return False

    def has_any(self, counts: Mapping[str, int]) -> bool:
        return False

    def takes_at_once(self, pieces: Sequence[Piece]) -> bool:
        is_one = len({name for piece in pieces for name in piece.counts}) == 1
        return is_one and sum(piece.rows for piece in pieces) <= _PUBLISHED

    def _append(self, name: str, start: int, pairs: list[_Pair]) -> None:
        channel = self._client.channel(name, expire_ms=self._expire_ms)
        messages = [
            (f"{self._prefix}-{row}", json.loads(message or b"null"))
            for row, (_, message) in enumerate(pairs, start)
        ]
        for first in range(0, len(messages), _PUBLISHED):
            channel.publish_many(messages[first : first + _PUBLISHED])


def ahead(batch: Batch, reached: int) -> UsageError:
    """The query is not the one that the writer's name belongs to, or its checkpoint is an old one."""
    return UsageError(
        f"the writer {batch.writer} has written batch {reached} already, and this is batch {batch.number}:"
        " a query with a new checkpoint needs another name in the option writer, or none"
    )


def _by_name(rows: Rows) -> dict[str, list[_Pair]]:
    """In the order of rows, names as they first appear."""
    if isinstance(rows.names, str):
        return {rows.names: [(tag, message) for _, tag, message in rows.each()]}
    pairs: dict[str, list[_Pair]] = {}
    for name, tag, message in rows.each():
        pairs.setdefault(name, []).append((tag, message))
    return pairs


def _alike(pairs: list[_Pair]) -> Iterator[list[_Pair]]:
    """Entries and tombstones do not go into the same call."""
    for _, run in groupby(pairs, lambda pair: pair[1] is None):
        yield list(run)
