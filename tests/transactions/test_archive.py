"""Archiving from a store to files and back: everything moves, once, and comes back as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.transactions import keys
from penstock.transactions.archive import (
    ArchiveBatch,
    ArchiveQuery,
    ArchiveReader,
)
from penstock.transactions.archive.parquet import ParquetArchive
from penstock.transactions.store import TransactionStore
from tests.places import until
from tests.unit.transactions.archive.shop import (
    archiver_of,
    ended,
    finish,
    is_gone,
    open_shop,
    rows,
    running,
    stored,
    waiting,
)

DAY_MS = 86_400_000
pytestmark = pytest.mark.parametrize("url", ["embedded-3", "server-3", "cluster-3"], indirect=True)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetArchive:
    return ParquetArchive(tmp_path / "archive")


@pytest.fixture
async def shop(store: TransactionStore) -> TransactionStore:
    return await open_shop(store)


# ------------------------------------------------------------------------------------ there and back


async def test_what_has_ended_moves_to_the_archive(shop: TransactionStore, sink: ParquetArchive) -> None:
    yesterday = TransactionStore(shop.client, clock=ManualClock(SystemClock().now_ms() - DAY_MS))
    ids = await ended(shop, 20) + await ended(yesterday, 20)
    before = {tx: await stored(shop, tx) for tx in ids}
    archiver = archiver_of(shop, sink, batch=7)
    assert await archiver.run_once() == 40
    assert rows(sink) == sorted((tx, 0) for tx in ids)
    assert len(list(sink.root.glob("day=*"))) == 2
    assert await waiting(shop) == []
    for tx in ids:
        assert await stored(shop, tx) == ({}, [])
        found = sink.find(tx)
        assert found is not None
        fields, trail = before[tx]
        assert {name: value for name, value in found.fields.items() if name != b"archive_batch"} == fields
        assert found.trail == trail
    counted = archiver.statistics()
    assert (counted.archived, counted.acknowledged, counted.again, counted.errors) == (40, 40, 0, 0)
    assert await archiver.run_once() == 0


async def test_a_reader_shows_it_as_the_store_did(shop: TransactionStore, sink: ParquetArchive) -> None:
    (tx,) = await ended(shop, 1, external_id="order-1", fields={"metadata": '{"a":1}'})
    await archiver_of(shop, sink).run_once()
    reader = ArchiveReader(sink)
    shown = await reader.get(tx)
    assert shown is not None
    assert (shown.is_archived, shown.status, shown.input, shown.output, shown.metadata) == (
        True, "success", {"n": 0}, {"paid": 1}, {"a": 1},
    )  # fmt: skip
    assert shown.trail[0].name == "charge"
    assert await reader.get(tx, owner="acme") == shown
    assert await reader.get(tx, owner="evil") is None
    assert await reader.get_external("acme", "order-1") == shown
    assert await reader.get_external("evil", "order-1") is None
    assert (await reader.search(ArchiveQuery(owner="acme"))).items == [shown]
    assert await reader.get(keys.new_id(0, SystemClock().now_ms())) is None


async def test_a_restored_one_is_what_it_was(shop: TransactionStore, sink: ParquetArchive) -> None:
    class Watched(ParquetArchive):
        """Looks at the store when everything is written and nothing acknowledged."""

        def write(self, batch: ArchiveBatch) -> None:
            super().write(batch)
            asyncio.run_coroutine_threadsafe(look(batch), loop).result(20)

    seen: dict[str, Any] = {}

    async def look(batch: ArchiveBatch) -> None:
        seen.update({one.id: await stored(shop, one.id) for one in batch.records})

    loop = asyncio.get_running_loop()
    ids = await ended(shop, 3)
    await archiver_of(shop, Watched(sink.root), batch=10).run_once()
    reader = ArchiveReader(sink)
    tx = ids[0]
    assert await stored(shop, tx) == ({}, [])
    assert await reader.restore(shop, tx)
    assert await stored(shop, tx) == seen[tx]
    prefix = keys.prefix_of(keys.partition_of(tx))
    created_ms = int(seen[tx][0][b"created_ms"])
    for index in ("indexZ", "ownerZ:acme"):
        assert await shop.client.zrange(f"{prefix}{index}", 0, -1, withscores=True) == [
            (tx.encode(), created_ms)
        ]
    # It is there: a second time changes nothing.
    assert await reader.restore(shop, tx)
    assert await stored(shop, tx) == seen[tx]
    assert not await reader.restore(shop, ids[1], owner="evil")
    assert not await reader.restore(shop, keys.new_id(0, SystemClock().now_ms()))
    # Nobody replays it: it goes again, and is not archived twice.
    archiver = archiver_of(shop, sink)
    assert await archiver.run_once() == 1
    assert archiver.statistics().again == 1
    assert await stored(shop, tx) == ({}, [])
    assert rows(sink) == sorted((one, 0) for one in ids)


async def test_a_replayed_one_is_archived_again(shop: TransactionStore, sink: ParquetArchive) -> None:
    (tx,) = await ended(shop, 1)
    archiver, reader = archiver_of(shop, sink), ArchiveReader(sink)
    for run in (1, 2):
        await archiver.run_once()
        assert await reader.restore(shop, tx)
        await shop.control("replay", tx, "me", argument=0)
        assert (await stored(shop, tx))[0][b"run"] == b"%d" % run
        # It is under way: the archiver leaves it alone.
        assert await archiver.run_once() == 0
        await finish(shop, "failed" if run == 1 else "success")
    await archiver.run_once()
    assert rows(sink) == [(tx, 0), (tx, 1), (tx, 2)]
    shown = await reader.get(tx)
    assert shown is not None
    assert (shown.run, shown.status) == (2, "success")
    assert [item.run for item in (await reader.search(ArchiveQuery())).items] == [2]
    assert (await reader.search(ArchiveQuery(status="failed"))).items == []


async def test_two_archivers_share_the_work_and_nothing_is_twice(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    ids = await ended(shop, 100)
    first, second = (
        archiver_of(shop, ParquetArchive(sink.root), node, batch=3, lock1_ms=30, lock2_ms=40)
        for node in ("node-1", "node-2")
    )
    async with running(first), running(second):
        await until(is_gone(shop), 60)
    assert rows(sink) == sorted((tx, 0) for tx in ids)
    assert first.statistics().acknowledged + second.statistics().acknowledged >= 100
