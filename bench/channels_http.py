"""HTTP/1.1 for load programs: one request at a time on a connection, callbacks instead of tasks.

A protocol over httptools does the least that Python can do for a request, so that the program which measures
takes little of the machine that it measures. Nothing here knows what is asked.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Final, TypeAlias, cast

import httptools

HOST: Final = "127.0.0.1"
#: Connections that are being opened at the same time; a listener's backlog is longer.
_OPENING: Final = 512

#: Hears the status and the body of an answer.
OnAnswer: TypeAlias = Callable[[int, bytes], None]


class Connection(asyncio.Protocol):
    """Keep-alive connection; ``lost`` is true once it cannot be used any more."""

    __slots__ = ("_body", "_on_answer", "_parser", "_transport", "lost")

    def __init__(self) -> None:
        self.lost = False
        self._body = b""
        self._on_answer: OnAnswer | None = None
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, request: bytes, on_answer: OnAnswer) -> None:
        """Send; a connection that ends before the answer answers 0."""
        assert self._on_answer is None, "one request at a time"
        self._on_answer = on_answer
        if self.lost:
            self._answer(0, b"")
        else:
            self._transport.write(request)

    async def call(self, request: bytes) -> tuple[int, bytes]:
        """The same for whoever may wait."""
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def take(status: int, body: bytes) -> None:
            if not future.done():
                future.set_result((status, body))

        self.ask(request, take)
        return await future

    def abort(self) -> None:
        """End at once; a reset leaves no port behind that cannot be used for a minute."""
        self._on_answer = None
        self._transport.abort()

    def _answer(self, status: int, body: bytes) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(status, body)

    # ------------------------------------------------------------------------- asyncio and httptools

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._answer(0, b"")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._answer(self._parser.get_status_code(), body)


def make_request(method: str, target: str, body: bytes = b"") -> bytes:
    length = f"content-length: {len(body)}\r\n" if body or method == "PUT" else ""
    return f"{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n{length}\r\n".encode() + body


async def open_connections(port: int, count: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_OPENING)

    async def open_one() -> Connection:
        async with gate:
            return (await loop.create_connection(Connection, HOST, port))[1]

    return list(await asyncio.gather(*(open_one() for _ in range(count))))


def raise_file_limit(count: int) -> None:
    """As many open files as the system lets us have; SystemExit if those are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise SystemExit(f"{count} open files are needed and {hard} allowed: raise `ulimit -Hn`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def quantile(values: list[float], share: float) -> float:
    """The value below which ``share`` of all lie; 0 without any."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
