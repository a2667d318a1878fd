"""Jobs that do what a test tells them, for the runner and its configuration."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import ConfigError
from penstock.spark.jobs import JobKind
from penstock.spark.jobs.job import Job, JobContext, JobReport


class FakeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    streams: list[str]
    batch: int = 100
    older_than_ms: int = 86_400_000
    limit_ms: int | None = 5_000
    tables_ms: dict[str, int] = {}
    is_dry: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"batch must be at least 1, not {self.batch}")


def _stopped(context: JobContext) -> int:
    assert context.stopping.wait(60), "it was never stopped"
    return 0


class FakeJob:
    """Its passes are functions that a test hands in, one a pass; without one it waits until it is stopped."""

    name = "fake"

    def __init__(self, options: FakeOptions) -> None:
        if "nowhere" in options.streams:
            raise ConfigError("there is no stream nowhere")
        self.options = options
        self.passes: queue.SimpleQueue[Callable[[JobContext], int]] = queue.SimpleQueue()
        self.begun = 0

    def run_once(self, context: JobContext) -> JobReport:
        self.begun += 1
        rows = self._work(context)
        now_ms = context.clock.now_ms()
        return JobReport(job=self.name, started_ms=now_ms, ended_ms=now_ms, batches=1, rows=rows)

    def _work(self, context: JobContext) -> int:
        try:
            return self.passes.get_nowait()(context)
        except queue.Empty:
            return _stopped(context)


class FakeStreamingJob(FakeJob):
    """One that is kept running."""

    def run_until_stopped(self, context: JobContext) -> JobReport:
        self.begun += 1
        rows = self._work(context)
        _stopped(context)
        now_ms = context.clock.now_ms()
        return JobReport(job=self.name, started_ms=now_ms, ended_ms=now_ms, rows=rows)


class FakeKind(JobKind):
    """Stands in the table of kinds under a real name."""

    __slots__ = ()

    def load(self) -> tuple[type[msgspec.Struct], Callable[[Any], Job]]:
        return FakeOptions, FakeJob


class Gate:
    """A pass that has begun, and ends when the test lets it."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, context: JobContext) -> int:
        self.has_begun.set()
        context.report(batches=1, rows=7)
        assert self.may_end.wait(30)
        return 7
