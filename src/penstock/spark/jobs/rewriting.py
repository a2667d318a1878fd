"""Some pieces of a table become one: the same rows, in the order that readers like, by one commit.

    files = rewrite(spark, table, pieces, MergeRule(fan_in=8, file_bytes=134_217_728))

==================  =========================  ============================================================
table               sorted by                  besides
==================  =========================  ============================================================
transactions        id, run                    from 16,384 rows on one directory a hex digit, the last of
                                               the root's id: a lookup opens one file of sixteen
steps               tx, run, position
webhooks            tx, run
messages            offset                     each stream and day by itself
stats_…             window, kind, name         rows of one key become one, which has their sums
stream_stats_…      window, stream, tag
==================  =========================  ============================================================

Partial sums may be added up at any time, so rows of a window that is not over are merged as well.

Rules: a rewrite adds and removes at once and changes no rows; readers see it whole or not at all, and
``changes`` leaves it out. Rows are counted before it is committed. Nothing here knows which pieces are worth
it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as fn

from penstock.errors import LakeError
from penstock.spark.jobs.merging import Layout, MergeRule, Piece, layout_of, level_of
from penstock.spark.lake_writing import read, write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.lake.files import LakeFile, WrittenFile
    from penstock.lake.table import LakeTable

#: Fewer rows are found quickly in one file.
HASHED_ROWS: Final = 16_384
#: Of transactions: a lookup reads one group of rows.
_GROUP_BYTES: Final = 1_048_576


def rewrite(
    spark: SparkSession, table: LakeTable, pieces: Sequence[Piece], rule: MergeRule
) -> list[WrittenFile]:
    """One piece instead of some; its files."""
    layout = layout_of(table.name)
    paths = [path for piece in pieces for path in piece.paths]
    rows = sum(piece.rows for piece in pieces)
    files = _written(_rows_of(spark, table, paths, layout), table, pieces, rule)
    found = sum(file.rows for file in files)
    if found != rows and not (layout.is_additive and 0 < found <= rows):
        raise LakeError(f"table {table.name}: {rows} rows became {found} by a merge: nothing is changed")
    table.commit(files, progress={}, removes=paths, is_rewrite=True)
    return files


def _rows_of(spark: SparkSession, table: LakeTable, paths: Sequence[str], layout: Layout) -> DataFrame:
    rows = read(spark, table, paths)
    return summed(rows, table) if layout.is_additive else rows


def _written(df: DataFrame, table: LakeTable, pieces: Sequence[Piece], rule: MergeRule) -> list[WrittenFile]:
    layout = layout_of(table.name)
    rows = sum(piece.rows for piece in pieces)
    level = level_of(rows, rule.fan_in)
    groups = {"parquet.block.size": str(_GROUP_BYTES)} if layout.digits > 1 else None
    if layout.digits > 1 and rows >= HASHED_ROWS:
        return write(
            df,
            table,
            f"by-id-{level}",
            options=groups,
            sort_by=layout.sorted_by,
            files=layout.digits,
            directories={"digit": _digit()},
        )
    size_bytes = sum(piece.size_bytes for piece in pieces)
    return write(
        df,
        table,
        f"fresh-merged-{level}" if groups else f"merged-{level}",
        options=groups,
        sort_by=layout.sorted_by,
        files=size_bytes // rule.file_bytes + 1,
    )


def _digit() -> Column:
    """The last hex digit of the id of a root: as random as the rest of it, and the same for its children."""
    return fn.substring(fn.substring_index("id", ".", 1), -1, 1)


def split(
    spark: SparkSession, table: LakeTable, files: Sequence[LakeFile], column: str, before: dt.datetime
) -> None:
    """Files become others of the same rows, none of which has rows from both sides of a moment.

    A row without a moment is on the younger side.
    """
    paths = [file.path for file in files]
    is_old = fn.coalesce(fn.col(column) < fn.lit(before), fn.lit(False))
    written = write(
        read(spark, table, paths),
        table,
        "split",
        sort_by=layout_of(table.name).sorted_by,
        files=1,
        directories={"is_old": is_old},
    )
    rows, found = sum(file.rows for file in files), sum(file.rows for file in written)
    if found != rows:
        raise LakeError(f"table {table.name}: {rows} rows became {found} by a split: nothing is changed")
    table.commit(written, progress={}, removes=paths, is_rewrite=True)


# ------------------------------------------------------------------------------------------- adding up


def summed(partial: DataFrame, table: LakeTable) -> DataFrame:
    """One row a key, which is everything that is no number."""
    kinds = {field.name: field.type for field in table.schema}
    values = [name for name, kind in kinds.items() if pa.types.is_list(kind) or pa.types.is_integer(kind)]
    keys = [name for name in kinds if name not in values]
    return partial.groupBy(*keys).agg(*(_sum(name, kinds[name]) for name in values))


def _sum(name: str, kind: Any) -> Column:
    """Of what is the greatest the greatest, of buckets place by place, of the rest all together."""
    if pa.types.is_list(kind):
        nothing = fn.array().cast("array<bigint>")
        total = fn.reduce(fn.collect_list(name), nothing, lambda so_far, one: fn.zip_with(so_far, one, _plus))
    else:
        total = fn.max(name) if "_max_" in name else fn.sum(name)
    return total.alias(name)


def _plus(one: Column, other: Column) -> Column:
    """A histogram that ends earlier has nothing there."""
    return fn.coalesce(one, fn.lit(0)) + fn.coalesce(other, fn.lit(0))
