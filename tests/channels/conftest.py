"""One suite for durable channels: embedded, served by us, Valkey, Redis, and a cluster.

A test asks for ``ps`` (or ``room``, a channel of it) and runs once on each place and protocol. What a store
holds is read with plain commands, so that the keys themselves are under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.blocking
from penstock.channels import Batch, Channel, ChannelStore
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import RealCluster, start_cluster

PLACES = ("embedded-3", "embedded-2", "served-3", "server-3", "server-2", "redis-3", "cluster-3")
#: The life of a key of a channel that keeps messages for the usual 30 minutes.
TTL_S = 30 * 60 + 15
EXPIRE_MS = 30 * 60 * 1_000


def only_on(*kinds: str) -> pytest.MarkDecorator:
    """For tests of what only these kinds of places have, or where one of each kind is enough."""
    places = [name for name in PLACES if name.partition("-")[0] in kinds and not name.endswith("-2")]
    return pytest.mark.parametrize("url", places, indirect=True)


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind, _, protocol = request.param.partition("-")
    if kind == "embedded":
        return f"embedded:{tmp_path / 'store.pen'}?protocol={protocol}&durability=relaxed"
    if kind == "served":
        return f"{request.getfixturevalue('own_server').url}?protocol={protocol}"
    if kind == "cluster":
        address = request.getfixturevalue("own_cluster").replace("redis://", "redis-cluster://")
        return f"{address}?protocol={protocol}"
    server = request.getfixturevalue("real_servers").get("redis" if kind == "redis" else "valkey")
    return f"{server.url}?protocol={protocol}"


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    path = tmp_path_factory.mktemp("served") / "store.pen"
    with PenstockServer(path, durability="relaxed") as server:
        yield server


@pytest.fixture
def own_server(shared_server: PenstockServer) -> PenstockServer:
    with penstock.blocking.open(shared_server.url) as client:
        client.execute("FLUSHALL")
    return shared_server


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    with start_cluster(3, 0) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(cluster: RealCluster) -> str:
    for node in cluster.primaries:
        node.reset()
    return cluster.url


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
async def other(url: str) -> AsyncIterator[penstock.Penstock]:
    """Another client of the same place."""
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
async def store(ps: penstock.Penstock) -> AsyncIterator[ChannelStore]:
    """The keeper behind ``room``."""
    store = ChannelStore(ps)
    yield store
    await store.close()


@pytest.fixture
def room(store: ChannelStore) -> Channel:
    return Channel(store, "room")


# ------------------------------------------------------------------------------------- looking


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages]


def numbered(first: int, last: int) -> list[tuple[str, int]]:
    """Messages m<first> … m<last>, whose content is their number."""
    return [(f"m{number}", number) for number in range(first, last + 1)]


async def keys_of(ps: penstock.Penstock) -> list[str]:
    """Every key of the place."""
    return sorted([bytes(key).decode() async for key in ps.scan_iter(count=1_000)])


async def set_clocks(ps: penstock.Penstock, channel: str, clock: int, **cursors: int) -> None:
    """A channel that counted up to ``clock``, and its subscribers, as if it had done so by itself."""
    await ps.execute("SET", f"c.{{{channel}}}.clock", clock, "EX", TTL_S)
    for subscriber, cursor in cursors.items():
        await ps.execute("SET", f"c.{{{channel}}}.r.{subscriber}", cursor, "EX", TTL_S)


async def number_at(ps: penstock.Penstock, key: str) -> int | None:
    value: Any = await ps.execute("GET", key)
    return None if value is None else int(value)


async def until(condition: Callable[[], Any], limit_s: float = 15) -> None:
    """Wait for something that must come true; it may have to be asked for."""
    async with asyncio.timeout(limit_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.002)
