"""What people are shown of a table: how large it is, and some of its newest rows.

    describe(lake, "messages").rows                 # out of Delta's log, nothing is scanned
    newest_rows(lake.table("messages"), 20)

Newest are the rows at the end of the files that were written last: that costs one group of rows of a file or
two, whatever the table has. In a table that was rewritten (``maintain``) they are the last in the order of
the rewrite.

Rules: what is read is bounded in rows and bytes, and what is bounded says so (``is_cut``). A file that was
vacuumed meanwhile makes it begin again, once. Nothing here knows Spark, nor who is shown the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow.parquet as pq

from penstock.errors import LakeError
from penstock.lake.delta import translated
from penstock.lake.files import LakeFile
from penstock.lake.lake import Lake
from penstock.lake.plain import plain
from penstock.lake.table import LakeTable

#: As JSON; rows beyond are left out.
MAX_BYTES: Final = 4 << 20
#: A group of rows that is larger is not read to its end.
_MAX_GROUP_BYTES: Final = 64 << 20


class Column(NamedTuple):
    name: str
    type: str


class TableSize(NamedTuple):
    """One table as it is now."""

    name: str
    rows: int
    files: int
    bytes: int
    version: int
    #: when the last of its files was written; None if there is none
    modified_ms: int | None
    columns: list[Column]


class Sample(NamedTuple):
    columns: list[str]
    rows: list[list[Any]]
    #: there was more than may be told
    is_cut: bool


def describe(lake: Lake, name: str) -> TableSize:
    """A table that exists."""
    snapshot = lake.table(name).snapshot()
    return TableSize(
        name=name,
        rows=sum(file.rows for file in snapshot.files),
        files=len(snapshot.files),
        bytes=sum(file.size_bytes for file in snapshot.files),
        version=snapshot.version,
        modified_ms=max((file.modified_ms for file in snapshot.files), default=None),
        columns=[Column(field.name, str(field.type)) for field in snapshot.schema],
    )


def newest_rows(table: LakeTable, limit: int, *, max_bytes: int = MAX_BYTES) -> Sample:
    """Up to so many rows, newest first, as values of JSON."""
    try:
        return _sample(table, limit, max_bytes)
    except LakeError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return _sample(table, limit, max_bytes)


def _sample(table: LakeTable, limit: int, max_bytes: int) -> Sample:
    snapshot = table.snapshot()
    columns = list(snapshot.schema.names)
    files = sorted(snapshot.files, key=lambda file: (file.modified_ms, file.path), reverse=True)
    rows: list[list[Any]] = []
    size_bytes = 0
    for row in _rows(table, files, limit):
        told = [plain(row.get(name)) for name in columns]
        size_bytes += len(msgspec.json.encode(told))
        if size_bytes > max_bytes:
            return Sample(columns, rows, is_cut=True)
        rows.append(told)
        if len(rows) == limit:
            break
    return Sample(columns, rows, is_cut=False)


def _rows(table: LakeTable, files: list[LakeFile], limit: int) -> Iterator[dict[str, Any]]:
    """From the last row of the newest file backwards."""
    for file in files:
        path = table.root / file.path
        with (
            translated(f"table {table.name}: {path} cannot be read"),
            pq.ParquetFile(path, pre_buffer=False) as parquet,
        ):
            for group in reversed(range(parquet.num_row_groups)):
                yield from reversed(_group_rows(parquet, group, limit))


def _group_rows(parquet: Any, group: int, limit: int) -> list[dict[str, Any]]:
    """The last rows of a group; of a very large one the first, which cost less."""
    if parquet.metadata.row_group(group).total_byte_size > _MAX_GROUP_BYTES:
        batches = parquet.iter_batches(batch_size=limit, row_groups=[group], use_threads=False)
        rows = next(batches)
    else:
        found = parquet.read_row_group(group, use_threads=False)
        rows = found.slice(max(0, found.num_rows - limit))
    told: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="lossy")
    return told
