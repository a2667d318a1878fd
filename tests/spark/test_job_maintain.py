"""The job ``maintain``: files are merged and removed, and nobody who reads the lake sees a difference."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.errors import ConfigError
from penstock.lake import Lake, LakeTable
from penstock.lake.alone import alone
from penstock.lake.archive import LakeArchive
from penstock.spark.jobs import rewriting
from penstock.spark.jobs.derive import derive
from penstock.spark.jobs.job import JobContext
from penstock.spark.jobs.maintain import MaintainJob, MaintainOptions
from penstock.transactions import keys
from penstock.transactions.archive import ArchivedRecord
from tests.spark.archiving import CrashError, archived, context_of, leftovers, steps_in, steps_of
from tests.unit.transactions.archive.samples import DAY_MS, NOON_MS, batch, id_of, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture
def context(spark: SparkSession, lake: Lake) -> JobContext:
    """Nothing here needs a store."""
    nobody: Any = None
    return context_of(spark, lake, nobody)


def maintain(context: JobContext, **options: Any) -> dict[str, int | str]:
    """What it did: merges, and what the job notes."""
    report = MaintainJob(MaintainOptions(**{"fan_in": 3, **options})).run_once(context)
    return {"merges": report.batches, **report.notes}


# ------------------------------------------------------------------------------------- transactions


def put(lake: Lake, number: int, *records: ArchivedRecord) -> None:
    """Into a file of their own, as both who archive to a lake do; without Spark, which is slower."""
    LakeArchive(lake).write(batch(number, records))


def check_layout(lake: Lake, name: str) -> None:
    """Each file has the rows of one digit, sorted by id."""
    table = lake.table("transactions")
    files = [file for file in table.files() if file.path.startswith(f"data/{name}")]
    assert len(files) > 4
    for file in files:
        ids = pq.read_table(table.root / file.path, columns=["id"]).column("id").to_pylist()
        assert ids == sorted(ids)
        assert {keys.root_of(tx)[-1] for tx in ids} == {Path(file.path).parent.name.removeprefix("digit=")}


def check_lookups(lake: Lake, records: Sequence[ArchivedRecord]) -> None:
    archive = LakeArchive(lake)
    for one in records:
        found = archive.find(one.id)
        assert found is not None
        assert found.trail == one.trail
    assert archive.find(id_of(1)) is None


def sample() -> list[ArchivedRecord]:
    """Of all digits; one is the child of another."""
    first = [record(id_of(7 * number, NOON_MS + number), note=number) for number in range(47)]
    return [*first, record(f"{first[0].id}.2.0", parent=first[0].id)]


def test_transactions_are_sorted_for_lookups_and_stay_what_they_are(
    context: JobContext, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "HASHED_ROWS", 40)
    table, records = lake.table("transactions"), sample()
    for number in range(4):
        put(lake, number + 1, *records[number * 12 : number * 12 + 12])
    before, reader = archived(lake), table.dataset()
    assert len(before) == 48
    with alone(lake, "rewrite-transactions"):
        assert maintain(context) == {"merges": 0, "busy": 1}
    with monkeypatch.context() as patch, pytest.raises(CrashError):
        patch.setattr(LakeTable, "commit", dies)
        maintain(context)
    assert (archived(lake), len(table.files()), table.version()) == (before, 4, 4)
    told = maintain(context)
    assert (told["merges"], told["merged"], told["written"]) == (1, 4, len(table.files()))
    check_layout(lake, "by-id-")
    assert archived(lake) == before
    check_lookups(lake, records)
    # A reader that began before goes on; what was added is added once, for those who take in changes.
    assert reader.to_table(columns=["id"]).num_rows == 48
    assert derive(context)["steps"] == 48
    assert steps_of(lake) == steps_in(before)


def test_few_become_one_file_and_old_files_go_after_a_week(context: JobContext, lake: Lake) -> None:
    table, records = lake.table("transactions"), sample()[:3]
    again = record(records[1].id, run=1, note="again")
    for number, one in enumerate([*records, again]):
        put(lake, number + 1, one)
    assert maintain(context) == {"merges": 1, "merged": 4, "written": 1}
    (file,) = table.files()
    assert file.path.startswith("data/fresh-merged-")
    before = archived(lake)
    assert {run for _, run in before} == {0, 1}
    # The highest run counts.
    assert LakeArchive(lake).find(again.id) == batch(4, [again]).records[0]
    assert (maintain(context), len(leftovers(lake))) == ({"merges": 0}, 4)
    # ``steps`` has taken in the first two: the files that the others came with are still wanted.
    steps = lake.table("steps")
    steps.commit([], progress={steps.spec.app: 2})
    later = Lake.open(lake.root, clock=ManualClock(SystemClock().now_ms() + 8 * DAY_MS))
    in_a_week = context_of(context.spark, later, context.store)
    assert (maintain(in_a_week)["merges"], len(leftovers(lake))) == (0, 2)
    assert derive(context) == {"steps": 2}
    assert (maintain(in_a_week)["merges"], leftovers(lake)) == (0, [])
    assert archived(lake) == before


def dies(*arguments: Any, **options: Any) -> Any:
    raise CrashError("killed")


# ------------------------------------------------------------------------------------- other tables


def put_rows(table: LakeTable, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """As somebody else's program may write them."""
    directory = table.data_directory(name)
    directory.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=table.schema), directory / "part.parquet")
    table.commit(table.written(name), progress={name: 1})


def sums_of(window: int, name: str | None, number: int) -> dict[str, Any]:
    counts = dict.fromkeys(("queued", "started", "success", "latency_sum_ms", "late"), number)
    return {
        "window": NOON + timedelta(seconds=5 * window),
        "kind": "all" if name is None else "pipeline",
        "name": name,
        **counts,
        "latency_max_ms": number,
        "latency": [number] * (number % 4),
    }


def test_partial_sums_become_one_row_a_key(context: JobContext, lake: Lake) -> None:
    table = lake.table("stats_5s")
    names = ("checkout", "refund", None)
    partial = [
        [sums_of(at, name, 10 * part + at) for at in range(part, part + 3) for name in names]
        for part in range(6)
    ]
    for number, rows in enumerate(partial):
        put_rows(table, f"part-{number}", rows)
    assert maintain(context)["merges"] == 1
    found = {(row["window"], row["kind"], row["name"]): row for row in table.dataset().to_table().to_pylist()}
    assert len(found) == table.dataset().count_rows() == 8 * len(names)
    for key, row in found.items():
        parts = [one for rows in partial for one in rows if (one["window"], one["kind"], one["name"]) == key]
        assert row["success"] == row["late"] == sum(one["success"] for one in parts)
        assert row["latency_max_ms"] == max(one["latency_max_ms"] for one in parts)
        assert row["failed"] is None
        longest = max(len(one["latency"]) for one in parts)
        assert row["latency"] == [
            sum(one["latency"][place] for one in parts if place < len(one["latency"]))
            for place in range(longest)
        ]
    # A few more are left until they are worth it.
    put_rows(table, "late", [sums_of(1, "checkout", 5)])
    assert maintain(context) == {"merges": 0}


def test_messages_are_merged_by_stream_and_day_and_only_named_tables_are_touched(
    context: JobContext, lake: Lake
) -> None:
    table = lake.table("messages")
    rows = [
        {
            "offset": offset,
            "time": NOON,
            "tag": b"eu",
            "message": None if offset == 3 else b"%d" % offset,
            "stream": stream,
            "day": date(2026, 11, 16 + offset % 2),
        }
        for stream in ("orders", "b/ü")
        for offset in range(1, 9)
    ]
    for number, row in enumerate(reversed(rows)):
        put_rows(table, f"part-{number}", [row])
    before = table.dataset().to_table().sort_by([("stream", "ascending"), ("offset", "ascending")])
    assert maintain(context, tables=["steps"]) == {"merges": 0}
    told = maintain(context, tables=["messages", "steps"])
    assert (told["merges"], told["merged"], told["written"]) == (4, 16, 4)
    assert {tuple(file.partition.values()) for file in table.files()} == {
        (stream, day) for stream in ("orders", "b/ü") for day in ("2026-11-16", "2026-11-17")
    }
    for path in table.paths():
        offsets = pq.read_table(path, columns=["offset"]).column("offset").to_pylist()
        assert offsets == sorted(offsets)
    after = table.dataset().to_table().sort_by([("stream", "ascending"), ("offset", "ascending")])
    assert after.select(table.schema.names).to_pylist() == before.select(table.schema.names).to_pylist()


def test_settings_that_make_no_sense_are_refused() -> None:
    for options, text in [
        ({"tables": ["orders"]}, "tables must be of transactions, "),
        ({"fan_in": 1}, "fan_in must be 2 to 1000"),
        ({"file_bytes": 0}, "file_bytes must be at least 1"),
        ({"older_than_ms": 60_000}, "at least 3600000"),
    ]:
        with pytest.raises(ConfigError, match=text):
            MaintainOptions(**options)
