"""DataFrames into tables of the lake and out of them.

    append(df, lake.table("messages"), "orders-0-5000", progress={"messages:3f…:orders": 5000})
    read(spark, lake.table("messages")).where("stream = 'orders'").show()

How files are laid out: each write has a directory of its own, ``data/<name>-<random>/``, so that two who do
the same work at the same time never touch each other's files. Rows of different partitions go into
different files. A column that a table is partitioned by is in the files as well (``lake/tables.py``), so
directories are named by copies of it:

    data/orders-0-5000-3f81…/in_stream=orders/in_day=2026-11-16/part-….parquet

Rules: Spark writes, ``penstock.lake`` commits. What was written and not committed is seen by nobody.
Executors and the driver must see the lake under the same path. Nothing here asks for a SparkContext.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import LakeError, UsageError
from penstock.lake.committing import CommitResult
from penstock.lake.files import WrittenFile, unique_name
from penstock.lake.table import LakeTable
from penstock.spark.reasons import reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COPY: Final = "in_"


def write(
    df: DataFrame,
    table: LakeTable,
    name: str,
    *,
    options: Mapping[str, str] | None = None,
    sort_by: Sequence[str] = (),
    files: int | None = None,
    directories: Mapping[str, Column] | None = None,
) -> list[WrittenFile]:
    """Write Parquet files under a name (and a random word); ``table.commit`` makes them part of the table.

    ``options``: of Spark's Parquet writer. ``sort_by``: rows are sorted so in each file. ``files``: at most
    so many (for each partition of the table: one). ``directories``: a name -> what to split rows by, beside
    the partitions; ``{"digit": …}`` gives directories ``digit=a``. A DataFrame without rows gives [].
    """
    from pyspark.sql.functions import col

    where = unique_name(name)
    splits = {f"{_COPY}{column}": col(column) for column in table.partition_by} | dict(directories or {})
    _check(df, table, files)
    try:
        rows = df.to(spark_schema(table.schema)).withColumns(splits)
        writer = _arranged(rows, list(splits), sort_by, files).write.mode("overwrite")
        writer = writer.options(**{"compression": "zstd", **(options or {})}).partitionBy(*splits)
        writer.parquet(_local(table.data_directory(where)))
    except Exception as error:  # whatever it was: these rows are not in the lake
        raise LakeError(f"table {table.name}: {name} is not written: {reason(error)}") from error
    return table.written(where)


def append(
    df: DataFrame,
    table: LakeTable,
    name: str,
    *,
    progress: Mapping[str, int],
    options: Mapping[str, str] | None = None,
    sort_by: Sequence[str] = (),
    files: int | None = None,
) -> CommitResult:
    """Write and commit, unless this progress is reached already: then nothing is written."""
    reached = {app: table.progress(app) for app in progress}
    if reached and all(at is not None and at >= progress[app] for app, at in reached.items()):
        return CommitResult(table.version(), is_new=False)
    new = write(df, table, name, options=options, sort_by=sort_by, files=files)
    return table.commit(new, progress=progress)


def read(spark: SparkSession, table: LakeTable, paths: Sequence[str] | None = None) -> DataFrame:
    """What the table has now, or what some of its files have (relative to it, or absolute)."""
    schema = spark_schema(table.schema)
    chosen = table.paths() if paths is None else [str(table.root / path) for path in paths]
    if not chosen:
        return spark.createDataFrame([], schema)
    for lost in (path for path in chosen if not Path(path).exists()):
        raise LakeError(f"table {table.name}: {lost} is gone, vacuum removed it; read the table as it is now")
    return spark.read.schema(schema).parquet(*map(_local, chosen))


def spark_schema(schema: Any) -> StructType:
    """Of a ``pyarrow.Schema``."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _check(df: DataFrame, table: LakeTable, files: int | None) -> None:
    missing = [name for name in table.schema.names if name not in df.columns]
    if missing:
        raise UsageError(f"table {table.name} needs {', '.join(missing)}: the DataFrame has {df.columns}")
    if files is not None and files < 1:
        raise UsageError(f"files must be at least 1, not {files}")


def _arranged(df: DataFrame, splits: Sequence[str], sort_by: Sequence[str], files: int | None) -> DataFrame:
    """Which task writes what, and in what order."""
    if files is not None and splits:
        df = df.repartition(files, *splits)
    elif files is not None:
        df = df.repartitionByRange(files, *sort_by) if sort_by else df.coalesce(files)
    # Spark writes a directory after the other: with these first it need not sort again.
    return df.sortWithinPartitions(*splits, *sort_by) if sort_by else df


def _local(path: str | Path) -> str:
    """For Spark, whose own file system may be another one."""
    return f"file://{path}"
