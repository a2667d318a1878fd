"""A lake in a directory for each test; ``table`` is one without partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lake import Lake, LakeTable


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(tmp_path / "lake")


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table("stream_stats_5s")
