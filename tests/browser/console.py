"""A gateway with its console, on a store of its own, for a browser; and the shop that works on it.

    with open_console(folder) as console:
        console.http.post("/v1/streams/orders", json=[{"data": "hi"}])        # as an administrator
        console.ps.stream("orders")                                            # the same store, directly
        console.work(app, node_group="shop")                                   # a worker, until the end

The gateway is the product's application behind the product's server, on the loop of the blocking client. The
browser's pages are opened by the fixture ``page`` (``conftest``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

import penstock.blocking
from penstock.blocking.portal import PORTAL
from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import load
from penstock.gateway.services import Services
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.v1.staying import release
from penstock.transactions import App, Pipeline

ADMIN_SECRET = "the-administrators-bearer"
VIEWER_SECRET = "the-bearer-of-a-viewer"
LIMIT_S = 20.0
_OPEN: dict[str, Any] = {
    "admin": {"auth": {"bearer": [ADMIN_SECRET]}},
    "tokens": [{"name": "watcher", "secret": VIEWER_SECRET, "role": "viewer"}],
    "streams": [{"regex": ".+", "readable": True, "writable": True}],
    "pubsub": {"enabled": True},
    "logging": {"category": {"*": "ERROR"}},
}


class Console:
    """One gateway that listens."""

    def __init__(self, stack: AsyncExitStack, services: Services, store: str, port: int) -> None:
        self._stack = stack
        self._services = services
        self.store = store
        self.root = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(
            base_url=self.root, timeout=LIMIT_S, headers={"Authorization": f"Bearer {ADMIN_SECRET}"}
        )
        self.ps = penstock.blocking.open(store)

    def address(self, place: str = "/") -> str:
        return f"{self.root}/console/#{place}"

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.http.post(path, json={} if body is None else body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def deploy(self, *pipelines: Pipeline) -> None:
        self.ps.transactions.deploy(*pipelines)

    def work(self, app: App, *, node_group: str, concurrency: int = 8) -> None:
        """A worker beside the gateway, until the console is closed."""

        async def enter() -> None:
            transactions = self._services.store.transactions
            await self._stack.enter_async_context(
                transactions.worker(app, node_group=node_group, concurrency=concurrency, grace_ms=0)
            )

        PORTAL.run(enter())

    def until(self, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        """Wait for what must come true in the store; answers what it was."""
        end_s = time.monotonic() + limit_s
        while not (found := condition()):
            assert time.monotonic() < end_s, "it did not come true in time"
            time.sleep(0.02)
        return found


@contextmanager
def open_console(folder: Path, **settings: Any) -> Iterator[Console]:
    """``settings`` are keys of the configuration file."""
    stack = AsyncExitStack()
    store = str(folder / "store.pen")

    async def start() -> Console:
        storage = {"embedded": {"directory": store, "durability": "relaxed"}}
        file = folder / "gateway.yaml"
        http = {"listen": "127.0.0.1:0", **settings.pop("http", {})}
        file.write_text(json.dumps({"storages": {"default": storage}, **_OPEN, "http": http, **settings}))
        config = load(file, environment={})
        services = await stack.enter_async_context(open_services(config))
        server = HttpServer(make_application(services), config.http, release=lambda: release(services))
        await server.start()
        stack.push_async_callback(server.stop)
        services.life.is_ready = True
        return Console(stack, services, f"embedded:{store}?durability=relaxed", server.port)

    console = PORTAL.run(start())
    try:
        with console.http, console.ps:
            yield console
    finally:
        PORTAL.run(stack.aclose())
