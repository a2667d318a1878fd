"""One suite for the Python API of streams: embedded and served by us (native), a server, a cluster (scripts).

A test asks for ``ps`` (or ``orders``, a stream of it) and runs once on each place and protocol. What
the API sends can be watched, and cut off, through ``Wire``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.transports.base import Argument
from penstock.errors import OutcomeUnknownError
from penstock.streams import Stream, StreamCommands
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import RealCluster, start_cluster

PLACES = ("embedded-3", "embedded-2", "served-3", "server-3", "server-2", "cluster-3")


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind, _, protocol = request.param.partition("-")
    if kind == "embedded":
        return f"embedded:{tmp_path / 'store.pen'}?protocol={protocol}&durability=relaxed"
    if kind == "served":
        return f"redis://127.0.0.1:{request.getfixturevalue('own_server').port}?protocol={protocol}"
    if kind == "cluster":
        return f"{request.getfixturevalue('own_cluster').replace('redis://', 'redis-cluster://')}?protocol={protocol}"
    return f"{request.getfixturevalue('real_servers').get('valkey').url}?protocol={protocol}"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PenstockServer]:
    with PenstockServer(tmp_path / "served.pen", durability="relaxed") as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    with start_cluster(3, 0) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(cluster: RealCluster) -> str:
    for node in cluster.primaries:
        node.reset()
    return cluster.url


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
def orders(ps: penstock.Penstock) -> Stream:
    return ps.stream("orders")


class Wire:
    """The stream commands of a client; ``sent`` tells which, ``fault`` may cut any of them off.

    A fault is asked with each command: "before" loses the command, "after" its reply.
    """

    def __init__(self, client: penstock.Penstock) -> None:
        self._commands = StreamCommands(client)
        self.sent: list[tuple[Any, ...]] = []
        self.fault: Callable[[tuple[Any, ...]], str] = lambda _: ""

    async def execute(self, name: Argument, /, *arguments: Argument) -> Any:
        words = (name, *arguments)
        self.sent.append(words)
        fault = self.fault(words)
        if fault == "before":
            raise OutcomeUnknownError("the connection was cut")
        reply = await self._commands.execute(*words)
        if fault == "after":
            raise OutcomeUnknownError("the connection was cut")
        return reply

    def names(self) -> list[Any]:
        return [words[0] for words in self.sent]


@pytest.fixture
def wire(ps: penstock.Penstock) -> Wire:
    return Wire(ps)


@pytest.fixture
def wired(ps: penstock.Penstock, wire: Wire) -> Stream:
    """The same stream, over a wire that is watched."""
    return Stream(ps, wire, "orders")


async def until(condition: Callable[[], Any], limit_s: float = 15) -> None:
    """Wait for something that must come true; it may have to be asked for."""
    async with asyncio.timeout(limit_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.002)
