"""For what is measured while a store grows: an embedded store, a bar of progress, microseconds a call."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.engine import Engine, LocalSession
from penstock.engine.storage.environment import Durability


@contextmanager
def embedded(path: Path, durability: Durability = "relaxed") -> Iterator[LocalSession]:
    """A session on a store of its own."""
    with Engine.open(path, durability=durability) as engine, LocalSession(engine) as session:
        yield session


def micros_each(work: Callable[[int], object], calls: int, rounds: int) -> list[float]:
    """Of one call, in each round; the work is told the number of the call, which never comes again."""
    taken = []
    for number in range(rounds):
        started = time.perf_counter()
        for call in range(number * calls, (number + 1) * calls):
            work(call)
        taken.append((time.perf_counter() - started) * 1e6 / calls)
    return taken


class Flat:
    """What an operation may cost in a store that grew: so many times what it cost in the smallest."""

    TIMES: Final = 1.5

    def __init__(self) -> None:
        self._first: dict[str, float] = {}

    def aim(self, name: str, rounds: Sequence[float]) -> float | None:
        """None for the first of this name."""
        first = self._first.get(name)
        if first is None:
            self._first[name] = statistics.median(rounds)
            return None
        return self.TIMES * first


class Progress:
    """A bar on a terminal, a line every ten seconds elsewhere; and a limit."""

    def __init__(self, what: str, total: int, limit_s: float = float("inf")) -> None:
        self._what = what
        self._total = total
        self._limit_s = limit_s
        self._started_s = self._told_s = time.monotonic()

    def reached(self, done: int) -> bool:
        """Tell it; False if there is no time for more."""
        now_s = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if done >= self._total or now_s - self._told_s > (0.2 if is_terminal else 10.0):
            self._told_s = now_s
            self._tell(done, is_terminal)
        return now_s - self._started_s < self._limit_s

    def _tell(self, done: int, is_terminal: bool) -> None:
        words = f"{done:,} of {self._total:,} {self._what}"
        if not is_terminal:
            print(f"  {words}", file=sys.stderr, flush=True)
            return
        width = 40 * done // self._total
        end = "\n" if done >= self._total else ""
        print(f"\r{'█' * width}{'░' * (40 - width)} {words}", end=end, file=sys.stderr, flush=True)
