"""Messages: in order, to whoever wants them, and to nobody else; commands go on beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.pubsub import Message, Subscriber
from penstock.errors import ClosedError
from tests.client.conftest import CLUSTERS, EMBEDDED, OpenClient, Place, name_of
from tests.integration.peers import Peer

#: By kind of message: how to subscribe, publish and unsubscribe.
WAYS = {
    "message": ("subscribe", "PUBLISH", "unsubscribe"),
    "pmessage": ("psubscribe", "PUBLISH", "punsubscribe"),
    "smessage": ("ssubscribe", "SPUBLISH", "sunsubscribe"),
}
LIMIT_MS = 10_000


async def take(subscriber: Subscriber, count: int) -> list[Message]:
    items = [await subscriber.get(timeout_ms=LIMIT_MS) for _ in range(count)]
    assert all(isinstance(item, Message) for item in items), items
    return items  # type: ignore[return-value]


@pytest.mark.parametrize("kind", WAYS)
async def test_messages_come_in_order(client: penstock.Client, kind: str) -> None:
    subscribe, publish, unsubscribe = WAYS[kind]
    pattern = "n*" if kind == "pmessage" else None
    async with client.pubsub() as subscriber:
        await getattr(subscriber, subscribe)(pattern or "news")
        for number in range(20):
            await client.execute(publish, "news", number)
        messages = await take(subscriber, 20)
        assert [message.data for message in messages] == [b"%d" % number for number in range(20)]
        assert {message.channel for message in messages} == {b"news"}
        assert {message.pattern for message in messages} == {pattern and pattern.encode()}
        assert {message.kind for message in messages} == {kind}
        await getattr(subscriber, unsubscribe)()
        await client.execute(publish, "news", "nobody wants this")
        assert await client.execute("ECHO", "pairs") == b"pairs"
        assert await subscriber.get(timeout_ms=0) is None


async def test_all_ways_at_once_and_none_afterwards(client: penstock.Client) -> None:
    async with client.pubsub() as subscriber, client.pubsub() as witness:
        await subscriber.subscribe("a", "b")
        await subscriber.psubscribe("a*", "?")
        await subscriber.ssubscribe("a")
        assert subscriber.channels == {b"a", b"b"}
        assert subscriber.patterns == {b"a*", b"?"}
        assert subscriber.shard_channels == {b"a"}
        await client.publish("a", "plain")
        await client.spublish("a", "shard")
        came = sorted((message.pattern or b"", message.data) for message in await take(subscriber, 4))
        assert came == [(b"", b"plain"), (b"", b"shard"), (b"?", b"plain"), (b"a*", b"plain")]
        await witness.subscribe("a")
        await subscriber.unsubscribe()
        await subscriber.punsubscribe()
        await subscriber.sunsubscribe()
        assert not subscriber.channels | subscriber.patterns | subscriber.shard_channels
        for number in range(50):
            await client.publish("a", number)
            await client.spublish("a", number)
            assert await client.execute("PING") == b"PONG"
        assert len(await take(witness, 50)) == 50
        assert await subscriber.get(timeout_ms=0) is None
        assert subscriber.waiting == 0


async def test_who_listens(client: penstock.Client, open_client: OpenClient, place: Place) -> None:
    other = await open_client()
    async with client.pubsub() as one, client.pubsub() as two, other.pubsub() as three:
        await one.subscribe("{c}a", "{c}b")
        await two.subscribe("{c}a")
        await three.subscribe("{c}a")
        await one.psubscribe("p*")
        await three.psubscribe("p*", "q*")
        await one.ssubscribe("{c}s")
        assert await _sum(client, "NUMSUB", "{c}a") == 2  # two subscribers of a client are one
        assert await _sum(client, "NUMSUB", "{c}none") == 0
        assert await _union(client, "CHANNELS") == {b"{c}a", b"{c}b"}
        assert await _union(client, "CHANNELS", "*b") == {b"{c}b"}
        if not place.is_cluster:  # each node counts its own
            assert await client.pubsub_numpat() == 2
            assert await client.pubsub_channels("*b") == [b"{c}b"]
            assert await client.pubsub_numsub("{c}a", "x") == {b"{c}a": 2, b"x": 0}
        shard = await client.execute("PUBSUB", "SHARDCHANNELS", route=penstock.ByKey("{c}s"))
        assert shard == [b"{c}s"]
        count = await client.execute("PUBSUB", "SHARDNUMSUB", "{c}s", route=penstock.ByKey("{c}s"))
        assert _mapping(count) == {b"{c}s": 1}
    # The server hears of those who went on other connections than the one that is asked.
    async with asyncio.timeout(10):
        while await _union(client, "CHANNELS"):
            await asyncio.sleep(0.01)


async def _union(client: penstock.Client, *words: str) -> set[bytes]:
    replies = await client.execute("PUBSUB", *words, route=penstock.ToAll())
    return {name for reply in replies.values() for name in reply}


async def _sum(client: penstock.Client, *words: str) -> int:
    replies = await client.execute("PUBSUB", *words, route=penstock.ToAll())
    return sum(sum(_mapping(reply).values()) for reply in replies.values())


def _mapping(reply: object) -> dict[bytes, int]:
    if isinstance(reply, dict):
        return reply
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))


async def test_commands_of_a_client_with_subscribers(client: penstock.Client) -> None:
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("news")
        await subscriber.psubscribe("*")

        async def work(number: int) -> bool:
            await client.publish("news", number)
            return await client.execute("ECHO", number) == b"%d" % number

        assert all(await asyncio.gather(*(work(number) for number in range(200))))
        assert await client.ping() == b"PONG"
        tx = client.transaction()
        tx.incr("n")
        tx.incr("n")
        assert await tx.all() == [1, 2]
        assert await client.blpop("none", timeout_s=0.01) is None
        messages = await take(subscriber, 400)
        by_pattern = [message.pattern is not None for message in messages]
        assert sum(by_pattern) == 200
        assert {message.data for message in messages} == {b"%d" % number for number in range(200)}


async def test_several_subscribers_of_one_client(client: penstock.Client) -> None:
    async with client.pubsub() as one, client.pubsub() as two:
        await asyncio.gather(one.subscribe("a", "b"), two.subscribe("b", "c"))
        for channel in "abc":
            await client.publish(channel, channel)
        assert [message.data for message in await take(one, 2)] == [b"a", b"b"]
        assert [message.data for message in await take(two, 2)] == [b"b", b"c"]
        await one.close()
        await client.publish("b", "again")
        assert [message.data for message in await take(two, 1)] == [b"again"]
        with pytest.raises(ClosedError):
            await one.get()
        assert [item async for item in one] == []


async def test_messages_of_a_transaction_and_of_a_script(client: penstock.Client) -> None:
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("news")
        tx = client.transaction()
        tx.set("{m}k", "v")
        tx.publish("news", "1")
        tx.publish("news", "2")
        await tx.all()
        await client.script("return redis.call('PUBLISH', 'news', ARGV[1])")(keys=["{m}k"], args=["3"])
        assert [message.data for message in await take(subscriber, 3)] == [b"1", b"2", b"3"]


async def test_subscribed_before_anything_else(open_client: OpenClient) -> None:
    client = open_client()
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("a")
        await subscriber.ssubscribe("s")
        await client.publish("a", "1")
        await client.spublish("s", "2")
        assert {message.data for message in await take(subscriber, 2)} == {b"1", b"2"}


@CLUSTERS
@pytest.mark.usefixtures("replicas_are_known")
async def test_messages_cross_the_nodes(client: penstock.Client, place: Place) -> None:
    shard_channels = [f"shard-{number}" for number in range(12)]
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("news")
        for node in place.nodes:
            await client.execute("PUBLISH", "news", node.port, route=penstock.ToServer(name_of(node)))
        assert {message.data for message in await take(subscriber, 6)} == {
            b"%d" % node.port for node in place.nodes
        }
        await subscriber.unsubscribe()
        await subscriber.ssubscribe(*shard_channels)
        for channel in shard_channels:
            assert await client.spublish(channel, channel) == 1
        messages = await take(subscriber, len(shard_channels))
        assert {message.channel for message in messages} == {channel.encode() for channel in shard_channels}
        assert all(message.channel == message.data for message in messages)


# ------------------------------------------------------------------- two processes


@pytest.fixture
def peer(place: Place) -> Iterator[Callable[[], Peer]]:
    peers: list[Peer] = []

    def start() -> Peer:
        peers.append(Peer(Path(place.url)))
        return peers[-1]

    yield start
    for one in peers:
        one.kill()


@EMBEDDED
async def test_messages_between_processes(client: penstock.Client, peer: Callable[[], Peer]) -> None:
    other = await asyncio.to_thread(peer)
    async with client.pubsub() as subscriber:
        await subscriber.subscribe("here")
        await subscriber.psubscribe("h?re")
        for number in range(20):
            assert await asyncio.to_thread(other.do, "PUBLISH", "here", str(number)) == 2
        messages = await take(subscriber, 40)
        for pattern in (None, b"h?re"):
            data = [message.data for message in messages if message.pattern == pattern]
            assert data == [b"%d" % number for number in range(20)]
    await asyncio.to_thread(other.do, "SUBSCRIBE", "there", session="listening")
    assert await client.publish("there", "hello") == 1
    confirmed = await asyncio.to_thread(other.do, "wait", "10", session="listening")
    pushed = await asyncio.to_thread(other.do, "wait", "10", session="listening")
    assert [confirmed[0], pushed] == [b"subscribe", [b"message", b"there", b"hello"]]
