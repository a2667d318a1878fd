"""What a job of the data pipeline is, what it is given, and what it tells afterwards.

    class Export:
        name = "export"

        def __init__(self, options: ExportOptions) -> None: …

        def run_once(self, context: JobContext) -> JobReport: …

Rules of a job:

1. ``run_once`` does everything that is available now, and ends. It may be killed anywhere and run again, by
   another process on another machine as well: what was done is known by the lake or by the store, not by it.
2. Between two batches it looks at ``context.stopping`` and ends early if that is set.
3. It calls ``context.report`` as it goes, so that people see how far it is.
4. Its options are a frozen ``msgspec.Struct`` beside it, which forbids unknown fields. A constructor checks
   what a type cannot say and raises ``ConfigError``.

Nothing here knows which jobs there are, nor who runs them and when.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from penstock.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.blocking import Client
    from penstock.lake.lake import Lake

Numbers = Mapping[str, int | str]


def _nobody(numbers: Numbers) -> None:
    """Hears nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a pass of a job works with. The client may be used by any thread of this process."""

    spark: SparkSession
    lake: Lake
    store: Client
    #: of the store, for executors: ``penstock.spark.stores.store(url)``
    url: str
    clock: Clock = field(default_factory=SystemClock)
    #: how often something is to be done, for whoever runs until it is stopped
    every_ms: int = 0
    #: set when the pass has to end soon
    stopping: threading.Event = field(default_factory=threading.Event)
    #: who hears what is reported
    listener: Callable[[Numbers], None] = _nobody

    def report(self, **numbers: int | str) -> None:
        """How far the running pass is: ``context.report(batches=3, rows=12_000)``."""
        self.listener(numbers)


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did."""

    job: str
    started_ms: int
    ended_ms: int
    batches: int = 0
    rows: int = 0
    #: what was there and is left for the next pass, in the job's own unit
    lag: int = 0
    notes: dict[str, int | str] = {}


class Job(Protocol):
    """One of the data pipeline. ``name`` is the one of its kind until who runs it gives it another."""

    name: str

    def run_once(self, context: JobContext) -> JobReport:
        """Everything that is available now."""


@runtime_checkable
class ContinuousJob(Job, Protocol):
    """One that is better kept running than started again and again, as a streaming query is."""

    def run_until_stopped(self, context: JobContext) -> JobReport:
        """Until ``context.stopping`` is set, working every ``context.every_ms`` and reporting as it goes.

        What goes wrong is raised: whoever runs it waits and calls it again.
        """
