"""Many calls of one step become one: calls wait for one another for a moment, and leave together.

    batcher = Batcher(run, max_batch=10_000, linger_ms=200)
    outcome = await batcher.call(call)           # of this call, whoever else was in its batch

A batch leaves when it is full (``max_batch`` calls, or ``max_bytes`` of input), or when its first call has
waited for ``linger_ms``. Never more than ``jobs`` are under way, and beside another one a batch that is not
full waits ten times as long: when that one ends soon, this one is all the larger.

Rules: each call gets its own outcome. A call that is cancelled before its batch leaves is not in it;
afterwards its outcome is thrown away, and when nobody waits for a batch any more, the batch is cancelled.
What ``run`` raises is raised to everybody in the batch. Knows neither transactions nor Spark; time is the
event loop's, or that of whoever is given instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

from penstock.transactions.worker.outcomes import Outcome

#: Of input in one batch; a single call may have more.
MAX_BYTES: Final = 64 * 1024 * 1024
#: Outcomes that are handed out in one round of the loop: heartbeats go on between them.
_AT_ONCE: Final = 256
#: How many times longer a batch that is not full waits while another one is under way.
_PATIENCE: Final = 10


class Call(NamedTuple):
    """One call of a step."""

    tx: str
    attempt: int
    key: str
    #: JSON
    args: bytes
    input: bytes


class Alarm(Protocol):
    """What can be set, and cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """What of an event loop is needed to wait."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> Alarm: ...


Run = Callable[[Sequence[Call]], Awaitable[Sequence[Outcome]]]


class _Batch:
    """Calls that have left together."""

    __slots__ = ("task", "wanted")

    def __init__(self, wanted: int) -> None:
        #: how many still wait for their outcome
        self.wanted = wanted
        self.task: asyncio.Task[None] | None = None


class _Waiting:
    """A call, and who waits for it."""

    __slots__ = ("batch", "call", "future", "since_s")

    def __init__(self, call: Call, since_s: float) -> None:
        self.call = call
        self.since_s = since_s
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.batch: _Batch | None = None


class Batcher:
    """The calls of one step."""

    def __init__(
        self,
        run: Run,
        *,
        max_batch: int,
        linger_ms: int,
        jobs: int = 1,
        max_bytes: int = MAX_BYTES,
        timers: Timers | None = None,
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._linger_s = linger_ms / 1_000
        self._jobs = jobs
        self._max_bytes = max_bytes
        self._timers: Timers = timers or asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._running: set[_Batch] = set()
        self._alarm: Alarm | None = None
        self._alarm_s = inf

    async def call(self, call: Call) -> Outcome:
        """Its outcome."""
        one = _Waiting(call, self._timers.time())
        self._waiting.append(one)
        self._bytes += len(call.input)
        self._leave()
        try:
            return await one.future
        except asyncio.CancelledError:
            self._forsake(one)
            raise

    # ---------------------------------------------------------------------------------------- leaving

    def _leave(self) -> None:
        """As many batches as may."""
        while self._waiting and len(self._running) < self._jobs:
            linger_s = self._linger_s * (_PATIENCE if self._running else 1)
            due_s = self._waiting[0].since_s + linger_s
            is_full = len(self._waiting) >= self._max_batch or self._bytes >= self._max_bytes
            if not is_full and due_s > self._timers.time():
                self._wake_at(due_s)
                return
            self._begin(self._next())

    def _wake_at(self, due_s: float) -> None:
        """One alarm is enough: the earliest."""
        if due_s < self._alarm_s:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._timers.call_later(due_s - self._timers.time(), self._time_has_come)
            self._alarm_s = due_s

    def _time_has_come(self) -> None:
        self._alarm, self._alarm_s = None, inf
        self._leave()

    def _next(self) -> list[_Waiting]:
        """Those whom somebody still waits for, the oldest first."""
        found: list[_Waiting] = []
        size_bytes = 0
        while self._waiting and len(found) < self._max_batch and (not found or size_bytes < self._max_bytes):
            one = self._waiting.popleft()
            self._bytes -= len(one.call.input)
            if not one.future.done():
                found.append(one)
                size_bytes += len(one.call.input)
        return found

    def _begin(self, several: list[_Waiting]) -> None:
        if not several:
            return
        batch = _Batch(len(several))
        for one in several:
            one.batch = batch
        self._running.add(batch)
        batch.task = asyncio.get_running_loop().create_task(self._perform(batch, several))

    async def _perform(self, batch: _Batch, several: list[_Waiting]) -> None:
        try:
            outcomes = await self._run([one.call for one in several])
            for place, (one, outcome) in enumerate(zip(several, outcomes, strict=True), 1):
                if not one.future.done():
                    one.future.set_result(outcome)
                if place % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            for one in several:
                one.future.cancel()
        except Exception as error:  # noqa: BLE001 - it concerns those who wait, not this task
            for one in several:
                if not one.future.done():
                    one.future.set_exception(error)
        finally:
            self._running.discard(batch)
            self._leave()

    def _forsake(self, one: _Waiting) -> None:
        if one.batch is not None:
            one.batch.wanted -= 1
            if not one.batch.wanted and one.batch.task is not None:
                one.batch.task.cancel()

    # ---------------------------------------------------------------------------------------- looking

    @property
    def waiting(self) -> int:
        """Calls that have not left yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Batches under way."""
        return len(self._running)

    async def close(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        tasks = [batch.task for batch in self._running if batch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __repr__(self) -> str:
        return f"<Batcher {self.waiting} waiting, {self.running} batches under way>"
