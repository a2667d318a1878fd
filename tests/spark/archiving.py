"""Transactions that have really run, for tests of the jobs that archive them; and what a lake has of them.

ids = run_shop(ps, 20)
record = recorded(ps, ids)                    # as the store has them, before they are archived
assert archived(lake) == record
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.blocking import Client
from penstock.blocking.portal import PORTAL
from penstock.errors import PenstockError
from penstock.lake import Lake
from penstock.spark.jobs.archive import ArchiveJob, ArchiveOptions
from penstock.spark.jobs.job import JobContext
from penstock.transactions import Pipeline
from penstock.transactions.archive.schema import records_of
from penstock.transactions.model import TrailEntry, entry_from
from tests.transactions.running import GROUP, Shop
from tests.unit.transactions.archive.shop import stored, waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 120
Content = tuple[dict[bytes, bytes], list[bytes]]


def context_of(spark: SparkSession, lake: Lake, ps: Client, url: str = "", **options: Any) -> JobContext:
    return JobContext(spark=spark, lake=lake, store=ps, url=url, **options)


def job(node: str = "", **options: Any) -> ArchiveJob:
    """Roles as short as these come to others soon."""
    return ArchiveJob(ArchiveOptions(node=node, **{"lock1_ms": 20, "lock2_ms": 30, **options}))


def run_shop(ps: Client, count: int) -> list[str]:
    """Most succeed, some fail, some have a webhook that nobody needed, some have children."""
    return PORTAL.run(_run_shop(ps, count))


async def _run_shop(ps: Client, count: int) -> list[str]:
    client = ps._client
    store = client.transactions.store
    await store.configure(archive_delay_ms=0, dead_keep_ms=0)
    shop = Shop(client)
    await client.transactions.deploy(
        Pipeline("good", ["add", "noop", "add"], node_group=GROUP),
        Pipeline("bad", ["add", "fail"], node_group=GROUP),
    )
    async with shop.worker():
        handles = [
            await shop.start(
                "bad" if number % 5 == 4 else "good",
                {"n": number, "text": f"ü {number}"},
                owner=f"owner-{number % 3}",
                webhook="http://127.0.0.1:9/hook" if number % 7 == 3 else None,
                poll_cancels_webhook=True,
            )
            for number in range(count)
        ]
        for handle in handles:
            await shop.ended(handle)
    assert len(await waiting(store)) >= count
    return [handle.id for handle in handles]


async def work_off(ps: Client, tx: str) -> None:
    """Let a worker carry one to its end."""
    shop = Shop(ps._client)
    async with shop.worker():
        await shop.ended(ps._client.transactions.handle(tx))


def recorded(ps: Client, ids: list[str]) -> dict[tuple[str, int], Content]:
    """By id and run: every field but the mark that archiving leaves, and the trail."""

    async def look() -> dict[tuple[str, int], Content]:
        store = ps._client.transactions.store
        return {_key(tx, *content): _content(*content) for tx in ids for content in [await stored(store, tx)]}

    return PORTAL.run(look())


def _key(tx: str, fields: dict[bytes, bytes], trail: list[bytes]) -> tuple[str, int]:
    return tx, int(fields.get(b"run", 0))


def _content(fields: dict[bytes, bytes], trail: list[bytes]) -> Content:
    return {name: value for name, value in fields.items() if name != b"archive_batch"}, trail


def archived(lake: Lake) -> dict[tuple[str, int], Content]:
    """The same of the lake, read by delta-rs; none may be there twice."""
    rows = records_of(lake.table("transactions").dataset().to_table(columns=["id", "fields", "trail"]))
    found = {_key(row.id, row.fields, row.trail): _content(row.fields, row.trail) for row in rows}
    assert len(found) == len(rows)
    return found


def left(ps: Client) -> int:
    """How many the store still has to give away."""
    return len(PORTAL.run(waiting(ps._client.transactions.store)))


def archive_all(context: JobContext, node: str = "", **options: Any) -> None:
    """Until the store has none left; another node's role must end by itself."""
    one = job(node, **options)
    end_s = time.monotonic() + LIMIT_S
    while left(context.store):
        assert time.monotonic() < end_s
        one.run_once(context)


def steps_in(record: dict[tuple[str, int], Content]) -> list[tuple[Any, ...]]:
    """What the table ``steps`` must have: made from trails, without Spark."""
    found = []
    for (tx, run), (fields, trail) in record.items():
        for position, entry in enumerate(map(entry_from, trail)):
            if entry.kind == "step":
                found.append((tx, run, position, *_told(entry), fields[b"status"].decode()))
    return sorted(found, key=repr)


def _told(entry: TrailEntry) -> tuple[Any, ...]:
    took_ms = entry.at_ms - entry.started_ms if entry.started_ms else None
    return entry.step, entry.name, entry.status, entry.attempt, took_ms


def steps_of(lake: Lake) -> list[tuple[Any, ...]]:
    columns = ["tx", "run", "position", "step", "name", "status", "attempt", "duration_ms", "tx_status"]
    table = lake.table("steps").dataset().to_table(columns=columns)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def leftovers(lake: Lake, table: str = "transactions") -> list[Path]:
    """Files that lie there and belong to no version."""
    one = lake.table(table)
    known = {one.root / file.path for file in one.files()}
    return [path for path in (one.root / "data").rglob("*.parquet") if path not in known]


class CrashError(PenstockError):
    """Raised where a test wants a job to die."""
