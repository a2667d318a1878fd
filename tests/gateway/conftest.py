"""Gateways for tests: the real application behind uvicorn on a real port, and a client that hides nothing.

    async def test_something(gateway): ...              # once on each place: embedded, Valkey, a cluster
    async def test_else(start): worker = await start(http={"pathPrefix": "/x"})

What ``start`` is given are keys of the configuration file, which is written and loaded as users' files are.
The client (:func:`ask`) sends exactly the bytes of the target that it is given, and shows every header.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import GatewayConfig, load
from penstock.gateway.services import Services

PLACES = ("embedded", "valkey", "cluster")
#: Bodies of tests are small; nothing may hang for longer.
LIMIT_S = 30.0


@pytest.fixture(scope="session", autouse=True)
def schemas() -> Iterator[None]:
    """Schemas of the API are worked out once, not for each of the gateways that tests start."""
    components = functools.cache(msgspec.json.schema_components)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(msgspec.json, "schema_components", lambda kinds, **how: components(tuple(kinds), **how))
        yield


# ------------------------------------------------------------------------------ the client


@dataclass(frozen=True)
class Answer:
    status: int
    #: names in small letters, in the order they came
    lines: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.lines)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Headers = Sequence[tuple[str, str]]


class Connection:
    """One connection to a gateway, for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._method = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    def send(self, method: str, target: str, body: bytes | None = None, headers: Headers = ()) -> None:
        self._method = method
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: gateway",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> Answer:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        lines = tuple(
            (name.lower(), value) for name, _, value in (line.partition(": ") for line in head[1:] if line)
        )
        headers = dict(lines)
        if self._method == "HEAD" or status in (204, 304):
            return Answer(status, lines, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, lines, await self._chunks())
        return Answer(status, lines, await self._reader.readexactly(int(headers["content-length"])))

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self._reader.readline()).strip(), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return body

    async def ask(self, method: str, target: str, body: bytes | None = None, headers: Headers = ()) -> Answer:
        self.send(method, target, body, headers)
        return await self.receive()


async def ask(
    port: int,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Headers = (),
    limit_s: float = LIMIT_S,
) -> Answer:
    """One request on a connection of its own."""
    async with asyncio.timeout(limit_s), Connection.open(port) as connection:
        return await connection.ask(method, target, body, headers)


# ----------------------------------------------------------------------------- the gateway


class Worker:
    """One gateway that listens, and what a client of the DSPS API asks of it."""

    def __init__(self, services: Services, port: int, prefix: str = "") -> None:
        self.services = services
        self.port = port
        self.prefix = prefix
        #: sent with every request below
        self.headers: Headers = ()

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Headers = (),
        limit_s: float = LIMIT_S,
    ) -> Answer:
        return await ask(self.port, method, self.prefix + target, body, (*self.headers, *headers), limit_s)

    async def publish(self, message: str, content: bytes = b'"hi"', channel: str = "room") -> Answer:
        return await self.ask("PUT", f"/channel/{channel}/message/{message}", content)

    async def subscribe(self, subscriber: str = "ann", channel: str = "room") -> Answer:
        return await self.ask("PUT", polling(channel, subscriber))

    async def unsubscribe(self, subscriber: str = "ann", channel: str = "room") -> Answer:
        return await self.ask("DELETE", polling(channel, subscriber))

    async def fetch(
        self, query: str = "", subscriber: str = "ann", channel: str = "room", limit_s: float = LIMIT_S
    ) -> Answer:
        return await self.ask("GET", f"{polling(channel, subscriber)}{query}", limit_s=limit_s)

    async def ack(self, handle: str, subscriber: str = "ann", channel: str = "room") -> Answer:
        return await self.ask(
            "DELETE", f"{polling(channel, subscriber)}/message?ackHandle={quote(handle, safe='')}"
        )

    async def ids(self, query: str = "", subscriber: str = "ann", channel: str = "room") -> list[str]:
        answer = await self.fetch(query, subscriber, channel)
        assert answer.status == 200, answer
        return [message["messageID"] for message in answer.json["messages"]]


def polling(channel: str = "room", subscriber: str = "ann") -> str:
    return f"/channel/{channel}/subscription/polling/{subscriber}"


@asynccontextmanager
async def run_worker(config: GatewayConfig) -> AsyncIterator[Worker]:
    """A worker as the product has it, without processes and signals."""
    async with open_services(config) as services:
        settings = Config(
            make_application(services),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            # Whose headers are believed is the gateway's own business; uvicorn would believe this machine's.
            proxy_headers=False,
        )
        settings.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HttpToolsProtocol(config=settings, server_state=state, app_state={}, _loop=loop),
            "127.0.0.1",
            backlog=4_096,
        )
        services.life.is_ready = True
        try:
            yield Worker(services, server.sockets[0].getsockname()[1], config.http.base_path)
        finally:
            server.close()
            services.channels.release()
            for connection in list(state.connections):
                connection.shutdown()
            async with asyncio.timeout(LIMIT_S):
                while state.tasks:
                    await asyncio.wait(set(state.tasks))
            await server.wait_closed()


Start = Callable[..., Awaitable[Worker]]


def storage_at(place: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    """The entry of an empty storage in a configuration file."""
    if place == "embedded":
        return {"embedded": {"directory": str(folder / "store.pen"), "durability": "relaxed"}}
    if place == "cluster":
        nodes = request.getfixturevalue("own_cluster").primaries
        return {"redis": {"cluster": [f"127.0.0.1:{node.port}" for node in nodes]}}
    return {
        "redis": {"singleNode": f"127.0.0.1:{request.getfixturevalue('real_servers').get('valkey').port}"}
    }


@pytest.fixture(params=PLACES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """An empty storage; the test runs once on each place."""
    return storage_at(request.param, request, tmp_path)


def config_of(folder: Path, settings: dict[str, Any]) -> GatewayConfig:
    """Through a file, as users do it."""
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(settings))
    return load(file, environment={})


@pytest.fixture
async def starter(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts workers that live as long as the test."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Worker:
            return await stack.enter_async_context(run_worker(config_of(tmp_path, settings)))

        yield start


@pytest.fixture
def start(starter: Start, storage: dict[str, Any]) -> Start:
    """Starts workers on the storage of the test."""

    async def start(**settings: Any) -> Worker:
        return await starter(**{"storages": {"default": storage}, **settings})

    return start


@pytest.fixture
async def gateway(start: Start) -> Worker:
    """A worker without any settings."""
    return await start()
