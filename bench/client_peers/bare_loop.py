"""The limit for a client in Python: an asyncio protocol over hiredis with one write a tick and nothing else
(no timeouts, no reconnection, no redirections, no cancellation)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import hiredis

from bench.client_peers.measuring import COUNTER, KEY, Peer, report


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


if __name__ == "__main__":
    report({"bare": bare}, ("hiredis", "uvloop"), __doc__)
