"""A shop behind a gateway: a worker that runs its pipelines, on the gateway's own store.

async with open_shop(tmp_path, storage) as shop:
    await shop.deploy("checkout", "charge")
    await shop.http.post("/v1/transactions", json={"pipeline": "checkout"})
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from penstock.errors import StepFailedError
from penstock.transactions import App, Pipeline, Transactions
from penstock.transactions.pipelines import AnyStep
from tests.gateway.whole import ADMIN, Whole, whole_worker

GROUP = "shop"
#: Static tokens of two owners, and of an operator.
TOKENS: list[dict[str, Any]] = [
    {
        "name": "acme-shop",
        "owner": "acme",
        "secret": "the-secret-of-acme",
        "scopes": ["transactions:start", "transactions:read", "transactions:control"],
    },
    {"name": "bolt", "secret": "the-secret-of-bolt", "scopes": ["transactions:start", "transactions:read"]},
    {"name": "ops", "secret": "the-secret-of-operators", "scopes": ["transactions:*"]},
    {"name": "author", "secret": "the-secret-of-authors", "scopes": ["pipelines:read", "pipelines:write"]},
]
ACME, BOLT, OPERATOR, AUTHOR = ({"Authorization": f"Bearer {token['secret']}"} for token in TOKENS)


class Shop:
    """One gateway, its client, and a worker of the group ``shop``."""

    def __init__(self, gateway: Whole) -> None:
        self.gateway = gateway
        self.http = gateway.http
        self.app = App()
        self.transactions: Transactions = gateway.services.store.transactions
        #: the step ``hold`` waits for it
        self.gate = asyncio.Event()
        self._add_steps()

    def _add_steps(self) -> None:
        @self.app.step("add")
        async def add(tx: Any) -> Any:
            return {"n": (tx.input or {}).get("n", 0) + 1}

        @self.app.step("hold")
        async def hold(tx: Any) -> None:
            await self.gate.wait()

        @self.app.step("report")
        async def report(tx: Any) -> None:
            await tx.progress({"percent": 50})

        @self.app.step("fail")
        async def fail(tx: Any) -> None:
            raise StepFailedError("no money")

    async def deploy(self, name: str, *steps: str | AnyStep, **options: Any) -> str:
        (version,) = await self.transactions.deploy(Pipeline(name, steps, node_group=GROUP, **options))
        return version

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self.transactions.worker(self.app, node_group=GROUP, concurrency=8, grace_ms=0):
            yield

    async def start(
        self, pipeline: str = "checkout", headers: dict[str, str] | None = None, **wish: Any
    ) -> httpx.Response:
        return await self.http.post("/v1/transactions", json={"pipeline": pipeline, **wish}, headers=headers)

    async def started(self, pipeline: str = "checkout", **wish: Any) -> str:
        """The id of a transaction that was started."""
        answer = await self.start(pipeline, **wish)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def look(self, tx: str, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
        return await self.http.get(f"/v1/transactions/{tx}", params=query, headers=headers)

    async def ended(self, tx: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = (await self.look(tx, headers, wait="15s")).json()
        assert found["state"] == "ended", found
        return found

    async def control(self, tx: str, verb: str, **body: Any) -> httpx.Response:
        return await self.http.post(f"/v1/transactions/{tx}/{verb}", json=body)


@asynccontextmanager
async def open_shop(folder: Path, storage: dict[str, Any], **settings: Any) -> AsyncIterator[Shop]:
    async with whole_worker(folder, storage, **settings) as gateway:
        shop = Shop(gateway)
        try:
            yield shop
        finally:
            shop.gate.set()


__all__ = ["ACME", "ADMIN", "AUTHOR", "BOLT", "GROUP", "OPERATOR", "TOKENS", "Shop", "open_shop"]
