"""One node's talk with a store about what may be archived: ask for a batch, say that it is safe.

    handing_out = HandingOut(store, node="shop-1")
    batch = await handing_out.ask(partition, 500)       # None: another node has the role, or nothing is due
    …                                                   # the batch goes to an archive
    handing_out.note_safe(batch)
    await handing_out.acknowledge(partition)            # now the store forgets them

For each partition the store gives the role to one node at a time (``lua/to_archive.lua``). What was given
and is not acknowledged for any reason is handed out again, to the same node or to another, with the number
of the batch that it was given with before.

Rules: what is safe is told with the next question, or with ``acknowledge``; at most one batch a partition is
known to be safe and not told yet. Numbers of batches only grow, even if the store came back from a backup
that is older than the archive (``settle``).

Nothing here knows what an archive consists of, nor when to ask.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from penstock.client.client import Client
from penstock.errors import ConfigError, StoreCorruptError, UsageError
from penstock.transactions import keys
from penstock.transactions.archive.sink import ArchiveBatch, ArchivedRecord
from penstock.transactions.model import record_from
from penstock.transactions.store import TransactionStore

logger = logging.getLogger(__name__)

#: Names the store to archives; written once, by the first who needs it.
SOURCE: Final = "tx.archive"
MAX_BATCH: Final = 10_000
#: How long a node keeps the role of a partition, and until when nobody else gets it.
LOCK1_MS: Final = 60_000
LOCK2_MS: Final = 90_000
_BATCH_FIELD: Final = b"archive_batch"
#: Words (two a transaction) that one script is told: others want the store as well.
_TOLD_AT_ONCE: Final = 2_000


class HandingOut:
    """What one node knows of the batches it was given."""

    def __init__(
        self, store: TransactionStore, *, node: str, lock1_ms: int = LOCK1_MS, lock2_ms: int = LOCK2_MS
    ) -> None:
        """``lock1_ms``: how long a node keeps the role; ``lock2_ms``: until when nobody else gets it."""
        check_locks(lock1_ms, lock2_ms)
        self.node = keys.check_name("node", node)
        #: acknowledged: transactions that the store was told of; skipped: entries that are no transactions
        self.counts: Counter[str] = Counter()
        self._store = store
        self._locks_ms = (lock1_ms, lock2_ms)
        self._source = ""
        #: partitions whose numbers of batches are known to be ahead of the archive's
        self._settled: set[int] = set()
        #: partition -> tx, run, …: safe, and the store does not know yet; at most one batch
        self._safe: dict[int, list[Any]] = {}

    # -------------------------------------------------------------------------------------- batches

    async def ask(self, partition: int, most: int) -> ArchiveBatch | None:
        """Tell what is safe, and get more; None without the role, or with nothing due."""
        source = await self.source()
        while len(self._safe.get(partition, ())) > _TOLD_AT_ONCE:
            await self._tell(partition, 0)
        has_role, number, *items = await self._tell(partition, most)
        return self._batch_of(source, partition, number, items) if has_role and items else None

    async def _tell(self, partition: int, most: int) -> Any:
        """The script's reply, when it was told a portion of what is safe."""
        safe = self._safe.get(partition, [])
        told, left = safe[:_TOLD_AT_ONCE], safe[_TOLD_AT_ONCE:]
        reply = await self._store.run("to_archive", partition, self.node, most, *self._locks_ms, *told)
        self.counts["acknowledged"] += len(told) // 2
        if left:
            self._safe[partition] = left
        else:
            self._safe.pop(partition, None)
        return reply

    def note_safe(self, batch: ArchiveBatch) -> None:
        """A batch is in the archive: the store is told of it with the next question."""
        self._safe[batch.partition] = [
            word for record in batch.records for word in (record.id, record.fields.get(b"run", b"0"))
        ]

    async def acknowledge(self, partition: int) -> None:
        """Tell the store what is safe, if there is anything, and ask for nothing."""
        if partition in self._safe:
            await self.ask(partition, 0)

    @property
    def owed(self) -> list[int]:
        """Partitions that do not know yet what is safe of theirs."""
        return list(self._safe)

    def _batch_of(self, source: str, partition: int, number: int, items: Sequence[Any]) -> ArchiveBatch:
        records: list[ArchivedRecord] = []
        again: dict[str, int] = {}
        for name, flat, trail in items:
            tx = name.decode("utf-8", "replace")
            try:
                keys.partition_of(tx)
            except UsageError:
                self._skip(partition, tx)
                continue
            record = record_from(tx, flat)
            if _BATCH_FIELD in record.fields:
                again[tx] = record.number(_BATCH_FIELD)
            # As the store has it from now on, so that one that is restored is known to be here.
            record.fields[_BATCH_FIELD] = b"%d" % number
            records.append(ArchivedRecord(tx, record.fields, trail))
        return ArchiveBatch(source, partition, number, records, again)

    def _skip(self, partition: int, tx: str) -> None:
        if not self.counts["skipped"]:
            logger.warning("partition %d cannot archive %r: it is no id of a transaction", partition, tx)
        self.counts["skipped"] += 1

    # -------------------------------------------------------------------------------------- numbers

    async def source(self) -> str:
        """The name of this store in archives."""
        if not self._source:
            self._source = await source_of(self._store.client)
        return self._source

    def is_settled(self, partition: int) -> bool:
        return partition in self._settled

    async def settle(self, partition: int, newest: int) -> None:
        """The archive has batches up to ``newest``: what is handed out from now on has greater numbers."""
        key = f"{keys.prefix_of(partition)}archiveN"
        client = self._store.client
        given: Any = await client.execute("GET", key)
        if int(given or 0) < newest:
            await client.execute("INCRBY", key, newest - int(given or 0))
        self._settled.add(partition)

    def unsettle(self, partition: int) -> None:
        """Something went wrong: look at its numbers again."""
        self._settled.discard(partition)

    # ---------------------------------------------------------------------------------------- time

    async def due_in_ms(self, partition: int) -> int | None:
        """When the next of a partition may be archived; None if there is none, 0 if it is due."""
        client = self._store.client
        head = await client.zrange(f"{keys.prefix_of(partition)}toArchiveZ", 0, 0, withscores=True)
        if not head:
            return None
        seconds, microseconds = await client.time()
        return max(int(head[0][1]) - seconds * 1_000 - microseconds // 1_000, 0)

    async def due(self, partition: int) -> int:
        """How many of a partition may be archived now, whoever has the role."""
        client = self._store.client
        seconds, microseconds = await client.time()
        now_ms = seconds * 1_000 + microseconds // 1_000
        count: Any = await client.execute("ZCOUNT", f"{keys.prefix_of(partition)}toArchiveZ", "-inf", now_ms)
        return int(count)

    def __repr__(self) -> str:
        return f"<HandingOut to {self.node}, {len(self._safe)} partitions to be told>"


def check_locks(lock1_ms: int, lock2_ms: int) -> None:
    if not 0 < lock1_ms < lock2_ms:
        raise ConfigError(f"lock2_ms must be more than lock1_ms ({lock1_ms}), not {lock2_ms}")


def check_batch(batch: int) -> None:
    if not 1 <= batch <= MAX_BATCH:
        raise ConfigError(f"batch must be 1 to {MAX_BATCH}, not {batch}")


async def source_of(client: Client) -> str:
    """The name of a store in archives."""
    found: Any = await client.execute("GET", SOURCE)
    if found is None:
        await client.execute("SET", SOURCE, secrets.token_hex(8), "NX")
        found = await client.execute("GET", SOURCE)
    text = found.decode("ascii", "replace") if isinstance(found, bytes) else ""
    if not text.isalnum() or len(text) > 64:
        raise StoreCorruptError(f"{SOURCE} must hold the name that this store has in archives, not {found!r}")
    return text
