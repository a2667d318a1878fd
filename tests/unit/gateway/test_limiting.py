"""Token buckets under a clock that is told to move."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.gateway.limiting import RateLimiter


def test_a_burst_then_the_rate() -> None:
    clock = ManualClock()
    limiter = RateLimiter(10, 3, clock)
    assert [limiter.spend("a", 1) for _ in range(3)] == [0, 0, 0]
    assert limiter.spend("a", 1) == pytest.approx(0.1)
    assert limiter.spend("b", 1) == 0, "each client has a bucket of its own"
    clock.advance_ms(50)
    assert limiter.spend("a", 1) == pytest.approx(0.05, abs=1e-4), "asking in vain costs nothing"
    clock.advance_ms(50)
    assert limiter.spend("a", 1) == 0
    clock.advance_ms(60_000)
    assert [limiter.spend("a", 1) for _ in range(4)] == [0, 0, 0, pytest.approx(0.1)], (
        "a bucket holds no more than a burst"
    )


def test_more_than_a_bucket_holds_is_owed() -> None:
    clock = ManualClock()
    limiter = RateLimiter(10, 5, clock)
    assert limiter.spend("a", 20) == 0
    assert limiter.spend("a", 1) == pytest.approx(1.6)
    clock.advance_ms(1_600)
    assert limiter.spend("a", 1) == 0
