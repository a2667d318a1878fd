"""``rollup``: windows add up to what happened, whatever came late, and each thing is counted once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.blocking import Client
from penstock.errors import ConfigError, LakeError, UsageError
from penstock.lake import Lake, LakeTable
from penstock.spark.jobs.rollup import RollupJob, RollupOptions
from penstock.spark.jobs.rollup_counting import stats
from penstock.transactions.archive.schema import table_of
from penstock.transactions.archive.sink import ArchivedRecord
from tests.spark.archiving import context_of, job, run_shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T0 = 1_700_000_000_000 // 600_000 * 600_000


def transaction(number: int, **fields: Any) -> ArchivedRecord:
    """One of pipeline p or q that was made at a time, tried a step twice, and ended."""
    created = fields.pop("created", _T0)
    ended = fields.pop("ended", created + 1_000)
    trail = fields.pop(
        "trail", [("step", created + 100, created + 50, 1), ("step", created + 400, created + 300, 2)]
    )
    told = {
        "owner": "ann", "pipeline": "p", "group": "shop", "status": "success", "step": 1,
        "created_ms": created,
        "queued_ms": created, "taken_ms": created + 20, "ended_ms": ended, "archive_batch": 1, **fields,
    }  # fmt: skip
    entries = [
        json.dumps({"kind": kind, "at_ms": at, "started_ms": started, "attempt": attempt, "step": 0}).encode()
        for kind, at, started, attempt in trail
    ]
    record = {name.encode(): str(value).encode() for name, value in told.items()}
    return ArchivedRecord(f"tx-0-{created:011x}{number:020x}", record, entries)


def archive(lake: Lake, number: int, *records: ArchivedRecord) -> None:
    """As the job archive does it, without a store."""
    table = lake.table("transactions")
    directory = table.data_directory(f"test-{number}")
    directory.mkdir(parents=True)
    pq.write_table(table_of(list(records)).cast(table.schema), directory / "part-0.parquet")
    table.commit(table.written(f"test-{number}"), progress={"archive:test:0": number})


def by_key(spark: SparkSession, lake: Lake, level: str) -> dict[tuple[int, str, str], Any]:
    rows = stats(spark, lake, level).collect()
    found = {(round(row.window.timestamp() * 1_000), row.kind, row.name): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_what_is_counted_where(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    rollup, context = RollupJob(), context_of(spark, lake, ps, url)
    archive(
        lake,
        1,
        transaction(1),
        transaction(2, pipeline="q", status="internal-error", ended=_T0 + 70_000),
        transaction(3, created=_T0 + 700_000, trail=[]),
    )
    assert rollup.run_once(context).rows > 0
    minutes = by_key(spark, lake, "60s")
    first = minutes[_T0, "all", ""]
    assert (first.queued, first.started, first.retries, first.success, first.internal_error) == (
        2,
        2,
        2,
        1,
        0,
    )
    assert (first.latency_sum_ms, first.latency_max_ms, sum(first.latency)) == (1_000, 1_000, 1)
    assert len(first.latency) == 20, "1,000 ms is in bucket 19"
    second = minutes[_T0 + 60_000, "pipeline", "q"]
    assert (second.queued, second.internal_error, second.latency_sum_ms) == (0, 1, 70_000)
    assert minutes[_T0, "node_group", "shop"].queued == 2
    assert (_T0 + 660_000, "owner", "ann") in minutes
    ten = by_key(spark, lake, "600s")
    assert (ten[_T0, "owner", "ann"].queued, ten[_T0, "owner", "ann"].late) == (2, 0)
    fives = by_key(spark, lake, "5s")
    assert sum(row.queued for key, row in fives.items() if key[1] == "all") == 3
    # Again: nothing. Late, and a replayed run: its own part alone.
    version = lake.table("stats_5s").version()
    assert rollup.run_once(context).rows == 0
    assert lake.table("stats_5s").version() == version
    trail = [
        ("step", _T0 + 100, _T0 + 50, 1),
        ("replay", _T0 + 5_000, 0, 0),
        ("step", _T0 + 8_000, _T0 + 7_000, 2),
    ]
    archive(lake, 2, transaction(1, run=1, ended=_T0 + 9_000, trail=trail))
    rollup.run_once(context)
    late = by_key(spark, lake, "60s")[_T0, "all", ""]
    assert (late.queued, late.started, late.retries, late.success, late.late) == (2, 3, 3, 2, 3)
    assert late.latency_max_ms == 9_000


def test_killed_between_two_levels(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(lake, 1, transaction(1))
    commit, calls = LakeTable.commit, Counter[str]()

    def killed(table: LakeTable, *arguments: Any, **named: Any) -> Any:
        calls[table.name] += 1
        result = commit(table, *arguments, **named)
        if table.name == "stats_60s":
            raise RuntimeError("killed")
        return result

    monkeypatch.setattr(LakeTable, "commit", killed)
    with pytest.raises(RuntimeError, match="killed"):
        RollupJob().run_once(context_of(spark, lake, ps, url))
    monkeypatch.undo()
    assert calls == {"stats_5s": 1, "stats_60s": 1}
    RollupJob().run_once(context_of(spark, lake, ps, url))
    for level in ("5s", "60s", "600s"):
        assert sum(row.queued for key, row in by_key(spark, lake, level).items() if key[1] == "all") == 1


def test_the_same_as_the_live_figures(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    """Of a finished load: in the live slots and, when it is archived, in the windows of the lake."""
    run_shop(ps, 20)
    live = ps.transactions.statistics.read("600s", by="pipeline")
    job().run_once(context_of(spark, lake, ps, url))
    RollupJob().run_once(context_of(spark, lake, ps, url))
    rows = [row for key, row in by_key(spark, lake, "600s").items() if key[1] == "pipeline"]
    assert {row.name for row in rows} == {"good", "bad"}
    for name, part in live.parts.items():
        mine = [row for row in rows if row.name == name]
        assert sum(row.queued for row in mine) == part.total.queued
        assert sum(row.success for row in mine) == part.total.ended["success"]
        assert sum(row.failed for row in mine) == part.total.ended["failed"]
        buckets = Counter({place: n for row in mine for place, n in enumerate(row.latency or ()) if n})
        assert sum(buckets.values()) == part.total.latency.count


def write_events(ps: Client, *seconds: float) -> None:
    ps.stream("clicks").write_many(
        [
            ("eu" if second % 2 else "us", json.dumps({"ts": (_T0 + second * 1_000) / 1_000}))
            for second in seconds
        ]
    )


def windows(lake: Lake, level: str) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for row in lake.table(f"stream_stats_{level}").dataset().to_table().to_pylist():
        found[round(row["window"].timestamp()) - _T0 // 1_000, row["tag"]] += row["messages"]
    return found


def test_live_streams(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    options = RollupOptions(transactions=False, streams=["clicks"], lateness_ms=20_000, event_time="$.ts")
    context = context_of(spark, lake, ps, url)
    write_events(ps, 1, 2, 3, 11, 100)
    RollupJob(options).run_once(context)
    write_events(ps, 95, 3, 200)  # the second is too late, the first is not
    report = RollupJob(options).run_once(context)
    write_events(ps, 1_000)
    RollupJob(options).run_once(context)
    expected = {(0, "eu"): 2, (0, "us"): 1, (10, "eu"): 1, (95, "eu"): 1, (100, "us"): 1, (200, "us"): 1}
    assert windows(lake, "5s") == expected
    assert windows(lake, "60s") == {(0, "eu"): 3, (0, "us"): 1, (60, "eu"): 1, (60, "us"): 1, (180, "us"): 1}
    assert windows(lake, "600s") == {(0, "eu"): 4, (0, "us"): 3}
    assert report.notes == {"dropped": 1}
    before = lake.table("stream_stats_5s").version()
    # A batch that Spark repeats: its last commit is forgotten.
    commits = lake.checkpoint("rollup-streams") / "commits"
    newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for path in commits.glob(f"*{newest.name}*"):
        path.unlink()
    RollupJob(options).run_once(context)
    assert windows(lake, "5s") == expected
    assert lake.table("stream_stats_5s").version() == before
    # Without its checkpoint the query would count anew.
    shutil.rmtree(lake.checkpoint("rollup-streams"))
    with pytest.raises(LakeError, match=r"whose checkpoint .* is gone: put it back"):
        RollupJob(options).run_once(context)


def test_wrong_options(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(ConfigError, match=r"event_time must be a JSON path like \$.ts, not 'ts'"):
        RollupOptions(event_time="ts")
    with pytest.raises(ConfigError, match="lateness_ms must be at least 0, not -1"):
        RollupOptions(lateness_ms=-1)
    with pytest.raises(UsageError, match="level must be one of 5s, 60s, 600s, not '1s'"):
        stats(spark, lake, "1s")
