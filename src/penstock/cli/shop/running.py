"""The whole shop on one event loop: workers, readers, customers, and whoever fills the lake.

    async with Receiver(await wanted_port(store)) as receiver, … a gateway …:
        async with open_shop(places, receiver=receiver, gateway="http://127.0.0.1:8080", tell=print):
            …                      # it is open while the block runs

Rules: whoever stumbles is logged and goes on in a moment; one does not stop the others. When the block is
left customers go first, then workers hand back what they hold, so that the next run begins where this one
ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import penstock
from penstock.cli.shop import readers, spark_job, traffic
from penstock.cli.shop.pipelines import SCHEDULES, SHOP, WAREHOUSE, app
from penstock.cli.shop.receiver import Receiver
from penstock.front import Penstock
from penstock.lake import archives
from penstock.transactions import Worker
from penstock.transactions.archive import Archiver

_LOG = logging.getLogger(__name__)

STREAMS: Final = (traffic.ORDERS, "payments")

#: What has ended stays in the store for so long.
_ARCHIVE_DELAY_MS: Final = 20_000
#: Without Spark: how often it is looked what is due.
_ARCHIVE_S: Final = 15
_KEEP_MESSAGES_MS: Final = 6 * 3_600_000
#: Transactions at a time. The warehouse is small: in busy hours it has a queue.
_CONCURRENCY: Final = {SHOP: 16, WAREHOUSE: 2}
#: Short, so that a shop that was killed goes on soon.
_LEASE_MS: Final = 10_000
_GRACE_MS: Final = 1_500
_PAUSE_S: Final = 1.0
#: Until the page is there, the machine is for the page.
_SPARK_AFTER_S: Final = 3.0
_PORT_KEY: Final = "demo:receiver-port"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the shop keeps what it has."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store.pen"

    @property
    def log(self) -> Path:
        return self.root / "demo.log"

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"

    def token(self) -> str:
        """What the console is opened with: made by the first run, kept for the next ones."""
        path = self.root / "token"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(16))
        return path.read_text()

    @property
    def lake(self) -> Path | None:
        """None where ``penstock[lake]`` is not installed."""
        return self.root / "lake" if _has("deltalake", "pyarrow") else None

    @property
    def archive(self) -> Path | None:
        """For what has ended: the lake, Parquet files where there is no Delta, nothing without either."""
        return self.lake or (self.root / "archive" if _has("pyarrow") else None)

    def prepare(self) -> None:
        """Make the directories. A lake must be there before somebody opens it as an archive."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self.lake is not None:
            from penstock.lake import Lake

            Lake.open(self.lake)


def _has(*packages: str) -> bool:
    return all(find_spec(name) is not None for name in packages)


async def wanted_port(store: Path) -> int:
    """Where the receiver was the last time, since webhooks that wait have that address; 0 for anywhere."""
    async with penstock.open(store) as ps:
        return int(await ps.get(_PORT_KEY) or 0)


@asynccontextmanager
async def open_shop(
    places: Places, *, receiver: Receiver, gateway: str, has_spark: bool, tell: Callable[[str], None]
) -> AsyncGenerator[None, None]:
    """``tell`` gets a sentence when something has changed that people should know."""
    async with penstock.open(places.store) as ps, AsyncExitStack() as stack:
        await _furnish(ps, receiver)
        for group, concurrency in _CONCURRENCY.items():
            await stack.enter_async_context(_worker(ps, group, concurrency))
        await stack.enter_async_context(
            _in_background(
                partial(_keep_lake, places, ps, has_spark, tell),
                partial(readers.sell, ps, receiver.url("orders")),
                partial(readers.bill, ps),
                partial(readers.show_news, ps),
                partial(readers.send_newsletters, ps),
                partial(readers.track_parcels, ps),
                partial(traffic.approve_orders, ps),
                partial(traffic.tell_news, gateway),
                partial(traffic.order_things, ps),
            )
        )
        yield


async def _furnish(ps: Penstock, receiver: Receiver) -> None:
    """What a shop has before it opens. Saying it again changes nothing."""
    await ps.set(_PORT_KEY, receiver.port)
    await ps.transactions.store.configure(archive_delay_ms=_ARCHIVE_DELAY_MS)
    for stream in STREAMS:
        await ps.stream(stream).policy(retain_ms=_KEEP_MESSAGES_MS)
    # Both before the first order, so that neither misses one.
    for group in ("checkout", "billing"):
        await ps.stream(traffic.ORDERS).group(group).create(max_deliveries=20, dead_letter="orders.dead")
    await ps.transactions.deploy(app)
    for schedule in SCHEDULES:
        await ps.transactions.schedules.put(schedule)


def _worker(ps: Penstock, group: str, concurrency: int) -> Worker:
    return ps.transactions.worker(
        app,
        node_group=group,
        concurrency=concurrency,
        name=f"{group}-1",
        threads=2,
        lease_ms=_LEASE_MS,
        grace_ms=_GRACE_MS,
    )


# ------------------------------------------------------------------------------ in the background


@asynccontextmanager
async def _in_background(*work: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    tasks = [asyncio.create_task(_for_ever(each)) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _for_ever(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            return await work()
        except Exception:  # noqa: BLE001 - whatever it was: the others go on, and it tries again
            _LOG.exception("something in the shop stumbled, and goes on in a moment")
        await asyncio.sleep(_PAUSE_S)


# ---------------------------------------------------------------------------------------- the lake


async def _keep_lake(places: Places, ps: Penstock, has_spark: bool, tell: Callable[[str], None]) -> None:
    """By Spark as long as it lives; without it, what has ended is archived from here."""
    lake = places.archive
    if lake is None:
        return
    if has_spark:
        await asyncio.sleep(_SPARK_AFTER_S)
        job = spark_job.SparkJob(places.store, lake, STREAMS, log=places.spark_log)
        try:
            await job.start()
            await job.wait()
        finally:
            await job.stop()
        reason = job.last_words()
        tell(f"Spark has ended ({reason}); the shop archives without it. {places.spark_log} has more.")
    archiver = Archiver(
        ps.transactions.store,
        archives.open(lake),
        node=f"{socket.gethostname()}-{os.getpid()}",
        lock1_ms=10_000,
        lock2_ms=15_000,
    )
    while True:
        # Now and then, for many at once, where a worker of a real shop would use ``archiver.run()``.
        while await archiver.run_once():
            pass
        await asyncio.sleep(_ARCHIVE_S)
