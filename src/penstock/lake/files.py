"""Parquet files of a table, and what Delta wants to know of them.

A file under ``data/`` belongs to the table when a commit says so, never by lying there. What is told of it
comes from its footer:

===============  ==========================================================================================
``numRecords``   rows
``minValues``    smallest and largest value of the columns that the table keeps them for (``tables.py``),
``maxValues``    where every group of rows tells them
``nullCount``    rows without a value, of the same columns
partition        the one value that each column has that the table is partitioned by
===============  ==========================================================================================

Rules: a file that is empty, broken, or of other columns raises ``LakeError``; one without rows is left out.
Names that begin with ``_`` or ``.`` are of programs that are writing. Nothing here writes.
"""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import LakeError, UsageError
from penstock.lake.delta import translated
from penstock.lake.tables import TableSpec, in_lake

DATA: Final = "data"
SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]*(/[A-Za-z0-9][A-Za-z0-9_.=+-]*){0,4}")
_MAX_NAME: Final = 200
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.=+-]+")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that lies in the directory of a table, whether or not it belongs to it yet."""

    #: relative to the table
    path: str
    size_bytes: int
    rows: int
    #: value of each column that the table is partitioned by, as text
    partition: Mapping[str, str | None]
    #: Delta's JSON: numRecords, minValues, maxValues, nullCount
    stats: str

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """Smallest and largest value of a column, as JSON has them; None if that is not told."""
        told = msgspec.json.decode(self.stats or "{}")
        smallest = told.get("minValues", {}).get(column)
        largest = told.get("maxValues", {}).get(column)
        return None if smallest is None or largest is None else (smallest, largest)

    def nulls(self, column: str) -> int | None:
        """Rows without a value of a column; None if that is not told."""
        told: int | None = msgspec.json.decode(self.stats or "{}").get("nullCount", {}).get(column)
        return told


@dataclass(frozen=True, slots=True)
class LakeFile(WrittenFile):
    """A file that belongs to the table now."""

    #: when it was written
    modified_ms: int


def check_name(name: str) -> str:
    """What a directory under ``data/`` may be called."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise UsageError(
            f"name must be 1 to {_MAX_NAME} letters, digits or any of _ . = + - (and / between), not {name!r}"
        )
    return name


def unique_name(name: str) -> str:
    """A name like this one that nobody else writes under, whoever tries the same work at the same time."""
    plain = _UNUSUAL.sub("-", name).strip("-._=+")[: _MAX_NAME - 16]
    return f"{plain or 'files'}-{secrets.token_hex(6)}"


def written(root: Path, spec: TableSpec, name: str) -> list[WrittenFile]:
    """What lies under a name of the table in ``root`` now, in the order of paths."""
    directory = root / DATA / check_name(name)
    described = (described_file(root, spec, path) for path in sorted(_parquet_files(directory)))
    return [file for file in described if file.rows]


def _parquet_files(directory: Path) -> Iterator[Path]:
    with translated(f"{directory} cannot be listed"):
        for path in directory.rglob(f"*{SUFFIX}"):
            if not any(part[0] in "._" for part in path.relative_to(directory).parts):
                yield path


def described_file(root: Path, spec: TableSpec, path: Path) -> WrittenFile:
    """One file, by its footer."""
    what = f"table {spec.name}: {path} cannot be read, write it again"
    with translated(what), pq.ParquetFile(path, pre_buffer=False) as parquet:
        size_bytes = path.stat().st_size
        _check_columns(spec, path, parquet.schema_arrow)
        partition = {name: _only_value(spec, path, parquet, name) for name in spec.partition_by}
        stats = _stats(parquet.metadata, _places(parquet, spec.stats))
        return WrittenFile(
            path.relative_to(root).as_posix(), size_bytes, parquet.metadata.num_rows, partition, stats
        )


def _check_columns(spec: TableSpec, path: Path, schema: Any) -> None:
    for field in spec.schema:
        found = schema.field(field.name).type if field.name in schema.names else None
        if found is None or not in_lake(found).equals(field.type) or _has_other_moments(found):
            raise LakeError(
                f"table {spec.name}: {path} has {field.name!r} of type {found}, it must be {field.type}"
                " (a Spark session of penstock.spark.session writes it so)"
            )


def _has_other_moments(kind: Any) -> bool:
    """Whether moments are kept in a way that other readers of Delta do not expect."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit != "us")
    return any(_has_other_moments(kind.field(place).type) for place in range(kind.num_fields))


def _places(parquet: Any, columns: tuple[str, ...]) -> dict[str, int]:
    paths = [parquet.schema.column(place).path for place in range(len(parquet.schema))]
    return {name: paths.index(name) for name in columns}


def _stats(metadata: Any, places: Mapping[str, int]) -> str:
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for name, place in places.items():
        told = [group.column(place).statistics for group in groups]
        if not told or any(one is None or not one.has_null_count for one in told):
            continue
        nulls[name] = sum(one.null_count for one in told)
        # A group of nothing but nulls has no bounds, and needs none.
        filled = [one for one, group in zip(told, groups, strict=True) if one.null_count < group.num_rows]
        if filled and all(one.has_min_max for one in filled):
            smallest[name] = json_value(min(one.min for one in filled))
            largest[name] = json_value(max(one.max for one in filled))
    return stats_text(metadata.num_rows, smallest, largest, nulls)


def stats_text(
    rows: int | None, smallest: Mapping[str, Any], largest: Mapping[str, Any], nulls: Mapping[str, int]
) -> str:
    told = {"numRecords": rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls}
    return msgspec.json.encode(told).decode()


def json_value(value: Any) -> Any:
    """As Delta writes a value."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, dt.date) else value


def _only_value(spec: TableSpec, path: Path, parquet: Any, column: str) -> str | None:
    """Of a column that is the same in every row of a file."""
    values: list[Any] = parquet.read(columns=[column], use_threads=False).column(column).unique().to_pylist()
    if len(values) > 1:
        raise LakeError(
            f"table {spec.name}: {path} has {len(values)} values of {column!r}, a file must have one"
        )
    value = json_value(values[0]) if values else None
    return None if value is None else str(value)
