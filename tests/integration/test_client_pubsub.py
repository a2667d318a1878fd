"""PUB/SUB on real servers, in both protocols: order, sharing, losses, slow consumers, slots that move."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.config import open_settings
from penstock.client.dialing import Dialer
from penstock.client.events import Event
from penstock.client.policies import Constant
from penstock.client.pubsub import (
    Dropped,
    Gap,
    Item,
    KeyspaceEvent,
    Message,
    PubSub,
    Subscriber,
    parse_keyspace,
)
from penstock.client.router.base import Router
from penstock.client.router.cluster import ClusterRouter
from penstock.client.router.standalone import StandaloneRouter
from penstock.errors import BackpressureError, ClosedError, CommandError
from penstock.protocol.slots import key_slot
from penstock.testing.clusters import RealCluster, start_cluster
from penstock.testing.servers import RealServer, ServerUnavailableError, find_server
from tests.integration.proxy import Proxy
from tests.places import until

#: Longer than anything here takes on a busy machine; what is not done by then hangs.
PATIENCE_S = 30.0


class Client:
    """A router, and PUB/SUB beside it."""

    def __init__(self, url: str, **overrides: Any) -> None:
        target, settings = open_settings(url, **{"reconnect": Constant(base_ms=2)} | overrides)
        dialer = Dialer(target, settings)
        self.events: list[Event] = []
        self.router: Router
        if target.kind == "cluster":
            self.router = ClusterRouter(dialer, target.addresses, settings, self)
        else:
            self.router = StandaloneRouter(dialer, target.addresses[0], settings, self)
        self.pubsub = PubSub(self.router, settings, self.events.append)

    def on_push(self, link: object, push: object) -> None: ...

    def on_event(self, event: object) -> None: ...

    async def do(self, *arguments: Any) -> Any:
        return await self.router.call(arguments)

    async def close(self) -> None:
        await self.pubsub.close()
        await self.router.close()


@asynccontextmanager
async def opened(url: str, **overrides: Any) -> AsyncIterator[Client]:
    client = Client(url, **overrides)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await client.router.open()
            yield client
    finally:
        await client.close()
    tasks = [task for task in asyncio.all_tasks() if "penstock/client" in repr(task.get_coro())]
    assert not tasks, f"left behind: {tasks}"


@pytest.fixture(params=[2, 3])
async def client(request: pytest.FixtureRequest, real_server: RealServer) -> AsyncIterator[Client]:
    async with opened(real_server.url, protocol=request.param) as client:
        yield client


async def take(subscriber: Subscriber, count: int) -> list[Item]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(subscriber) for _ in range(count)]


async def listeners(client: Client, *channels: str) -> list[int]:
    """How many connections have each of the channels."""
    return (await client.do("PUBSUB", "NUMSUB", *channels))[1::2]


# ------------------------------------------------------------------------ messages


async def test_messages_in_order(client: Client) -> None:
    async with client.pubsub.subscriber() as sub:
        await sub.subscribe("news")
        await sub.psubscribe("room.*")
        await sub.ssubscribe("shard")
        for number in range(20):
            text = b"%d" % number
            assert await client.do("PUBLISH", "news", text) == 1
            assert await client.do("PUBLISH", "room.7", text) == 1
            assert await client.do("SPUBLISH", "shard", text) == 1
        expected: list[Item] = []
        for number in range(20):
            text = b"%d" % number
            expected.append(Message(b"news", text))
            expected.append(Message(b"room.7", text, b"room.*", "pmessage"))
            expected.append(Message(b"shard", text, None, "smessage"))
        assert await take(sub, 60) == expected
        assert await sub.get(timeout_ms=0) is None


async def test_unsubscribed_from_all_nothing_leaks_and_commands_pair(client: Client) -> None:
    async with client.pubsub.subscriber() as sub, client.pubsub.subscriber() as other:
        await sub.subscribe("a", "b")
        await sub.psubscribe("p*")
        await sub.ssubscribe("s", "t")
        await sub.unsubscribe()
        await sub.punsubscribe()
        await sub.sunsubscribe()
        assert await listeners(client, "a", "b") == [0, 0]
        assert await client.do("PUBSUB", "NUMPAT") == 0
        assert await client.do("PUBSUB", "SHARDNUMSUB", "s", "t") == [b"s", 0, b"t", 0]
        for channel in ("a", "b", "p1"):
            assert await client.do("PUBLISH", channel, "leak") == 0
        # On the connection that had the subscriptions, too.
        await other.subscribe("c")
        await sub.subscribe("c")
        await client.do("PUBLISH", "c", "heard")
        assert await take(sub, 1) == [Message(b"c", b"heard")]
        assert await client.do("ECHO", "mine") == b"mine"


async def test_two_subscribers_are_one_connection_and_one_subscription(client: Client) -> None:
    async with client.pubsub.subscriber() as one:
        async with client.pubsub.subscriber() as two:
            await one.subscribe("a")
            await client.do("PUBLISH", "a", "before")
            await two.subscribe("a", "b")
            assert await listeners(client, "a", "b") == [1, 1]
            await client.do("PUBLISH", "a", "after")
            assert await take(one, 2) == [Message(b"a", b"before"), Message(b"a", b"after")]
            assert await take(two, 1) == [Message(b"a", b"after")]
        await until(lambda: _equals(listeners(client, "a", "b"), [1, 0]))
        await client.do("PUBLISH", "a", "alone")
        assert await take(one, 1) == [Message(b"a", b"alone")]
    await until(lambda: _equals(listeners(client, "a"), [0]))


async def _equals(coroutine: Any, value: Any) -> bool:
    return bool(await coroutine == value)


async def test_who_comes_later_never_sees_what_was_published_before(client: Client) -> None:
    """However many others have the channel, and however much is still on its way."""
    async with client.pubsub.subscriber() as first:
        await first.subscribe("a")
        for number in range(50):
            published = [client.router.call(("PUBLISH", "a", f"{number}:{each}")) for each in range(20)]
            await asyncio.gather(*published)
            async with client.pubsub.subscriber() as late:
                await late.subscribe("a")
                await client.do("PUBLISH", "a", "own")
                assert await take(late, 1) == [Message(b"a", b"own")]
        assert first.waiting == 50 * 21


async def test_idle_connections_are_pinged_while_subscribed(real_server: RealServer) -> None:
    """In RESP2 the answer is an array, like messages."""
    for protocol in (2, 3):
        async with (
            opened(real_server.url, protocol=protocol, idle_ping_ms=5) as client,
            client.pubsub.subscriber() as sub,
        ):
            await sub.subscribe("a")
            link = next(iter(client.pubsub.statistics()["servers"]))
            await until(lambda: client.pubsub.statistics()["servers"][link]["sent"] > 15)  # noqa: B023
            await client.do("PUBLISH", "a", "x")
            assert await take(sub, 1) == [Message(b"a", b"x")]
            assert client.pubsub.statistics()["servers"][link]["reconnections"] == 0


async def test_text_and_names_that_are_no_text(real_server: RealServer) -> None:
    async with opened(real_server.url, decode_responses=True) as client, client.pubsub.subscriber() as sub:
        await sub.subscribe("café", b"\xff")
        await sub.psubscribe("b*")
        for channel in ("café", b"\xff", "bar"):
            await client.do("PUBLISH", channel, "é")
        assert await take(sub, 3) == [
            Message("café", "é"),
            Message("\udcff", "é"),
            Message("bar", "é", "b*", "pmessage"),
        ]
        await sub.unsubscribe("café".encode(), "\udcff")
        assert sub.channels == frozenset()


async def test_a_user_without_the_right(real_server: RealServer) -> None:
    real_server.execute("ACL", "SETUSER", "reader", "on", ">pass", "+@all", "~*", "resetchannels", "&open*")
    url = real_server.url.replace("://", "://reader:pass@")
    try:
        async with opened(url) as client, client.pubsub.subscriber() as sub:
            await sub.subscribe("open1")
            with pytest.raises(CommandError, match="NOPERM"):
                await sub.subscribe("open2", "secret")
            assert sub.channels == {b"open1"}
            await until(lambda: _equals(listeners(client, "open1", "open2", "secret"), [1, 0, 0]))
    finally:
        real_server.execute("ACL", "DELUSER", "reader")


async def test_keyspace_notifications(valkey_server: RealServer) -> None:
    valkey_server.execute("CONFIG", "SET", "notify-keyspace-events", "KEA")
    try:
        async with opened(valkey_server.url) as client, client.pubsub.subscriber() as sub:
            await sub.psubscribe("__key*@0__:*")
            await client.do("SET", "k", "v")
            events = [parse_keyspace(item) for item in await take(sub, 2)]
            assert events == [KeyspaceEvent(0, b"k", "set")] * 2
    finally:
        valkey_server.execute("CONFIG", "SET", "notify-keyspace-events", "")


# -------------------------------------------------------------------- reconnection


@pytest.mark.parametrize("protocol", [2, 3])
async def test_after_a_cut_there_is_a_gap_and_all_is_back(real_server: RealServer, protocol: int) -> None:
    async with (
        Proxy(real_server.port) as proxy,
        opened(real_server.url) as publisher,
        opened(f"redis://127.0.0.1:{proxy.port}", protocol=protocol) as client,
        client.pubsub.subscriber() as one,
        client.pubsub.subscriber() as two,
    ):
        await one.subscribe("a")
        await two.subscribe("a", "b")
        await two.psubscribe("p*")
        await two.ssubscribe("s")
        for round_number in range(5):
            await publisher.do("PUBLISH", "a", f"before {round_number}")
            assert (await take(one, 1))[0] == Message(b"a", b"before %d" % round_number)
            proxy.cut()
            (gap,) = await take(one, 1)
            assert isinstance(gap, Gap)
            assert gap.channels == (b"a",)
            # One gap: everything that the other has is back as well.
            before, gap = await take(two, 2)
            assert before == Message(b"a", b"before %d" % round_number)
            assert isinstance(gap, Gap)
            assert set(gap.channels) == {b"a", b"b", b"p*", b"s"}
            for command, channel in (("PUBLISH", "b"), ("PUBLISH", "p1"), ("SPUBLISH", "s")):
                assert await publisher.do(command, channel, "x") == 1
            assert [item.channel for item in await take(two, 3) if isinstance(item, Message)] == [
                b"b",
                b"p1",
                b"s",
            ]


async def test_a_half_open_connection_is_found_out(valkey_server: RealServer) -> None:
    async with (
        Proxy(valkey_server.port) as proxy,
        opened(valkey_server.url) as publisher,
        opened(f"redis://127.0.0.1:{proxy.port}", idle_ping_ms=20, unresponsive_timeout_ms=700) as client,
        client.pubsub.subscriber() as sub,
    ):
        await sub.subscribe("a")
        for passage in proxy.passages:
            passage.is_swallowing = True
        await publisher.do("PUBLISH", "a", "into the void")
        assert isinstance((await take(sub, 1))[0], Gap)
        await publisher.do("PUBLISH", "a", "heard")
        assert await take(sub, 1) == [Message(b"a", b"heard")]


async def test_cuts_at_any_moment_lose_nothing_without_a_gap(valkey_server: RealServer) -> None:
    """Numbers rise by one, or there is a gap in between; and whoever subscribes meanwhile gets there."""
    chance = random.Random(7)
    async with (
        Proxy(valkey_server.port) as proxy,
        opened(valkey_server.url) as publisher,
        opened(f"redis://127.0.0.1:{proxy.port}") as client,
        client.pubsub.subscriber() as sub,
        client.pubsub.subscriber() as coming_and_going,
    ):
        await sub.subscribe("a")
        is_over = False

        async def publish() -> int:
            number = 0
            while not is_over:
                number += 1
                await publisher.do("PUBLISH", "a", str(number))
            await until(lambda: _equals(publisher.do("PUBLISH", "a", "end"), 1))
            return number

        async def come_and_go() -> None:
            while not is_over:
                await coming_and_going.subscribe("a", "b")
                await coming_and_going.unsubscribe(chance.choice(["a", "b"]))

        tasks = [asyncio.create_task(publish()), asyncio.create_task(come_and_go())]
        for _ in range(30):
            await asyncio.sleep(chance.random() * 0.02)
            proxy.cut()
        is_over = True
        last, gaps, is_gap = 0, 0, False
        async with asyncio.timeout(PATIENCE_S):
            async for item in sub:
                if isinstance(item, Gap):
                    gaps, is_gap = gaps + 1, True
                    continue
                assert isinstance(item, Message)
                if item.data == b"end":
                    break
                number = int(item.data)
                assert number == last + 1 or (is_gap and number > last)
                last, is_gap = number, False
        await asyncio.gather(*tasks)
        assert gaps
        assert last > 50


# ------------------------------------------------------------------ slow consumers


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "close"])
async def test_a_slow_consumer_costs_the_others_nothing(valkey_server: RealServer, overflow: str) -> None:
    async with (
        opened(valkey_server.url, pubsub_queue_len=100, pubsub_overflow=overflow) as client,
        client.pubsub.subscriber() as slow,
        client.pubsub.subscriber() as quick,
    ):
        await slow.subscribe("a")
        await quick.subscribe("a")
        sent = 0
        for _ in range(20):
            await asyncio.gather(*(client.do("PUBLISH", "a", str(sent + each)) for each in range(50)))
            sent += 50
            assert len([item for item in await take(quick, 50) if isinstance(item, Message)]) == 50
        assert slow.waiting == 100
        numbers = [Message(b"a", b"%d" % number) for number in range(sent)]
        if overflow == "drop_oldest":
            assert await take(slow, 101) == [Dropped(sent - 100), *numbers[-100:]]
        elif overflow == "drop_newest":
            assert await take(slow, 101) == [*numbers[:100], Dropped(sent - 100)]
        else:
            assert await take(slow, 100) == numbers[:100]
            with pytest.raises(BackpressureError):
                await anext(slow)


async def test_a_flood_does_not_stop_the_loop(valkey_server: RealServer) -> None:
    async with opened(valkey_server.url, pubsub_queue_len=500) as client, client.pubsub.subscriber() as sub:
        await sub.subscribe("a")
        with_consumer = asyncio.create_task(_consume(sub))
        flood = [client.router.call(("PUBLISH", "a", "x" * 100)) for _ in range(9_000)]
        loop = asyncio.get_running_loop()
        longest_s = 0.0
        while not all(future.done() for future in flood):
            begun_s = loop.time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, loop.time() - begun_s)
        await client.do("PUBLISH", "a", "end")
        seen, dropped = await with_consumer
        assert seen + dropped == 9_000
        assert longest_s < 1.0


async def _consume(subscriber: Subscriber) -> tuple[int, int]:
    seen = dropped = 0
    async for item in subscriber:
        if isinstance(item, Message):
            if item.data == b"end":
                break
            seen += 1
        elif isinstance(item, Dropped):
            dropped += item.count
    return seen, dropped


# ------------------------------------------------------------- cancellation, the end


async def test_cancelled_at_any_moment(client: Client) -> None:
    chance = random.Random(3)
    async with client.pubsub.subscriber() as sub, client.pubsub.subscriber() as other:
        await other.subscribe("kept")
        for _ in range(100):
            tasks = [
                asyncio.create_task(sub.subscribe("a", "kept")),
                asyncio.create_task(sub.get()),
                asyncio.create_task(sub.unsubscribe("a")),
                asyncio.create_task(sub.psubscribe("p*")),
            ]
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            for task in chance.sample(tasks, 3):
                task.cancel()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await sub.subscribe("a")
        await sub.unsubscribe("kept")
        await sub.punsubscribe()
        await until(lambda: _equals(listeners(client, "a", "kept"), [1, 1]))
        await client.do("PUBLISH", "a", "x")
        assert (await take(sub, 1)) == [Message(b"a", b"x")]
        await client.do("PUBLISH", "kept", "y")
        assert (await take(other, 1)) == [Message(b"kept", b"y")]
        assert await client.do("PUBSUB", "NUMPAT") == 0


async def test_close_ends_all_who_wait_and_the_connection(client: Client) -> None:
    sub = client.pubsub.subscriber()
    await sub.subscribe("a")
    iterating = asyncio.create_task(_consume(sub))
    getting = asyncio.create_task(sub.get())
    await asyncio.sleep(0)
    await sub.close()
    assert await iterating == (0, 0)
    with pytest.raises(ClosedError):
        await getting
    assert client.pubsub.statistics()["servers"] == {}
    await until(lambda: _equals(listeners(client, "a"), [0]))


# ----------------------------------------------------------------- shards of a cluster


@pytest.fixture(scope="module", params=["valkey", "redis"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    try:
        binary = find_server(request.param)
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    with start_cluster(3, 0, binary=binary) as running:
        yield running


def cluster_url(cluster: RealCluster) -> str:
    return cluster.url.replace("redis://", "redis-cluster://")


def owner_according_to(node: RealServer, channel: str) -> int:
    """The port of the owner of its slot, as one node sees it."""
    try:
        node.execute("GET", channel)
    except CommandError as error:
        return int(str(error).rpartition(":")[2])
    return node.port


def migrate(cluster: RealCluster, channel: str) -> RealServer:
    """Move the slot of a channel to another node, live; answers the new owner, once all agree on it."""
    slot = key_slot(channel.encode())
    old = next(node for node in cluster.nodes if owner_according_to(node, channel) == node.port)
    new = next(node for node in cluster.nodes if node is not old)
    old_id, new_id = old.execute("CLUSTER", "MYID"), new.execute("CLUSTER", "MYID")
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        # The others believe the importing node, which takes a higher epoch. Now and then old news on the
        # bus make it believe otherwise itself, for good: then once more.
        if owner_according_to(new, channel) != new.port:
            new.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
        for node in (new, old):
            node.execute("CLUSTER", "SETSLOT", slot, "NODE", new_id)
        for _ in range(100):
            if {owner_according_to(node, channel) for node in cluster.nodes} == {new.port}:
                return new
            time.sleep(0.002)
    raise AssertionError(f"the slot of {channel} does not move")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 3])
async def test_shard_channels_of_a_cluster(cluster: RealCluster, protocol: int) -> None:
    channels = [f"{{{number}}}ch" for number in range(12)]
    async with (
        opened(cluster_url(cluster), protocol=protocol) as client,
        client.pubsub.subscriber() as sub,
        client.pubsub.subscriber() as other,
    ):
        await sub.ssubscribe(*channels)
        await sub.subscribe("plain")
        await other.ssubscribe(channels[0])
        assert len(client.pubsub.statistics()["servers"]) == 3
        for number in range(20):
            for channel in channels:
                assert await client.do("SPUBLISH", channel, str(number)) == 1
        by_channel: dict[Any, list[Any]] = {}
        for item in await take(sub, 20 * len(channels)):
            assert isinstance(item, Message)
            assert item.kind == "smessage"
            by_channel.setdefault(item.channel, []).append(item.data)
        numbers = [b"%d" % number for number in range(20)]
        assert by_channel == {channel.encode(): numbers for channel in channels}
        assert [item.data for item in await take(other, 20) if isinstance(item, Message)] == numbers
        # Channels that are not of a shard are heard wherever they are published.
        for node in cluster.nodes:
            await asyncio.to_thread(node.execute, "PUBLISH", "plain", str(node.port))
        heard = {item.data for item in await take(sub, 3) if isinstance(item, Message)}
        assert heard == {str(node.port).encode() for node in cluster.nodes}
        await sub.sunsubscribe()
        assert await client.do("SPUBLISH", channels[1], "leak") == 0
        assert await client.do("SPUBLISH", channels[0], "heard") == 1


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_slot_that_moves_takes_its_channels_along(cluster: RealCluster, protocol: int) -> None:
    async with opened(cluster_url(cluster), protocol=protocol) as client, client.pubsub.subscriber() as sub:
        await sub.ssubscribe("{staying}")
        for round_number in range(4):
            moving = [f"{{moving{protocol}{round_number}}}{number}" for number in range(2)]
            await sub.ssubscribe(*moving)
            for channel in moving:
                assert await client.do("SPUBLISH", channel, "before") == 1
            assert [item.data for item in await take(sub, 2) if isinstance(item, Message)] == [b"before"] * 2
            owner = await asyncio.to_thread(migrate, cluster, moving[0])
            gaps: list[Gap] = []
            while {name for gap in gaps for name in gap.channels} != {channel.encode() for channel in moving}:
                (gap,) = await take(sub, 1)
                assert isinstance(gap, Gap)
                gaps.append(gap)
            assert gaps[-1].server == f"127.0.0.1:{owner.port}"
            for channel in (*moving, "{staying}"):
                await until(lambda: _equals(client.do("SPUBLISH", channel, "after"), 1))  # noqa: B023
            left = {channel.encode() for channel in (*moving, "{staying}")}
            while left:
                (item,) = await take(sub, 1)
                if isinstance(item, Message):
                    left.remove(bytes(item.channel))  # type: ignore[arg-type]
            await sub.sunsubscribe(*moving)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_slot_that_moves_while_it_is_subscribed(cluster: RealCluster, protocol: int) -> None:
    """Comings and goings during migrations: in the end everything wanted is heard."""
    chance = random.Random(5)
    channels = [f"{{busy}}{number}" for number in range(5)]
    async with opened(cluster_url(cluster), protocol=protocol) as client, client.pubsub.subscriber() as sub:
        is_over = False

        async def come_and_go() -> None:
            while not is_over:
                await sub.ssubscribe(*chance.sample(channels, 2))
                await sub.sunsubscribe(*chance.sample(channels, 2))

        task = asyncio.create_task(come_and_go())
        for _ in range(10):
            await asyncio.to_thread(migrate, cluster, "{busy}")
        is_over = True
        await task
        await sub.ssubscribe(*channels)
        await until(lambda: _equals(client.do("SPUBLISH", channels[0], "early"), 1))
        for channel in channels:
            await until(lambda: _equals(client.do("SPUBLISH", channel, "heard"), 1))  # noqa: B023
        left = {channel.encode() for channel in channels}
        async with asyncio.timeout(PATIENCE_S):
            async for message in sub.messages():
                if message.data == b"heard":
                    left.discard(bytes(message.channel))  # type: ignore[arg-type]
                if not left:
                    break
