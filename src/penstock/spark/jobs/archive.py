"""``archive``: ended transactions from the store to the lake, and what is told apart from them there.

    jobs:
      archive: {every: 10s, batch: 5000}

Any number of nodes may run it. For each partition the store gives work to one of them (``handing_out``). A
round takes a batch of each partition that has something due, puts all of them into the table
``transactions`` by one commit (``archive_intake``, which tells why each is there once), and then tells the
store to forget them. Rounds go on until nothing is given any more. Then the tables ``steps`` and
``webhooks`` take in what is new (``derive``).

Rules: the store is told of nothing that is not in the lake, read back and committed. A partition that cannot
be asked does not stop the others. Memory holds one round, ``max_rows`` transactions at most (one batch, if
that is more).

Nothing here knows files or Spark.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Sequence

import msgspec

from penstock.blocking.portal import PORTAL
from penstock.errors import ConfigError
from penstock.spark.jobs.archive_intake import Intake
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.transactions import keys
from penstock.transactions.archive.handing_out import HandingOut, check_batch, check_locks
from penstock.transactions.archive.sink import ArchiveBatch

logger = logging.getLogger(__name__)


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ended transactions are archived."""

    #: transactions of a partition at once
    batch: int = 5_000
    #: … and of all partitions together
    max_rows: int = 20_000
    #: the name that the store knows this node by; without one it is made of the host's
    node: str = ""
    #: how long a node keeps the role of a partition
    lock1_ms: int = 60_000
    #: until when nobody else gets it; in between, who had it can still say what it has done
    lock2_ms: int = 70_000

    def __post_init__(self) -> None:
        check_batch(self.batch)
        check_locks(self.lock1_ms, self.lock2_ms)
        if self.max_rows < 1:
            raise ConfigError(f"max_rows must be at least 1, not {self.max_rows}")
        if self.node:
            keys.check_name("node", self.node)


class ArchiveJob:
    """One node's part in archiving."""

    def __init__(self, options: ArchiveOptions | None = None) -> None:
        self.name = "archive"
        self.options = options or ArchiveOptions()
        self.node = self.options.node or f"{_host()}-{os.getpid()}-{secrets.token_hex(2)}"

    def run_once(self, context: JobContext) -> JobReport:
        # Options can be read where Spark is not installed.
        from penstock.spark.jobs.derive import derive

        started_ms = context.clock.now_ms()
        work = _Pass(self, context)
        work.run()
        derived = derive(context)
        lag = work.lag()
        work.raise_failure()
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=work.counts["batches"],
            rows=work.counts["rows"],
            lag=lag,
            notes={**work.notes(), **derived},
        )

    def __repr__(self) -> str:
        return f"<ArchiveJob of {self.node}>"


class _Pass:
    """The work of one ``run_once``."""

    def __init__(self, job: ArchiveJob, context: JobContext) -> None:
        options = job.options
        self.counts: Counter[str] = Counter()
        self._options = options
        self._context = context
        self._store = context.store.transactions.store
        self._handing_out = HandingOut(
            self._store, node=job.node, lock1_ms=options.lock1_ms, lock2_ms=options.lock2_ms
        )
        self._intake = Intake(context.spark, context.lake)
        #: partitions that have given what they give to this node now
        self._finished: set[int] = set()
        #: where the next round begins, so that a busy partition does not keep others waiting
        self._turn = 0
        self._failure: Exception | None = None

    def run(self) -> None:
        while not self._context.stopping.is_set():
            batches = PORTAL.run(self._take())
            if not batches:
                return
            taken = self._intake.take_in(batches)
            # Who is not safe is handed out again, in a later pass.
            self._finished.update(
                {batch.partition for batch in batches} - {batch.partition for batch in taken.safe}
            )
            PORTAL.run(self._acknowledge(taken.safe))
            self.counts.update(
                batches=len(taken.safe),
                rows=taken.rows,
                held=taken.held,
                refused=taken.refused,
                busy=taken.busy,
            )
            self._context.report(batches=self.counts["batches"], rows=self.counts["rows"])

    def lag(self) -> int:
        """How many are due and still in the store."""
        return sum(PORTAL.run(self._due()))

    def notes(self) -> dict[str, int | str]:
        """What is out of the ordinary."""
        told = {**self.counts, "skipped": self._handing_out.counts["skipped"]}
        return {name: count for name, count in told.items() if count and name not in ("batches", "rows")}

    def raise_failure(self) -> None:
        """Of the first partition that could not be asked or told."""
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------------------------- with the store

    async def _due(self) -> list[int]:
        partitions = range(await self._store.partitions())
        return await asyncio.gather(*(self._handing_out.due(partition) for partition in partitions))

    async def _take(self) -> list[ArchiveBatch]:
        """A batch of each partition whose turn it is; [] if none gives anything."""
        while chosen := self._chosen(await self._due()):
            answers = await asyncio.gather(*map(self._ask, chosen), return_exceptions=True)
            batches: list[ArchiveBatch] = []
            for partition, answer in zip(chosen, answers, strict=True):
                if isinstance(answer, Exception):
                    self._fail(partition, answer)
                elif isinstance(answer, BaseException):
                    raise answer
                elif answer is not None and answer.records:
                    batches.append(answer)
                else:
                    self._finished.add(partition)
            if batches:
                return batches
        return []

    def _chosen(self, due: Sequence[int]) -> list[int]:
        """Partitions that are asked in this round, as many as fit into memory together."""
        chosen: list[int] = []
        rows = 0
        for place in range(len(due)):
            partition = (self._turn + place) % len(due)
            wanted = min(due[partition], self._options.batch)
            if not wanted or partition in self._finished:
                continue
            if chosen and rows + wanted > self._options.max_rows:
                break
            chosen.append(partition)
            rows += wanted
        self._turn = (chosen[-1] + 1) % len(due) if chosen else 0
        return chosen

    async def _ask(self, partition: int) -> ArchiveBatch | None:
        if not self._handing_out.is_settled(partition):
            source = await self._handing_out.source()
            newest = await asyncio.to_thread(self._intake.newest_batch, source, partition)
            await self._handing_out.settle(partition, newest)
        return await self._handing_out.ask(partition, self._options.batch)

    async def _acknowledge(self, safe: Sequence[ArchiveBatch]) -> None:
        for batch in safe:
            self._handing_out.note_safe(batch)
        told = (self._handing_out.acknowledge(batch.partition) for batch in safe)
        answers = await asyncio.gather(*told, return_exceptions=True)
        for batch, answer in zip(safe, answers, strict=True):
            if isinstance(answer, Exception):
                self._fail(batch.partition, answer)
            elif isinstance(answer, BaseException):
                raise answer

    def _fail(self, partition: int, error: Exception) -> None:
        """Others go on; what this one has is handed out again."""
        logger.warning("partition %d is not archived further in this pass: %s", partition, error)
        self._finished.add(partition)
        self._failure = self._failure or error


def _host() -> str:
    """A part of a name that the store accepts."""
    name = "".join(
        letter if letter.isalnum() and letter.isascii() else "-" for letter in socket.gethostname()
    )
    return name[:80] or "node"
