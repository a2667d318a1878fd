"""How fast counters grow: differences between looks, kept by whoever looks.

    rates = Rates()
    rates.look("orders", 1_000)     # None: there was no look before
    rates.look("orders", 1_250)     # how many a second since then

Rules: looks that come close together are answered alike, so that two people who watch do not spoil each
other's numbers. A counter that fell has begun anew. What nobody has looked at for long is forgotten. Nothing
here knows what is counted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.clock import Clock, SystemClock

#: Looks closer than this say nothing.
LEAST_S: Final = 0.5
#: A rate over more than this is none of now.
MOST_S: Final = 300.0
#: Counters that are remembered; more push out those that were looked at longest ago.
_KEPT: Final = 10_000


class _Look(NamedTuple):
    at_s: float
    total: float
    rate: float | None


class Rates:
    """The counters of one worker, by name."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._looks: dict[str, _Look] = {}

    def look(self, name: str, total: float) -> float | None:
        """How many a second since the last look; None if that cannot be told."""
        now_s = self._clock.monotonic_s()
        last = self._looks.pop(name, None)
        if last is not None and now_s - last.at_s < LEAST_S and total >= last.total:
            self._looks[name] = last
            return last.rate
        rate = None
        if last is not None and total >= last.total and now_s - last.at_s <= MOST_S:
            rate = (total - last.total) / (now_s - last.at_s)
        self._looks[name] = _Look(now_s, total, rate)
        if len(self._looks) > _KEPT:
            del self._looks[next(iter(self._looks))]
        return rate
