"""A server on a real port with an application that tells what it got, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.gateway.config.surroundings import HttpConfig
from penstock.gateway.serving.guards import Guards
from penstock.gateway.serving.server import HttpServer

LIMIT_S = 10.0


class Echo:
    """Answers with what it received; ``/wait`` waits for ``release``, ``/stream`` never ends by itself."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.seen: list[tuple[str, str, bytes]] = []
        self.scopes: list[Any] = []
        self.gone = 0
        self.began = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._websocket(receive, send)
            return
        self.scopes.append(scope)
        self.began.set()
        match scope["path"]:
            case "/early":
                await answer(send, 401, b"no", [(b"connection", b"close")])
            case "/early-open":
                await answer(send, 401, b"no")
            case "/wait":
                await self._wait(receive, send)
            case "/stream":
                await self._stream(receive, send)
            case "/big":
                await answer(send, 200, b"x" * 20_000_000)
            case "/broken":
                raise LookupError("on purpose")
            case "/short":
                await send(
                    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]}
                )
                await send({"type": "http.response.body", "body": b"x"})
            case "/split":
                headers = [(b"x-bad", b"a\r\nx-injected: b")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            case "/unlengthy":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"ab", "more_body": True})
                await send({"type": "http.response.body", "body": b"cd"})
            case _:
                await self._echo(scope, receive, send)

    async def _echo(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(receive)
        if body is None:
            self.gone += 1
            return
        self.seen.append((scope["method"], scope["path"], body))
        names = sorted(name.decode() for name, _ in scope["headers"])
        told = {
            "method": scope["method"],
            "path": scope["path"],
            "raw": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "body": body.decode("latin-1"),
            "headers": names,
        }
        await answer(send, 200, json.dumps(told).encode())

    async def _wait(self, receive: Any, send: Any) -> None:
        await read_body(receive)
        releasing = asyncio.ensure_future(self.released.wait())
        leaving = asyncio.ensure_future(receive())
        await asyncio.wait((releasing, leaving), return_when=asyncio.FIRST_COMPLETED)
        is_released = releasing.done()
        for task in (releasing, leaving):
            task.cancel()
        await asyncio.gather(releasing, leaving, return_exceptions=True)
        if is_released:
            await answer(send, 200, b"released")
        else:
            self.gone += 1

    async def _stream(self, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-kind", b"stream")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone += 1

    async def _websocket(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text", "")})


async def read_body(receive: Any) -> bytes | None:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            return body
    return None


async def answer(
    send: Any, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    lines = [(b"content-length", b"%d" % len(body)), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Served:
    server: HttpServer
    app: Echo
    guarded: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def connections(self) -> int:
        return self.server.statistics()["connections"]


@asynccontextmanager
async def serving(config: HttpConfig | None = None, **limits: Any) -> AsyncIterator[Served]:
    app = Echo()
    config = config or HttpConfig(listen="127.0.0.1:0")
    served = Served(None, app)  # type: ignore[arg-type]

    def release() -> None:
        served.events.append("released")
        app.released.set()

    served.server = HttpServer(
        app,
        config,
        guards=Guards(**limits),
        on_guard=served.guarded.append,
        on_draining=lambda: served.events.append("draining"),
        release=release,
    )
    await served.server.start()
    try:
        yield served
    finally:
        await served.server.stop(0.5)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        async with asyncio.timeout(LIMIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            status = int(lines[0].split(" ")[1])
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:-2])}
            if status < 200 or method == "HEAD":
                return status, headers, b""
            if headers.get("transfer-encoding") == "chunked":
                return status, headers, await self._chunks()
            if "content-length" in headers:
                return status, headers, await self.reader.readexactly(int(headers["content-length"]))
            return status, headers, await self.reader.read()

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()

    async def is_closed(self) -> bool:
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(served: Served, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port, **options)
    client = Client(reader, writer)
    try:
        yield client
    finally:
        client.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass


def statuses(raw: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)]


def error_of(body: bytes) -> str:
    return json.loads(body)["error"]
