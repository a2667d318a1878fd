"""Calls become batches: when they leave, who is in them, and who hears of what. Time moves when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.steps.batching import Batcher, Call
from penstock.transactions.worker.outcomes import Done, Outcome


class Timers:
    """A clock with alarms."""

    def __init__(self) -> None:
        self._now_s = 100.0
        self._count = 0
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self._count += 1
        alarm = (self._now_s + delay, self._count, callback)
        self._alarms.append(alarm)
        return SimpleNamespace(cancel=lambda: self._alarms.remove(alarm))

    async def advance(self, ms: int) -> None:
        self._now_s += ms / 1_000
        while self._alarms and min(self._alarms)[0] <= self._now_s + 1e-9:
            alarm = min(self._alarms)
            self._alarms.remove(alarm)
            alarm[2]()
        await settle()


class Runner:
    """Batches that end when somebody lets them."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.ends: list[asyncio.Future[Any]] = []
        self.cancelled: list[int] = []

    async def __call__(self, calls: Sequence[Call]) -> list[Outcome]:
        number = len(self.batches)
        self.batches.append([call.tx for call in calls])
        self.ends.append(asyncio.get_running_loop().create_future())
        try:
            await self.ends[number]
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return [Done(call.tx.encode()) for call in calls]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Desk:
    """A batcher between a runner and a clock."""

    def __init__(self, **options: Any) -> None:
        self.timers, self.runner = Timers(), Runner()
        given = {"max_batch": 3, "linger_ms": 200, "jobs": 1, **options}
        self.batcher = Batcher(self.runner, timers=self.timers, **given)
        self.calls: dict[str, asyncio.Task[Outcome]] = {}

    async def call(self, *names: str, size_bytes: int = 1) -> None:
        for name in names:
            call = Call(name, 1, name, b"{}", b"x" * size_bytes)
            self.calls[name] = asyncio.create_task(self.batcher.call(call))
        await settle()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.calls[name].cancel()
        await settle()

    async def end(self, number: int, error: Exception | None = None) -> None:
        if error is None:
            self.runner.ends[number].set_result(None)
        else:
            self.runner.ends[number].set_exception(error)
        await settle()

    def done(self) -> list[str]:
        return [name for name, task in self.calls.items() if task.done() and not task.cancelled()]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    await desk.batcher.close()
    await asyncio.gather(*desk.calls.values(), return_exceptions=True)


async def test_a_batch_leaves_when_its_first_call_has_waited(desk: Desk) -> None:
    await desk.call("a")
    await desk.timers.advance(150)
    await desk.call("b")
    await desk.timers.advance(49)
    assert (desk.runner.batches, desk.batcher.waiting) == ([], 2)
    await desk.timers.advance(1)
    assert (desk.runner.batches, desk.batcher.waiting) == ([["a", "b"]], 0)
    await desk.end(0)
    assert [await task for task in desk.calls.values()] == [Done(b"a"), Done(b"b")]


async def test_a_full_batch_waits_for_nobody_and_the_rest_makes_the_next(desk: Desk) -> None:
    await desk.call("a", "b", "c", "d")
    assert desk.runner.batches == [["a", "b", "c"]]
    await desk.timers.advance(1_000)
    assert desk.runner.batches == [["a", "b", "c"]], "only one at a time"
    await desk.call("e")
    await desk.end(0)
    assert desk.runner.batches[1:] == [["d", "e"]], "it has waited long enough meanwhile"
    await desk.end(1)
    assert desk.done() == ["a", "b", "c", "d", "e"]


async def test_several_batches_at_a_time() -> None:
    desk = Desk(jobs=2, max_batch=1)
    await desk.call("a", "b", "c")
    assert (desk.runner.batches, desk.batcher.running) == ([["a"], ["b"]], 2)
    await desk.end(1)
    assert (desk.runner.batches[2:], desk.done()) == ([["c"]], ["b"])
    await desk.end(0)
    await desk.end(2)
    assert (desk.done(), desk.batcher.running) == (["a", "b", "c"], 0)


async def test_beside_a_batch_under_way_another_one_waits_longer_unless_it_is_full() -> None:
    desk = Desk(jobs=2)
    await desk.call("a")
    await desk.timers.advance(200)
    await desk.call("b")
    await desk.timers.advance(1_900)
    assert desk.runner.batches == [["a"]]
    await desk.timers.advance(100)
    assert desk.runner.batches[1:] == [["b"]]
    await desk.end(1)
    await desk.call("c", "d", "e")
    assert desk.runner.batches[2:] == [["c", "d", "e"]], "it is full"
    await desk.end(2)
    await desk.call("f")
    await desk.timers.advance(100)
    await desk.end(0)
    await desk.timers.advance(99)
    assert desk.runner.batches[3:] == []
    await desk.timers.advance(1)
    assert desk.runner.batches[3:] == [["f"]], "nothing is under way any more: it waits as long as others"
    await desk.end(3)
    assert desk.done() == ["a", "b", "c", "d", "e", "f"]


async def test_no_lingering_at_all() -> None:
    desk = Desk(linger_ms=0)
    await desk.call("a")
    assert desk.runner.batches == [["a"]]
    await desk.end(0)


async def test_large_inputs_fill_a_batch_too() -> None:
    desk = Desk(max_batch=100, max_bytes=10)
    await desk.call("a", "b", size_bytes=4)
    assert desk.runner.batches == []
    await desk.call("c", size_bytes=4)
    assert desk.runner.batches == [["a", "b", "c"]]
    await desk.end(0)
    await desk.call("huge", size_bytes=1_000)
    assert desk.runner.batches[1:] == [["huge"]]
    await desk.end(1)
    await desk.timers.advance(10_000)
    assert (desk.batcher.waiting, desk.done()) == (0, ["a", "b", "c", "huge"])


async def test_who_gives_up_before_it_leaves_is_not_in_it(desk: Desk) -> None:
    await desk.call("a", "b")
    await desk.cancel("a")
    await desk.timers.advance(200)
    assert desk.runner.batches == [["b"]]
    await desk.end(0)
    await desk.call("c")
    await desk.cancel("c")
    await desk.timers.advance(200)
    assert (desk.runner.batches[1:], desk.batcher.waiting) == ([], 0), "and nobody makes no batch"


async def test_a_batch_goes_on_for_the_last_who_waits_and_ends_with_them(desk: Desk) -> None:
    await desk.call("a", "b", "c")
    await desk.cancel("a", "c")
    assert desk.runner.cancelled == []
    await desk.cancel("b")
    assert (desk.runner.cancelled, desk.batcher.running) == ([0], 0)
    await desk.call("d", "e", "f")
    assert desk.runner.batches[1:] == [["d", "e", "f"]], "the next one runs"
    await desk.cancel("d")
    await desk.end(1)
    assert desk.done() == ["e", "f"]


async def test_what_a_batch_raises_is_raised_to_everybody_in_it(desk: Desk) -> None:
    await desk.call("a", "b", "c", "d")
    await desk.cancel("b")
    await desk.end(0, ValueError("gone"))
    for name in "ac":
        with pytest.raises(ValueError, match="gone"):
            await desk.calls[name]
    await desk.timers.advance(200)
    assert desk.runner.batches[1:] == [["d"]], "and to nobody else"
    await desk.end(1)
    assert await desk.calls["d"] == Done(b"d")


async def test_many_calls_in_one_batch() -> None:
    desk = Desk(max_batch=2_000)
    names = [str(number) for number in range(2_000)]
    await desk.call(*names)
    assert desk.runner.batches == [names]
    desk.runner.ends[0].set_result(None)
    outcomes = await asyncio.gather(*desk.calls.values())
    assert outcomes == [Done(name.encode()) for name in names]
