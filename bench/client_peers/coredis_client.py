"""coredis, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coredis import Redis  # type: ignore[import-not-found]

from bench.client_peers.measuring import COUNTER, KEY, Peer, report


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    async with Redis(port=port) as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


if __name__ == "__main__":
    report({"client": connected}, ("coredis", "uvloop"), __doc__)
