"""Archived transactions for those who ask a store and do not find them there.

    reader = ArchiveReader(sink)
    await reader.get("tx-0-018c2f5a7b3…")          # as the store would show it, with is_archived
    await reader.restore(store, "tx-0-…")          # back in the store, so that it can be replayed

Rules: the sink blocks, so it works in threads. An owner who has not got it learns nothing.
Nothing here knows what an archive consists of.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.errors import OutcomeUnknownError
from penstock.transactions import keys
from penstock.transactions.archive.sink import ArchivedRecord, ArchiveQuery, ArchiveSink
from penstock.transactions.model import Record, Transaction
from penstock.transactions.store import TransactionStore


class TransactionPage(NamedTuple):
    """What was found in an archive, newest first."""

    items: list[Transaction]
    #: for the next page, which may be empty; None: that was all
    cursor: str | None


class ArchiveReader:
    """What a facility sees of an archive."""

    def __init__(self, sink: ArchiveSink) -> None:
        self.sink = sink

    async def get(self, tx: str, *, owner: str = "") -> Transaction | None:
        """The last run of a transaction (of this owner); None if the archive has none."""
        found = await self._find(tx, owner)
        return None if found is None else found.transaction()

    async def record(self, tx: str, *, owner: str = "") -> Record | None:
        """… as it was stored."""
        found = await self._find(tx, owner)
        return None if found is None else found.record

    async def get_external(self, owner: str, external_id: str) -> Transaction | None:
        """The newest transaction of an owner with this external id."""
        found = await asyncio.to_thread(self.sink.find_external, owner, external_id)
        return None if found is None else found.transaction()

    async def search(self, query: ArchiveQuery) -> TransactionPage:
        items, cursor = await asyncio.to_thread(self.sink.search, query)
        return TransactionPage([item.transaction() for item in items], cursor)

    async def restore(self, store: TransactionStore, tx: str, *, owner: str = "") -> bool:
        """Put it back as it was. True: the store has it now; False: the archive has none (of this owner).

        One that nobody replays leaves the store again after the delay, and is not archived twice.
        """
        found = await self._find(tx, owner)
        if found is None:
            return False
        words = [word for pair in found.fields.items() for word in pair]
        arguments = (tx, len(words), *words, *found.trail)
        try:
            await store.run("restore", keys.partition_of(tx), *arguments)
        except OutcomeUnknownError:
            # One that is there is left alone, so a second try does no harm.
            await store.run("restore", keys.partition_of(tx), *arguments)
        return True

    async def _find(self, tx: str, owner: str) -> ArchivedRecord | None:
        found = await asyncio.to_thread(self.sink.find, tx)
        if found is None or (owner and found.record.text(b"owner") != owner):
            return None
        return found

    def __repr__(self) -> str:
        return f"<ArchiveReader of {self.sink!r}>"
