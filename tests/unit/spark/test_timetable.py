"""When a job runs next."""

from __future__ import annotations

import pytest

from penstock.spark.timetable import Timetable

TIMES = Timetable(every_ms=10_000, retry_ms=1_000, max_retry_ms=60_000)


@pytest.mark.parametrize(
    ("started_ms", "ended_ms", "failures", "expected_ms"),
    [
        (100_000, 103_000, 0, 110_000),
        (100_000, 110_000, 0, 110_000),
        (100_000, 125_000, 0, 125_000),
        (100_000, 103_000, 1, 104_000),
        (100_000, 103_000, 2, 105_000),
        (100_000, 103_000, 6, 135_000),
        (100_000, 103_000, 7, 163_000),
        (100_000, 103_000, 10_000, 163_000),
    ],
)
def test_passes_begin_at_their_times_and_failures_wait_longer_each_time(
    started_ms: int, ended_ms: int, failures: int, expected_ms: int
) -> None:
    assert TIMES.next_ms(started_ms=started_ms, ended_ms=ended_ms, failures=failures) == expected_ms
