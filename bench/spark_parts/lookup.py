"""One transaction by its id among many that are archived: by the lake's lookup, and by DuckDB.

Rows are made on Spark's workers by the code that makes them of real transactions, and rewritten as the job
``maintain`` does: sixteen directories by a digit of the id, sorted. Ids are known by their numbers, so that
nobody has to collect them. Files are in the cache of the system.
"""

from __future__ import annotations

import hashlib
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from bench.results import Results
from bench.spark_parts.common import check, percentile, seconds, spark_session, thirds
from bench.spark_parts.settings import Settings, told
from bench.tables import Table
from penstock.lake import Lake, LakeArchive, LakeTable, TransactionLookup
from penstock.spark.jobs.merging import MergeRule, pieces_of
from penstock.spark.jobs.rewriting import rewrite
from penstock.spark.lake_writing import spark_schema, write
from penstock.transactions.archive.schema import table_of
from penstock.transactions.archive.sink import ArchivedRecord
from penstock.transactions.model import TrailEntry, entry_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A transaction by its id: the id of the one that was found.
Find = Callable[[str], str | None]

_AIM_MS: Final = 5.0
_OURS: Final = "penstock.lake: LakeArchive.find"
_LOOKUPS: Final = 200
_BEGAN_MS: Final = 1_794_744_000_000
_ROWS_AT_ONCE: Final = 5_000


def main(settings: Settings) -> None:
    count = settings.looked_up_in
    lake = Lake.open(Path(settings.directory) / "lake-lookup")
    table = lake.table("transactions")
    with spark_session() as spark:
        _write(spark, table, count)
        (pieces,) = pieces_of(table.files())
        rewritten_s = seconds(partial(rewrite, spark, table, pieces, MergeRule()))
    check(sum(file.rows for file in table.files()) == count, "rows are missing")
    size_mb = sum(file.size_bytes for file in table.files()) / 1e6
    print(
        f"{count:,} transactions, {size_mb:,.0f} MB in {len(table.files())} files;"
        f" rewritten by id at {count / rewritten_s:,.0f} rows/s\n"
    )
    _look_up(lake, settings)


# ------------------------------------------------------------------------- rows


def id_of(number: int) -> str:
    """As random in its last digits as a real one; ids rise with their numbers."""
    chance = hashlib.sha256(b"%d" % number).hexdigest()[:20]
    return f"tx-{number % 4}-{_BEGAN_MS + number:011x}{chance}"


def record_of(number: int) -> ArchivedRecord:
    """A checkout of three steps."""
    began_ms = _BEGAN_MS + number
    fields = {
        "state": "ended",
        "status": "failed" if number % 20 == 0 else "success",
        "owner": f"owner-{number % 500}",
        "external_id": f"order-{number}",
        "pipeline": "checkout",
        "version": "v7",
        "group": "shop",
        "worker": f"worker-{number % 12}",
        "created_ms": began_ms,
        "queued_ms": began_ms,
        "taken_ms": began_ms + 3,
        "ended_ms": began_ms + 40,
        "d:0": f'{{"cart":{number},"shop":"shop-{number % 300}"}}',
        "d:1": f'{{"cart":{number},"paid":true}}',
        "data": 1,
        "step": 3,
        "archive_batch": number // 5_000 + 1,
    }
    trail = [
        TrailEntry(
            "step", at_ms=began_ms + 10 * place, step=place, name=name, status="success", attempt=1,
            started_ms=began_ms + 10 * place - 7, worker=f"worker-{number % 12}", group="shop",
        )
        for place, name in enumerate(("reserve", "charge", "ship"), 1)
    ]  # fmt: skip
    stored = {name.encode(): str(value).encode() for name, value in fields.items()}
    return ArchivedRecord(id_of(number), stored, [entry_to(entry) for entry in trail])


def _write(spark: SparkSession, table: LakeTable, count: int) -> None:
    schema = table.schema

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            for place in range(0, len(numbers), _ROWS_AT_ONCE):
                some = numbers[place : place + _ROWS_AT_ONCE]
                yield from table_of([record_of(number) for number in some]).cast(schema).to_batches()

    df = spark.range(count, numPartitions=4).mapInArrow(rows, spark_schema(schema))
    table.commit(write(df, table, "fresh-bench"), progress={})


# ---------------------------------------------------------------------- lookups


def _look_up(lake: Lake, settings: Settings) -> None:
    count = settings.looked_up_in
    chance = random.Random(2)
    wanted = [id_of(chance.randrange(count)) for _ in range(_LOOKUPS)]
    first_s = seconds(lambda: LakeArchive(Lake.open(lake.root)).find(wanted[0]))
    archive = LakeArchive(lake)
    ways: dict[str, Find] = {
        "penstock.lake: TransactionLookup.find": partial(_found, TransactionLookup(archive.table)),
        _OURS: partial(_found, archive),
        **_duckdb(archive.table),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for is_warm in (False, True):
        for tx in wanted:
            for name, find in ways.items():
                took_s = seconds(partial(_must_find, find, tx))
                if is_warm:
                    taken[name].append(took_s * 1_000)
    _print(count, taken)
    _record(settings, taken)
    print(f"The first one, with a lake that has to be opened: {first_s * 1_000:.1f} ms\n")


def _record(settings: Settings, taken: dict[str, list[float]]) -> None:
    results = Results()
    line = f"p50, by id among {settings.looked_up_in:,}"
    for name, times in taken.items():
        is_ours = name == _OURS
        results.add(
            "spark.lookup", line, name, "ms", thirds(times), better="lower",
            role="ours" if is_ours else "beside" if name.startswith("penstock") else "peer",
            aim=_AIM_MS if is_ours else None,
        )  # fmt: skip
    results.save(Path(settings.results))


def _must_find(find: Find, tx: str) -> None:
    check(find(tx) == tx, f"{tx} was not found")


def _found(where: TransactionLookup | LakeArchive, tx: str) -> str | None:
    record = where.find(tx)
    return record.id if record else None


def _duckdb(table: LakeTable) -> dict[str, Find]:
    """Of all files, and of the one that its directory names."""
    connection = duckdb.connect()
    connection.execute("SET enable_object_cache = true")
    paths = table.paths()
    by_digit: dict[str, list[str]] = {}
    for path in paths:
        by_digit.setdefault(Path(path).parent.name[-1], []).append(path)

    def ask(files: list[str], tx: str) -> str | None:
        row = connection.execute("SELECT * FROM read_parquet(?) WHERE id = ?", [files, tx]).fetchone()
        return row[0] if row else None

    return {
        "DuckDB, all files": lambda tx: ask(paths, tx),
        "DuckDB, the files of the digit": lambda tx: ask(by_digit[tx[-1]], tx),
    }


def _print(count: int, taken: dict[str, list[float]]) -> None:
    table = Table(f"Lookup by id among {count:,} (ms, {_LOOKUPS} random ids)", ("how", "p50", "p99"))
    for name, times in taken.items():
        table.row(name, f"{statistics.median(times):.2f}", f"{percentile(times, 0.99):.2f}")
    table.print()


if __name__ == "__main__":
    main(told())
