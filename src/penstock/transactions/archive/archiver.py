"""Moves ended transactions from the store to the archive: a duty that any number of nodes may run.

    archiver = Archiver(store, sink, node="shop-1")
    task = asyncio.create_task(archiver.run())
    …
    await archiver.stop()

For each partition the store gives the role to one node at a time (``lua/to_archive.lua``). Who has it gets
a batch, writes it, and says so with its next question; only then does the store forget them. What is not
said for any reason is handed out again, and the sink sees that it has it already.

Rules: one batch is in memory. A partition that fails does not stop the others. An error of the store or of
the sink makes the duty wait, longer each time, and try again; nothing is acknowledged that is not safe.
When nothing is due one small read a partition is made every ``idle_ms`` at most, or when the next becomes
due.

The sink blocks, so it works in a thread. Nothing here knows what an archive consists of.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, PenstockError, StoreCorruptError, UsageError
from penstock.transactions import keys
from penstock.transactions.archive.sink import ArchiveBatch, ArchivedRecord, ArchiveSink
from penstock.transactions.model import record_from
from penstock.transactions.store import TransactionStore

logger = logging.getLogger(__name__)

#: Names the store to archives; written once, by the first who needs it.
SOURCE: Final = "tx.archive"
MAX_BATCH: Final = 10_000
#: Batches of one partition before others get their turn.
_TURNS: Final = 8
#: The store's clock and ours differ a little: who comes too early looks again after this.
_SHORTEST_MS: Final = 50
_BATCH_FIELD: Final = b"archive_batch"


class ArchiverStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one archiver since it was made."""

    is_running: bool
    #: batches that are safe, and transactions in them
    batches: int = 0
    archived: int = 0
    #: … that the store was told of
    acknowledged: int = 0
    #: … that had been handed out before
    again: int = 0
    #: entries that are no transactions, and were left alone
    skipped: int = 0
    errors: int = 0
    last_error: str = ""
    last_error_ms: int | None = None
    last_batch_ms: int | None = None


class Archiver:
    """One node's part in archiving."""

    def __init__(
        self,
        store: TransactionStore,
        sink: ArchiveSink,
        *,
        node: str,
        batch: int = 500,
        lock1_ms: int = 60_000,
        lock2_ms: int = 90_000,
        idle_ms: int = 2_000,
        retry_ms: int = 1_000,
        max_retry_ms: int = 60_000,
        clock: Clock | None = None,
    ) -> None:
        """``lock1_ms``: how long a node keeps the role; ``lock2_ms``: until when nobody else gets it."""
        if not 1 <= batch <= MAX_BATCH:
            raise ConfigError(f"batch must be 1 to {MAX_BATCH}, not {batch}")
        if not 0 < lock1_ms < lock2_ms:
            raise ConfigError(f"lock2_ms must be more than lock1_ms ({lock1_ms}), not {lock2_ms}")
        for name, value in (("idle_ms", idle_ms), ("retry_ms", retry_ms), ("max_retry_ms", max_retry_ms)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        self.node = keys.check_name("node", node)
        self._store = store
        self._sink = sink
        self._batch = batch
        self._locks_ms = (lock1_ms, lock2_ms)
        self._idle_ms = idle_ms
        self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._clock = clock or SystemClock()
        self._source = ""
        #: partitions whose numbers of batches are known to be ahead of the archive's
        self._settled: set[int] = set()
        #: partition -> tx, run, …: safe, and the store does not know yet; at most one batch
        self._done: dict[int, list[Any]] = {}
        self._counts: Counter[str] = Counter()
        self._last_error = ""
        self._last_error_ms: int | None = None
        self._last_batch_ms: int | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    # ---------------------------------------------------------------------------------------- duty

    async def run(self) -> None:
        """Until ``stop``, once. What goes wrong is logged, counted, and tried again."""
        self._ended.clear()
        pause_ms = self._retry_ms
        try:
            while not self._stopping.is_set():
                try:
                    archived = await self.run_once()
                    wait_ms = 0 if archived else await self._until_due_ms()
                    pause_ms = self._retry_ms
                except Exception as error:  # noqa: BLE001 - whatever it was, transactions must not pile up for ever
                    logger.warning("archiving failed and is tried again in %d ms: %s", pause_ms, error)
                    wait_ms, pause_ms = pause_ms, min(pause_ms * 2, self._max_retry_ms)
                await self._wait(wait_ms)
            await self._acknowledge_all()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """The batch that is being written is finished and acknowledged; then ``run`` returns."""
        self._stopping.set()
        await self._ended.wait()

    async def run_once(self) -> int:
        """Archive what is due; how many. The first error is raised when all partitions had their turn."""
        archived = 0
        failure: Exception | None = None
        for partition in range(await self._store.partitions()):
            try:
                archived += await self._work(partition)
            except Exception as error:  # noqa: BLE001 - other partitions go on; it is raised below
                self._settled.discard(partition)
                self._counts["errors"] += 1
                self._last_error, self._last_error_ms = str(error), self._clock.now_ms()
                failure = failure or error
            if self._stopping.is_set():
                break
        if failure is not None:
            raise failure
        return archived

    def statistics(self) -> ArchiverStatistics:
        return ArchiverStatistics(
            is_running=not self._ended.is_set(),
            last_error=self._last_error,
            last_error_ms=self._last_error_ms,
            last_batch_ms=self._last_batch_ms,
            **self._counts,
        )

    # ------------------------------------------------------------------------------- one partition

    async def _work(self, partition: int) -> int:
        if partition not in self._done and await self._due_in_ms(partition) != 0:
            return 0
        await self._settle_numbers(partition)
        archived = 0
        for _ in range(_TURNS):
            batch = await self._ask(partition, self._batch)
            if batch is None or not batch.records:
                break
            await asyncio.to_thread(self._sink.write, batch)
            self._done[partition] = [
                word for record in batch.records for word in (record.id, record.fields.get(b"run", b"0"))
            ]
            archived += len(batch.records)
            self._last_batch_ms = self._clock.now_ms()
            self._counts.update(batches=1, archived=len(batch.records), again=len(batch.again))
            if self._stopping.is_set():
                break
        await self._acknowledge(partition)
        return archived

    async def _ask(self, partition: int, most: int) -> ArchiveBatch | None:
        """Tell what is done, and get more; None without the role, or with nothing due."""
        done = self._done.get(partition, ())
        reply = await self._store.run("to_archive", partition, self.node, most, *self._locks_ms, *done)
        self._done.pop(partition, None)
        self._counts["acknowledged"] += len(done) // 2
        has_role, number, *items = reply
        return self._batch_of(partition, number, items) if has_role and items else None

    def _batch_of(self, partition: int, number: int, items: Sequence[Any]) -> ArchiveBatch:
        records: list[ArchivedRecord] = []
        again: dict[str, int] = {}
        for name, flat, trail in items:
            tx = name.decode("utf-8", "replace")
            try:
                keys.partition_of(tx)
            except UsageError:
                if not self._counts["skipped"]:
                    logger.warning(
                        "partition %d cannot archive %r: it is no id of a transaction", partition, tx
                    )
                self._counts["skipped"] += 1
                continue
            record = record_from(tx, flat)
            if _BATCH_FIELD in record.fields:
                again[tx] = record.number(_BATCH_FIELD)
            # As the store has it from now on, so that one that is restored is known to be here.
            record.fields[_BATCH_FIELD] = b"%d" % number
            records.append(ArchivedRecord(tx, record.fields, trail))
        return ArchiveBatch(self._source, partition, number, records, again)

    async def _acknowledge(self, partition: int) -> None:
        if partition in self._done:
            await self._ask(partition, 0)

    async def _acknowledge_all(self) -> None:
        """At the end. Who cannot be told now hands them out again, and they are recognised."""
        for partition in list(self._done):
            try:
                await self._acknowledge(partition)
            except PenstockError as error:
                logger.warning("partition %d was not told what is archived: %s", partition, error)

    async def _settle_numbers(self, partition: int) -> None:
        """Numbers of batches only grow, even if the store came back from a backup older than the archive."""
        if partition in self._settled:
            return
        client = self._store.client
        if not self._source:
            await client.execute("SET", SOURCE, secrets.token_hex(8), "NX")
            found: Any = await client.execute("GET", SOURCE)
            self._source = _source_in(found)
        newest = await asyncio.to_thread(self._sink.newest_batch, self._source, partition)
        key = f"{keys.prefix_of(partition)}archiveN"
        given: Any = await client.execute("GET", key)
        if int(given or 0) < newest:
            await client.execute("INCRBY", key, newest - int(given or 0))
        self._settled.add(partition)

    # ---------------------------------------------------------------------------------------- time

    async def _due_in_ms(self, partition: int) -> int | None:
        """When the next of a partition may be archived; None if there is none, 0 if it is due."""
        client = self._store.client
        head = await client.zrange(f"{keys.prefix_of(partition)}toArchiveZ", 0, 0, withscores=True)
        if not head:
            return None
        seconds, microseconds = await client.time()
        return max(int(head[0][1]) - seconds * 1_000 - microseconds // 1_000, 0)

    async def _until_due_ms(self) -> int:
        """How long nothing can be done: until something is due, or another node may have lost the role."""
        waits = [await self._due_in_ms(partition) for partition in range(await self._store.partitions())]
        # 0: due, and yet nothing was given: another node is at it.
        return max(min([self._idle_ms, *(wait for wait in waits if wait)]), _SHORTEST_MS)

    async def _wait(self, wait_ms: int) -> None:
        if wait_ms < 1:
            return
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def __repr__(self) -> str:
        state = "stopped" if self._ended.is_set() else "running"
        return f"<Archiver {self.node} {state}, {self._counts['archived']} archived>"


def _source_in(found: Any) -> str:
    text = found.decode("ascii", "replace") if isinstance(found, bytes) else ""
    if not text.isalnum() or len(text) > 64:
        raise StoreCorruptError(f"{SOURCE} must hold the name that this store has in archives, not {found!r}")
    return text
