"""The table of budgets, and how sections are chosen and sized."""

from __future__ import annotations

import pytest

from bench.__main__ import MEASURES
from bench.plan import LARGE, LIMIT_S, PARTS, SECTIONS, SHORT, budget_s, choose


def test_the_short_run_stays_within_its_limit() -> None:
    assert budget_s(choose([], large=False), large=False) <= LIMIT_S


def test_the_large_run_takes_about_an_hour() -> None:
    assert budget_s(choose([], large=True), large=True) <= 4_200


def test_every_section_is_measured_by_somebody_and_in_some_run() -> None:
    assert sorted(MEASURES) == sorted(section.key for section in SECTIONS)
    assert all(section.short_s or section.large_s for section in SECTIONS)
    assert {section.part for section in SECTIONS} == set(PARTS)


def test_a_part_stands_for_its_sections_and_order_is_that_of_the_table() -> None:
    chosen = [section.key for section in choose(["spark.latency", "streams"], large=False)]
    assert chosen == ["streams.messages", "streams.durable", "streams.growth", "spark.latency"]


@pytest.mark.parametrize(
    ("word", "large", "sentence"),
    [
        ("spark.growth", False, "'spark.growth' is not part of the short run: add --large"),
        ("client.calls", True, "'client.calls' is not part of the large run: leave --large out"),
        ("oracle", False, "there is no 'oracle' to measure; --help lists what there is"),
    ],
)
def test_a_word_that_is_wrong_is_named(word: str, large: bool, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        choose([word], large=large)
    assert str(caught.value) == sentence


def test_a_scale_changes_every_size_and_stops_at_the_least() -> None:
    tiny = SHORT.scaled(0.001)
    assert (tiny.requests, tiny.jobs, tiny.polls) == (1_000, 100, 100)
    assert tiny.durable_requests == ((1, 1), (50, 50), (500, 500))
    assert SHORT.scaled(2).messages == 2 * SHORT.messages
    assert SHORT.scaled(1) == SHORT


def test_sizes_that_became_equal_are_measured_once() -> None:
    assert LARGE.scaled(0.0001).kept == (1_000,)
    assert LARGE.scaled(0.01).log_sizes == (10_000, 100_000, 1_000_000)
