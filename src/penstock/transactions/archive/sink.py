"""What an archive is to the rest: a place that takes batches of ended transactions and finds them again.

    sink.write(batch)                              # when it returns, each of them is in the archive, once
    sink.find("tx-0-018c2f5a7b3…")                 # every field and every entry of the trail
    sink.search(ArchiveQuery(owner="acme"))        # newest first

Rules for whoever implements ``ArchiveSink``:

1. ``write`` returns when everything is durable and was read back; an error means that nothing is promised.
2. A transaction that was handed out before (``ArchiveBatch.again``) may be in the archive already: if it is
   there, of the same run, it is not written a second time.
3. A batch that is older than one that was begun is refused: its writer lost the role while it was away.
4. A transaction that was replayed comes again with a higher run; readers see the highest.
5. Methods block and may be called from any thread. Errors are ``StoreError`` and what belongs to it.

Nothing here knows files, or the store that transactions come from.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from penstock.errors import UsageError
from penstock.transactions import keys
from penstock.transactions.model import Record, Transaction, transaction_from

MAX_PAGE: Final = 1_000
_CURSOR: Final = re.compile(rb"([0-9a-f]{1,16}) ([a-z0-9.-]*)")


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """One transaction as it was when it left the store."""

    id: str
    #: every field; ``archive_batch`` names the batch it was archived with
    fields: dict[bytes, bytes]
    #: entries as they were stored, oldest first
    trail: list[bytes]

    @property
    def run(self) -> int:
        return self.record.number(b"run")

    @property
    def batch(self) -> int:
        return self.record.number(b"archive_batch")

    @property
    def record(self) -> Record:
        return Record(self.id, self.fields)

    def transaction(self) -> Transaction:
        """What users see of it."""
        return transaction_from(self.record, self.trail, is_archived=True)


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """What a store handed out at once."""

    #: names the store, so that numbers of two stores are not compared
    source: str
    partition: int
    #: grows by at least one with each batch of a partition
    number: int
    records: Sequence[ArchivedRecord]
    #: id -> number of an earlier batch that it was handed out with
    again: Mapping[str, int] = field(default_factory=dict)


class Position(NamedTuple):
    """Where a transaction stands among all: by the time of its start, which its id tells, then by its id."""

    start_ms: int
    id: str


def position_of(tx: str) -> Position:
    """A child stands beside its root."""
    return Position(keys.created_ms_of(tx), tx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveQuery:
    """What to search for; None for any."""

    owner: str | None = None
    #: how it ended
    status: str | None = None
    pipeline: str | None = None
    external_id: str | None = None
    #: when it was started (a child: its root), as its id tells: from here …
    since_ms: int | None = None
    #: … and before this
    until_ms: int | None = None
    limit: int = 100
    #: of the page before
    cursor: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_PAGE:
            raise UsageError(f"limit must be 1 to {MAX_PAGE}, not {self.limit}")
        self.before()

    def before(self) -> Position | None:
        """Only what stands before this is wanted: older, or of a smaller id."""
        if self.cursor is None:
            return None
        try:
            told = _CURSOR.fullmatch(base64.b64decode(self.cursor, b"-_", validate=True))
        except (binascii.Error, ValueError):
            told = None
        if told is None:
            raise UsageError(f"cursor must be one that an earlier page came with, not {self.cursor!r}")
        return Position(int(told[1], 16), told[2].decode("ascii"))


def cursor_at(position: Position) -> str:
    return base64.b64encode(f"{position.start_ms:x} {position.id}".encode("ascii"), b"-_").decode("ascii")


class ArchivePage(NamedTuple):
    """What was found, newest first."""

    items: list[ArchivedRecord]
    #: for the next page, which may be empty; None: that was all
    cursor: str | None


def newest_of(
    search: Callable[[ArchiveQuery], ArchivePage], owner: str, external_id: str
) -> ArchivedRecord | None:
    """The newest transaction of an owner with this external id, page by page: some may be empty."""
    cursor: str | None = None
    while True:
        items, cursor = search(ArchiveQuery(owner=owner, external_id=external_id, limit=1, cursor=cursor))
        if items or cursor is None:
            return items[0] if items else None


class ArchiveSink(Protocol):
    def write(self, batch: ArchiveBatch) -> None:
        """Put all of them into the archive, each once."""

    def newest_batch(self, source: str, partition: int) -> int:
        """Number of the newest batch that anybody began to write; 0 for none."""

    def find(self, tx: str) -> ArchivedRecord | None:
        """The last run of a transaction."""

    def find_external(self, owner: str, external_id: str) -> ArchivedRecord | None:
        """The newest transaction of an owner with this external id."""

    def search(self, query: ArchiveQuery) -> ArchivePage:
        """A page of what matches."""
