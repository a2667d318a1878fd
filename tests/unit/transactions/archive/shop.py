"""A shop whose checkouts end, and are looked for in its store and in its archive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from penstock.transactions import keys
from penstock.transactions.archive import (
    Archiver,
)
from penstock.transactions.archive.parquet import ParquetArchive
from penstock.transactions.model import Settlement
from penstock.transactions.store import TransactionStore


async def open_shop(store: TransactionStore) -> TransactionStore:
    """Give it a pipeline; what ends may be archived at once."""
    for place in range(await store.partitions()):
        head = f"{keys.prefix_of(place)}pipelineH:checkout"
        await store.client.execute("HSET", head, "v:v1", "shop 0 5 1", "active", "v1 shop 0 5 1")
    await store.configure(archive_delay_ms=0)
    return store


async def finish(store: TransactionStore, status: str = "success") -> None:
    """Everything that waits for a worker ends."""
    for partition in range(await store.partitions()):
        while records := (
            await store.dequeue(partition, "worker-1", ["shop"], limit=100, lease_ms=30_000)
        ).records:
            endings = [
                Settlement(
                    "end",
                    one.id,
                    one.token,
                    1,
                    "fine",
                    ["d:1", b'{"paid":1}', "data", 1],
                    [b'{"kind":"step","at_ms":1700000000000,"name":"charge"}', b"not JSON \xff"],
                    [],
                    [status, 0],
                )
                for one in records
            ]
            assert set(await store.settle(partition, endings)) == {"ok"}


async def ended(store: TransactionStore, count: int, **options: Any) -> list[str]:
    started = [
        (await store.start("checkout", b'{"n":%d}' % n, owner="acme", **options)).id for n in range(count)
    ]
    await finish(store)
    return started


async def stored(store: TransactionStore, tx: str) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The hash and the list as they are."""
    prefix = keys.prefix_of(keys.partition_of(tx))
    fields = await store.client.hgetall(f"{prefix}stateH:{tx}")
    return dict(fields), list(await store.client.lrange(f"{prefix}trailL:{tx}", 0, -1))


async def waiting(store: TransactionStore) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(await store.partitions()):
        found += await store.client.zrange(f"{keys.prefix_of(partition)}toArchiveZ", 0, -1)
    return found


def rows(sink: ParquetArchive) -> list[tuple[str, int]]:
    """Every row there is, also of earlier runs."""
    return sorted(
        (row["id"], row["run"] or 0)
        for _, day in sink._files.days()
        for file in sink._files.of_day(day)
        for row in sink._files.columns(file, ("id", "run")).to_pylist()
    )


def archiver_of(store: TransactionStore, sink: Any, node: str = "node-1", **options: Any) -> Archiver:
    return Archiver(store, sink, node=node, **{"idle_ms": 20, "retry_ms": 5, "max_retry_ms": 20, **options})


@asynccontextmanager
async def running(archiver: Archiver) -> AsyncIterator[None]:
    task = asyncio.create_task(archiver.run())
    try:
        yield
    finally:
        await archiver.stop()
        await task


def is_gone(store: TransactionStore) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not await waiting(store)

    return look
