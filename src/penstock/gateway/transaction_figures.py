"""Numbers of transactions for a scrape: how many there are, what happened in the last day, and what the data
pipeline does with them (``job_figures``).

They are the store's, so every worker of every gateway tells the same; they are gauges, since a day goes by.
Owners are not told apart: a label has few values.

Rules: what was read lately is told again (:data:`FRESH_S`). A store that is away makes a scrape without them,
and nothing else. Nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError
from penstock.gateway.job_figures import job_families
from penstock.transactions import Transactions
from penstock.transactions.looking import Overview
from penstock.transactions.statistics import Sample

#: Reading a day of counters is worth hundreds of commands.
FRESH_S: Final = 15.0
#: Pipelines beyond the busiest are told together.
MAX_PIPELINES: Final = 200
_OTHER: Final = "other"
_PREFIX: Final = "transactions_"
_EVENTS: Final = ("queued", "started", "retried", "lost")


class TransactionFigures:
    """The numbers of one store."""

    def __init__(self, facility: Transactions, clock: Clock | None = None) -> None:
        self._facility = facility
        self._clock = clock or SystemClock()
        self._known: list[Metric] = []
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def families(self) -> list[Metric]:
        """None of them if the store does not answer."""
        async with self._reading:
            now_s = self._clock.monotonic_s()
            if self._read_s is None or now_s - self._read_s >= FRESH_S:
                try:
                    self._known = await self._read()
                except PenstockError:
                    self._known = []
                self._read_s = now_s
            return self._known

    async def _read(self) -> list[Metric]:
        overview = await self._facility.looking.overview()
        samples = await self._facility.statistics.totals()
        jobs = await job_families(self._facility.store.client)
        return [_now(overview), *_last_day(samples), *jobs]


def _now(overview: Overview) -> Metric:
    family = GaugeMetricFamily("penstock_transactions", "Transactions of the store.", labels=("state",))
    for state in ("queued", "running", "sleeping", "dead", "to_archive"):
        family.add_metric([state], getattr(overview, state))
    return family


def _last_day(samples: list[Sample]) -> list[Metric]:
    events: Counter[tuple[str, str]] = Counter()
    endings: Counter[tuple[str, str]] = Counter()
    busiest: Counter[str] = Counter()
    for sample in samples:
        what, pipeline = sample.name.removeprefix(_PREFIX), sample.labels["pipeline"]
        if what in _EVENTS:
            events[pipeline, what] += int(sample.value)
            busiest[pipeline] += int(sample.value)
        elif what == "ended":
            endings[pipeline, sample.labels["status"]] += int(sample.value)
    kept = {pipeline for pipeline, _ in busiest.most_common(MAX_PIPELINES)}
    return [
        _family("penstock_transactions_last_day", "What happened to transactions.", "event", events, kept),
        _family("penstock_transactions_ended_last_day", "How transactions ended.", "status", endings, kept),
    ]


def _family(name: str, text: str, label: str, counts: Counter[tuple[str, str]], kept: set[str]) -> Metric:
    sums: Counter[tuple[str, str]] = Counter()
    for (pipeline, value), count in counts.items():
        sums[pipeline if pipeline in kept else _OTHER, value] += count
    family = GaugeMetricFamily(name, f"{text} In the last 24 hours.", labels=("pipeline", label))
    for labels, count in sorted(sums.items()):
        family.add_metric(labels, count)
    return family
