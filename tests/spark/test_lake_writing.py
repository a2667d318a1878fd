"""DataFrames into the lake and out of it: the same rows, once, also for readers without Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.errors import LakeError, UsageError
from penstock.lake import Lake, LakeArchive
from penstock.lake.tables import TABLES
from penstock.spark.lake_writing import append, read, spark_schema, write
from penstock.transactions.archive.schema import table_of
from tests.lake.duck import by_duckdb
from tests.lake.rows import numbers
from tests.unit.transactions.archive.samples import NOON_MS, id_of, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "a/b c%41ü+=:*?{}[]"


def message(offset: int, stream: str = "orders") -> tuple[Any, ...]:
    day = 16 + offset % 2
    moment = dt.datetime(2026, 11, day, 12, 0, 0, offset, tzinfo=dt.UTC)
    return offset, moment, None if offset % 3 else b"\xff", b"m%d" % offset, stream, moment.date()


def test_messages_by_stream_and_day(spark: SparkSession, lake: Lake) -> None:
    table = lake.table("messages")
    rows = [message(offset) for offset in range(60)] + [message(offset, ODD) for offset in range(20)]
    df = spark.createDataFrame(rows, spark_schema(table.schema))
    # Columns in another order, and one that the table has not.
    given = df.selectExpr("day", "stream", "message", "tag", "time", "offset", "1 AS more")
    progress = {"messages:store1:orders": 60}
    result = append(given, table, f"{ODD}-0-60", progress=progress, sort_by=["offset"], files=2)
    assert (result.is_new, result.rows, result.files) == (True, 80, 4)
    again = append(given, table, f"{ODD}-0-60", progress=progress)
    assert (again.is_new, len(list((table.root / "data").iterdir()))) == (False, 1)
    found = [tuple(row.values()) for row in table.dataset().to_table().to_pylist()]
    assert sorted(found, key=_key) == sorted(rows, key=_key)
    assert by_duckdb(
        table, "SELECT stream, count(*) AS n FROM files GROUP BY ALL ORDER BY n"
    ).to_pylist() == [
        {"stream": ODD, "n": 20},
        {"stream": "orders", "n": 60},
    ]
    back = read(spark, table)
    assert back.schema == spark_schema(table.schema)
    assert sorted(map(_key, back.collect())) == sorted(map(_key, rows))
    assert back.where(back.stream == ODD).where("offset >= 15").count() == 5
    for file in table.files():
        offsets = pq.read_table(table.root / file.path).column("offset").to_pylist()
        assert offsets == sorted(offsets)
        assert file.bounds("offset") == (offsets[0], offsets[-1])
        assert file.partition["day"] == str(message(offsets[0])[5])


def _key(row: Any) -> tuple[str, int]:
    return row[4], row[0]


def test_transactions_are_the_same_and_found_before_and_after_they_are_sorted(
    spark: SparkSession, lake: Lake
) -> None:
    from pyspark.sql import functions as fn

    archive = LakeArchive(lake)
    table = archive.table
    records = [record(id_of(number * 7919, NOON_MS + number, number % 2)) for number in range(300)]
    records.append(record(f"{records[5].id}.1.0", **{"d:1": '{"ü":[1,null]}'}))
    records[7].fields[b"\xff\x00 odd"] = b"\x00\xff"
    made = table_of(records).cast(table.schema)
    append(spark.createDataFrame(made), table, "fresh-1", progress={"archive:store1:0": 1}, sort_by=["id"])
    assert table.dataset().to_table().sort_by("id").equals(made.sort_by("id"))
    assert [archive.find(one.id) for one in records] == records
    files = write(
        read(spark, table),
        table,
        "by-id-1",
        sort_by=["id"],
        files=4,
        directories={"digit": fn.substring(fn.substring_index("id", ".", 1), -1, 1)},
        options={"parquet.block.size": "65536"},
    )
    assert len(files) == len({one.id.partition(".")[0][-1] for one in records})
    before = [file.path for file in table.files()]
    table.commit(files, progress={}, removes=before, is_rewrite=True)
    assert table.dataset().to_table().sort_by("id").equals(made.sort_by("id"))
    # Found through digits of directories alone.
    assert [archive.find(one.id) for one in records] == records
    (change,) = table.changes(0)
    assert read(spark, table, change.files).count() == 301


def test_nothing_is_seen_that_was_not_committed(spark: SparkSession, lake: Lake) -> None:
    table = lake.table("stream_stats_5s")
    columns = ("timestamp_seconds(id) AS window", "'orders' AS stream", "CAST(NULL AS STRING) AS tag")
    df = spark.range(10).selectExpr(*columns, "id AS messages", "100 AS bytes")
    # A crash after the write: another one writes the same batch, beside it.
    left = write(df, table, "batch-1")
    assert (sum(file.rows for file in left), read(spark, table).count(), table.paths()) == (10, 0, [])
    assert append(df, table, "batch-1", progress={"test": 1}).is_new
    assert numbers(table) == list(range(10))
    # No rows are a commit too: it is known how far that went.
    assert append(df.where("messages < 0"), table, "batch-2", progress={"test": 2}).files == 0
    assert (table.progress("test"), len(table.files())) == (2, len(left))
    # It fails while rows are made; its types do not fit.
    for column in ("messages DIV (messages - 5)", "array(1)"):
        broken = df.drop("bytes").selectExpr("*", f"{column} AS bytes")
        with pytest.raises(LakeError, match=r"^table stream_stats_5s: batch-3 is not written: [^\n]+$"):
            append(broken, table, "batch-3", progress={"test": 3})
    with pytest.raises(UsageError, match="table stream_stats_5s needs tag, bytes"):
        append(df.drop("bytes", "tag"), table, "batch-3", progress={"test": 3})
    with pytest.raises(UsageError, match="files must be at least 1, not 0"):
        write(df, table, "batch-3", files=0)
    with pytest.raises(LakeError, match="nothing-there is gone"):
        read(spark, table, ["data/nothing-there"])
    assert (numbers(table), table.progress("test")) == (list(range(10)), 2)


def test_types_of_every_table(spark: SparkSession, lake: Lake) -> None:
    """An empty DataFrame of each is what Spark reads, and what it may write."""
    for name, spec in TABLES.items():
        frame = read(spark, lake.table(name))
        assert frame.columns == spec.schema.names
    assert spark_schema(TABLES["stats_5s"].schema)["latency"].dataType.simpleString() == "array<bigint>"
    assert spark_schema(TABLES["transactions"].schema)["ended"].dataType.simpleString() == "timestamp"
