"""Archivers: who may archive and when, and what happens when something goes wrong. On one partition."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, OutcomeUnknownError, StoreFullError
from penstock.transactions import keys
from penstock.transactions.archive import (
    ArchiveBatch,
    Archiver,
    ArchiveReader,
    ArchiverStatistics,
    handing_out,
)
from penstock.transactions.archive.handing_out import SOURCE
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

pytestmark = pytest.mark.parametrize("url", ["embedded-3", "server-3"], indirect=True)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetArchive:
    return ParquetArchive(tmp_path / "archive")


@pytest.fixture
async def shop(store: TransactionStore) -> TransactionStore:
    return await open_shop(store)


async def test_one_node_has_the_role_and_others_get_nothing(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    first, second = archiver_of(shop, sink, "node-1"), archiver_of(shop, sink, "node-2")
    await ended(shop, 1)
    assert await first.run_once() == 1
    await ended(shop, 1)
    assert await second.run_once() == 0
    assert len(await waiting(shop)) == 1
    assert await first.run_once() == 1


async def test_in_the_grace_period_nobody_gets_work_but_who_has_done_some_may_say_so(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    class Slow(ParquetArchive):
        """Its role ends while it writes."""

        def write(self, batch: ArchiveBatch) -> None:
            super().write(batch)
            asyncio.run_coroutine_threadsafe(until(role_has_ended), loop).result(20)

    async def role_has_ended() -> bool:
        return not await shop.client.exists("{p0}.toArchiveLock1")

    loop = asyncio.get_running_loop()
    (tx,) = await ended(shop, 1)
    first = archiver_of(shop, Slow(sink.root), "node-1", lock1_ms=50, lock2_ms=60_000)
    assert await first.run_once() == 1
    assert await stored(shop, tx) == ({}, [])
    (late,) = await ended(shop, 1)
    second = archiver_of(shop, sink, "node-2", lock1_ms=50, lock2_ms=60_000)
    assert [await first.run_once(), await second.run_once()] == [0, 0]
    # The grace is over.
    await shop.client.delete("{p0}.toArchiveLock2")
    assert await second.run_once() == 1
    assert rows(sink) == sorted([(tx, 0), (late, 0)])


async def test_it_sleeps_until_the_next_is_due(
    shop: TransactionStore, sink: ParquetArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.configure(archive_delay_ms=400)
    looks = 0
    run_once = Archiver.run_once

    async def counted(self: Archiver) -> int:
        nonlocal looks
        looks += 1
        return await run_once(self)

    monkeypatch.setattr(Archiver, "run_once", counted)
    await ended(shop, 5)
    archiver = archiver_of(shop, sink, idle_ms=60_000)
    async with running(archiver):
        # Long before idle_ms, and without asking all the time.
        await until(is_gone(shop))
    assert 2 <= looks <= 8
    assert archiver.statistics().archived == 5


async def test_an_idle_archiver_does_not_take_the_role(shop: TransactionStore, sink: ParquetArchive) -> None:
    await shop.configure(archive_delay_ms=60_000)
    await ended(shop, 1)
    assert await archiver_of(shop, sink).run_once() == 0
    assert not await shop.client.exists("{p0}.toArchiveLock1")


async def test_a_stop_finishes_and_acknowledges_what_is_being_written(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    class Gated(ParquetArchive):
        def write(self, batch: ArchiveBatch) -> None:
            begun.set()
            assert may_go_on.wait(20)
            super().write(batch)

    ids = await ended(shop, 10)
    archiver = archiver_of(shop, Gated(sink.root), batch=4)
    task = asyncio.create_task(archiver.run())
    await until(begun.is_set)
    assert archiver.statistics().is_running
    stop = asyncio.create_task(archiver.stop())
    await asyncio.sleep(0)
    may_go_on.set()
    await stop
    await task
    assert repr(archiver) == "<Archiver node-1 stopped, 4 archived>"
    assert archiver.statistics().acknowledged == 4
    assert len(await waiting(shop)) == 6
    assert len(rows(sink)) == 4
    # Who was stopped before it began does nothing.
    idle = archiver_of(shop, sink)
    await idle.stop()
    await idle.run()
    assert len(ids) == 4 + len(await waiting(shop))


# -------------------------------------------------------------------------------------------- faults


class Failing(ParquetArchive):
    """The disk is full for some batches (of some partitions)."""

    def __init__(self, root: Path, times: int, partition: int | None = None) -> None:
        super().__init__(root)
        self.times = times
        self.partition = partition

    def _stage(self, staged: Path, content: Any) -> None:
        is_meant = self.partition is None or staged.name.startswith(f"p{self.partition}-")
        if self.times and is_meant:
            self.times -= 1
            staged.write_bytes(bytes(content)[:50])
            raise OSError(errno.ENOSPC, "no room")
        super()._stage(staged, content)


async def test_a_full_disk_is_waited_out(shop: TransactionStore, sink: ParquetArchive) -> None:
    ids = await ended(shop, 20)
    failing = Failing(sink.root, times=4)
    archiver = archiver_of(shop, failing, batch=10)
    with pytest.raises(StoreFullError, match="no room for the archive"):
        await archiver.run_once()
    assert len(await waiting(shop)) == 20
    assert [path for path in sink.root.rglob("*") if path.suffix in (".tmp", ".parquet")] == []
    async with running(archiver):
        await until(is_gone(shop))
    assert rows(sink) == sorted((tx, 0) for tx in ids)
    told = archiver.statistics()
    assert (told.errors, told.archived, told.acknowledged) == (4, 20, 20)
    assert told.last_error.startswith("no room for the archive")
    assert told.last_error_ms is not None


async def test_a_partition_that_fails_does_not_stop_the_others(
    ps: Any, url: str, sink: ParquetArchive
) -> None:
    store = TransactionStore(ps, partitions=3)
    await open_shop(store)
    ids = await ended(store, 9)
    archiver = archiver_of(store, Failing(sink.root, times=1, partition=0))
    with pytest.raises(StoreFullError):
        await archiver.run_once()
    assert [tx for tx, _ in rows(sink)] == sorted(tx for tx in ids if keys.partition_of(tx) != 0)
    assert await archiver.run_once() == 3
    assert rows(sink) == sorted((tx, 0) for tx in ids)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_lost_reply_loses_nothing(
    shop: TransactionStore, sink: ParquetArchive, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Of the question that got a batch, or of the one that acknowledged it."""
    ids = await ended(shop, 10)
    run, asked = shop.run, 0

    async def cut(name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal asked
        reply = await run(name, *arguments, **options)
        asked += 1
        if asked == (1 if is_first else 2):
            raise OutcomeUnknownError("the connection was cut")
        return reply

    monkeypatch.setattr(shop, "run", cut)
    archiver = archiver_of(shop, sink, batch=4)
    with pytest.raises(OutcomeUnknownError):
        await archiver.run_once()
    await archiver.run_once()
    assert await waiting(shop) == []
    assert rows(sink) == sorted((tx, 0) for tx in ids)


async def test_one_that_is_replayed_while_it_is_written_stays(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    class Interrupted(ParquetArchive):
        def write(self, batch: ArchiveBatch) -> None:
            super().write(batch)
            asyncio.run_coroutine_threadsafe(shop.control("replay", tx, "me", argument=0), loop).result(20)

    loop = asyncio.get_running_loop()
    (tx,) = await ended(shop, 1)
    await archiver_of(shop, Interrupted(sink.root)).run_once()
    assert (await stored(shop, tx))[0][b"state"] == b"queued"
    await finish(shop)
    await archiver_of(shop, sink).run_once()
    assert rows(sink) == [(tx, 0), (tx, 1)]
    assert await stored(shop, tx) == ({}, [])


async def test_one_that_is_replayed_and_ends_while_it_is_written_is_archived_again(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    class Interrupted(ParquetArchive):
        def write(self, batch: ArchiveBatch) -> None:
            super().write(batch)
            asyncio.run_coroutine_threadsafe(replay(), loop).result(20)

    async def replay() -> None:
        await shop.control("replay", tx, "me", argument=0)
        await finish(shop)

    loop = asyncio.get_running_loop()
    (tx,) = await ended(shop, 1)
    interrupted = archiver_of(shop, Interrupted(sink.root))
    interrupted._stopping.set()
    await interrupted.run_once()
    assert await waiting(shop) == [tx.encode()]
    await archiver_of(shop, sink).run_once()
    assert rows(sink) == [(tx, 0), (tx, 1)]


async def test_a_store_from_a_backup_goes_on_behind_the_archive(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    first = await ended(shop, 6)
    archiver = archiver_of(shop, sink, batch=2)
    await archiver.run_once()
    source = (await shop.client.get(SOURCE) or b"").decode()
    assert sink.newest_batch(source, 0) == 3
    await shop.client.set("{p0}.archiveN", 1)
    second = await ended(shop, 2)
    # It runs on and is refused once, then it has caught up; one that starts catches up at once.
    async with running(archiver):
        await until(is_gone(shop))
    assert sink.newest_batch(source, 0) > 3
    await shop.client.set("{p0}.archiveN", 1)
    third = await ended(shop, 2)
    assert await archiver_of(shop, sink).run_once() == 2
    assert rows(sink) == sorted((tx, 0) for tx in first + second + third)


async def test_a_large_batch_is_acknowledged_in_portions(
    shop: TransactionStore, sink: ParquetArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a script of its own; if one is lost, the rest is handed out again and recognised."""
    monkeypatch.setattr(handing_out, "_TOLD_AT_ONCE", 6)
    ids = await ended(shop, 20)
    run, told = shop.run, []

    async def heard(name: str, partition: int, *arguments: Any, **options: Any) -> Any:
        told.append((len(arguments) - 4) // 2)
        if len(told) == 3:
            raise OutcomeUnknownError("the connection was cut")
        return await run(name, partition, *arguments, **options)

    monkeypatch.setattr(shop, "run", heard)
    with pytest.raises(OutcomeUnknownError):
        await archiver_of(shop, sink, batch=10).run_once()
    assert (told, len(await waiting(shop))) == ([0, 3, 3], 17)
    archiver = archiver_of(shop, sink, batch=10)
    assert await archiver.run_once() == 17
    assert (archiver.statistics().again, archiver.statistics().acknowledged) == (7, 17)
    assert rows(sink) == sorted((tx, 0) for tx in ids)
    assert await waiting(shop) == []


async def test_what_is_no_transaction_is_left_alone(shop: TransactionStore, sink: ParquetArchive) -> None:
    await shop.client.hset("{p0}.stateH:nonsense", {"state": "ended", "owner": "x"})
    await shop.client.zadd("{p0}.toArchiveZ", {"nonsense": 1, "tx-gone": 2})
    ids = await ended(shop, 3)
    archiver = archiver_of(shop, sink)
    assert await archiver.run_once() == 3
    assert rows(sink) == sorted((tx, 0) for tx in ids)
    assert archiver.statistics().skipped >= 1


async def test_a_record_full_of_nonsense_is_archived(shop: TransactionStore, sink: ParquetArchive) -> None:
    ids = await ended(shop, 3)
    key = f"{{p0}}.stateH:{ids[1]}"
    nonsense = {"created_ms": "soon", "step": "9" * 40, "d:0": b"\xff{", b"\xfe": b"\0", "priority": "high"}
    await shop.client.hset(key, nonsense)
    before, _ = await stored(shop, ids[1])
    await archiver_of(shop, sink).run_once()
    found = sink.find(ids[1])
    assert found is not None
    assert {**before, b"archive_batch": b"1"} == found.fields
    shown = await ArchiveReader(sink).get(ids[1])
    assert shown is not None
    assert shown.created_ms == 0


async def test_a_record_without_owner_or_trail_does_not_hold_up_others(
    shop: TransactionStore, sink: ParquetArchive
) -> None:
    ids = await ended(shop, 4)
    await shop.client.hdel(f"{{p0}}.stateH:{ids[0]}", "owner")
    await shop.client.set(f"{{p0}}.trailL:{ids[1]}", "not a list")
    await archiver_of(shop, sink, batch=2).run_once()
    assert await waiting(shop) == []
    assert rows(sink) == sorted((tx, 0) for tx in ids)


async def test_settings_that_make_no_sense_are_refused(shop: TransactionStore, sink: ParquetArchive) -> None:
    for options, text in [
        ({"batch": 0}, "batch must be 1 to 10000"),
        ({"lock1_ms": 10, "lock2_ms": 10}, "lock2_ms must be more than lock1_ms"),
        ({"idle_ms": 0}, "idle_ms must be at least 1"),
    ]:
        with pytest.raises(ConfigError, match=text):
            archiver_of(shop, sink, **options)
    assert archiver_of(shop, sink).statistics() == ArchiverStatistics(is_running=False)
