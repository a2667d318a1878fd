"""The cluster router on real clusters: routing, resharding, failover, outage, all under load.

The tests that harm the cluster come last, and leave it as whole as they found it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.events import TopologyChanged
from penstock.client.link import LinkState
from penstock.client.router.cluster import ClusterRouter
from penstock.client.targets import Address
from penstock.errors import (
    AuthenticationError,
    CommandError,
    ConfigError,
    NotSentError,
    OutcomeUnknownError,
    PenstockError,
)
from penstock.protocol.slots import key_for_slot, key_slot
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer, ServerUnavailableError, find_server
from tests.places import until

pytestmark = pytest.mark.slow

#: How long anything may take before it counts as hanging.
LIMIT_S = 40


@pytest.fixture(scope="module", params=["valkey", "redis"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    try:
        binary = find_server(request.param)
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    # A replica is listed once its offset has moved, which takes a ping from its primary: usually ten seconds.
    options = {"cluster-node-timeout": "1000", "repl-ping-replica-period": "1"}
    with start_cluster(3, 1, binary=binary, options=options) as running:
        yield running


class Observer:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_push(self, link: object, push: object) -> None: ...

    def on_event(self, event: object) -> None:
        self.events.append(event)


@asynccontextmanager
async def opened(
    cluster: RealCluster, observer: Observer | None = None, **overrides: Any
) -> AsyncIterator[ClusterRouter]:
    seeds = ",".join(f"{HOST}:{node.port}" for node in cluster.nodes[1:3])
    router = make_router(f"redis-cluster://{seeds}", observer, **overrides)
    try:
        await router.open()
        yield router
    finally:
        await router.close()
        tasks = [task for task in asyncio.all_tasks() if "Link" in repr(task) or "router" in repr(task)]
        assert not tasks


def make_router(url: str, observer: Observer | None = None, **overrides: Any) -> ClusterRouter:
    target, settings = open_settings(url, **overrides)
    return ClusterRouter(Dialer(target, settings), target.addresses, settings, observer or Observer())


def server_of(cluster: RealCluster, name: str) -> RealServer:
    return next(node for node in cluster.nodes if f"{HOST}:{node.port}" == name)


def another_primary(router: ClusterRouter, name: str) -> str:
    return next(link.name for link in router.primaries() if link.name != name)


# ------------------------------------------------------------------------ routing


@pytest.mark.parametrize("protocol", [2, 3])
async def test_commands_of_many_tasks_reach_their_nodes(cluster: RealCluster, protocol: int) -> None:
    async with opened(cluster, protocol=protocol) as router:
        keys = [f"routing:{protocol}:{n}" for n in range(1000)]
        assert set(await asyncio.gather(*(router.call(("SET", key, key)) for key in keys))) == {b"OK"}
        replies = await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        assert replies == [key.encode() for key in keys]
        statistics = router.statistics()
        assert statistics["redirections"] == statistics["refreshes"] == 0
        assert len(router.primaries()) == 3
        assert all(statistics[link.name]["sent"] > 500 for link in router.primaries())
        assert await router.call(("PING",)) == b"PONG"
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await router.call(("LPUSH", keys[0], "x"))
        assert await router.call(("EVAL", "return KEYS[1]", 1, keys[1])) == keys[1].encode()


async def test_text_replies(cluster: RealCluster) -> None:
    async with opened(cluster, decode_responses=True) as router:
        await router.call(("SET", "text", "ä"))
        assert await router.call(("GET", "text")) == "ä"


async def test_keys_of_several_slots(cluster: RealCluster) -> None:
    keys = [f"several:{n}" for n in range(20)]
    pairs = [word for key in keys for word in (key, f"value of {key}")]
    async with opened(cluster) as router:
        with pytest.raises(CommandError, match="CROSSSLOT"):
            await router.call(("MGET", *keys))
    async with opened(cluster, split_multi_key=True) as router:
        assert await router.call(("MSET", *pairs)) == b"OK"
        assert await router.call(("MGET", *keys, "absent")) == [
            *(f"value of {key}".encode() for key in keys),
            None,
        ]
        assert await router.call(("EXISTS", *keys, keys[0])) == 21
        assert await router.call(("TOUCH", *keys)) == 20
        assert await router.call(("UNLINK", *keys[:10])) == 10
        assert await router.call(("DEL", *keys)) == 10


async def test_every_node_has_a_name(cluster: RealCluster) -> None:
    async with opened(cluster) as router:
        await until(lambda: knows_all(router, cluster))
        for node in cluster.nodes:
            name = f"{HOST}:{node.port}"
            role = (await router.link_named(name).call(("ROLE",)))[0]
            address = Address(HOST, node.port)
            assert await router.backchannel.ask([address], ("ROLE",), lambda _, reply: reply[0]) == role
        with pytest.raises(ConfigError, match="there is no server 'nobody:1'"):
            router.link_named("nobody:1")


def knows_all(router: ClusterRouter, cluster: RealCluster) -> bool:
    """Whether the map has every node; a replica joins it when its primary has heard of it."""
    try:
        for node in cluster.nodes:
            router.link_named(f"{HOST}:{node.port}")
    except ConfigError:
        router._refresher.worry()
        return False
    return True


# ------------------------------------------------------------------------- refusals


async def test_a_plain_server_is_no_cluster(real_server: RealServer) -> None:
    router = make_router(f"redis-cluster://{HOST}:{real_server.port}")
    with pytest.raises(ConfigError, match="use redis:// instead of redis-cluster://"):
        await router.open()
    await router.close()


async def test_a_wrong_password(cluster: RealCluster) -> None:
    router = make_router(cluster.url.replace("redis://", "redis-cluster://somebody:wrong@"))
    with pytest.raises(AuthenticationError, match="refused the credentials"):
        await router.open()
    await router.close()


async def test_nobody_there() -> None:
    router = make_router(f"redis-cluster://{HOST}:1,{HOST}:2", fail_fast=True)
    with pytest.raises(NotSentError, match=rf"{HOST}:1: cannot connect.*{HOST}:2: cannot connect"):
        await router.open()
    await router.close()


# ------------------------------------------------------------------------- replicas


async def test_reads_from_replicas_without_redirections(cluster: RealCluster) -> None:
    keys = [f"replicas:{n}" for n in range(300)]
    async with opened(cluster) as router:
        await asyncio.gather(*(router.call(("SET", key, key)) for key in keys))
        for link in router.primaries():
            assert await link.call(("WAIT", 1, 5000)) >= 1
        await until(lambda: knows_all(router, cluster))
    async with opened(cluster, read_from="replica") as router:
        await until(lambda: all(link.state is LinkState.OPEN for link in router.primaries()))
        before = router.statistics()
        replies = await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        assert replies == [key.encode() for key in keys]
        statistics = router.statistics()
        assert statistics["redirections"] == 0
        assert len(statistics) == 6 + 2, "three primaries, three replicas"
        for link in router.primaries():
            assert statistics[link.name]["sent"] == before[link.name]["sent"]
        assert await router.call(("SET", keys[0], "new")) == b"OK"


# ----------------------------------------------------------------------- resharding


def move_slots(cluster: RealCluster, slots: list[int], source: RealServer, target: RealServer) -> None:
    """Slots without keys, with every primary told."""
    for slot in slots:
        begin_move(slot, source, target)
        finish_move(cluster, slot, target)


def begin_move(slot: int, source: RealServer, target: RealServer) -> None:
    target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source.execute("CLUSTER", "MYID"))
    source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target.execute("CLUSTER", "MYID"))


def finish_move(cluster: RealCluster, slot: int, target: RealServer) -> None:
    target_id = target.execute("CLUSTER", "MYID")
    primaries = [node for node in cluster.nodes if node.info("replication")["role"] == "master"]
    for node in [target, *(node for node in primaries if node is not target)]:
        node.execute("CLUSTER", "SETSLOT", slot, "NODE", target_id)


async def test_many_moved_slots_cost_one_refresh(cluster: RealCluster) -> None:
    observer = Observer()
    async with opened(cluster, observer, cluster_refresh_delay_ms=300) as router:
        source_name = router.link_for(("GET", "stampede")).name
        source = server_of(cluster, source_name)
        target = server_of(cluster, another_primary(router, source_name))
        slots = [
            slot
            for slot in range(16384)
            if router.link_for(("GET", key_for_slot(slot))).name == source_name
            and source.execute("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        ][:30]
        move_slots(cluster, slots, source, target)
        keys = [key_for_slot(slot) for slot in slots for _ in range(10)]
        await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        assert router.statistics()["redirections"] == 300
        await until(lambda: any(isinstance(event, TopologyChanged) for event in observer.events))
        await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        assert router.statistics()["redirections"] == 300
        assert router.statistics()["refreshes"] == 1
        assert [e.moved_slots for e in observer.events if isinstance(e, TopologyChanged)] == [30]
        move_slots(cluster, slots, target, source)


async def test_a_slot_moves_there_and_back_while_everybody_counts(cluster: RealCluster) -> None:
    keys = [f"{{reshard}}:{n}" for n in range(60)]
    slot = key_slot(b"reshard")
    async with opened(cluster) as router:
        names = [router.link_for(("GET", keys[0])).name]
        names.append(another_primary(router, names[0]))
        for link in router.primaries():
            await link.call(("FLUSHALL",))  # a slot moves with all its keys, or not at all
        await asyncio.gather(*(router.call(("SET", key, 0)) for key in keys))
        counts = Counter[str]()
        is_over = False

        async def count(key: str) -> None:
            while not is_over:
                assert await router.call(("INCR", key)) == counts[key] + 1, "a count was lost or doubled"
                counts[key] += 1

        async def read_pairs() -> None:
            """Keys that are on two nodes for a while: TRYAGAIN until they are together again."""
            while not is_over:
                values = await router.call(("MGET", keys[0], keys[-1]))
                assert len(values) == 2
                assert None not in values
                counts["pairs"] += 1

        async def goes_on(*names: str) -> None:
            before = counts.copy()
            await until(lambda: all(counts[name] > before[name] + 10 for name in names))

        async with asyncio.timeout(LIMIT_S):
            tasks = [asyncio.create_task(count(key)) for key in keys]
            tasks += [asyncio.create_task(read_pairs()) for _ in range(5)]
            await goes_on(*keys, "pairs")
            for source_name, target_name in (names, reversed(names)):
                source, target = server_of(cluster, source_name), server_of(cluster, target_name)
                before = router.statistics()
                await migrate(source, target, slot, keys[:30])
                await goes_on(*keys)
                after = router.statistics()
                assert after["redirections"] > before["redirections"] + 100, (
                    "half of them are to be asked for"
                )
                assert router.link_for(("GET", keys[0])).name == source_name, "ASK moves nothing"
                await migrate(source, target, slot, keys[30:])
                await asyncio.to_thread(finish_move, cluster, slot, target)
                await goes_on(*keys, "pairs")
                assert router.link_for(("GET", keys[0])).name == target_name
            is_over = True
            await asyncio.gather(*tasks)
        values = await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        assert [int(value) for value in values] == [counts[key] for key in keys]
        await until(lambda: router.statistics()["refreshes"])


async def migrate(source: RealServer, target: RealServer, slot: int, keys: list[str]) -> None:
    begin_move(slot, source, target)
    for first in range(0, len(keys), 5):
        words = ("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys[first : first + 5])
        await asyncio.to_thread(source.execute, *words)


# ------------------------------------------------------------------ failover, outage


async def test_a_primary_is_killed_and_replaced_under_load(cluster: RealCluster) -> None:
    observer = Observer()
    async with opened(cluster, observer, command_timeout_ms=LIMIT_S * 1000) as router:
        await until(lambda: knows_all(router, cluster))
        victim_name = router.link_for(("GET", "victim")).name
        victim = server_of(cluster, victim_name)
        keys = [f"failover:{n}" for n in range(60)]
        assert len({router.link_for(("GET", key)).name for key in keys}) == 3
        acknowledged, unknown = Counter[str](), Counter[str]()
        others: list[BaseException] = []
        is_over = False

        async def count(key: str) -> None:
            while not is_over:
                try:
                    await router.call(("INCR", key))
                except OutcomeUnknownError:
                    unknown[key] += 1
                except PenstockError as error:
                    others.append(error)
                else:
                    acknowledged[key] += 1

        async with asyncio.timeout(LIMIT_S):
            tasks = [asyncio.create_task(count(key)) for key in keys]
            await until(lambda: all(acknowledged[key] > 10 for key in keys))
            victim.kill()
            await until(lambda: router.link_for(("GET", "victim")).name != victim_name)
            before = acknowledged.copy()
            await until(lambda: all(acknowledged[key] > before[key] + 10 for key in keys))
            is_over = True
            await asyncio.gather(*tasks)
        assert not others, "nothing but an unknown outcome can come of it"
        assert all(unknown[key] <= 1 for key in keys), "one command a task was on its way"
        assert any(isinstance(event, TopologyChanged) for event in observer.events)
        values = await asyncio.gather(*(router.call(("GET", key)) for key in keys))
        for key, value in zip(keys, values, strict=True):
            # What the killed one had acknowledged and not yet replicated is gone; nothing runs twice.
            assert int(value) <= acknowledged[key] + unknown[key]
        assert victim_name not in [link.name for link in router.primaries()]
        await asyncio.to_thread(victim.restart)
        await until(lambda: victim.info("replication")["role"] == "slave")
        await until(lambda: knows_all(router, cluster))


async def test_a_primary_that_hangs_is_left_for_its_replacement(cluster: RealCluster) -> None:
    """Its connections stay open and silent: nothing but the other nodes tells that it is gone."""
    async with opened(cluster, close_timeout_ms=100) as router:
        await until(lambda: knows_all(router, cluster))
        victim_name = router.link_for(("GET", "victim")).name
        victim = server_of(cluster, victim_name)
        await router.call(("GET", "victim"))  # the connection stands, hence what comes next is sent
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            stuck = router.call(("INCR", "victim"))
            await until(lambda: router.link_for(("GET", "victim")).name != victim_name)
            async with asyncio.timeout(LIMIT_S):
                assert await router.call(("SET", "victim", 7)) == b"OK"
                with pytest.raises(OutcomeUnknownError):
                    await stuck
        finally:
            os.kill(victim.pid, signal.SIGCONT)
        await until(lambda: victim.info("replication")["role"] == "slave")
        assert await router.call(("GET", "victim")) == b"7"
        await until(lambda: knows_all(router, cluster))


async def test_everything_is_killed_and_comes_back(cluster: RealCluster) -> None:
    async with opened(cluster, command_timeout_ms=LIMIT_S * 1000) as router:
        keys = [f"outage:{n}" for n in range(30)]
        await asyncio.gather(*(router.call(("SET", key, 1)) for key in keys))
        written = [router.call(("INCR", key)) for key in keys]
        for node in cluster.nodes:
            node.kill()
        await until(lambda: not any(link.state is LinkState.OPEN for link in router.primaries()))
        waiting = [router.call(("INCR", key)) for key in keys]
        waiting += [router.call(("PING",)) for _ in range(3)]
        gone = router.call(("INCR", keys[0]))
        await until(lambda: router.statistics()["refreshes"] >= 3)
        assert not any(future.done() for future in waiting)
        gone.cancel()
        for node in cluster.nodes:
            await asyncio.to_thread(node.restart)
        async with asyncio.timeout(LIMIT_S):
            outcomes = await asyncio.gather(*written, return_exceptions=True)
            assert all(each == 2 or isinstance(each, OutcomeUnknownError) for each in outcomes)
            # Nothing is on disk: they count from nothing.
            assert await asyncio.gather(*waiting) == [1] * 30 + [b"PONG"] * 3


async def test_the_cluster_is_whole_again(cluster: RealCluster) -> None:
    """What the tests before have harmed is there for whoever comes next, and for a new client."""
    async with opened(cluster) as router:
        await until(lambda: knows_all(router, cluster))
        assert len(router.primaries()) == 3
        assert await router.call(("SET", "whole", 1)) == b"OK"
