"""Rows on their way from a task to the driver: in the commit message if they are few, else in the store.

    stager = Stager(url, prefix)
    stager.add(rows)
    pieces = stager.finish()                        # in a task
    rows = load(client, piece.key)                  # on the driver

A task cuts its rows into pieces of about ``PIECE_ROWS`` or ``PIECE_BYTES``. A piece that stands alone and is
small stays in the message; others become keys that end with a number nobody else has, since a
repeated task must never write over what was decided already. They vanish after a day, unless they are
part of a decision (``appending``).

A piece is msgpack, ``[names, tags, messages]``, compressed by zstd when it lies in a store, its length
before that in front of it (8 bytes, little-endian):

========  =======================================================================================
names     the stream or channel of each row, or one text for all
tags      the tag of each row, or one for all
messages  bytes; nil is a tombstone
========  =======================================================================================

Nothing here knows what a stream or a channel is."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import msgspec

from penstock.blocking import Client
from penstock.errors import StoreError
from penstock.spark.stores import store

PIECE_ROWS: Final = 50_000
PIECE_BYTES: Final = 8 << 20
#: A piece up to this size travels in the message of its task.
INLINE_BYTES: Final = 256 << 10
#: How long rows wait for a decision.
STAGED_S: Final = 86_400

_LENGTH_BYTES: Final = 8


class Rows(msgspec.Struct, array_like=True):
    """Rows as columns."""

    names: list[str] | str
    tags: list[bytes] | bytes
    messages: list[bytes | None]

    def __len__(self) -> int:
        return len(self.messages)

    def each(self) -> Iterator[tuple[str, bytes, bytes | None]]:
        names = repeat(self.names) if isinstance(self.names, str) else self.names
        tags = repeat(self.tags) if isinstance(self.tags, bytes) else self.tags
        return zip(names, tags, self.messages, strict=False)

    def extend(self, other: Rows) -> None:
        """Take others of the same task behind these: what is one value for all is so in both."""
        if isinstance(self.names, list) and isinstance(other.names, list):
            self.names += other.names
        if isinstance(self.tags, list) and isinstance(other.tags, list):
            self.tags += other.tags
        self.messages += other.messages

    def size_bytes(self) -> int:
        """Of tags and messages."""
        tags = len(self.tags) * len(self) if isinstance(self.tags, bytes) else sum(map(len, self.tags))
        return tags + sum(len(message) for message in self.messages if message is not None)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows, and what there is to know before they are looked at."""

    #: where it lies; empty if ``data`` has it
    key: str
    data: bytes
    size_bytes: int
    tombstones: int
    #: how many rows each stream or channel gets
    counts: dict[str, int]

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


_ROWS: Final = msgspec.msgpack.Decoder(Rows)
_encode = msgspec.msgpack.Encoder().encode


class Stager:
    """What one task has written."""

    def __init__(self, url: str, prefix: str) -> None:
        """``prefix``: how keys begin, for who looks at a store."""
        self._url = url
        self._prefix = f"{prefix}:{secrets.token_hex(8)}"
        self._waiting: Rows | None = None
        self._waiting_bytes = 0
        self._pieces: list[Piece] = []

    def add(self, rows: Rows) -> None:
        self._waiting_bytes += rows.size_bytes()
        if self._waiting is None:
            self._waiting = rows
        else:
            self._waiting.extend(rows)
        if len(self._waiting) >= PIECE_ROWS or self._waiting_bytes >= PIECE_BYTES:
            self._flush()

    def finish(self) -> tuple[Piece, ...]:
        """All that was added, in this order."""
        self._flush(may_stay=not self._pieces)
        return tuple(self._pieces)

    def discard(self) -> None:
        """The task fails; nobody will ask for its rows."""
        remove(store(self._url), self._pieces)
        self._pieces.clear()

    def _flush(self, *, may_stay: bool = False) -> None:
        rows, self._waiting, self._waiting_bytes = self._waiting, None, 0
        if rows is None or not len(rows):
            return
        data = _encode(rows)
        piece = Piece("", data, rows.size_bytes(), rows.messages.count(None), _counts(rows))
        if not may_stay or len(data) > INLINE_BYTES:
            piece = put(store(self._url), f"{self._prefix}:{len(self._pieces)}", piece)
        self._pieces.append(piece)


def put(client: Client, key: str, piece: Piece) -> Piece:
    """A piece out of a message, in the store."""
    client.set(key, _pack(piece.data), ex=STAGED_S)
    return Piece(key, b"", piece.size_bytes, piece.tombstones, piece.counts)


def load(client: Client, key: str) -> Rows:
    """The rows of a piece that was put."""
    packed = client.get(key)
    if packed is None:
        raise StoreError(f"the staged rows {key} are gone: somebody has deleted the key, or it has expired")
    return _ROWS.decode(_unpack(packed))


def rows_of(client: Client, piece: Piece) -> Rows:
    return _ROWS.decode(piece.data) if not piece.key else load(client, piece.key)


def remove(client: Client, pieces: list[Piece]) -> None:
    for piece in pieces:
        if piece.key:
            client.unlink(piece.key)


def _counts(rows: Rows) -> dict[str, int]:
    return {rows.names: len(rows)} if isinstance(rows.names, str) else dict(Counter(rows.names))


def _pack(data: bytes) -> bytes:
    import pyarrow as pa  # not at the top: the driver does without for small batches

    compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + compressed


def _unpack(packed: bytes) -> bytes:
    import pyarrow as pa

    size_bytes = int.from_bytes(packed[:_LENGTH_BYTES], "little")
    data: bytes = pa.decompress(packed[_LENGTH_BYTES:], size_bytes, codec="zstd", asbytes=True)
    return data
