"""What is measured while a store grows: aims of flatness, the bar of progress, microseconds a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growing import Flat, Progress, embedded, micros_each
from bench.spark_parts.common import thirds
from bench.tables import Table, figure, spread, within


def test_what_came_first_is_the_measure_of_what_follows() -> None:
    flat = Flat()
    assert flat.aim("seek", [10, 20, 90]) is None
    assert flat.aim("append", [4]) is None
    assert flat.aim("seek", [100]) == 30
    assert flat.aim("seek", [1]) == 30


def test_every_call_has_a_number_of_its_own(tmp_path: Path) -> None:
    with embedded(tmp_path / "store.pen") as session:
        taken = micros_each(lambda number: session.execute("SADD", "calls", number), calls=5, rounds=3)
        assert session.execute("SCARD", "calls") == 15
    assert len(taken) == 3
    assert min(taken) > 0


def test_progress_is_told_at_the_end_and_ends_at_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert Progress("keys", 2_000).reached(1_000)
    assert capsys.readouterr().err == ""
    assert Progress("keys", 2_000).reached(2_000)
    assert capsys.readouterr().err == "  2,000 of 2,000 keys\n"
    assert not Progress("keys", 2_000, limit_s=0.0).reached(1_000)


def test_single_calls_are_three_rounds() -> None:
    assert thirds([1, 2, 3, 10, 20, 30, 7]) == [2, 20, 7]


def test_figures_have_the_digits_that_are_worth_reading() -> None:
    assert [figure(value) for value in (0.0, 0.804, 5.0, 12.34, 1234.5)] == [
        "0",
        "0.80",
        "5",
        "12.3",
        "1,234",
    ]
    assert spread([3, 1, 2]) == "2 (1–3)"
    assert spread([1.0, None]) == "–"
    assert within([90, 100, 110]) == "100 ±10%"


def test_a_table_has_names_to_the_left_and_figures_to_the_right() -> None:
    table = Table("", ("what", "who", "n"))
    table.row("a", "penstock", "1,000")
    assert table.text(names=2).splitlines() == [
        "| what | who      |     n |",
        "| ---- | -------- | ----: |",
        "| a    | penstock | 1,000 |",
    ]
