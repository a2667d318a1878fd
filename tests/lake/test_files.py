"""Files of a batch: what Delta is told of them, and which are refused before they are committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import LakeError, UsageError
from penstock.lake import Lake, LakeTable
from penstock.lake.files import unique_name
from tests.lake.rows import messages, put, put_file, windows


def test_what_delta_is_told_of_a_file(lake: Lake) -> None:
    table = lake.table("messages")
    (file,) = put(table, messages(table, 5, 1_000), row_group_size=300)
    assert file.rows == 1_000
    assert file.size_bytes == (table.root / file.path).stat().st_size
    assert file.partition == {"stream": "orders", "day": "2026-11-16"}
    assert json.loads(file.stats) == {
        "numRecords": 1_000,
        "minValues": {"offset": 5, "time": "2026-11-16T12:00:05.000000Z"},
        "maxValues": {"offset": 1_004, "time": "2026-11-16T12:16:44.000000Z"},
        "nullCount": {"offset": 0, "time": 0},
    }
    assert file.bounds("offset") == (5, 1_004)
    assert file.bounds("tag") is None
    table.commit([file], progress={"x": 1})
    (active,) = table.files()
    assert (active.path, active.rows, active.partition) == (file.path, file.rows, file.partition)
    assert json.loads(active.stats) == json.loads(file.stats)


def test_nulls_are_counted_and_bounds_left_out_where_there_are_none(table: LakeTable) -> None:
    rows = windows(table, 0, 4).set_column(0, table.schema.field(0), pa.nulls(4, table.schema.field(0).type))
    (file,) = put(table, rows)
    told = json.loads(file.stats)
    assert told["nullCount"]["window"] == 4
    assert "window" not in told["minValues"]
    assert file.bounds("stream") == ("orders", "orders")


def test_what_programs_leave_behind_is_not_taken_and_files_without_rows_neither(table: LakeTable) -> None:
    rows = windows(table, 0, 3)
    put_file(table, "batch/part-1.parquet", rows)
    put_file(table, "batch/part-0.parquet", rows.slice(0, 0))
    put_file(table, "batch/_temporary/0/part-2.parquet", rows)
    put_file(table, "batch/.part-3.parquet", rows)
    (table.root / "data" / "batch" / "_SUCCESS").write_bytes(b"")
    (table.root / "data" / "batch" / ".part-1.parquet.crc").write_bytes(b"crc")
    assert [file.path for file in table.written("batch")] == ["data/batch/part-1.parquet"]
    assert table.written("nothing-there") == []


@pytest.mark.parametrize("damage", ["empty", "nonsense", "cut"])
def test_a_broken_file_is_named(table: LakeTable, damage: str) -> None:
    put_file(table, "batch/part-0.parquet", windows(table, 0, 3))
    path = put_file(table, "batch/part-1.parquet", windows(table, 0, 3))
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "nonsense": b"PAR1" + bytes(99) + b"PAR1", "cut": whole[:-9]}[damage])
    with pytest.raises(
        LakeError, match=r"^table stream_stats_5s: .*part-1\.parquet cannot be read, write it again: "
    ):
        table.written("batch")


def _renamed(rows: Any) -> Any:
    return rows.rename_columns(["offset", "when", *rows.column_names[2:]])


def _coarse(rows: Any) -> Any:
    return rows.set_column(1, "time", rows.column("time").cast(pa.timestamp("ms", tz="UTC")))


def _local(rows: Any) -> Any:
    return rows.set_column(1, "time", rows.column("time").cast(pa.timestamp("us")))


@pytest.mark.parametrize("change", [_renamed, _coarse, _local])
def test_other_columns_are_refused(lake: Lake, change: Any) -> None:
    table = lake.table("messages")
    put_file(table, "batch/part-0.parquet", change(messages(table, 0, 3)))
    with pytest.raises(
        LakeError, match=r"table messages: .* has 'time' of type .*must be timestamp\[us, tz=UTC\]"
    ):
        table.written("batch")


def test_a_file_of_two_partitions_is_refused(lake: Lake) -> None:
    table = lake.table("messages")
    put_file(table, "x/y.parquet", pa.concat_tables([messages(table, 0, 3), messages(table, 3, 3, "audit")]))
    with pytest.raises(LakeError, match="has 2 values of 'stream', a file must have one"):
        table.written("x")


@pytest.mark.parametrize("name", ["", "/x", "../x", "a//b", ".x", "a b", "x" * 201, "ü"])
def test_names_are_checked(table: LakeTable, name: str) -> None:
    with pytest.raises(UsageError, match="name must be 1 to 200"):
        table.data_directory(name)


def test_names_are_made_unique_whatever_they_are(table: LakeTable) -> None:
    for name in ("orders-0-5", "we/ird: ü", "../..", "", "x" * 500):
        one, other = unique_name(name), unique_name(name)
        assert one != other
        assert table.data_directory(one) == table.root / "data" / one
    assert unique_name("we/ird: ü9").startswith("we-ird-9-")
    assert Path(unique_name("a.b-c_d")).name.startswith("a.b-c_d-")
