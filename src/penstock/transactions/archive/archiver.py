"""Moves ended transactions from the store to the archive: a duty that any number of nodes may run.

    archiver = Archiver(store, sink, node="shop-1")
    task = asyncio.create_task(archiver.run())
    …
    await archiver.stop()

For each partition the store gives the role to one node at a time. Who has it gets a batch, writes it, and
says so with its next question (``handing_out``); only then does the store forget them. What is not said for
any reason is handed out again, and the sink sees that it has it already.

Rules: one batch is in memory. A partition that fails does not stop the others. An error of the store or of
the sink makes the duty wait, longer each time, and try again; nothing is acknowledged that is not safe.
When nothing is due one small read a partition is made every ``idle_ms`` at most, or when the next becomes
due.

The sink blocks, so it works in a thread. Nothing here knows what an archive consists of.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, PenstockError
from penstock.transactions.archive.handing_out import LOCK1_MS, LOCK2_MS, HandingOut, check_batch
from penstock.transactions.archive.sink import ArchiveSink
from penstock.transactions.store import TransactionStore

logger = logging.getLogger(__name__)

#: Batches of one partition before others get their turn.
_TURNS: Final = 8
#: The store's clock and ours differ a little: who comes too early looks again after this.
_SHORTEST_MS: Final = 50


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
        lock1_ms: int = LOCK1_MS,
        lock2_ms: int = LOCK2_MS,
        idle_ms: int = 2_000,
        retry_ms: int = 1_000,
        max_retry_ms: int = 60_000,
        clock: Clock | None = None,
    ) -> None:
        """``lock1_ms``: how long a node keeps the role; ``lock2_ms``: until when nobody else gets it."""
        check_batch(batch)
        for name, value in (("idle_ms", idle_ms), ("retry_ms", retry_ms), ("max_retry_ms", max_retry_ms)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        self._handing_out = HandingOut(store, node=node, lock1_ms=lock1_ms, lock2_ms=lock2_ms)
        self._store = store
        self._sink = sink
        self._batch = batch
        self._idle_ms = idle_ms
        self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._clock = clock or SystemClock()
        self._counts: Counter[str] = Counter()
        self._last_error = ""
        self._last_error_ms: int | None = None
        self._last_batch_ms: int | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def node(self) -> str:
        return self._handing_out.node

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
                self._handing_out.unsettle(partition)
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
            **self._handing_out.counts,
        )

    # ------------------------------------------------------------------------------- one partition

    async def _work(self, partition: int) -> int:
        handing_out = self._handing_out
        if partition not in handing_out.owed and await handing_out.due_in_ms(partition) != 0:
            return 0
        await self._settle(partition)
        archived = 0
        for _ in range(_TURNS):
            batch = await handing_out.ask(partition, self._batch)
            if batch is None or not batch.records:
                break
            await asyncio.to_thread(self._sink.write, batch)
            handing_out.note_safe(batch)
            archived += len(batch.records)
            self._last_batch_ms = self._clock.now_ms()
            self._counts.update(batches=1, archived=len(batch.records), again=len(batch.again))
            if self._stopping.is_set():
                break
        await handing_out.acknowledge(partition)
        return archived

    async def _settle(self, partition: int) -> None:
        if not self._handing_out.is_settled(partition):
            source = await self._handing_out.source()
            newest = await asyncio.to_thread(self._sink.newest_batch, source, partition)
            await self._handing_out.settle(partition, newest)

    async def _acknowledge_all(self) -> None:
        """At the end. Who cannot be told now hands them out again, and they are recognised."""
        for partition in self._handing_out.owed:
            try:
                await self._handing_out.acknowledge(partition)
            except PenstockError as error:
                logger.warning("partition %d was not told what is archived: %s", partition, error)

    # ---------------------------------------------------------------------------------------- time

    async def _until_due_ms(self) -> int:
        """How long nothing can be done: until something is due, or another node may have lost the role."""
        waits = [
            await self._handing_out.due_in_ms(partition)
            for partition in range(await self._store.partitions())
        ]
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
