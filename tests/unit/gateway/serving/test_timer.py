"""A timer that nobody moves to a later time."""

from __future__ import annotations

import math
from collections.abc import Callable

from penstock.gateway.serving.timer import Timer


class Handle:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def call_at(self, at_s: float, call: Callable[[], None]) -> Handle:
        self.handles.append(Handle(at_s, call))
        return self.handles[-1]

    @property
    def times_s(self) -> list[float]:
        return [handle.at_s for handle in self.handles if not handle.is_cancelled]


def test_it_is_moved_to_earlier_times_only():
    loop = Loop()
    timer = Timer(loop, lambda: None)  # type: ignore[arg-type]
    assert not timer.is_set
    timer.set_before(math.inf)
    assert not timer.is_set
    timer.set_before(10)
    timer.set_before(20)
    assert loop.times_s == [10]
    timer.set_before(5)
    assert loop.times_s == [5]
    timer.cancel()
    timer.cancel()
    assert loop.times_s == []
    assert not timer.is_set


def test_it_can_be_set_anew_by_whom_it_calls():
    loop = Loop()
    calls: list[float] = []

    def call() -> None:
        calls.append(len(calls))
        timer.set_before(30)

    timer = Timer(loop, call)  # type: ignore[arg-type]
    timer.set_before(10)
    loop.handles[0].call()
    assert calls == [0]
    assert [handle.at_s for handle in loop.handles] == [10, 30]
    assert timer.is_set
