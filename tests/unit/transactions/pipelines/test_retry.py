"""Retry policies: how long, and after what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transactions.pipelines import Retry


def test_waits_grow_to_their_bound() -> None:
    retry = Retry(backoff_ms=1_000, factor=2.0, max_backoff_ms=5_000)
    assert [retry.delay_ms(attempt, 0.0) for attempt in range(1, 6)] == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_chance_shortens_a_wait_by_its_share() -> None:
    retry = Retry(backoff_ms=1_000, jitter=0.2)
    assert [retry.delay_ms(1, chance) for chance in (0.0, 0.5, 1.0)] == [1_000, 900, 800]


@given(
    st.builds(
        Retry,
        backoff_ms=st.integers(0, 10**10),
        factor=st.floats(1, 100),
        max_backoff_ms=st.integers(0, 10**10),
        jitter=st.floats(0, 1),
    ),
    st.integers(1, 1_000),
    st.floats(0, 1),
)
def test_no_wait_is_negative_or_above_its_bound(retry: Retry, attempt: int, chance: float) -> None:
    assert 0 <= retry.delay_ms(attempt, chance) <= retry.max_backoff_ms


@pytest.mark.parametrize(
    ("retry", "names", "expected"),
    [
        (Retry(), ["ValueError", "Exception"], True),
        (Retry(), [], True),
        (Retry(on=("TimeoutError", "failed")), ["failed"], True),
        (Retry(on=("OSError",)), ["TimeoutError", "OSError", "Exception"], True),
        (Retry(on=("OSError",)), ["ValueError", "Exception"], False),
        (Retry(on=("*",), never=("ValueError",)), ["ValueError", "Exception"], False),
        (Retry(on=("ValueError",), never=("Exception",)), ["ValueError", "Exception"], False),
    ],
)
def test_which_errors_are_retried(retry: Retry, names: list[str], expected: bool) -> None:
    assert retry.applies(names) is expected
