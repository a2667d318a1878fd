"""The client's cache on real servers, our server and an embedded store: fast when it may be, never stale."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client.caching import Cache
from penstock.client.config import open_settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.link import Link, LinkState
from penstock.client.policies import Constant
from penstock.errors import CommandError
from penstock.testing.own_server import PenstockServer
from tests.integration.proxy import Plan, Proxy

PATIENCE_S = 30.0
SOON = Constant(base_ms=1)


class Reader:
    """A shared link with a cache before it, as a client has one."""

    def __init__(self, url: str | Path, **settings: Any) -> None:
        settings = {"client_cache_entries": 100, "reconnect": SOON} | settings
        target, self.settings = open_settings(url, **settings)
        self.address = target.addresses[0] if target.addresses else None
        self.dialer = Dialer(target, self.settings)
        self.link = Link("server", self, self.dialer.to(self.address, is_shared=True), self.settings)
        self.cache = Cache(100)

    def call(self, *arguments: Any) -> ReplyFuture:
        return self.cache.call(arguments, self.link.call)

    @property
    def sent(self) -> int:
        return int(self.link.statistics()["sent"])

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.cache.on_push(push)

    def on_state(self, link: Link) -> None:
        if link.state is not LinkState.OPEN:
            self.cache.flush()


@asynccontextmanager
async def reading(url: str | Path, **settings: Any) -> AsyncIterator[Reader]:
    reader = Reader(url, **settings)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await reader.link.wait_open()
            yield reader
    finally:
        await reader.link.close()


async def becomes(reader: Reader, reply: Any, *arguments: Any) -> None:
    """Until a read answers this; the deadline is the test's."""
    while await reader.call(*arguments) != reply:
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    with PenstockServer(tmp_path_factory.mktemp("server") / "store.pen", durability="relaxed") as server:
        yield server


@pytest.fixture(params=["valkey", "redis", "server", "embedded"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "embedded":
        return tmp_path / "store.pen"
    if request.param == "server":
        return str(request.getfixturevalue("own_server").url)
    return str(request.getfixturevalue("real_servers").get(request.param).url)


@pytest.fixture
def socket_url(url: str | Path) -> str:
    if isinstance(url, Path):
        pytest.skip("there is no network to be cut")
    return url


async def test_a_known_reply_needs_no_round_trip(url: str | Path) -> None:
    async with reading(url) as reader:
        await reader.call("FLUSHALL")
        await reader.call("HSET", "h", "f", "v")
        assert await reader.call("HGETALL", "h") == {b"f": b"v"}
        before = reader.sent
        for _ in range(1000):
            assert await reader.call("hgetall", b"h") == {b"f": b"v"}
        assert reader.sent == before
        assert reader.cache.statistics()["hits"] == 1000


async def test_a_change_by_somebody_else_is_seen(url: str | Path) -> None:
    async with reading(url) as reader, reading(url, client_cache_entries=0) as other:
        await other.link.call(("FLUSHALL",))
        assert await reader.call("GET", "k") is None
        for number in range(20):
            value = b"%d" % number
            await other.link.call(("SET", "k", value))
            await becomes(reader, value, "GET", "k")
        assert reader.cache.statistics()["invalidations"] >= 20


async def test_texts_are_told_of_too(url: str | Path) -> None:
    async with reading(url, decode_responses=True) as reader, reading(url) as other:
        await other.link.call(("SET", "schlüssel", "alt"))
        await becomes(reader, "alt", "GET", "schlüssel")
        await other.link.call(("SET", "schlüssel", "neu"))
        await becomes(reader, "neu", "GET", "schlüssel")


@pytest.mark.parametrize("flush", ["FLUSHALL", "FLUSHDB"])
async def test_a_flush_by_somebody_else_is_seen(url: str | Path, flush: str) -> None:
    async with reading(url) as reader, reading(url, client_cache_entries=0) as other:
        await reader.call("MSET", "a", "1", "b", "1")
        assert await reader.call("GET", "a") == await reader.call("GET", "b") == b"1"
        await other.link.call((flush,))
        await becomes(reader, None, "GET", "a")
        assert await reader.call("GET", "b") is None


async def test_expiry_is_seen(url: str | Path) -> None:
    async with reading(url) as reader:
        await reader.call("SET", "k", "v", "PX", 100)
        assert await reader.call("GET", "k") == b"v"
        assert await reader.call("GET", "k") == b"v"
        await becomes(reader, None, "GET", "k")


async def test_own_writes_are_read_back(url: str | Path) -> None:
    """Whoever has the reply of its write reads at least that, whatever others do meanwhile."""

    async def write(task: int) -> None:
        for _ in range(50):
            written = await reader.call("INCR", f"k{task % 2}")
            assert int(await reader.call("GET", f"k{task % 2}")) >= written

    async with reading(url) as reader:
        await reader.call("DEL", "k0", "k1")
        await asyncio.gather(*(write(task) for task in range(6)))
        assert await reader.call("GET", "k0") == b"150"


async def test_only_shared_connections_are_told(url: str | Path) -> None:
    async with reading(url) as reader:
        assert (await reader.link.call(("CLIENT", "TRACKINGINFO")))[b"flags"] == [b"on"]
        private = Link("private", reader, reader.dialer.to(reader.address), reader.settings)
        try:
            assert (await private.call(("CLIENT", "TRACKINGINFO")))[b"flags"] == [b"off"]
        finally:
            await private.close()
    async with reading(url, client_cache_entries=0) as reader:
        assert (await reader.link.call(("CLIENT", "TRACKINGINFO")))[b"flags"] == [b"off"]


async def test_a_lost_connection_empties_the_cache(socket_url: str) -> None:
    async with (
        Proxy(int(socket_url.rpartition(":")[2])) as proxy,
        reading(f"redis://127.0.0.1:{proxy.port}") as reader,
        reading(socket_url, client_cache_entries=0) as other,
    ):
        await other.link.call(("SET", "k", "old"))
        assert await reader.call("GET", "k") == b"old"
        assert await reader.call("GET", "k") == b"old"
        await proxy.vanish()
        while reader.link.state is LinkState.OPEN:
            await asyncio.sleep(0)
        assert reader.cache.statistics()["entries"] == 0
        await other.link.call(("SET", "k", "new"))
        await proxy.listen()
        assert await reader.call("GET", "k") == b"new"
        # The new connection is told of changes, too.
        await other.link.call(("SET", "k", "newer"))
        await becomes(reader, b"newer", "GET", "k")


async def test_a_read_that_is_sent_again_after_a_loss(socket_url: str) -> None:
    """Its first reply was lost on the way; what comes in the end is the truth of the new connection."""
    async with (
        Proxy(int(socket_url.rpartition(":")[2])) as proxy,
        reading(f"redis://127.0.0.1:{proxy.port}") as reader,
        reading(socket_url, client_cache_entries=0) as other,
    ):
        await other.link.call(("SET", "k", "old"))
        await reader.call("PING")
        proxy.passage.is_swallowing = True
        before = reader.sent
        lost = reader.call("GET", "k")
        while reader.sent == before:
            await asyncio.sleep(0)
        await other.link.call(("SET", "k", "new"))
        proxy.cut()
        assert await lost == b"new"
        await becomes(reader, b"new", "GET", "k")


@pytest.mark.parametrize("seed", range(3))
async def test_reads_race_writes_of_others_over_a_slow_network(socket_url: str, seed: int) -> None:
    chance = random.Random(seed)
    keys = ("a", "b", "c")

    async def write(other: Reader) -> None:
        for _ in range(150):
            await other.link.call(("INCR", chance.choice(keys)))
            await asyncio.sleep(0)

    async def read(reader: Reader) -> None:
        last = dict.fromkeys(keys, 0)
        while not writing.done():
            key = chance.choice(keys)
            value = int(await reader.call("GET", key) or 0)
            assert value >= last[key], "time went backwards"
            last[key] = value

    async with (
        Proxy(int(socket_url.rpartition(":")[2])) as proxy,
        reading(socket_url, client_cache_entries=0) as other,
    ):
        await other.link.call(("FLUSHALL",))
        proxy.usual = Plan(chance=chance)
        async with reading(f"redis://127.0.0.1:{proxy.port}") as reader:
            writing = asyncio.gather(*(write(other) for _ in range(3)))
            await asyncio.gather(writing, *(read(reader) for _ in range(5)))
            for key in keys:
                await becomes(reader, await other.link.call(("GET", key)), "GET", key)
            assert reader.cache.statistics()["hits"] > 0


async def test_two_processes_on_one_store(tmp_path: Path) -> None:
    """The embedded client of this process is told of what a server on the same directory changes."""
    store = tmp_path / "store.pen"
    with PenstockServer(store, durability="relaxed") as server:
        async with reading(store) as reader, reading(server.url, client_cache_entries=0) as other:
            for number in range(20):
                value = b"%d" % number
                await other.link.call(("SET", "k", value))
                await becomes(reader, value, "GET", "k")
                await reader.call("SET", "k2", value)
                assert await other.link.call(("GET", "k2")) == value
