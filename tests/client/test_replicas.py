"""Reads from the replicas of a cluster: they serve them, nobody is redirected, writes go to primaries."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.testing.servers import RealServer
from tests.client.conftest import ALONE, CLUSTERS, OpenClient, Place, name_of
from tests.places import until

pytestmark = pytest.mark.usefixtures("replicas_are_known")

#: Keys on every primary.
KEYS = [f"key-{number}" for number in range(60)]


def calls(node: RealServer, command: str) -> int:
    """How often a node was asked since the last reset."""
    figures = node.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
    return int(figures.partition("calls=")[2].partition(",")[0])


def total(nodes: tuple[RealServer, ...], command: str) -> int:
    return sum(calls(node, command) for node in nodes)


def reset(place: Place) -> None:
    for node in place.nodes:
        node.execute("CONFIG", "RESETSTAT")


async def written(client: penstock.Client, place: Place) -> None:
    """The same value under every key, on every replica."""
    await asyncio.gather(*(client.set(key, "v") for key in KEYS))
    await until(lambda: sum(node.execute("DBSIZE") for node in place.replicas) == len(KEYS))
    reset(place)


@CLUSTERS
@pytest.mark.parametrize("read_from", ["replica", "prefer_replica"])
async def test_replicas_serve_reads(open_client: OpenClient, place: Place, read_from: str) -> None:
    client = await open_client(read_from=read_from)
    await written(client, place)
    await asyncio.gather(*(client.get(key) for key in KEYS))  # may still find a primary while they connect
    await until(
        lambda: all(
            client.statistics()["servers"][name_of(node)]["state"] == "open" for node in place.replicas
        )
    )
    reset(place)
    assert await asyncio.gather(*(client.get(key) for key in KEYS)) == [b"v"] * len(KEYS)
    assert total(place.replicas, "get") == len(KEYS)
    assert total(place.primaries, "get") == 0
    assert all(calls(node, "get") for node in place.replicas)
    await asyncio.gather(*(client.set(key, "w") for key in KEYS))
    assert sum(calls(node, "set") for node in place.primaries) == len(KEYS)
    assert client.statistics()["servers"]["redirections"] == 0


@CLUSTERS
async def test_replicas_serve_the_very_first_reads(open_client: OpenClient, place: Place) -> None:
    await written(await open_client(), place)
    client = await open_client(read_from="replica")
    assert await asyncio.gather(*(client.get(key) for key in KEYS)) == [b"v"] * len(KEYS)
    assert total(place.replicas, "get") == len(KEYS)
    assert client.statistics()["servers"]["redirections"] == 0


@CLUSTERS
async def test_primaries_serve_reads_by_default(open_client: OpenClient, place: Place) -> None:
    client = await open_client()
    await written(client, place)
    await asyncio.gather(*(client.get(key) for key in KEYS))
    assert total(place.primaries, "get") == len(KEYS)
    assert total(place.replicas, "get") == 0
    assert len([one for one in client.statistics()["servers"].values() if isinstance(one, dict)]) == 3


@CLUSTERS
async def test_a_pipeline_with_replicas(open_client: OpenClient, place: Place) -> None:
    client = await open_client(read_from="replica")
    await written(client, place)
    pipe = client.pipeline()
    for key in KEYS:
        pipe.get(key)
        pipe.strlen(key)
        pipe.append(key, "!")
    replies = await pipe.all()
    assert len(replies) == 3 * len(KEYS)
    assert replies[2::3] == [2] * len(KEYS)
    assert total(place.replicas, "get") == total(place.replicas, "strlen") == len(KEYS)
    assert client.statistics()["servers"]["redirections"] == 0


@CLUSTERS
async def test_a_transaction_runs_at_the_primary(open_client: OpenClient, place: Place) -> None:
    client = await open_client(read_from="replica")
    await written(client, place)
    tx = client.transaction()
    tx.get(KEYS[0])
    tx.get(KEYS[0])
    assert await tx.all() == [b"v", b"v"]
    async with client.exclusive(KEYS[0]) as own:
        assert await own.get(KEYS[0]) == b"v"
    assert total(place.replicas, "get") == 0
    assert total(place.primaries, "get") == 3


@CLUSTERS
async def test_split_reads_and_scripts_that_only_read(open_client: OpenClient, place: Place) -> None:
    client = await open_client(read_from="replica", split_multi_key=True)
    await written(client, place)
    assert await client.mget(*KEYS) == [b"v"] * len(KEYS)
    assert await client.exists(*KEYS) == len(KEYS)
    assert total(place.primaries, "mget") == total(place.primaries, "exists") == 0
    script = client.script("return redis.call('GET', KEYS[1])")
    assert await script(keys=KEYS[:1], readonly=True) == b"v"
    assert total(place.primaries, "evalsha_ro") == total(place.primaries, "eval_ro") == 0
    assert await script(keys=KEYS[:1]) == b"v"
    assert total(place.primaries, "evalsha") + total(place.primaries, "eval") > 0
    assert client.statistics()["servers"]["redirections"] == 0


@ALONE
@pytest.mark.parametrize("read_from", ["replica", "prefer_replica"])
async def test_a_place_without_replicas_reads_from_itself(open_client: OpenClient, read_from: str) -> None:
    client = await open_client(read_from=read_from)
    await client.set("k", "v")
    assert await client.get("k") == b"v"


@CLUSTERS
async def test_a_walk_stays_with_one_server(open_client: OpenClient, place: Place) -> None:
    """A cursor means nothing to another server: whoever takes turns finds only a part."""
    client = await open_client(read_from="replica")
    await client.hset("h", {f"f{number}": number for number in range(1000)})
    await client.sadd("s", *(f"m{number}" for number in range(1000)))
    await client.zadd("z", {f"m{number}": number for number in range(1000)})
    reset(place)
    assert len({field async for field, _ in client.hscan_iter("h", count=10)}) == 1000
    assert len({member async for member in client.sscan_iter("s", count=10)}) == 1000
    assert len({member async for member, _ in client.zscan_iter("z", count=10)}) == 1000
    for command in ("hscan", "sscan", "zscan"):
        assert total(place.primaries, command) > 10
        assert total(place.replicas, command) == 0
