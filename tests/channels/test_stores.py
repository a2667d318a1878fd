"""Several stores as one: the suite that every keeper of channels passes, on pairs and triples of stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.channels.stores import ChannelStores
from penstock.errors import ReceiptError, SubscriptionNotFoundError
from penstock.testing.servers import RealServer
from tests.channels.stores.support import ALICE, CHANNEL, Room, ids, numbered, opened, three_servers
from tests.places import until


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    yield from three_servers()


@pytest.fixture(params=["embedded-1of2", "embedded-2of2", "mixed-1of2", "mixed-2of2", "valkey-2of3"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChannelStores]:
    kind, _, counts = request.param.partition("-")
    embedded = [f"embedded:{tmp_path / name}?durability=relaxed" for name in ("one.pen", "two.pen")]
    if kind == "embedded":
        urls = dict(zip("ab", embedded, strict=True))
    elif kind == "mixed":
        urls = {"a": embedded[0], "b": request.getfixturevalue("real_servers").get("valkey").url}
    else:
        servers = request.getfixturevalue("servers")
        for server in servers:
            server.reset()
        urls = dict(zip("abc", (server.url for server in servers), strict=True))
    async with opened(urls, int(counts[0])) as stores:
        yield stores


@pytest.fixture
def room(stores: ChannelStores) -> Room:
    return Room(stores)


class TestSuite:
    """The cases that any keeper of channels passes, by meaning."""

    async def test_core(self, stores: ChannelStores):
        assert await stores.probe() == dict.fromkeys(stores.members.names, "ok")
        assert stores.waiting == 0
        assert repr(stores).startswith("<ChannelStores a closed, b closed")

    async def test_pubsub_scenario(self, room: Room):
        assert await room.create()
        assert not await room.create()
        assert await room.fetch() == ((), False, None)
        assert await room.fetch(timeout_ms=100) == ((), False, None)
        assert await room.publish() == []
        assert await room.publish(*numbered(1, 16)) == [True] * 16
        first = await room.fetch(limit=15)
        assert ids(first) == [f"m{n}" for n in range(1, 16)]
        assert first.more
        everything = await room.fetch(limit=17)
        assert ids(everything) == [f"m{n}" for n in range(1, 17)]
        assert not everything.more
        assert await room.ack(everything)
        assert not await room.ack(everything)
        assert await room.fetch() == ((), False, None)
        assert await room.publish(*numbered(1, 16)) == [False] * 16
        assert await room.fetch() == ((), False, None)
        await room.say("new")
        assert ids(await room.fetch()) == ["new"]
        assert not await room.ack(first)
        assert ids(await room.fetch()) == ["new"]
        assert await room.remove()
        assert not await room.remove()

    async def test_long_polling(self, room: Room, stores: ChannelStores):
        await room.create()
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: all(member.store.waiting for member in stores.members))
        await room.publish(*numbered(1, 16))
        batch = await asyncio.wait_for(poll, 10)
        assert ids(batch) == [f"m{n}" for n in range(1, 17)]
        assert not batch.more
        # It came from everywhere, so that it is acknowledged everywhere.
        assert await room.ack(batch)
        for member in stores.members:
            assert await Room(member.store).unread() == 0

    async def test_long_polling_cancelled(self, room: Room, stores: ChannelStores):
        await room.create()
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: all(member.store.waiting for member in stores.members))
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert stores.waiting == 0
        assert [member.store.waiting for member in stores.members] == [0] * len(stores.members)

    async def test_message_age(self, room: Room):
        await room.say("before")
        await room.create()
        await room.say("acked")
        early = await room.fetch()
        await room.say("fetched")
        await room.fetch()
        await room.ack(early)
        await room.say("unfetched")
        assert await room.are_old("before", "acked", "fetched", "unfetched", "unsent") == [
            True, True, False, False, False,
        ]  # fmt: skip
        assert ids(await room.fetch()) == ["fetched", "unfetched"]

    async def test_many_queued_messages(self, room: Room):
        await room.create()
        await room.publish(*numbered(1, 32))
        for first, more in ((1, True), (17, False)):
            batch = await room.fetch(limit=16)
            assert ids(batch) == [f"m{n}" for n in range(first, first + 16)]
            assert batch.more is more
            await room.ack(batch)
        assert ids(await room.fetch()) == []

    async def test_no_such_subscriber(self, room: Room):
        await room.create()
        await room.say("m")
        receipt = (await room.fetch()).receipt
        assert receipt is not None
        with pytest.raises(SubscriptionNotFoundError):
            await room.fetch(timeout_ms=60_000, subscriber="bob")
        with pytest.raises(ReceiptError):
            await room.ack(receipt, subscriber="bob")
        await room.remove()
        with pytest.raises(SubscriptionNotFoundError):
            await room.ack(receipt)
        with pytest.raises(SubscriptionNotFoundError):
            await room.are_old("m")
        with pytest.raises(SubscriptionNotFoundError):
            await room.stores.backlog(CHANNEL, ALICE, limit=1)


async def test_removed_while_it_waits(room: Room, stores: ChannelStores):
    await room.create()
    poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
    await until(lambda: all(member.store.waiting for member in stores.members))
    await room.remove()
    with pytest.raises(SubscriptionNotFoundError):
        await asyncio.wait_for(poll, 10)


async def test_release_ends_every_wait(room: Room, stores: ChannelStores):
    await room.create()
    polls = [asyncio.create_task(room.fetch(timeout_ms=60_000)) for _ in range(5)]
    await until(lambda: all(member.store.waiting == 5 for member in stores.members))
    assert stores.waiting == 5
    stores.release()
    assert await asyncio.wait_for(asyncio.gather(*polls), 10) == [((), False, None)] * 5


async def test_nack(room: Room):
    await room.create()
    await room.say("m1", "m2")
    batch = await room.fetch()
    assert await room.nack(batch, delay_ms=60_000)
    assert ids(await room.fetch()) == []
    assert await room.nack(batch)
    assert ids(await room.fetch()) == ["m1", "m2"]
    await room.ack(batch)
    assert not await room.nack(batch)


async def test_reading_ahead(room: Room):
    await room.create()
    await room.publish(*numbered(1, 6))
    first = await room.fetch(limit=2)
    second = await room.fetch(limit=2, after=first.receipt)
    third = await room.fetch(after=second.receipt)
    assert [ids(first), ids(second), ids(third)] == [["m1", "m2"], ["m3", "m4"], ["m5", "m6"]]
    assert ids(await room.fetch(after=third.receipt)) == []
    assert ids(await room.fetch(limit=1)) == ["m1"]
    assert await room.ack(second)
    assert ids(await room.fetch()) == ["m5", "m6"]


async def test_limit_0_tells_whether_there_is_something(room: Room):
    await room.create()
    assert await room.fetch(limit=0) == ((), False, None)
    await room.say("m")
    assert await room.fetch(limit=0) == ((), True, None)
    assert await room.fetch(limit=0, timeout_ms=60_000) == ((), True, None)


async def test_looking(room: Room, stores: ChannelStores):
    assert await stores.info(CHANNEL) is None
    assert await stores.find(CHANNEL, "m1") is None
    await room.create()
    await room.create("bob")
    await room.publish(*numbered(1, 5))
    await room.ack(await room.fetch(limit=2))
    found = await stores.find(CHANNEL, "m1")
    assert found is not None
    assert (found.id, found.raw) == ("m1", b"1")
    info = await stores.info(CHANNEL)
    assert info is not None
    assert info.unread == {"alice": 3, "bob": 5}
    assert await stores.names() == [CHANNEL]
    page = await stores.backlog(CHANNEL, ALICE, limit=2)
    assert [message.id for message in page.messages] == ["m3", "m4"]
    assert page.unread == 3
    rest = await stores.backlog(CHANNEL, ALICE, after=page.after, limit=2)
    assert [message.id for message in rest.messages] == ["m5"]
    assert rest.after is None


async def test_one_store_keeps_the_outbox(room: Room, stores: ChannelStores):
    await room.publish(*numbered(1, 3), outbox=True)
    kept = [await member.store.read_outbox(CHANNEL, 10) for member in stores.members]
    assert [len(entries) for entries in kept] == [3] + [0] * (len(stores.members) - 1)
    entries = await stores.read_outbox(CHANNEL, 2)
    assert entries == kept[0][:2]
    assert await stores.outboxes() == [CHANNEL]
    assert await stores.forwarded(CHANNEL, entries) == 1
    assert await stores.forwarded(CHANNEL, await stores.read_outbox(CHANNEL, 2)) == 0
    assert await stores.read_outbox(CHANNEL, 2) == []
    await stores.forget_outbox(CHANNEL)
    assert await stores.outboxes() == [CHANNEL]  # so soon, it may be written to again without a word
