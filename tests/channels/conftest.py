"""One suite for durable channels: embedded, served by us, Valkey, Redis, and a cluster.

A test asks for ``ps`` (or ``room``, a channel of it) and runs once on each place. What a store
holds is read with plain commands, so that the keys themselves are under test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import penstock
import penstock.blocking
from penstock.channels import Batch, Channel, ChannelStore
from tests import places

#: Each kind of place once, and both protocols over sockets.
PLACES = ("embedded-3", "served-3", "server-2", "redis-3", "cluster-3")
#: For files that read all kinds of replies: their fixture ``url`` goes to each of these.
EVERY_PROTOCOL = (*PLACES, "embedded-2", "server-3")
#: The life of a key of a channel that keeps messages for the usual 30 minutes.
TTL_S = 30 * 60 + 15
EXPIRE_MS = 30 * 60 * 1_000


def only_on(*kinds: str) -> pytest.MarkDecorator:
    return places.only_on(PLACES, *kinds)


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
async def other(url: str) -> AsyncIterator[penstock.Penstock]:
    """Another client of the same place."""
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
async def store(ps: penstock.Penstock) -> AsyncIterator[ChannelStore]:
    """The keeper behind ``room``."""
    store = ChannelStore(ps)
    yield store
    await store.close()


@pytest.fixture
def room(store: ChannelStore) -> Channel:
    return Channel(store, "room")


# ------------------------------------------------------------------------------------- looking


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages]


def numbered(first: int, last: int) -> list[tuple[str, int]]:
    """Messages m<first> … m<last>, whose content is their number."""
    return [(f"m{number}", number) for number in range(first, last + 1)]


async def keys_of(ps: penstock.Penstock) -> list[str]:
    """Every key of the place."""
    return sorted([bytes(key).decode() async for key in ps.scan_iter(count=1_000)])


async def set_clocks(ps: penstock.Penstock, channel: str, clock: int, **cursors: int) -> None:
    """A channel that counted up to ``clock``, and its subscribers, as if it had done so by itself."""
    await ps.execute("SET", f"c.{{{channel}}}.clock", clock, "EX", TTL_S)
    for subscriber, cursor in cursors.items():
        await ps.execute("SET", f"c.{{{channel}}}.r.{subscriber}", cursor, "EX", TTL_S)


async def number_at(ps: penstock.Penstock, key: str) -> int | None:
    value: Any = await ps.execute("GET", key)
    return None if value is None else int(value)
