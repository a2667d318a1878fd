"""A real HTTP receiver on loopback: keeps what it gets, and answers as it is told.

``answer`` is called with each request and returns what to send: a status, a status with headers and body, or
raw bytes; it may be a coroutine function that takes its time. Without it everything is a 200. Of no use for
anything but tests: it reads one body by its content-length, and knows nothing else of HTTP.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    #: the port that it came from: the same for requests of one connection
    peer: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answer = Callable[[Received], Any]


class Receiver:
    """``async with Receiver() as receiver:`` listens on ``receiver.url``."""

    def __init__(self, answer: Answer | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.answer: Answer = answer or (lambda _: 200)
        self.received: list[Received] = []
        #: requests that are being answered now, and the most there were at a time
        self.busy = 0
        self.most_busy = 0
        self.connections = 0
        self._tls = tls
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    @property
    def ids(self) -> list[str]:
        return [request.id for request in self.received]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()  # the test is at its end
        finally:
            self._serving.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(method, target, headers, body, writer.get_extra_info("peername")[1])
        self.received.append(request)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            answer = self.answer(request)
            if isinstance(answer, Awaitable):
                answer = await answer
        finally:
            self.busy -= 1
        writer.write(_wire(answer))
        await writer.drain()
        return not isinstance(answer, bytes)


def _wire(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    status, headers, body = (answer, {}, b"") if isinstance(answer, int) else answer
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
