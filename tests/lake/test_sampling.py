"""Rows that people are shown: the newest first, as JSON has them, and not more than one answer may hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import msgspec
import pytest

from penstock.errors import LakeError
from penstock.lake import Lake, LakeTable, sampling
from penstock.lake.plain import plain
from penstock.lake.sampling import describe, newest_rows
from tests.lake.rows import put, windows


def fill(table: LakeTable, *batches: tuple[int, int]) -> None:
    for first, count in batches:
        table.commit(put(table, windows(table, first, count), row_group_size=4), progress={"x": first})


def counts(table: LakeTable, limit: int, **how: int) -> list[int]:
    sample = newest_rows(table, limit, **how)
    return [row[sample.columns.index("messages")] for row in sample.rows]


def test_rows_come_from_the_end_of_the_newest_files(table: LakeTable, lake: Lake) -> None:
    assert newest_rows(table, 5).rows == []
    fill(table, (1, 10), (11, 10))
    assert counts(table, 3) == [20, 19, 18]
    assert counts(table, 15) == [*range(20, 5, -1)]
    assert counts(table, 100) == [*range(20, 0, -1)]
    size = describe(lake, table.name)
    assert (size.rows, size.files, size.version) == (20, 2, 2)


def test_a_group_that_is_too_large_is_read_from_its_beginning(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(table, (1, 8))
    monkeypatch.setattr(sampling, "_MAX_GROUP_BYTES", 1)
    assert counts(table, 2) == [6, 5]


def test_an_answer_has_a_size(table: LakeTable) -> None:
    fill(table, (1, 10))
    one = len(msgspec.json.encode(newest_rows(table, 1).rows[0]))
    cut = newest_rows(table, 10, max_bytes=3 * one + 1)
    assert (len(cut.rows), cut.is_cut) == (3, True)
    assert newest_rows(table, 10, max_bytes=1) == (cut.columns, [], True)
    assert newest_rows(table, 3, max_bytes=3 * one).is_cut is False


def test_a_file_that_is_gone_is_told(table: LakeTable) -> None:
    fill(table, (1, 10))
    for path in table.paths():
        (table.root / path).unlink()
    with pytest.raises(LakeError, match="cannot be read: No such file"):
        newest_rows(table, 1)


def test_values_as_json_has_them() -> None:
    moment = dt.datetime(2026, 11, 16, 13, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    value = {"a": [b"text", b"\xff"], 1: (moment, moment.date(), Decimal("1.50")), "n": None, "f": 0.5}
    assert plain(value) == {
        "a": ["text", "/w=="],
        "1": ["2026-11-16T12:00:00Z", "2026-11-16", "1.50"],
        "n": None,
        "f": 0.5,
    }
