"""A worker with every route there is, on a real port: for tests that need more than one API.

async with whole_worker(tmp_path, storage, streams=ALL_STREAMS) as worker:
    await worker.http.post("/v1/streams/orders", content=b"…")
    await worker.http.get("/v1/tokens", headers=ADMIN)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.gateway.app import Application
from penstock.gateway.assembly import console_routes, open_services, transaction_routes
from penstock.gateway.dsps import answers
from penstock.gateway.dsps.operating import Operating
from penstock.gateway.dsps.polling import Polling
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.v1.channel_events import ChannelEventRoutes
from penstock.gateway.v1.channels import ChannelRoutes
from penstock.gateway.v1.health import HealthRoutes
from penstock.gateway.v1.hooks import HookRoutes
from penstock.gateway.v1.openapi import OpenApiRoutes
from penstock.gateway.v1.pubsub import PubSubRoutes
from penstock.gateway.v1.session import SessionRoutes
from penstock.gateway.v1.staying import release
from penstock.gateway.v1.stream_groups import StreamGroupRoutes
from penstock.gateway.v1.streams import StreamRoutes
from penstock.gateway.v1.subscriptions import SubscriptionRoutes
from penstock.gateway.v1.tokens import TokenRoutes
from tests.gateway.conftest import config_of
from tests.gateway.harness import LIMIT_S, EventStream

on_every_place = pytest.mark.parametrize("storage", ["embedded", "valkey", "cluster"], indirect=True)

ADMIN_SECRET = "the-administrators-bearer"
ADMIN = {"Authorization": f"Bearer {ADMIN_SECRET}"}
ALL_STREAMS = [{"regex": ".+", "readable": True, "writable": True}]


class Whole:
    """One worker that listens, and its client."""

    def __init__(self, services: Services, server: HttpServer, http: httpx.AsyncClient) -> None:
        self.services = services
        self.port = server.port
        self.http = http
        self._server = server

    @asynccontextmanager
    async def follow(self, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[EventStream]:
        async with self.http.stream("GET", path, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            yield EventStream(response)

    async def stop(self) -> None:
        """Gracefully, as a worker does it that is told to."""
        await self._server.stop()


def all_routes(services: Services, heartbeat_ms: int = 15_000, credential_s: float = 60.0) -> list[Route]:
    routes = [
        *Polling(services).routes(answers.refuse),
        *Operating(services).routes(),
        *ChannelRoutes(services).routes(),
        *SubscriptionRoutes(services).routes(),
        *ChannelEventRoutes(services).routes(),
        *StreamRoutes(services, heartbeat_ms=heartbeat_ms, credential_s=credential_s).routes(),
        *StreamGroupRoutes(services).routes(),
        *PubSubRoutes(services).routes(),
        *HookRoutes(services).routes(),
        *TokenRoutes(services).routes(),
        *SessionRoutes(services).routes(),
        *transaction_routes(services, heartbeat_ms=heartbeat_ms, credential_s=credential_s),
        *console_routes(services, heartbeat_ms=heartbeat_ms, credential_s=credential_s),
        *HealthRoutes(services).routes(),
    ]
    return [*routes, *OpenApiRoutes(routes, services.config).routes()]


@asynccontextmanager
async def whole_worker(
    folder: Path,
    storage: dict[str, Any],
    heartbeat_ms: int = 15_000,
    credential_s: float = 60.0,
    make: Callable[[Services], Application] | None = None,
    **settings: Any,
) -> AsyncIterator[Whole]:
    """``settings`` are keys of the configuration file; ``make`` is for another application than this one."""
    http_settings = {"listen": "127.0.0.1:0", **settings.pop("http", {})}
    defaults = {"admin": {"auth": {"bearer": [ADMIN_SECRET]}}, "streams": ALL_STREAMS, "http": http_settings}
    config = config_of(folder, {"storages": {"default": storage}, **defaults, **settings})
    async with open_services(config) as services:

        def drain() -> None:
            services.life.is_stopping = True

        application = (
            make(services)
            if make
            else Application(services, all_routes(services, heartbeat_ms, credential_s))
        )
        server = HttpServer(
            application,  # type: ignore[arg-type]
            config.http,
            on_draining=drain,
            release=lambda: release(services),
        )
        await server.start()
        services.life.is_ready = True
        base = f"http://127.0.0.1:{server.port}{config.http.base_path}"
        try:
            async with httpx.AsyncClient(base_url=base, timeout=LIMIT_S, verify=False) as http:
                yield Whole(services, server, http)
        finally:
            await server.stop()


# ------------------------------------------------------------------------------ streams

ORDERS = "/v1/streams/orders"


async def append(worker: Whole, count: int, tag: str = "", start: int = 1, path: str = ORDERS) -> int:
    """Messages whose data is their number; the last offset."""
    batch = [{"tag": tag, "data": str(number)} for number in range(start, start + count)]
    answer = await worker.http.post(path, json=batch)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["last"])


def data_of(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [message["data"] for message in answer.json()["messages"]]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    return answer.status_code, problem["code"]
