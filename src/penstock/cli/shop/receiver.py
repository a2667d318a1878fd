"""Who is told by webhook: a small HTTP server on this machine that stands for somebody else's.

It takes what comes, and is away for every fifteenth, so that there is something to try again. A receiver of
yours checks the signature first: ``docs/http-api.md`` has the lines.

Rules: it keeps its port as long as it can, since what waits for delivery has its address. It knows as much of
HTTP as the sender needs: one request after the other on a connection, each body with its length.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_AWAY_EVERY: Final = 15
_MAX_BODY_BYTES: Final = 4 << 20
_HEAD_END: Final = b"\r\n\r\n"


class Receiver:
    """``async with Receiver(port) as receiver:`` listens on ``receiver.port``."""

    def __init__(self, port: int = 0) -> None:
        """``port``: the one that it would like to have; another one if that is taken."""
        self.port = port
        self.taken = 0
        self.refused = 0
        self._connections: set[asyncio.Task[None]] = set()

    def url(self, path: str) -> str:
        return f"http://{_HOST}:{self.port}/{path}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, _HOST, self.port)
        except OSError:
            self._server = await asyncio.start_server(self._serve, _HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # whoever it was has gone, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the shop closes
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays."""
        head = await reader.readuntil(_HEAD_END)
        size_bytes = _length(head)
        if size_bytes > _MAX_BODY_BYTES:
            return False
        await reader.readexactly(size_bytes)
        if (self.taken + self.refused + 1) % _AWAY_EVERY:
            self.taken += 1
            status = b"200 OK"
        else:
            self.refused += 1
            status = b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0" + _HEAD_END)
        await writer.drain()
        return True


def _length(head: bytes) -> int:
    """Of the body that follows; ``ValueError`` for a head that is none."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length":
            return int(value)
    return 0
