"""Nodes that are killed or stopped at every point of a batch: each transaction is archived exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.errors import StoreBusyError
from penstock.transactions.archive import Archiver
from penstock.transactions.archive.parquet import ParquetArchive
from penstock.transactions.store import TransactionStore
from tests.places import until
from tests.transactions.conftest import only_on
from tests.unit.transactions.archive.crashing_node import POINTS
from tests.unit.transactions.archive.shop import archiver_of, ended, open_shop, rows, stored, waiting

DAY_MS = 86_400_000
#: Roles as short as this come to others soon.
LOCKS = ("20", "30")
pytestmark = pytest.mark.crash
on_both = only_on("embedded", "server")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"


async def launch(
    url: str, root: Path, node: str, point: str, what: signal.Signals
) -> asyncio.subprocess.Process:
    """A node that gets a signal at a point."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.unit.transactions.archive.crashing_node",
        url, str(root), node, point, what.name, *LOCKS,
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def killed(url: str, root: Path, node: str, point: str) -> None:
    process = await launch(url, root, node, point, signal.SIGKILL)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, output) == (-signal.SIGKILL, b"")


def is_stopped(process: asyncio.subprocess.Process) -> bool:
    status = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return status == "T"


async def two_days(store: TransactionStore) -> dict[str, tuple[dict[bytes, bytes], list[bytes]]]:
    """Transactions of today and yesterday, so that a batch becomes two files."""
    await open_shop(store)
    yesterday = TransactionStore(store.client, clock=ManualClock(SystemClock().now_ms() - DAY_MS))
    ids = await ended(store, 6) + await ended(yesterday, 6)
    return {tx: await stored(store, tx) for tx in ids}


async def finish_archiving(store: TransactionStore, archiver: Archiver) -> None:
    async def is_done() -> bool:
        await archiver.run_once()
        return not await waiting(store)

    await until(is_done, 30)


async def check(
    store: TransactionStore, sink: ParquetArchive, before: dict[str, tuple[dict[bytes, bytes], list[bytes]]]
) -> None:
    """Each is in the archive once, as it was, and no longer in the store."""
    assert rows(sink) == sorted((tx, 0) for tx in before)
    for tx, (fields, trail) in before.items():
        found = sink.find(tx)
        assert found is not None
        assert {name: value for name, value in found.fields.items() if name != b"archive_batch"} == fields
        assert found.trail == trail
        assert await stored(store, tx) == ({}, [])
    assert not list((sink.root / "_penstock").glob("*.tmp"))


@only_on("embedded")
@pytest.mark.parametrize("point", POINTS)
async def test_a_node_is_killed(store: TransactionStore, url: str, root: Path, point: str) -> None:
    before = await two_days(store)
    await killed(url, root, "node-1", point)
    sink = ParquetArchive(root)
    await finish_archiving(store, archiver_of(store, sink, "node-2", batch=5))
    await check(store, sink, before)


@only_on("server")
async def test_nodes_are_killed_at_every_point_one_after_another(
    store: TransactionStore, url: str, root: Path
) -> None:
    """Also twice behind the write: then the mark names a batch that wrote nothing itself."""
    before = await two_days(store)
    for number, point in enumerate(
        ["handed", "first day", "begun", "staged", "written", "written", "handed", "begun"]
    ):
        await killed(url, root, f"node-{number % 2}", point)
    sink = ParquetArchive(root)
    await finish_archiving(store, archiver_of(store, sink, "node-9"))
    await check(store, sink, before)


@on_both
async def test_a_node_that_wakes_up_late_writes_nothing(
    store: TransactionStore, url: str, root: Path
) -> None:
    """It was stopped with a batch in its hands; others have archived that meanwhile."""
    before = await two_days(store)
    process = await launch(url, root, "node-1", "handed", signal.SIGSTOP)
    await until(lambda: is_stopped(process), 30)
    sink = ParquetArchive(root)
    await finish_archiving(store, archiver_of(store, sink, "node-2"))
    os.kill(process.pid, signal.SIGCONT)
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert b"was begun meanwhile, by another node" in output
    await check(store, sink, before)


@on_both
async def test_a_node_that_was_stopped_while_it_wrote_holds_others_up_and_nothing_is_twice(
    store: TransactionStore, url: str, root: Path
) -> None:
    before = await two_days(store)
    process = await launch(url, root, "node-1", "staged", signal.SIGSTOP)
    await until(lambda: is_stopped(process), 30)
    impatient = archiver_of(store, ParquetArchive(root, lock_wait_ms=0), "node-2")

    async def is_refused() -> bool:
        try:
            await impatient.run_once()
        except StoreBusyError:
            return True
        return False

    await until(is_refused, 30)
    assert len(await waiting(store)) == len(before)
    os.kill(process.pid, signal.SIGCONT)
    await asyncio.wait_for(process.communicate(), 60)
    sink = ParquetArchive(root)
    await finish_archiving(store, archiver_of(store, sink, "node-3"))
    await check(store, sink, before)
