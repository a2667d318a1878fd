"""One suite for webhooks, on every kind of store: embedded, Valkey, Redis, a cluster of three.

A test asks for ``queue`` (or ``client``) and runs once on each. Receivers are real (``receiver.py``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
from penstock.client.client import Client
from penstock.webhooks import Endpoint, WebhookQueue, new_secret
from penstock.webhooks.addresses import AddressPolicy, policy
from penstock.webhooks.sending import HttpSender
from tests import places
from tests.webhooks.receiver import Receiver

PLACES = ("embedded", "valkey", "redis", "cluster")
SECRET = new_secret()


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


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
