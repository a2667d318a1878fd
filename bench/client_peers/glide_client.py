"""valkey-glide. Its defaults would refuse the thousandth call in flight, and time out under load."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from glide import (  # type: ignore[import-not-found]
    GlideClient,
    GlideClientConfiguration,
    NodeAddress,
)

from bench.client_peers.measuring import COUNTER, KEY, Peer, report


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    configuration = GlideClientConfiguration(
        [NodeAddress("127.0.0.1", port)], request_timeout=10_000, inflight_requests_limit=10_000
    )
    client = await GlideClient.create(configuration)
    yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))
    await client.close()


if __name__ == "__main__":
    report({"client": connected}, ("valkey-glide", "uvloop"), __doc__)
