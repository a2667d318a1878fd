"""Every command helper through the client, wherever it runs: in RESP2 and RESP3, as bytes and text.

The stories are those that real servers are checked with; each says what must come back. In a
cluster their keys get a common hash tag, and commands without keys go to the node of that tag.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import penstock
from penstock.client.facts import exclusive_hint, keys_of
from penstock.client.transports.base import Arguments
from tests.client.conftest import OpenClient, Place
from tests.integration import stories_of_data, stories_of_servers
from tests.integration.comparing_client import Comparing

TAG = "{tag}"

Story = Callable[[Comparing], Awaitable[None]]

STORIES: list[Story] = [*stories_of_data.STORIES, *stories_of_servers.STORIES]

#: Why a story is not told at a place.
NOT_THERE = {
    "embedded": {
        "lfu": "the store evicts nothing, so maxmemory-policy cannot be set",
        "streams": "Redis's streams are not part of the store",
        "stream_groups": "Redis's streams are not part of the store",
        "functions": "FUNCTION is not part of the store",
        "users": "who may use the directory needs no user",
        "state": "INFO has no figures of an allocator, and there is nothing to save",
        "delays": "a command comes from no address",
        "memory": "MEMORY STATS has no figures of an allocator",
        "commands": "COMMAND DOCS describes no arguments",
    },
    "server": {},
    "cluster": {
        "databases": "a cluster has one database",
        "own_writes": "each primary has a replica, and the story is of a server without",
        "state": "each primary has a replica, and the story is of a server without",
    },
}


def comparing(client: penstock.Client, place: Place, is_decoding: bool) -> Comparing:
    """The client's ``execute`` behind helpers that compare."""
    home = penstock.ByKey(TAG)

    async def call(arguments: Arguments) -> Any:
        if exclusive_hint(arguments) is not None:
            async with client.exclusive(route=home) as own:
                return await own.execute(*arguments)
        has_keys = bool(keys_of(arguments))
        return await client.execute(*arguments, route=None if has_keys or not place.is_cluster else home)

    return Comparing(call, is_decoding, tag=TAG if place.is_cluster else "")


@pytest.mark.parametrize("is_decoding", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_stories(open_client: OpenClient, place: Place, story: Story, is_decoding: bool) -> None:
    reason = NOT_THERE[place.kind].get(story.__name__)
    if reason is not None:
        pytest.skip(reason)
    client = await open_client(decode_responses=is_decoding, client_name="tests")
    await story(comparing(client, place, is_decoding))


def test_reasons_are_of_stories() -> None:
    names = {story.__name__ for story in STORIES}
    assert all(set(reasons) <= names for reasons in NOT_THERE.values())


# ----------------------------------------------------------------- helpers themselves


async def test_the_clients_own_helpers(client: penstock.Client) -> None:
    """As users call them, without anything in between; a little of each family."""
    await client.set("{d}s", "v", ex=100)
    assert 0 < await client.ttl("{d}s") <= 100
    assert await client.getrange("{d}s", 0, -1) == b"v"
    assert await client.setbit("{d}b", 7, 1) == 0
    assert await client.hset("{d}h", {"f": 1}) == 1
    assert await client.hincrbyfloat("{d}h", "f", 0.5) == 1.5
    assert await client.rpush("{d}l", "a", "b") == 2
    assert await client.lmove("{d}l", "{d}m", "LEFT", "RIGHT") == b"a"
    assert await client.sadd("{d}t", "a", "b") == 2
    assert await client.smismember("{d}t", "a", "z") == [True, False]
    assert await client.zadd("{d}z", {"a": 1, "b": 2.5}) == 2
    assert await client.zrange("{d}z", 0, -1, withscores=True) == [(b"a", 1.0), (b"b", 2.5)]
    assert await client.bzpopmin("{d}z", timeout_s=1) == (b"{d}z", b"a", 1.0)
    assert await client.geoadd("{d}g", {"Palermo": (13.361389, 38.115556)}) == 1
    assert await client.pfadd("{d}p", "a") is True
    assert await client.eval("return KEYS[1]", ["{d}s"]) == b"{d}s"
    assert await client.type("{d}z") == "zset"
    assert await client.delete("{d}s", "{d}b", "{d}h") == 3


async def test_helpers_are_the_same_in_pipelines_and_transactions(client: penstock.Client) -> None:
    for batch in (client.pipeline(), client.transaction()):
        batch.hset("{d}h", {"f": "v"})
        batch.hgetall("{d}h")
        batch.zadd("{d}z", {"m": 1.5}, incr=True)
        batch.smembers("{d}none")
        batch.lpos("{d}none", "x")
        batch.type("{d}h")
        batch.expire("{d}h", 100)
        batch.delete("{d}h", "{d}z")
        assert await batch.all() == [1, {b"f": b"v"}, 1.5, set(), None, "hash", True, 2]
