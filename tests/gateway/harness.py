"""``/v1`` under test: a worker behind the product's server, and clients for its events and its sockets.

    async with v1_worker(tmp_path, storage, pubsub={"enabled": True}) as worker:
        await worker.publish("m1", {"n": 1})
        async with worker.follow("/v1/channels/room/subscriptions/ann/events?create=true") as stream:
            event = await stream.next()

What tests would have to wait for (heartbeats, limits) is given as ``Times``; all else is the product's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from penstock.gateway.app import Application
from penstock.gateway.assembly import open_services
from penstock.gateway.services import Services
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.v1.channel_events import ChannelEventRoutes
from penstock.gateway.v1.channels import ChannelRoutes
from penstock.gateway.v1.pubsub import PubSubRoutes
from penstock.gateway.v1.sockets import SocketRoutes
from penstock.gateway.v1.staying import release
from penstock.gateway.v1.subscriptions import SubscriptionRoutes
from tests.gateway.conftest import config_of

LIMIT_S = 20.0

on_both_places = pytest.mark.parametrize("storage", ["embedded", "valkey"], indirect=True)
on_every_place = pytest.mark.parametrize("storage", ["embedded", "valkey", "cluster"], indirect=True)
on_one_place = pytest.mark.parametrize("storage", ["embedded"], indirect=True)

#: An administrator's and two other tokens, for configurations that need some.
TOKENS = [
    {
        "name": "all",
        "secret": "all-rights-secret",
        "scopes": ["publish", "subscribe", "read"],
        "channels": ["*"],
    },
    {"name": "reader", "secret": "reader-secret-123", "scopes": ["subscribe", "read"], "channels": ["room*"]},
]


@dataclass(frozen=True)
class Times:
    """What would be too long for a test."""

    heartbeat_ms: int = 15_000
    credential_s: float = 60.0
    send_timeout_s: float = 30.0
    auth_timeout_s: float = 10.0


@dataclass(frozen=True)
class Event:
    name: str
    data: str
    id: str | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventStream:
    """Server-sent events as the standard says they are read."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.comments = 0
        self.retry_ms: int | None = None

    async def next(self, limit_s: float = LIMIT_S) -> Event | None:
        """The next event; None at the end of the stream."""
        name, data, event_id = "message", [], None
        async with asyncio.timeout(limit_s):
            async for line in self._lines:
                field, _, value = line.partition(": ")
                if not line and data:
                    return Event(name, "\n".join(data), event_id)
                if line.startswith(":"):
                    self.comments += 1
                elif field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif field == "id":
                    event_id = value
                elif field == "retry":
                    self.retry_ms = int(value)
        return None

    async def take(self, count: int) -> list[Event]:
        events = [await self.next() for _ in range(count)]
        return [event for event in events if event is not None]

    async def until_comment(self) -> None:
        """Until the next comment; an event before it is a failure."""
        async with asyncio.timeout(LIMIT_S):
            async for line in self._lines:
                assert not line.startswith("data"), line
                if line.startswith(":"):
                    return
        raise AssertionError("the stream ended")


class V1Worker:
    """One worker that listens, and what clients do with it."""

    def __init__(self, services: Services, server: HttpServer, http: httpx.AsyncClient) -> None:
        self.services = services
        self.port = server.port
        self._server = server
        self.http = http

    async def publish(self, message: str, content: Any, channel: str = "room") -> httpx.Response:
        answer = await self.http.post(
            f"/v1/channels/{channel}/messages", params={"id": message}, content=json.dumps(content)
        )
        assert answer.status_code in (200, 201), answer.text
        return answer

    async def publish_many(self, count: int, start: int = 1, content: Any = None) -> list[str]:
        """Messages m<start>, … of the channel ``room``."""
        ids = [f"m{number}" for number in range(start, start + count)]
        messages = [{"id": name, "content": name if content is None else content} for name in ids]
        answer = await self.http.post("/v1/channels/room/batch", json={"messages": messages})
        assert answer.status_code == 200, answer.text
        return ids

    async def subscribe(self, subscriber: str = "ann", channel: str = "room") -> httpx.Response:
        return await self.http.put(f"/v1/channels/{channel}/subscriptions/{subscriber}")

    async def unread(self, subscriber: str = "ann", channel: str = "room") -> int:
        answer = await self.http.get(f"/v1/channels/{channel}/subscriptions/{subscriber}")
        assert answer.status_code == 200, answer.text
        return int(answer.json()["unread"])

    @asynccontextmanager
    async def follow(self, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[EventStream]:
        async with self.http.stream("GET", path, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            yield EventStream(response)

    def socket(self, query: str = "", subscriber: str = "ann", **options: Any) -> _Dialling:
        path = f"/v1/channels/room/subscriptions/{subscriber}/socket{query}"
        options.setdefault("subprotocols", ["penstock.v1"])
        return _Dialling(f"ws://127.0.0.1:{self.port}{path}", options)

    async def stop(self) -> None:
        """Gracefully, as a worker does it that is told to."""
        await self._server.stop()


class _Dialling:
    """A socket that is closed at the end, however the test goes."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._connect = connect(url, **{"compression": None, "max_size": None, **options})

    async def __aenter__(self) -> Socket:
        self._client = await self._connect.__aenter__()
        return Socket(self._client)

    async def __aexit__(self, *error: object) -> None:
        await self._connect.__aexit__(*error)  # type: ignore[arg-type]


class Socket:
    """JSON over a WebSocket."""

    def __init__(self, client: ClientConnection) -> None:
        self.client = client

    async def send(self, kind: str, **fields: Any) -> None:
        await self.client.send(json.dumps({"type": kind, **fields}))

    async def next(self, kind: str | None = None, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The next frame, or the next one of a kind."""
        async with asyncio.timeout(limit_s):
            while True:
                frame: dict[str, Any] = json.loads(await self.client.recv())
                if kind is None or frame["type"] == kind:
                    return frame

    async def closed(self) -> tuple[int | None, str | None]:
        """How the server ended it; what came before is thrown away."""
        async with asyncio.timeout(LIMIT_S):
            try:
                while True:
                    await self.client.recv()
            except ConnectionClosed:
                await self.client.wait_closed()
        return self.client.close_code, self.client.close_reason


class RawClient:
    """Bytes on a connection, with a receive buffer as small as it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def get(cls, port: int, path: str, headers: str = "") -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
        return cls(reader, writer)

    async def until(self, text: bytes) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readuntil(text)

    def vanish(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def v1_worker(
    folder: Path, storage: dict[str, Any], times: Times | None = None, **settings: Any
) -> AsyncIterator[V1Worker]:
    """A worker with all routes of channels and pub/sub; ``settings`` are keys of the configuration file."""
    times = times or Times()
    config = config_of(folder, {"storages": {"default": storage}, **settings})
    async with open_services(config) as services, _serving(_application(services, times)) as server:
        limits = httpx.Limits(max_connections=None)
        base = f"http://127.0.0.1:{server.port}{config.http.base_path}"
        async with httpx.AsyncClient(base_url=base, limits=limits, timeout=LIMIT_S, verify=False) as http:
            yield V1Worker(services, server, http)


@asynccontextmanager
async def _serving(application: Application) -> AsyncIterator[HttpServer]:
    """The application on a free port, begun and ended as a worker does it."""
    services = application._services

    def drain() -> None:
        services.life.is_stopping = True

    server = HttpServer(
        application,  # type: ignore[arg-type]
        replace(services.config.http, listen="127.0.0.1:0"),
        on_draining=drain,
        release=lambda: release(services),
    )
    await server.start()
    services.life.is_ready = True
    try:
        yield server
    finally:
        await server.stop()


def _application(services: Services, times: Times) -> Application:
    often = {"heartbeat_ms": times.heartbeat_ms, "credential_s": times.credential_s}
    routes = [
        *ChannelRoutes(services).routes(),
        *SubscriptionRoutes(services).routes(),
        *ChannelEventRoutes(services, **often).routes(),  # type: ignore[arg-type]
        *PubSubRoutes(services, **often).routes(),  # type: ignore[arg-type]
    ]
    sockets = SocketRoutes(
        services,
        **often,  # type: ignore[arg-type]
        send_timeout_s=times.send_timeout_s,
        auth_timeout_s=times.auth_timeout_s,
    )
    return Application(services, routes, sockets=sockets)
