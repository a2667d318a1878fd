"""Penstock's client, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import penstock
from bench.client_peers.measuring import COUNTER, KEY, Peer, report


@asynccontextmanager
async def ours(port: int) -> AsyncIterator[Peer]:
    async with penstock.open(f"redis://127.0.0.1:{port}") as client:
        yield Peer(lambda: client.get(KEY), lambda: client.incr(COUNTER))


if __name__ == "__main__":
    report({"client": ours}, ("penstock", "hiredis", "uvloop"), __doc__)
