"""The driver's part of a sink: a batch is decided on once, and then written, whatever dies in between.

    commit(client, "stream", Batch("nightly", 17, is_named=True), pieces)

A batch that is one call is written by it, all or none, together with its number. A larger one:

====  ===================================================================  ===============================
step  what happens                                                         who dies behind it leaves
====  ===================================================================  ===============================
1     tasks stage their rows (``staging``)                                 keys that expire
2     the decision: which pieces, in which order, in a key that is set     a batch that will be written
      once
3     piece after piece is appended (``sink_targets``)                     a part of it; the rest comes
4     the number of the batch is noted, the decision removed, then the     keys that expire
      pieces
====  ===================================================================  ===============================

Whoever commits next, a repetition or the next batch, finishes what was decided. New rows of a repeated batch
are thrown away: the decision stands.

==============================  ===============================  =========================================
key                             holds                            lives
==============================  ===============================  =========================================
``spark.sink:WRITER``           the decision (JSON)              until it is carried out; half a day if the
                                                                 writer has no name of its own
``spark.sink:WRITER:done``      number of the last batch that    for ever
                                was not one call to a stream
``spark.sink:WRITER:rows:…``    a piece                          a day; decided on: 30 days, or half a day
==============================  ===============================  =========================================

A writer without a name (a plain ``df.write``) is forgotten by streams after a day, hence the half.

Each key is touched by commands of its own, since on a cluster each lies elsewhere. Every step may be
repeated; so the whole is, for ``PATIENCE_S``, while the store is away."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from penstock.blocking import Client
from penstock.channels.model import EXPIRE_MS
from penstock.client.resending import CUT_OFF
from penstock.errors import PenstockError, StoreError, UsageError
from penstock.spark.sink_options import Kind
from penstock.spark.sink_targets import Appender, Batch, ahead, make_appender
from penstock.spark.staging import Piece, load, put, remove, rows_of

_LOGGER: Final = logging.getLogger("penstock.spark")

PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.5
#: How long the pieces of a decision stay, and with a nameless writer the decision, too.
_NAMED_S: Final = 30 * 86_400
_NAMELESS_S: Final = 43_200


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that will be written."""

    kind: Kind
    writer: str
    batch: int
    is_named: bool
    expire_ms: int
    #: keys, in the order of rows
    pieces: tuple[str, ...]


def key_of(writer: str) -> str:
    """Of the decision; the writer's other keys begin with it."""
    return f"spark.sink:{writer}"


def rows_prefix(writer: str) -> str:
    return f"{key_of(writer)}:rows"


def commit(
    client: Client, kind: Kind, batch: Batch, pieces: Sequence[Piece], *, expire_ms: int = EXPIRE_MS
) -> None:
    """All rows of a batch, once."""
    committing = _Committing(client, kind, batch, expire_ms)
    try:
        _insist(lambda: committing.run(list(pieces)))
    except PenstockError as error:
        if committing.is_decided:
            error.add_note(
                f"batch {batch.number} of the writer {batch.writer} is decided and written in part: the same"
                f" batch, or a write with the options writer={batch.writer!r} and batchId={batch.number},"
                " finishes it"
            )
        raise


def abort(client: Client, writer: str, pieces: Iterable[Piece]) -> None:
    """Throw away what was staged, but for what was decided: Spark also aborts what failed in ``commit``."""
    decision = _read(client, writer)
    decided = decision.pieces if decision is not None else ()
    remove(client, [piece for piece in pieces if piece.key not in decided])


class _Committing:
    """One batch, on the driver."""

    def __init__(self, client: Client, kind: Kind, batch: Batch, expire_ms: int) -> None:
        self._client = client
        self._kind: Kind = kind
        self._batch = batch
        self._expire_ms = expire_ms
        self.is_decided = False

    def run(self, pieces: list[Piece]) -> None:
        if not self._finish_earlier() and not self._is_done() and pieces:
            self._write(pieces)
        remove(self._client, pieces)

    def _finish_earlier(self) -> bool:
        """Carry out what was decided before; whether that was this batch."""
        decision = _read(self._client, self._batch.writer)
        if decision is None:
            return False
        self.is_decided = decision.batch == self._batch.number
        self._carry_out(decision)
        return self.is_decided

    def _is_done(self) -> bool:
        done = self._client.get(f"{key_of(self._batch.writer)}:done")
        if done is not None and int(done) > self._batch.number:
            raise ahead(self._batch, int(done))
        return done is not None and int(done) == self._batch.number

    def _write(self, pieces: list[Piece]) -> None:
        appender = make_appender(self._client, self._kind, self._batch, self._expire_ms)
        if appender.has_any(_counts(pieces)):
            return
        if appender.takes_at_once(pieces):
            self._write_at_once(appender, pieces)
        else:
            self._carry_out(self._decide(pieces))

    def _write_at_once(self, appender: Appender, pieces: list[Piece]) -> None:
        rows = rows_of(self._client, pieces[0])
        for piece in pieces[1:]:
            rows.extend(rows_of(self._client, piece))
        appender.append(rows)
        if not appender.remembers_batches:
            self._note_done(self._batch)

    def _decide(self, pieces: list[Piece]) -> Decision:
        """The decision that stands: ours, or that of another driver who was faster."""
        life_s = _NAMED_S if self._batch.is_named else _NAMELESS_S
        decision = Decision(
            kind=self._kind,
            writer=self._batch.writer,
            batch=self._batch.number,
            is_named=self._batch.is_named,
            expire_ms=self._expire_ms,
            pieces=tuple(self._in_store(pieces)),
        )
        for key in decision.pieces:
            if not self._client.expire(key, life_s):
                raise StoreError(
                    f"the staged rows {key} are gone before batch {self._batch.number} was decided:"
                    " write it again"
                )
        key = key_of(self._batch.writer)
        manifest = msgspec.json.encode(decision)
        self._client.set(key, manifest, nx=True, ex=None if self._batch.is_named else life_s)
        self.is_decided = True
        standing = _read(self._client, self._batch.writer) or decision
        if standing.batch != self._batch.number:
            raise UsageError(
                f"two queries use the writer {self._batch.writer} at the same time: give each one its own"
                " name in the option writer"
            )
        return standing

    def _in_store(self, pieces: list[Piece]) -> Iterable[str]:
        """The keys of all pieces. Those that came in messages are put there; others throw theirs away."""
        prefix = f"{rows_prefix(self._batch.writer)}:{secrets.token_hex(8)}"
        for place, piece in enumerate(pieces):
            if not piece.key:
                pieces[place] = put(self._client, f"{prefix}:{place}", piece)
            yield pieces[place].key

    def _carry_out(self, decision: Decision) -> None:
        batch = Batch(decision.writer, decision.batch, decision.is_named)
        appender = make_appender(self._client, decision.kind, batch, decision.expire_ms)
        for key in decision.pieces:
            appender.append(load(self._client, key))
        self._note_done(batch)
        self._client.delete(key_of(decision.writer))
        for key in decision.pieces:
            self._client.unlink(key)

    def _note_done(self, batch: Batch) -> None:
        life_s = None if batch.is_named else _NAMELESS_S
        self._client.set(f"{key_of(batch.writer)}:done", str(batch.number), ex=life_s)


def _read(client: Client, writer: str) -> Decision | None:
    text = client.get(key_of(writer))
    return None if text is None else msgspec.json.decode(text, type=Decision)


def _counts(pieces: Sequence[Piece]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(piece.counts)
    return counts


def _insist(action: Callable[[], None]) -> None:
    """Again and again while the store is away, for a while."""
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except CUT_OFF as error:
            if time.monotonic() + _PAUSE_S > ends_s:
                raise
            _LOGGER.warning("a batch is committed again in %.1f s: %s", _PAUSE_S, error)
        time.sleep(_PAUSE_S)
