"""A client of a cluster, or of sentinels, whose servers move, hang, die and come back under load.

What is acknowledged by one server may be forgotten by its successor, so counters are exact only where
nobody dies; that every call ends, in its own outcome, holds always.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import penstock
from penstock.client.events import TopologyChanged
from penstock.client.policies import Constant
from penstock.protocol.slots import SLOT_COUNT, key_slot
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.control import HOST
from penstock.testing.sentinels import start_sentinels
from penstock.testing.servers import RealServer
from tests.client.quiet import LIMIT_S, closing, nothing_pending, peace
from tests.client.workload import BATCHES, ELEMENTS, EVERY_WAY, IMPATIENT, PLAIN, Workload

pytestmark = pytest.mark.slow

WAYS = (*PLAIN, *BATCHES, *ELEMENTS, "smessages", "tuned")

SETTINGS: dict[str, Any] = {
    **IMPATIENT,
    "reconnect": Constant(base_ms=20),
    "unresponsive_timeout_ms": 1_500,
    "idle_ping_ms": 500,
    "command_timeout_ms": 15_000,
    "client_cache_entries": 100,
    "cluster_refresh_delay_ms": 10,
}


@pytest.fixture(autouse=True)
async def in_peace(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    async with peace(caplog):
        yield


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    """For this module alone: it does not stay as it is."""
    options = {"cluster-node-timeout": "2000", "repl-ping-replica-period": "1"}
    with start_cluster(3, 1, options=options) as running:
        yield running


@pytest.fixture
async def cluster(own_cluster: RealCluster) -> RealCluster:
    """Whole and empty, whatever happened to it before."""
    await until(lambda: is_whole(own_cluster))
    for node in primaries(own_cluster):
        node.reset()
    return own_cluster


@asynccontextmanager
async def opened(cluster: RealCluster, **settings: Any) -> AsyncIterator[penstock.Client]:
    settings = {**SETTINGS, "client_cache_entries": 100 * (settings.get("protocol", 3) == 3), **settings}
    url = cluster.url.replace("redis:", "redis-cluster:")
    async with closing(penstock.open(url, **settings)) as client:
        yield await client


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


def primaries(cluster: RealCluster) -> list[RealServer]:
    return [node for node in cluster.nodes if node.info("replication")["role"] == "master"]


def owner_of(cluster: RealCluster, slot: int, witness: RealServer | None = None) -> RealServer:
    for first, last, (_, port, *_), *_ in (witness or cluster.nodes[0]).execute("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(node for node in cluster.nodes if node.port == port)
    raise AssertionError(f"nobody serves slot {slot}")


def agree(cluster: RealCluster, slots: list[int]) -> bool:
    """Whether all nodes name the same owners."""
    return all(len({owner_of(cluster, slot, node) for node in cluster.nodes}) == 1 for slot in slots)


def is_whole(cluster: RealCluster) -> bool:
    """Whether every node sees three primaries with a replica each, and no failure."""
    return (
        all(
            node.info("cluster")["cluster_enabled"] == "1"
            and b"cluster_state:ok" in node.execute("CLUSTER", "INFO")
            and b"fail" not in node.execute("CLUSTER", "NODES")
            and node.info("replication").get("master_link_status", "up") == "up"
            for node in cluster.nodes
        )
        and len(primaries(cluster)) == 3
    )


async def finish(workload: Workload, client: penstock.Client) -> None:
    """The books, after the workload has ended and all is well again."""
    await workload.hear_out()
    await workload.stop_listening()
    assert await client.execute("ECHO", "last") == b"last"
    await nothing_pending(client)
    await workload.settle(client)
    workload.check(unexplained=None if workload.is_exact else lambda *_: [])


# ------------------------------------------------------------------------- resharding


async def move_slots(cluster: RealCluster, slots: list[int], workload: Workload) -> None:
    """To other primaries, with all their keys, while everybody uses them. One primary gives after the
    other, or nodes that hear old news would not agree for long."""
    by_source: dict[RealServer, list[int]] = {}
    for slot in slots:
        by_source.setdefault(owner_of(cluster, slot), []).append(slot)
    for source, own in by_source.items():
        nodes = sorted(primaries(cluster), key=lambda node: node.port)
        target = nodes[nodes.index(source) - 1]
        await move_between(source, target, own, workload)
        for slot in own:
            for node in (target, source, *(each for each in nodes if each not in (source, target))):
                node.execute("CLUSTER", "SETSLOT", slot, "NODE", target.execute("CLUSTER", "MYID"))
        await until(lambda own=own: agree(cluster, own))


async def move_between(source: RealServer, target: RealServer, slots: list[int], workload: Workload) -> None:
    for slot in slots:
        target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source.execute("CLUSTER", "MYID"))
        source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target.execute("CLUSTER", "MYID"))
    is_moving = True
    while is_moving:  # a few keys at a time
        is_moving = False
        for slot in slots:
            if keys := source.execute("CLUSTER", "GETKEYSINSLOT", slot, 2):
                words = ("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
                await asyncio.to_thread(source.execute, *words)
                is_moving = True
        await workload.goes_on(20)


@pytest.mark.parametrize(
    ("protocol", "policy", "rounds"), [(3, "dedicated", 2), (2, "interrupt", 2), (3, "block", 1)]
)
async def test_slots_move_back_and_forth(
    cluster: RealCluster, protocol: int, policy: str, rounds: int
) -> None:
    """Nobody dies: what was acknowledged has happened, once, and nothing fails but what was cancelled."""
    slots = [key_slot(tag) for tag in (b"w0", b"w1", b"w2", b"p0", b"p1", b"w3s0")]
    async with opened(cluster, protocol=protocol, blocking_policy=policy) as client:
        async with Workload(client, seed=protocol, ways=WAYS, workers=8) as workload:
            await workload.goes_on(100)
            for _ in range(rounds):
                await move_slots(cluster, slots, workload)
                await workload.goes_on(100)
        assert client.statistics()["servers"]["redirections"] > 0
        await finish(workload, client)
        assert workload.count("unknown") == workload.count("not_sent") == 0
        assert workload.count("refused") == (workload.count("refused", "pop") if policy == "interrupt" else 0)


# ------------------------------------------------------------------- failover, outage


async def replace_primary(cluster: RealCluster, victim: RealServer, death: str) -> None:
    """Until another one serves its slots, and it has come back as a replica."""
    await asyncio.to_thread(victim.kill) if death == "killed" else os.kill(victim.pid, signal.SIGSTOP)
    try:
        others = [node for node in cluster.nodes if node is not victim]
        await until(lambda: all(b",fail" in node.execute("CLUSTER", "NODES") for node in others))
        await until(lambda: all(has_all_slots(node, victim) for node in others))
    finally:
        await asyncio.to_thread(victim.restart) if death == "killed" else os.kill(victim.pid, signal.SIGCONT)
    await until(lambda: victim.info("replication")["role"] == "slave")


def has_all_slots(witness: RealServer, victim: RealServer) -> bool:
    """Whether others than the victim serve all slots, as this one sees it."""
    ranges = witness.execute("CLUSTER", "SLOTS")
    served = sum(last - first + 1 for first, last, (_, port, *_), *_ in ranges if port != victim.port)
    return served == SLOT_COUNT


async def lose_everything(cluster: RealCluster) -> None:
    for node in cluster.nodes:
        await asyncio.to_thread(node.kill)
    await asyncio.sleep(0.5)  # an outage, not a blink
    for node in cluster.nodes:
        # What it got as a replica, long ago, would be in the way.
        (node.directory / "dump.rdb").unlink(missing_ok=True)
        await asyncio.to_thread(node.restart)


@pytest.mark.parametrize(("death", "protocol"), [("killed", 3), ("stopped", 2)])
async def test_a_primary_is_replaced(cluster: RealCluster, death: str, protocol: int) -> None:
    async with opened(cluster, protocol=protocol) as client:
        changes: list[object] = []
        client.on_event(lambda event: changes.append(event) if isinstance(event, TopologyChanged) else None)
        async with Workload(client, seed=2, ways=WAYS, workers=15, is_exact=False) as workload:
            await workload.goes_on(400)
            await replace_primary(cluster, owner_of(cluster, key_slot(b"w0")), death)
            await workload.goes_on(400)
        assert changes
        await finish(workload, client)


async def test_everything_dies_and_comes_back(cluster: RealCluster) -> None:
    async with opened(cluster) as client:
        async with Workload(client, seed=3, ways=WAYS, workers=15, is_exact=False) as workload:
            await workload.goes_on(400)
            await lose_everything(cluster)
            await workload.goes_on(1_000)
        await until(lambda: is_whole(cluster))
        await finish(workload, client)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", [2, 3])
async def test_one_misfortune_after_another(cluster: RealCluster, protocol: int) -> None:
    chance = random.Random(protocol)
    async with opened(cluster, protocol=protocol) as client:
        async with Workload(client, seed=protocol, ways=WAYS, workers=30, is_exact=False) as workload:
            for _ in range(25):
                await workload.goes_on(400)
                what = chance.choice(["killed", "stopped", "lost", "moved"])
                if what == "lost":
                    await lose_everything(cluster)
                elif what == "moved":
                    await move_slots(cluster, [key_slot(b"w0"), key_slot(b"p0")], workload)
                else:
                    await replace_primary(cluster, owner_of(cluster, key_slot(b"w0")), what)
                await until(lambda: is_whole(cluster))
        await finish(workload, client)


# ---------------------------------------------------------------------------- sentinels


async def test_sentinels_promote_a_replica() -> None:
    with start_sentinels(3, 1) as watched:
        async with closing(penstock.open(watched.url, **SETTINGS)) as client:
            await client
            async with Workload(client, seed=4, ways=EVERY_WAY, workers=15, is_exact=False) as workload:
                await workload.goes_on(400)
                dead = await asyncio.to_thread(watched.kill_primary)
                await asyncio.to_thread(watched.wait_for_failover, dead.port)
                await workload.goes_on(400)
                await asyncio.to_thread(dead.restart)
                await asyncio.to_thread(watched.wait_until_whole)
                await asyncio.to_thread(watched.fail_over)
                await workload.goes_on(400)
            await finish(workload, client)
