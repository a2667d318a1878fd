"""What every contender does in the same way: enqueue, process, and then one job at a time.

1. *Enqueue*: ``count`` jobs, while no worker runs. Asynchronous libraries use as many tasks as the worker.
2. *Process*: one worker in this process; from the start of the first job until the library holds none that
   is unfinished. That a function was called is not enough.
3. *Latency*: the worker is idle; a job is enqueued, and the time from that call to the start of the job is
   taken. The next follows when the queue is empty again and a random pause has passed, without which a
   worker that polls would be asked at the best moment every time.

Only the standard library is imported here: this module runs in the environments of all contenders.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

#: Pause between two looks at whether all is done.
_LOOK_S: Final = 0.005
#: The same for one job: its start is timed by itself, so looking costs nothing but processor time.
_LOOK_AT_ONE_S: Final = 0.001
#: Between two jobs of the latency phase: longer than a poll, and different each time.
_PAUSES_S: Final = (0.01, 0.04)
#: Nothing takes that long without progress, unless jobs were lost.
_STUCK_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Arguments:
    where: str  # the port of a Redis server, a directory for SQLite, or the address of a store
    count: int
    latency_jobs: int
    concurrency: int
    poll_s: float
    mode: str
    durability: str
    fill: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where a contender has no such phase."""

    enqueue_per_s: float | None
    process_per_s: float
    latency_p50_ms: float | None


@dataclass(slots=True)
class Jobs:
    """What the job itself does: it notes when it began. Appending is safe from any thread."""

    starts: list[float] = field(default_factory=list)

    def began(self) -> None:
        self.starts.append(time.perf_counter())

    def __len__(self) -> int:
        return len(self.starts)


def parse(description: str | None) -> Arguments:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("where", help="port, directory or address, as the contender needs it")
    parser.add_argument("count", type=int, help="how many jobs to enqueue and process")
    parser.add_argument("--latency-jobs", type=int, default=200, help="jobs of the latency phase")
    parser.add_argument("--concurrency", type=int, default=32, help="jobs at a time in the worker")
    parser.add_argument("--poll-ms", type=float, default=10.0, help="for workers that poll")
    parser.add_argument("--mode", default="", help="for contenders that have several")
    parser.add_argument("--durability", default="", help="for embedded stores")
    parser.add_argument("--fill", type=int, default=0, help="jobs to run through first, unmeasured")
    given = parser.parse_args()
    return Arguments(
        given.where,
        given.count,
        given.latency_jobs,
        given.concurrency,
        given.poll_ms / 1_000,
        given.mode,
        given.durability,
        given.fill,
    )


def report(name: str, figures: Figures, packages: tuple[str, ...]) -> None:
    versions = {package: version(package) for package in packages} | {"Python": platform.python_version()}
    print(json.dumps({"name": name, **asdict(figures), "versions": versions}), flush=True)


def run(main: Coroutine[Any, Any, Figures]) -> Figures:
    """On uvloop, for everybody."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


# ------------------------------------------------------------------------ asyncio


async def measure(
    arguments: Arguments,
    jobs: Jobs,
    enqueue: Callable[[], Awaitable[object]],
    worker: AbstractAsyncContextManager[object],
    is_settled: Callable[[], Awaitable[bool]],
) -> Figures:
    started = time.perf_counter()
    await enqueue_many(arguments.count, arguments.concurrency, enqueue)
    enqueued_s = time.perf_counter() - started
    async with worker:
        await settle(jobs, arguments.count, is_settled)
        processed_s = time.perf_counter() - jobs.starts[0]
        latencies = [await _one(jobs, enqueue, is_settled) for _ in range(arguments.latency_jobs)]
    return _figures(arguments.count, enqueued_s, processed_s, latencies)


async def enqueue_many(count: int, tasks: int, enqueue: Callable[[], Awaitable[object]]) -> None:
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            await enqueue()

    await asyncio.gather(*(some() for _ in range(tasks)))


async def _one(
    jobs: Jobs, enqueue: Callable[[], Awaitable[object]], is_settled: Callable[[], Awaitable[bool]]
) -> float:
    await asyncio.sleep(random.uniform(*_PAUSES_S))
    before = len(jobs)
    called = time.perf_counter()
    await enqueue()
    await settle(jobs, before + 1, is_settled, _LOOK_AT_ONE_S)
    return jobs.starts[before] - called


async def settle(
    jobs: Jobs, wanted: int, is_settled: Callable[[], Awaitable[bool]], look_s: float = _LOOK_S
) -> None:
    """Until so many jobs began and none is unfinished."""
    patience = _Patience(jobs, wanted)
    while len(jobs) < wanted or not await is_settled():
        patience.check()
        await asyncio.sleep(look_s)


# ------------------------------------------------------------------------ threads


def measure_blocking(
    arguments: Arguments,
    jobs: Jobs,
    enqueue: Callable[[], object],
    worker: AbstractContextManager[object],
    is_settled: Callable[[], bool],
) -> Figures:
    started = time.perf_counter()
    for _ in range(arguments.count):
        enqueue()
    enqueued_s = time.perf_counter() - started
    with worker:
        _settle_blocking(jobs, arguments.count, is_settled, _LOOK_S)
        processed_s = time.perf_counter() - jobs.starts[0]
        latencies = [_one_blocking(jobs, enqueue, is_settled) for _ in range(arguments.latency_jobs)]
    return _figures(arguments.count, enqueued_s, processed_s, latencies)


def measure_calls(arguments: Arguments, jobs: Jobs, call: Callable[[], object]) -> Figures:
    """Work done in the caller's thread: there is no queue, and the latency is that of the call itself."""
    started = time.perf_counter()
    for _ in range(arguments.count):
        call()
    called_s = time.perf_counter() - started
    latencies = [_one_blocking(jobs, call, lambda: True) for _ in range(arguments.latency_jobs)]
    return replace(_figures(arguments.count, called_s, called_s, latencies), enqueue_per_s=None)


def _one_blocking(jobs: Jobs, enqueue: Callable[[], object], is_settled: Callable[[], bool]) -> float:
    time.sleep(random.uniform(*_PAUSES_S))
    before = len(jobs)
    called = time.perf_counter()
    enqueue()
    _settle_blocking(jobs, before + 1, is_settled, _LOOK_AT_ONE_S)
    return jobs.starts[before] - called


def _settle_blocking(jobs: Jobs, wanted: int, is_settled: Callable[[], bool], look_s: float) -> None:
    patience = _Patience(jobs, wanted)
    while len(jobs) < wanted or not is_settled():
        patience.check()
        time.sleep(look_s)


# ------------------------------------------------------------------------- common


def _figures(count: int, enqueued_s: float, processed_s: float, latencies_s: list[float]) -> Figures:
    p50_ms = statistics.median(latencies_s) * 1_000 if latencies_s else None
    return Figures(count / enqueued_s, count / processed_s, p50_ms)


class _Patience:
    """Ends a wait for jobs that will not come."""

    def __init__(self, jobs: Jobs, wanted: int) -> None:
        self._jobs = jobs
        self._wanted = wanted
        self._seen = len(jobs)
        self._since = time.monotonic()

    def check(self) -> None:
        if len(self._jobs) != self._seen:
            self._seen, self._since = len(self._jobs), time.monotonic()
        elif time.monotonic() - self._since > _STUCK_S:
            raise TimeoutError(
                f"{self._seen} of {self._wanted} jobs began; no other began, or the last did not finish, "
                f"within {_STUCK_S:g} s"
            )
