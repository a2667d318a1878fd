"""No more than so many a second: a bucket of tokens that fills as time goes by.

    bucket = TokenBucket(5_000, clock, stopping.wait)
    bucket.take(500)                         # waits until there are as many

Rules: a rate of 0 is no limit. What nobody takes for a while is not saved up beyond a tenth of a second.
Time and waiting are given, nothing here asks the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.clock import Clock

#: How much may come at once, in parts of what comes in a second.
_PARTS: Final = 10


class TokenBucket:
    """For one user."""

    def __init__(self, rate: float, clock: Clock, wait: Callable[[float], object]) -> None:
        """``rate``: a second. ``wait``: is given seconds; may come back early when everything has to end."""
        self._rate = rate
        self._clock = clock
        self._wait = wait
        self._tokens = 0.0
        self._filled_s = clock.monotonic_s()

    def most_at_once(self, limit: int) -> int:
        """How many should be taken together, so that they come evenly."""
        return limit if not self._rate else max(1, min(limit, int(self._rate / _PARTS)))

    def take(self, count: int) -> None:
        """Wait for so many tokens, once: whoever is woken early gets them on credit."""
        if not self._rate:
            return
        now_s = self._clock.monotonic_s()
        most = max(1.0, self._rate / _PARTS)
        self._tokens = min(most, self._tokens + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        self._tokens -= count
        if self._tokens < 0:
            self._wait(-self._tokens / self._rate)
