"""Token buckets: how often each client may do something. In the memory of one worker, bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.clock import Clock, SystemClock

#: Clients that are remembered; the one that was quiet for longest is forgotten, with a full bucket.
_MAX_CLIENTS: Final = 100_000
#: Less than this is what floats make of nothing.
_ROUNDING: Final = 1e-4


class RateLimiter:
    """``rate`` a second in the long run, ``burst`` at once."""

    def __init__(self, rate: float, burst: float, clock: Clock | None = None) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock or SystemClock()
        #: client -> (tokens, when they were counted)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, client: str, amount: float) -> float:
        """Take tokens; 0, or how many seconds to wait until there are enough (then nothing was taken).

        Whoever wants more than a bucket holds gets it when the bucket is full, and owes the rest.
        """
        now_s = self._clock.monotonic_s()
        tokens, counted_s = self._buckets.pop(client, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - counted_s) * self._rate)
        missing = min(amount, self._burst) - tokens
        if missing < _ROUNDING:
            missing = 0.0
        self._buckets[client] = (tokens if missing else tokens - amount, now_s)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return missing / self._rate
