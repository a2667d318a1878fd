"""When a job runs next.

==========================  =======================================================================
the last pass               the next one begins
==========================  =======================================================================
worked                      ``every_ms`` after it began; at once, if it took longer
failed for the nth time     ``retry_ms`` times 2 to the power of n - 1 after it ended, up to
                            ``max_retry_ms``
==========================  =======================================================================

Rules: pure; knows neither clocks nor jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Doubling beyond is the same for everybody, and cheap to compute.
_MAX_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Timetable:
    every_ms: int
    retry_ms: int = 1_000
    max_retry_ms: int = 60_000

    def next_ms(self, *, started_ms: int, ended_ms: int, failures: int) -> int:
        """``failures``: how often in a row it has failed by now; 0 if the pass worked."""
        if not failures:
            return max(started_ms + self.every_ms, ended_ms)
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        return ended_ms + min(self.retry_ms << doublings, self.max_retry_ms)
