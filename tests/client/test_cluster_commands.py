"""Commands and the servers of a cluster: to all of them, to one of them, over several slots."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.errors import CommandError, CommandTimeoutError, ConfigError, NotSentError, UsageError
from penstock.protocol.slots import key_slot
from tests.client.conftest import CLUSTERS, SLOW, OpenClient, Place, name_of
from tests.client.test_blocked import waits
from tests.places import until

#: One key for each primary of the cluster, in their order.
KEYS = ["b", "c", "a"]


def pairs(keys: list[str]) -> dict[str, str]:
    return {key: f"value of {key}" for key in keys}


# ----------------------------------------------------------------- to all of them


async def test_everything_is_flushed_everywhere_many_times(client: penstock.Client, place: Place) -> None:
    async def flush() -> int:
        return sum([len(await client.execute("FLUSHALL", route=penstock.ToAll())) for _ in range(200)])

    for key in KEYS:
        await client.set(key, "x")
    sizes = await client.execute("DBSIZE", route=penstock.ToAll())
    assert sum(sizes.values()) == 3
    n_servers = 3 if place.is_cluster else 1
    assert len(sizes) == n_servers
    assert await asyncio.gather(flush(), flush()) == [200 * n_servers] * 2
    assert set((await client.execute("DBSIZE", route=penstock.ToAll())).values()) == {0}
    assert await client.execute("PING") == b"PONG"


async def test_all_of_them_before_anything_else(open_client: OpenClient, place: Place) -> None:
    """A client connects when it is first used, whatever the first use is."""
    n_servers = 3 if place.is_cluster else 1
    assert len(await open_client().execute("DBSIZE", route=penstock.ToAll())) == n_servers
    assert await open_client().execute("PING", route=penstock.ToAny()) == b"PONG"
    assert await open_client().execute("PING", route=penstock.BySlot(0)) == b"PONG"
    name = next(iter(await open_client().execute("PING", route=penstock.ToAll())))
    assert await open_client().execute("PING", route=penstock.ToServer(name)) == b"PONG"
    assert [key async for key in open_client().scan_iter()] == []
    async with open_client().exclusive(route=penstock.ToServer(name)) as own:
        assert await own.execute("PING") == b"PONG"
    async with open_client().monitor(route=penstock.ToAny()):
        pass
    with pytest.raises(NotSentError):
        await _nobody().execute("PING", route=penstock.ToAll())


def _nobody() -> penstock.Client:
    return penstock.open("redis-cluster://127.0.0.1:1", fail_fast=True)


@CLUSTERS
async def test_a_refusal_by_one_of_them(client: penstock.Client, place: Place) -> None:
    sha1 = await client.execute("SCRIPT", "LOAD", "return 1", route=penstock.ByKey(KEYS[1]))
    with pytest.raises(CommandError, match="NOSCRIPT"):
        await client.execute("EVALSHA", sha1, 0, route=penstock.ToAll())
    known = await client.execute("SCRIPT", "EXISTS", sha1, route=penstock.ToAll())
    assert known == {name_of(node): [int(node is place.nodes[1])] for node in place.primaries}


@CLUSTERS
async def test_any_of_them_is_another_one_each_time(client: penstock.Client) -> None:
    seen = {await client.cluster_myid() for _ in range(3)}
    assert len(seen) == 1  # without a route it is the same one
    for _ in range(100):
        seen.add((await client.execute("CLUSTER", "MYID", route=penstock.ToAny())).decode())
        if len(seen) == 3:
            return
    pytest.fail(f"only {seen}")


@CLUSTERS
async def test_what_concerns_all_without_a_route(client: penstock.Client) -> None:
    for key in KEYS:
        await client.set(key, "x")
    assert await client.dbsize() == 3
    assert sorted(await client.keys("*")) == sorted(key.encode() for key in KEYS)
    sha1 = await client.script_load("return 'here'")
    assert await client.script_exists(sha1, "0" * 40) == [True, False]
    for key in KEYS:
        assert await client.evalsha(sha1, [key]) == b"here"
    await client.execute("FLUSHALL", timeout_ms=20_000)
    assert await client.execute("DBSIZE", timeout_ms=20_000) == 0
    assert set((await client.execute("DBSIZE", route=penstock.ToAll())).values()) == {0}


# ------------------------------------------------------------------ to one of them


@CLUSTERS
@pytest.mark.usefixtures("replicas_are_known")
async def test_every_node_can_be_addressed(client: penstock.Client, place: Place) -> None:
    ids: set[bytes] = set()
    for node in place.nodes:
        route = penstock.ToServer(name_of(node))
        role = await client.execute("ROLE", route=route)
        assert role[0] == (b"master" if node in place.primaries else b"slave")
        assert (await client.execute("CONFIG", "GET", "port", route=route)) in (
            {b"port": b"%d" % node.port},
            [b"port", b"%d" % node.port],
        )
        ids.add(await client.execute("CLUSTER", "MYID", route=route))
        async with client.exclusive(route=route) as own:
            assert (await own.config_get("port"))["port"] == str(node.port)
    assert len(ids) == 6
    with pytest.raises(
        ConfigError, match=f"no server '127.0.0.1:1' in the cluster: {name_of(place.nodes[0])}"
    ):
        await client.execute("PING", route=penstock.ToServer("127.0.0.1:1"))


@CLUSTERS
@pytest.mark.usefixtures("replicas_are_known")
async def test_the_wrong_node_sends_us_to_the_right_one(client: penstock.Client, place: Place) -> None:
    for node in place.nodes:
        await client.execute("SET", KEYS[0], node.port, route=penstock.ToServer(name_of(node)))
        assert await client.get(KEYS[0]) == b"%d" % node.port


@CLUSTERS
async def test_keys_and_slots_lead_to_their_nodes(client: penstock.Client, place: Place) -> None:
    for key, node in zip(KEYS, place.primaries, strict=True):
        for route in (penstock.ByKey(key), penstock.BySlot(key_slot(key.encode()))):
            info = await client.execute("INFO", "server", route=route)
            assert f"tcp_port:{node.port}\r" in info.decode()


async def test_a_wait_that_was_routed_stops_nobody(client: penstock.Client) -> None:
    blocked = asyncio.create_task(client.execute("BLPOP", "list", 30, route=penstock.ByKey("list")))
    await waits(client, "list")
    assert await client.execute("EXISTS", "list", timeout_ms=5_000) == 0
    await client.rpush("list", "x")
    assert await blocked == [b"list", b"x"]
    with pytest.raises(UsageError, match="one server"):
        await client.execute("BLPOP", "list", 1, route=penstock.ToAll())


async def test_a_route_with_a_timeout_of_its_own(open_client: OpenClient) -> None:
    client = await open_client(command_timeout_ms=100)
    with pytest.raises(CommandTimeoutError):
        await client.execute("EVAL", SLOW, 1, "k", route=penstock.ByKey("k"), timeout_ms=5)
    route = penstock.ByKey("k")
    assert await client.execute("EVAL", SLOW, 1, "k", route=route, timeout_ms=20_000) == 1


# ------------------------------------------------------------- over several slots


@CLUSTERS
@pytest.mark.parametrize(
    "command",
    [
        ("MGET", *KEYS),
        ("MSET", KEYS[0], 1, KEYS[1], 2),
        ("MSETNX", KEYS[0], 1, KEYS[1], 2),
        ("DEL", *KEYS),
        ("EXISTS", *KEYS),
        ("UNLINK", *KEYS),
        ("TOUCH", *KEYS),
        ("SINTER", *KEYS),
        ("RENAME", KEYS[0], KEYS[1]),
        ("EVAL", "return 1", 2, KEYS[0], KEYS[1]),
    ],
)
async def test_keys_of_several_slots_are_refused(
    client: penstock.Client, command: tuple[str | int, ...]
) -> None:
    with pytest.raises(CommandError, match="CROSSSLOT"):
        await client.execute(*command)
    with pytest.raises(CommandError, match="CROSSSLOT"):
        await client.execute(*command, timeout_ms=20_000)
    pipe = client.pipeline()
    pipe.set(KEYS[0], "before")
    pipe.execute(*command)
    first, refused = await pipe.try_all()
    assert first == b"OK"
    assert "CROSSSLOT" in str(refused)
    assert await client.get(KEYS[0]) == b"before"


async def test_commands_that_are_split(open_client: OpenClient) -> None:
    client = await open_client(split_multi_key=True)
    keys = [f"key-{number}" for number in range(50)]
    assert await client.mset(pairs(keys)) == b"OK"
    assert await client.mget(*keys, "none") == [*(value.encode() for value in pairs(keys).values()), None]
    assert await client.mget(*reversed(keys)) == [pairs(keys)[key].encode() for key in reversed(keys)]
    assert await client.exists(*keys, keys[0], "none") == 51
    assert await client.touch(*keys) == 50
    assert await client.unlink(*keys[:10]) == 10
    assert await client.delete(*keys) == 40
    assert await client.exists(*keys) == 0


async def test_split_in_pipelines_and_with_timeouts(open_client: OpenClient) -> None:
    client = await open_client(split_multi_key=True)
    pipe = client.pipeline()
    pipe.mset(pairs(KEYS))
    pipe.mget(*KEYS)
    pipe.delete(*KEYS)
    assert (await pipe.all())[1:] == [[value.encode() for value in pairs(KEYS).values()], 3]
    for timeout_ms in (5_000, 20_000):
        await client.execute(
            "MSET", *(word for pair in pairs(KEYS).items() for word in pair), timeout_ms=timeout_ms
        )
        assert None not in await client.execute("MGET", *KEYS, timeout_ms=timeout_ms)
        assert await client.execute("DEL", *KEYS, timeout_ms=timeout_ms) == 3


@CLUSTERS
async def test_what_is_split_fails_as_a_whole(open_client: OpenClient) -> None:
    client = await open_client(split_multi_key=True)
    with pytest.raises(CommandError, match="wrong number of arguments"):
        await client.execute("MSET", KEYS[0], 1, KEYS[1])
    with pytest.raises(CommandError, match="wrong number of arguments"):
        await client.execute("MGET")
    with pytest.raises(CommandError, match="CROSSSLOT"):
        await client.execute("SUNION", *KEYS)
    tx = client.transaction()
    tx.mget(*KEYS)
    with pytest.raises(CommandError, match="CROSSSLOT"):
        await tx.all()


async def test_split_commands_of_many_tasks(open_client: OpenClient) -> None:
    client = await open_client(split_multi_key=True)

    async def work(number: int) -> bool:
        mine = {f"{number}:{index}": f"{number}.{index}" for index in range(10)}
        await client.mset(mine)
        return await client.mget(*mine) == [value.encode() for value in mine.values()]

    assert all(await asyncio.gather(*(work(number) for number in range(50))))


# ------------------------------------------------------- waiting for the replicas


@CLUSTERS
@pytest.mark.usefixtures("replicas_are_known")
async def test_waiting_for_replicas_counts_ones_own_writes(client: penstock.Client, place: Place) -> None:
    with pytest.raises(UsageError, match="exclusive connection, whose writes it counts"):
        await client.wait(1, 1000)
    async with client.exclusive(route=penstock.ByKey("k")) as own:
        await own.set("k", "v")
        assert await own.wait(1, 5_000) == 1
    (replica,) = [node for node in place.replicas if await _has(client, node)]
    assert replica.execute("DBSIZE") == 1
    await until(lambda: client.statistics()["private_links"] == {"lent": 0, "idle": 1})


async def _has(client: penstock.Client, node: object) -> bool:
    return bool(await client.execute("DBSIZE", route=penstock.ToServer(name_of(node))))
