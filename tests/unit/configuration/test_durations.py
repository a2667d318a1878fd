"""Durations: Go's spelling, exact milliseconds, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.configuration.durations import duration_ms_of, format_duration, parse_duration_ms


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


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [("90s", 90_000), (1.5, 1_500), (0, 0), (0.0001, 1), ("7d", 604_800_000), ("0d", 0)],
)
def test_a_configuration_may_write_a_text_or_seconds(value: object, expected_ms: int) -> None:
    assert duration_ms_of(value, has_days=True) == expected_ms


@pytest.mark.parametrize(
    ("value", "options", "sentence"),
    [
        (True, {}, "must be a duration such as 1h30m or a number of seconds, not true"),
        ([1], {}, "must be a duration such as 1h30m or a number of seconds, not a list"),
        (float("nan"), {}, "must be a duration such as 1h30m or a number of seconds, not nan"),
        (10**400, {}, "must be a duration such as 1h30m or a number of seconds, not 10000"),
        ("7d", {}, '"7d" must be a duration such as 1h30m, .5s or 100ms'),
        ("1.5d", {"has_days": True}, '"1.5d" must be a whole number of days such as 7d'),
        ("0s", {"min_ms": 1}, 'must be longer than 0, not "0s"'),
        (-1, {}, "must be 0 or longer, not -1"),
        ("5000d", {"has_days": True}, 'must be at most 87840h, not "5000d"'),
    ],
)
def test_what_is_no_duration_of_a_configuration(value: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        duration_ms_of(value, **options)
    assert str(caught.value).startswith(sentence)
