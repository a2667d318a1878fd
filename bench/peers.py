"""The clients that are compared, each behind the same two calls: GET and INCR of one key.

``bare`` is the limit for a client in Python: an asyncio protocol over hiredis with one write
a tick and nothing else (no timeouts, no reconnection, no redirections, no cancellation).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import hiredis

import penstock

KEY: Final = "key"
COUNTER: Final = "counter"


@dataclass(frozen=True, slots=True)
class Peer:
    """One client, connected."""

    get: Callable[[], Awaitable[Any]]
    incr: Callable[[], Awaitable[Any]]


class _Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def call(self, *arguments: str) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._futures.append(future)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(cast("Any", arguments)))
        return future

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        take, pop = self._reader.gets, self._futures.popleft
        while (reply := take()) is not Ellipsis:
            future = pop()
            if not future.done():
                future.set_result(reply)


@asynccontextmanager
async def bare(port: int) -> AsyncIterator[Peer]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(_Bare, "127.0.0.1", port)
    yield Peer(lambda: protocol.call("GET", KEY), lambda: protocol.call("INCR", COUNTER))
    transport.close()


@asynccontextmanager
async def ours(port: int) -> AsyncIterator[Peer]:
    async with penstock.open(f"redis://127.0.0.1:{port}") as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


@asynccontextmanager
async def redis_py(port: int) -> AsyncIterator[Peer]:
    import redis.asyncio

    async with redis.asyncio.Redis(port=port, single_connection_client=True) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


@asynccontextmanager
async def redis_py_pool(port: int) -> AsyncIterator[Peer]:
    import redis.asyncio

    pool = redis.asyncio.BlockingConnectionPool(port=port, max_connections=100, timeout=None)
    async with redis.asyncio.Redis(connection_pool=pool) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))
    await pool.disconnect()


@asynccontextmanager
async def coredis(port: int) -> AsyncIterator[Peer]:
    from coredis import Redis

    async with Redis(port=port) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


@asynccontextmanager
async def glide(port: int) -> AsyncIterator[Peer]:
    from glide import GlideClient, GlideClientConfiguration, NodeAddress

    # Its defaults would refuse the thousandth call in flight, and time out under load.
    configuration = GlideClientConfiguration(
        [NodeAddress("127.0.0.1", port)], request_timeout=10_000, inflight_requests_limit=10_000
    )
    client = await GlideClient.create(configuration)
    yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))
    await client.close()


PEERS: Final[dict[str, Callable[[int], AbstractAsyncContextManager[Peer]]]] = {
    "bare loop": bare,
    "penstock": ours,
    "valkey-glide": glide,
    "coredis": coredis,
    "redis-py": redis_py,
    "redis-py, 100 connections": redis_py_pool,
}
