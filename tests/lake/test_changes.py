"""What incremental jobs are told: every row once, rewrites or not; an error if it cannot be told any more."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from penstock.errors import LakeError
from penstock.lake import LakeTable
from tests.lake.rows import numbers, put, windows


def add(table: LakeTable, batch: int) -> None:
    table.commit(put(table, windows(table, 10 * batch, 10)), progress={"test": batch})


def rewrite(table: LakeTable) -> None:
    """All files become one."""
    rows = table.dataset().to_table()
    table.commit(
        put(table, rows), progress={}, removes=[file.path for file in table.files()], is_rewrite=True
    )


def rows_in(table: LakeTable, after: int, upto: int | None = None) -> list[tuple[int, list[int]]]:
    """version -> what its files have."""
    return [
        (
            change.version,
            sorted(
                number
                for path in change.files
                for number in pq.read_table(table.root / path).column("messages").to_pylist()
            ),
        )
        for change in table.changes(after, upto)
    ]


def test_each_row_comes_once_whatever_is_rewritten_between(table: LakeTable) -> None:
    add(table, 1)
    add(table, 2)
    rewrite(table)
    add(table, 4)
    table.commit([], progress={"other": 1})
    rewrite(table)
    expected = [(1, list(range(10, 20))), (2, list(range(20, 30))), (4, list(range(40, 50)))]
    assert rows_in(table, 0) == rows_in(table, -1) == expected
    assert rows_in(table, 1) == expected[1:]
    assert rows_in(table, 1, 3) == expected[1:2]
    assert rows_in(table, 2, 100) == expected[2:]
    assert rows_in(table, 6) == rows_in(table, 99) == []
    assert len(table.files()) == 1


def test_who_begins_late_gets_the_table_whole(table: LakeTable) -> None:
    add(table, 1)
    add(table, 2)
    rewrite(table)
    table.checkpoint_log()
    add(table, 4)
    (table.root / "_delta_log" / f"{1:020d}.json").unlink()
    assert rows_in(table, 0) == [(4, numbers(table))]
    assert rows_in(table, 0, 3) == [(3, list(range(10, 30)))]
    # One that is in between cannot know what it has missed.
    (table.root / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(
        LakeError,
        match=r"table stream_stats_5s: what version 2 added .*0002\.json is gone.*start again from version 0",
    ):
        table.changes(1)
    assert rows_in(table, 3) == [(4, list(range(40, 50)))]


def test_a_file_that_is_gone_is_told(table: LakeTable) -> None:
    for batch in (1, 2, 3):
        add(table, batch)
    rewrite(table)
    (lost,) = table.changes(1)[0].files
    (table.root / lost).unlink()
    with pytest.raises(LakeError, match=r"what version 2 added is not known any more \(.* is gone\)"):
        table.changes(1)
    assert rows_in(table, 2) == [(3, list(range(30, 40)))]
    # Nobody who begins needs it: the rewrite has its rows.
    assert rows_in(table, 0) == [(4, list(range(10, 40)))]


def test_a_log_that_does_not_decode_is_told(table: LakeTable) -> None:
    add(table, 1)
    table.checkpoint_log()
    (table.root / "_delta_log" / f"{1:020d}.json").write_text("[]\nnonsense")
    with pytest.raises(LakeError, match=r"0001\.json is no commit of a Delta table"):
        table.changes(0)
