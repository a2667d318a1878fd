"""The bucket of tokens: no more than so many a second, evenly, and nothing is saved up."""

from __future__ import annotations

from penstock.clock import ManualClock
from penstock.spark.rate import TokenBucket


def bucket_of(rate: float) -> tuple[TokenBucket, ManualClock, list[float]]:
    """Waiting makes the time go by."""
    clock = ManualClock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance_ms(round(seconds * 1000))

    return TokenBucket(rate, clock, wait), clock, waits


def test_so_many_a_second() -> None:
    bucket, clock, _ = bucket_of(1_000)
    began_ms = clock.now_ms()
    for _ in range(50):
        bucket.take(bucket.most_at_once(10_000))
    assert clock.now_ms() - began_ms == 5_000


def test_nothing_is_saved_up() -> None:
    bucket, clock, waits = bucket_of(10)
    clock.advance_ms(3_600_000)
    bucket.take(1)
    assert waits == []
    bucket.take(2)
    assert waits == [0.2]


def test_slow_and_without_limit() -> None:
    bucket, _, waits = bucket_of(0.5)
    assert bucket.most_at_once(10_000) == 1
    bucket.take(1)
    assert waits == [2.0]
    free, _, waits = bucket_of(0)
    free.take(1_000_000)
    assert free.most_at_once(10_000) == 10_000
    assert waits == []
