"""Walks over keys and collections, page by page and item by item; and what is counted meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

import penstock
from penstock.errors import ClosedError
from tests.client.conftest import ALONE, SERVERS, OpenClient, Place

N_KEYS = 500


@pytest.fixture
async def full(client: penstock.Client) -> penstock.Client:
    """A client of a place with some keys, on every server of it."""
    pipe = client.pipeline()
    for number in range(N_KEYS):
        pipe.set(f"key-{number}", number)
    pipe.rpush("list", "x")
    await pipe.all()
    return client


def sent(client: penstock.Client) -> int:
    servers = client.statistics()["servers"].values()
    return sum(server["sent"] for server in servers if isinstance(server, dict))


# ----------------------------------------------------------------------- keys


async def test_page_by_page(full: penstock.Client) -> None:
    pages = [page async for page in full.scan_pages(match="key-*", count=50)]
    assert len(pages) >= N_KEYS / 50 / 2
    assert all(isinstance(page, list) and len(page) < 150 for page in pages)
    assert {key for page in pages for key in page} == {b"key-%d" % number for number in range(N_KEYS)}


async def test_item_by_item(full: penstock.Client) -> None:
    every = [key async for key in full.scan_iter()]
    assert len(set(every)) == N_KEYS + 1
    assert [key async for key in full.scan_iter(type="list")] == [b"list"]
    assert [key async for key in full.scan_iter(match="nothing-*")] == []


async def test_the_next_page_is_asked_for_when_it_is_wanted(full: penstock.Client) -> None:
    before = sent(full)
    async with aclosing(full.scan_pages(count=10)) as pages:
        await anext(pages)
        assert sent(full) == before + 1
        assert await full.execute("PING") == b"PONG"
        await anext(pages)
        assert sent(full) == before + 3


async def test_a_walk_that_is_left_early(full: penstock.Client) -> None:
    before = sent(full)
    async for _ in full.scan_iter(count=10):
        break
    pages = full.scan_pages(count=10)
    await anext(pages)
    await pages.aclose()
    assert sent(full) == before + 2
    # Nothing is left at the server, and nothing in the way of others.
    assert await full.get("key-7") == b"7"
    assert len({key async for key in full.scan_iter()}) == N_KEYS + 1


async def test_a_cancelled_walk(full: penstock.Client) -> None:
    async def walk() -> None:
        while True:
            async for _ in full.scan_iter(count=10):
                await asyncio.sleep(0)

    walking = asyncio.create_task(walk())
    while sent(full) < N_KEYS + 20:
        await asyncio.sleep(0)
    walking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walking
    assert await full.execute("ECHO", "next") == b"next"


async def test_several_walks_at_once(full: penstock.Client) -> None:
    async def walk(count: int) -> int:
        return len({key async for key in full.scan_iter(match="key-*", count=count)})

    assert await asyncio.gather(*(walk(count) for count in (7, 20, 100, 1000))) == [N_KEYS] * 4


async def test_keys_deleted_on_the_way(full: penstock.Client) -> None:
    seen: set[bytes] = set()
    async for page in full.scan_pages(match="key-*", count=20):
        seen.update(page)
        await asyncio.gather(*(full.delete(key) for key in page))
    assert len(seen) == N_KEYS
    assert [key async for key in full.scan_iter()] == [b"list"]


@ALONE
async def test_one_page_at_a_time_by_hand(full: penstock.Client) -> None:
    cursor, keys = await full.scan(0, count=100)
    found = set(keys)
    while cursor:
        cursor, keys = await full.scan(cursor, count=100)
        found.update(keys)
    assert len(found) == N_KEYS + 1


async def test_a_closed_client_cannot_be_walked(client: penstock.Client) -> None:
    await client.close()
    with pytest.raises(ClosedError):
        await anext(client.scan_iter())


# ---------------------------------------------------------------- collections


async def test_walks_over_collections(client: penstock.Client) -> None:
    numbers = range(600)
    await client.hset("h", {f"f{number}": number for number in numbers})
    await client.sadd("s", *(f"m{number}" for number in numbers))
    await client.zadd("z", {f"m{number}": number / 2 for number in numbers})
    fields = dict([item async for item in client.hscan_iter("h", count=50)])
    assert fields == {b"f%d" % number: b"%d" % number for number in numbers}
    members = {item async for item in client.sscan_iter("s", match="m1*", count=50)}
    assert members == {b"m%d" % number for number in numbers if str(number).startswith("1")}
    scores = dict([item async for item in client.zscan_iter("z", count=50)])
    assert scores == {b"m%d" % number: number / 2 for number in numbers}
    assert [item async for item in client.hscan_iter("none")] == []


# ----------------------------------------------------------------- statistics


def figures(client: penstock.Client, name: str) -> int:
    servers: dict[str, Any] = client.statistics()["servers"]
    return sum(server[name] for server in servers.values() if isinstance(server, dict))


async def test_bytes_are_counted(client: penstock.Client, place: Place) -> None:
    await client.execute("PING", route=penstock.ToAll())  # every connection stands
    before = figures(client, "bytes_sent"), figures(client, "bytes_received")
    assert await client.set("foo", "bar") == b"OK"
    after = figures(client, "bytes_sent"), figures(client, "bytes_received")
    request, reply = b"*3\r\n$3\r\nSET\r\n$3\r\nfoo\r\n$3\r\nbar\r\n", b"+OK\r\n"
    expected = (0, 0) if place.is_embedded else (len(request), len(reply))
    assert (after[0] - before[0], after[1] - before[1]) == expected


@SERVERS
async def test_bytes_of_lost_connections_count_too(open_client: OpenClient, place: Place) -> None:
    client = await open_client()
    await client.set("k", "x" * 10_000)
    before = figures(client, "bytes_sent")
    number = await client.client_id()
    place.nodes[0].execute("CLIENT", "KILL", "ID", number)
    assert await client.strlen("k") == 10_000
    assert figures(client, "bytes_sent") > before > 10_000
    assert figures(client, "reconnections") == 1


async def test_times_and_counts(client: penstock.Client) -> None:
    before = figures(client, "sent")
    tasks = [asyncio.create_task(client.execute("ECHO", number)) for number in range(100)]
    await asyncio.sleep(0)
    for task in tasks[:10]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.execute("PING")
    assert figures(client, "in_flight") == figures(client, "waiting") == figures(client, "tombstones") == 0
    assert figures(client, "sent") - before <= 101
    answered = [
        one for one in client.statistics()["servers"].values() if isinstance(one, dict) and one["sent"] > 3
    ]
    assert all(one["latency_ms"]["max"] >= one["latency_ms"]["mean"] > 0 for one in answered)
