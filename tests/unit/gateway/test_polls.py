"""Waiting on behalf of a client: for our own server, which calls back, and for any other one.

``works`` are what is waited for; each tells how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.gateway.http.requests import CONNECTION, Disconnected, Request
from penstock.gateway.http.responses import Refusal
from penstock.gateway.polls import while_connected

LONG_S = 60.0


class Client:
    """Somebody who asks, and may go."""

    def __init__(self, is_own_server: bool) -> None:
        self._gone = asyncio.Event()
        self.told: list[Callable[[], None]] = []
        scope: dict[str, Any] = {CONNECTION: self} if is_own_server else {}
        self.request = Request(scope, self._receive, {}, 100)

    def go(self) -> None:
        self._gone.set()
        for tell in self.told:
            tell()

    def on_gone(self, tell: Callable[[], None]) -> Callable[[], object] | None:
        if self._gone.is_set():
            return None
        self.told.append(tell)
        return self.told.clear

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}


class Work:
    """Goes on until it is told to end, and notes how it did."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.outcome = "never begun"

    async def run(self) -> str:
        self.outcome = "cancelled"
        self.begun.set()
        await self.end.wait()
        self.outcome = "done"
        return "found"


@pytest.fixture
def services() -> Any:
    limits = SimpleNamespace(idle_polls=1)
    return SimpleNamespace(
        waiting=0,
        config=SimpleNamespace(http=SimpleNamespace(limits=limits)),
        metrics=SimpleNamespace(waiting_polls=lambda _: None),
    )


@pytest.fixture(params=["own server", "any server"])
async def client(request: pytest.FixtureRequest) -> Client:
    return Client(request.param == "own server")


@pytest.fixture
async def work() -> Work:
    return Work()


async def begin(services: Any, client: Client, work: Work) -> asyncio.Task[str]:
    task = asyncio.create_task(while_connected(services, client.request, work.run()))
    async with asyncio.timeout(LONG_S):
        await work.begun.wait()
    assert services.waiting == 1
    return task


async def ended(task: asyncio.Task[str], services: Any) -> None:
    """Whatever came of it, nothing is left."""
    async with asyncio.timeout(LONG_S):
        await asyncio.wait([task])
        while len(asyncio.all_tasks()) > 1:  # the one that watches another server's client
            await asyncio.sleep(0)
    assert services.waiting == 0


async def test_what_was_waited_for(services: Any, client: Client, work: Work) -> None:
    task = await begin(services, client, work)
    work.end.set()
    await ended(task, services)
    assert task.result() == "found"
    assert not client.told


async def test_a_client_that_goes(services: Any, client: Client, work: Work) -> None:
    task = await begin(services, client, work)
    client.go()
    await ended(task, services)
    assert isinstance(task.exception(), Disconnected)
    assert work.outcome == "cancelled"
    assert task.cancelling() == 0


async def test_a_client_that_has_gone_before(services: Any, work: Work) -> None:
    client = Client(is_own_server=True)
    client.go()
    with pytest.raises(Disconnected):
        await while_connected(services, client.request, work.run())
    assert work.outcome == "never begun"
    assert services.waiting == 0


async def test_others_may_cancel_it(services: Any, client: Client, work: Work) -> None:
    task = await begin(services, client, work)
    task.cancel()
    await ended(task, services)
    assert task.cancelled()
    assert work.outcome == "cancelled"


async def test_who_cancels_is_obeyed_though_the_client_goes_as_well(services: Any, work: Work) -> None:
    client = Client(is_own_server=True)
    task = await begin(services, client, work)
    task.cancel()
    client.go()
    await ended(task, services)
    assert task.cancelled()


async def test_a_failure_is_the_callers(services: Any, client: Client) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await while_connected(services, client.request, fail())
    assert services.waiting == 0


async def test_there_are_only_so_many(services: Any, client: Client, work: Work) -> None:
    task = await begin(services, client, work)
    other = Work()
    with pytest.raises(Refusal) as refused:
        await while_connected(services, client.request, other.run())
    assert refused.value.status == 503
    assert other.outcome == "never begun"
    work.end.set()
    await ended(task, services)
