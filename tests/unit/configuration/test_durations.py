"""Durations: Go's spelling, exact milliseconds, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.configuration.durations import format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("30s", 30_000),
        (".5s", 500),
        ("5.s", 5_000),
        ("1h30m", 5_400_000),
        ("1s500ms", 1_500),
        ("100ms", 100),
        ("1m1m", 120_000),
        ("-1.5h", -5_400_000),
        ("+2m", 120_000),
        ("1500us", 2),
        ("1000µs", 1),
        ("1000μs", 1),
        ("1ns", 1),
        ("-1ns", -1),
        ("0.1s", 100),
        ("0.3s", 300),
        ("2562047h", 2562047 * 3_600_000),
    ],
)
def test_gos_spelling(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        *["", "-", "+", "30", "1.5", ".", ".s", "s", "1 s", " 1s", "1s ", "1S", "1H", "1d", "--1s", "1s-1s"],
        *["1e3s", "1,5s", "٣s", "1s\n", "9999999h", "0" * 200 + "s", "NaN", "inf"],
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_ms(text)


def test_a_missing_unit_is_said() -> None:
    with pytest.raises(ValueError, match="has no unit"):
        parse_duration_ms("30")


@given(st.integers(-9 * 10**12, 9 * 10**12))
def test_what_is_written_is_read_again(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@given(st.text(alphabet="0123456789.-+nsuµmh ", max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        assert isinstance(parse_duration_ms(text), int)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0s"), (1_500, "1s500ms"), (5_400_000, "1h30m"), (-60_000, "-1m"), (86_400_000, "24h")],
)
def test_the_shortest_form_is_written(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text
