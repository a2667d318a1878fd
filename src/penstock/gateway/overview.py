"""What happens on a store, at one look: transactions, node groups, jobs of the data pipeline, the store.

    reader = OverviewReader(client, facility, store_reader)
    overview = await reader.read("5s")

It is made to be read every second. Names of node groups are worth hundreds of reads and change seldom, so
they are kept for :data:`NAMES_S`; of statistics only the slots that are not over are read again, and all of
them every :data:`WINDOW_S`. Everything but statistics is the same for every level, and shared by those who
look at the same moment.

Rules: a store that does not answer raises. Nothing here knows HTTP, nor who looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.client.client import Client
from penstock.clock import Clock, SystemClock
from penstock.gateway.job_states import JobState, read_jobs
from penstock.gateway.store_figures import StoreFigures, StoreReader
from penstock.transactions import Transactions
from penstock.transactions import looking as transactions_looking
from penstock.transactions.statistics import Level, Series, Statistics
from penstock.transactions.workers_registry import WorkerInfo

#: How long names of node groups are believed.
NAMES_S: Final = 5.0
#: How long slots that are over are believed.
WINDOW_S: Final = 60.0
#: What was read so lately is told again.
_FRESH_S: Final = 0.5


class JobFigures(msgspec.Struct, kw_only=True):
    """Jobs of the data pipeline in numbers, of runners that are there."""

    running: int
    #: whose last pass failed
    failing: int
    alive_nodes: int


class TransactionSide(NamedTuple):
    """What there is of transactions now."""

    overview: transactions_looking.Overview
    groups: list[transactions_looking.GroupInfo]
    workers: list[WorkerInfo]
    wishes: Mapping[str, int]


class Overview(NamedTuple):
    """One look; without transactions where they are not enabled."""

    now_ms: int
    transactions: TransactionSide | None
    statistics: Series | None
    jobs: JobFigures
    store: StoreFigures


class _Common(NamedTuple):
    transactions: TransactionSide | None
    jobs: JobFigures
    store: StoreFigures


class OverviewReader:
    """Looks for one worker."""

    def __init__(
        self, client: Client, facility: Transactions | None, store: StoreReader, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._facility = facility
        self._store = store
        self._clock = clock or SystemClock()
        self._windows: dict[Level, _Window] = {}
        self._names: set[str] = set()
        self._names_s: float | None = None
        self._common: _Common | None = None
        self._common_s = 0.0
        self._reading = asyncio.Lock()

    async def read(self, level: Level) -> Overview:
        async with self._reading:
            now_s = self._clock.monotonic_s()
            if self._common is None or now_s - self._common_s >= _FRESH_S:
                self._common = await self._read_common()
                self._common_s = now_s
            common = self._common
            series = None if self._facility is None else await self._window(level).read()
        return Overview(self._clock.now_ms(), common.transactions, series, common.jobs, common.store)

    def _window(self, level: Level) -> _Window:
        assert self._facility is not None
        if level not in self._windows:
            self._windows[level] = _Window(self._facility.statistics, level, self._clock)
        return self._windows[level]

    async def _read_common(self) -> _Common:
        side = None if self._facility is None else await self._side(self._facility)
        return _Common(side, job_figures(await read_jobs(self._client)), await self._store.read())

    async def _side(self, facility: Transactions) -> TransactionSide:
        now_s = self._clock.monotonic_s()
        if self._names_s is None or now_s - self._names_s >= NAMES_S:
            self._names = await facility.looking.group_names()
            self._names_s = now_s
        return TransactionSide(
            await facility.looking.overview(self._names),
            await facility.looking.groups(self._names),
            await facility.workers.list(),
            await facility.workers.wishes(),
        )


def job_figures(jobs: Iterable[JobState]) -> JobFigures:
    living = [job for job in jobs if job.is_alive]
    return JobFigures(
        running=sum(job.state == "running" for job in living),
        failing=sum(job.is_failing for job in living),
        alive_nodes=len({job.node for job in living}),
    )


class _Window:
    """Statistics of one level, of which only the end is read again."""

    def __init__(self, statistics: Statistics, level: Level, clock: Clock) -> None:
        self._statistics = statistics
        self._level: Level = level
        self._clock = clock
        self._known: Series | None = None
        self._whole_s = 0.0

    async def read(self) -> Series:
        now_s = self._clock.monotonic_s()
        known = self._known
        if known is None or now_s - self._whole_s >= WINDOW_S:
            self._known = await self._statistics.read(self._level)
            self._whole_s = now_s
            return self._known
        # The one before the last as well: it was not over when it was read.
        since_ms = known.slots[-1].start_s * 1_000 - 1
        fresh = await self._statistics.read(self._level, since_ms=since_ms)
        slots = {slot.start_s: slot for slot in (*known.slots, *fresh.slots)}
        kept = [slots[start] for start in sorted(slots)][-len(known.slots) :]
        self._known = Series(self._level, kept, fresh.now_ms)
        return self._known
