"""redis-py's asyncio client with hiredis: one connection, or a pool of 100."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio

from bench.client_peers.measuring import COUNTER, KEY, Peer, report


@asynccontextmanager
async def single(port: int) -> AsyncIterator[Peer]:
    async with redis.asyncio.Redis(port=port, single_connection_client=True) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


@asynccontextmanager
async def pool(port: int) -> AsyncIterator[Peer]:
    connections = redis.asyncio.BlockingConnectionPool(port=port, max_connections=100, timeout=None)
    async with redis.asyncio.Redis(connection_pool=connections) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))
    await connections.disconnect()


if __name__ == "__main__":
    report({"single": single, "pool": pool}, ("redis", "hiredis", "uvloop"), __doc__)
