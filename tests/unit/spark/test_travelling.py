"""Functions get to executors: by their names, or as a whole; and are unpacked once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.spark.steps.declaring import SparkStep
from penstock.spark.steps.executing import Plan
from penstock.spark.steps.travelling import Parcel


def test_modules_are_looked_for_where_the_driver_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far_away.py").write_text("def double(data): return 2 * data\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), "/nowhere"])
    import far_away  # type: ignore[import-not-found]

    parcel = Parcel.of([Plan(SparkStep("double", far_away.double))])
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in parcel.paths[-2:]])
    monkeypatch.delitem(sys.modules, "far_away")
    (plan,) = parcel.opened()
    assert plan.step.function(4) == 8
    assert plan.step.function is not far_away.double, "it was found again"
    assert sys.path[-1] == str(tmp_path), "last of all, and nothing that is not there"


def test_what_a_function_keeps_is_there_for_the_next_batch() -> None:
    kept: list[int] = []

    def count(data: int) -> int:
        kept.append(data)
        return len(kept)

    parcel = Parcel.of([Plan(SparkStep("count", count))])
    assert [parcel.opened()[0].step.function(0) for _ in range(3)] == [1, 2, 3]
    assert kept == [], "it travels as a whole"
