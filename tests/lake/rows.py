"""Rows for tests of the lake, written by Arrow: what Spark would have left in the directory of a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake import LakeTable, WrittenFile
from penstock.lake.files import unique_name
from penstock.transactions.archive import ArchivedRecord
from penstock.transactions.archive.schema import table_of

DAY = dt.date(2026, 11, 16)
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


def messages(table: LakeTable, first: int, count: int, stream: str = "orders") -> Any:
    offsets = range(first, first + count)
    return pa.table(
        {
            "offset": offsets,
            "time": [NOON + dt.timedelta(seconds=offset) for offset in offsets],
            "tag": [None if offset % 3 else b"\xfftag" for offset in offsets],
            "message": [b"message %d" % offset for offset in offsets],
            "stream": [stream] * count,
            "day": [DAY] * count,
        },
        schema=table.schema,
    )


def windows(table: LakeTable, first: int, count: int) -> Any:
    """Rows of a table that has no partitions: ``messages`` counts them."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "window": [NOON + dt.timedelta(seconds=5 * number) for number in numbers],
            "stream": ["orders"] * count,
            "tag": [None] * count,
            "messages": numbers,
            "bytes": [100] * count,
        },
        schema=table.schema,
    )


def put_file(table: LakeTable, path: str, rows: Any, **options: Any) -> Path:
    """One Parquet file under ``data/``."""
    full = table.root / "data" / path
    full.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, full, compression="zstd", **options)
    return full


def put(table: LakeTable, rows: Any, name: str = "batch", **options: Any) -> list[WrittenFile]:
    """Files of a batch, which nobody has committed yet."""
    where = unique_name(name)
    put_file(table, f"{where}/part-0.parquet", rows, **options)
    return table.written(where)


def put_records(
    table: LakeTable, records: Sequence[ArchivedRecord], name: str = "fresh", **options: Any
) -> list[WrittenFile]:
    return put(table, table_of(records).cast(table.schema), name, **options)


def numbers(table: LakeTable, column: str = "messages") -> list[int]:
    """What readers of Delta see."""
    return sorted(table.dataset().to_table(columns=[column]).column(column).to_pylist())
