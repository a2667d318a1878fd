"""Time, replaceable in tests. Nobody else in the package asks the operating system.

Two times: wall time in milliseconds since 1970 decides expiry (all processes of a
store must agree on it), monotonic seconds decide waiting.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time in microseconds since the epoch."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to; for tests."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._us = start_ms * 1_000

    def advance_ms(self, delta_ms: int) -> None:
        self._us += delta_ms * 1_000

    def now_us(self) -> int:
        return self._us

    def now_ms(self) -> int:
        return self._us // 1_000

    def monotonic_s(self) -> float:
        return self._us / 1_000_000
