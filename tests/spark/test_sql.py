"""``penstock spark sql`` over tables of a lake and streams of a store, and ``penstock doctor --spark``."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock.blocking
from penstock.lake import Lake
from tests.shell import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shell(
    spark: SparkSession, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """In the process of the session, which commands join and leave running."""
    for name in ("PENSTOCK_STORE", "PENSTOCK_LAKE", "PENSTOCK_SPARK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return Shell("spark", capfdbinary, monkeypatch)


def test_sql_shows_tables_and_streams_to_people_and_programs(
    shell: Shell, url: str, ps: penstock.blocking.Client, lake: Lake, tmp_path: Path
) -> None:
    ps.stream("orders").write_many([("eu", b"one"), ("us", b"\xff\x00")])
    ps.stream("orders").write_many([("eu", None)])
    table = lake.table("stream_stats_5s")
    window = dt.datetime(2026, 1, 31, 9, 0, 5, tzinfo=dt.UTC)
    rows = [{"window": window, "stream": "orders", "tag": tag, "messages": 2} for tag in ("eu", "us")]
    table.data_directory("two").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist(rows, schema=table.schema), table.data_directory("two") / "part-0.parquet"
    )
    table.commit(table.written("two"), progress={"test": 1})
    words = ("--lake", str(lake.root), "--store", url, "--stream", "orders")
    statement = """
        SELECT o.offset, o.message, s.window, named_struct('tag', o.tag, 'big', true) AS what
        FROM orders o JOIN stream_stats_5s s USING (tag) ORDER BY o.offset;
    """
    assert shell("sql", statement, *words).splitlines() == [
        "offset  message  window                what",
        '1       one      2026-01-31T09:00:05Z  {"tag":"eu","big":true}',
        '2       /wA=     2026-01-31T09:00:05Z  {"tag":"us","big":true}',
        '3       -        2026-01-31T09:00:05Z  {"tag":"eu","big":true}',
    ]
    found = [
        json.loads(line)
        for line in shell("sql", "-", *words, "--json", stdin=statement.encode()).splitlines()
    ]
    assert [(row["offset"], row["message"], row["what"]["big"]) for row in found] == [
        (1, "one", True),
        (2, "/wA=", True),
        (3, None, True),
    ]
    refusal = shell.failure("sql", "SELECT nothing FROM nowhere", "--lake", str(lake.root))
    assert refusal.startswith(
        "penstock: the statement did not work: AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]"
    )
    assert refusal.count("\n") == 1
    assert "say which store: --store WHERE" in shell.failure(
        "sql", "SELECT 1", "--stream", "orders", status=2
    )


def test_only_some_rows_are_shown_and_the_rest_is_told_of(
    shell: Shell, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from penstock.cli.main import main

    assert main(["spark", "sql", "SELECT id FROM range(5)", "--rows", "2"]) == 0
    out, errors = capfdbinary.readouterr()
    assert out.split() == [b"id", b"0", b"1"]
    assert errors.startswith(b"only the first 2 rows are shown")


def test_doctor_lets_spark_count(
    shell: Shell, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = Shell("doctor", capfdbinary, monkeypatch)
    lines = doctor("--spark").splitlines()
    assert "counted to 1,000" in lines[-1]
    assert lines[-1].startswith("ok    spark")
