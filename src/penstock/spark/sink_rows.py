"""Arrow batches of a DataFrame become rows to be staged, judged: what is taken here is never refused later.

    for rows in RowTaker(target).take(batch): …

Refused are rows without a name, tombstones without a tag, and for channels what is no JSON. A row that was
decided on and could not be written would stop its query for ever, so all of this happens in tasks.

Pure: nothing is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.channels.keys import check_id
from penstock.channels.model import to_json
from penstock.errors import ContentError, UsageError
from penstock.spark.sink_options import Target
from penstock.spark.staging import PIECE_BYTES, Rows


class RowTaker:
    """For the batches of one task."""

    def __init__(self, target: Target) -> None:
        self._target = target
        #: names that are good
        self._known: set[str] = set()

    def take(self, batch: Any) -> Iterator[Rows]:
        """The rows of a ``pyarrow.RecordBatch``; a huge one in several goes."""
        parts = max(1, batch.nbytes // PIECE_BYTES)
        step = max(1, -(-batch.num_rows // parts))
        for start in range(0, batch.num_rows, step):
            yield self._taken(batch.slice(start, step))

    def _taken(self, batch: Any) -> Rows:
        names = self._names(batch)
        messages = _bytes(batch.column("message"))
        if self._target.kind == "channel":
            return Rows(names, b"", [_json(message) for message in messages.to_pylist()])
        return Rows(names, self._tags(batch, messages), messages.to_pylist())

    def _names(self, batch: Any) -> list[str] | str:
        kind = self._target.kind
        if self._target.name:
            return self._target.name
        column = batch.column(kind)
        if column.null_count:
            raise UsageError(f"the column {kind} is null in a row: every row must tell where it goes")
        names: list[str] = column.to_pylist()
        for name in set(names) - self._known:
            self._check_name(name)
            self._known.add(name)
        return names

    def _check_name(self, name: str) -> None:
        if self._target.kind == "channel":
            check_id("the column channel", name)
        elif not name:
            raise UsageError("the column stream is empty in a row: every row must tell where it goes")

    def _tags(self, batch: Any, messages: Any) -> list[bytes] | bytes:
        if not self._target.has_tag_column:
            tag = (self._target.tag or "").encode()
            if messages.null_count and not tag:
                _refuse_tombstone()
            return tag
        tags = _bytes(batch.column("tag")).fill_null(b"")
        if (
            messages.null_count
            and pc.any(pc.equal(pc.binary_length(tags.filter(messages.is_null())), 0)).as_py()
        ):
            _refuse_tombstone()
        taken: list[bytes] = tags.to_pylist()
        return taken


def _bytes(column: Any) -> Any:
    return column.cast(pa.binary())


def _refuse_tombstone() -> None:
    raise UsageError(
        "the column message is null in a row without a tag: a tombstone says which tag is over,"
        " so filter such rows out, or give them a tag"
    )


def _json(message: bytes | None) -> bytes:
    """As the channel would keep it."""
    if message is None:
        raise UsageError("the column message is null in a row: channels have no tombstones, filter it out")
    try:
        return to_json(json.loads(message))
    except (ValueError, RecursionError):
        raise ContentError(
            f"the column message is no JSON in a row ({message[:60]!r}): make it with to_json()"
        ) from None
