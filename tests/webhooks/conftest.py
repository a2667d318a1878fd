"""One suite for webhooks, on every kind of store: embedded, Valkey, Redis, a cluster of three.

A test asks for ``queue`` (or ``client``) and runs once on each. Receivers are real (``receiver.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.testing.servers import RealCluster, start_cluster
from penstock.webhooks import Endpoint, WebhookQueue, new_secret
from penstock.webhooks.addresses import AddressPolicy, policy
from penstock.webhooks.sending import HttpSender
from tests.webhooks.receiver import Receiver

PLACES = ("embedded", "valkey", "redis", "cluster")
SECRET = new_secret()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    with start_cluster(3, 0) as cluster:
        yield cluster


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return f"embedded:{tmp_path / 'store.pen'}?durability=relaxed"
    if request.param == "cluster":
        cluster = request.getfixturevalue("cluster")
        for node in cluster.primaries:
            node.reset()
        return cluster.url.replace("redis://", "redis-cluster://")
    return request.getfixturevalue("real_servers").get(request.param).url


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> WebhookQueue:
    return WebhookQueue(client)


@pytest.fixture
def loopback() -> AddressPolicy:
    """What lets a sender reach receivers of tests."""
    return policy(["127.0.0.0/8"])


@pytest.fixture
async def sender(loopback: AddressPolicy) -> AsyncIterator[HttpSender]:
    async with HttpSender(loopback) as sender:
        yield sender


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def endpoint_of(receiver: Receiver, name: str = "shop", **settings: Any) -> Endpoint:
    return Endpoint(id=name, url=receiver.url, secrets=(SECRET,), **settings)


async def until(condition: Callable[[], Any], limit_s: float = 20) -> None:
    """Wait for something that must come true; it may have to be asked for."""
    async with asyncio.timeout(limit_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.002)
