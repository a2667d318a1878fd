"""What every storage of channels must do, case by case, under the names that such a suite has."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock.channels import Channel, ChannelStore
from penstock.errors import ContentError, ReceiptError, SubscriptionNotFoundError, UsageError
from tests import places
from tests.channels.conftest import EVERY_PROTOCOL, EXPIRE_MS, ids, numbered
from tests.places import until


@pytest.fixture(params=EVERY_PROTOCOL)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


async def test_core(store: ChannelStore) -> None:
    assert store.name == "default"
    assert store.waiting == 0
    assert await store.probe() == {"default": "ok"}
    await store.close()
    await store.close()


async def test_pub_sub_scenario(room: Channel) -> None:
    alice = room.subscription("alice")
    assert [await alice.create(), await alice.create()] == [True, False]
    assert [await alice.unsubscribe(), await alice.unsubscribe()] == [True, False]
    assert await alice.create()
    assert await alice.fetch() == ((), False, None)
    assert await alice.fetch(timeout_ms=100) == ((), False, None)
    assert await room.publish_many([]) == []
    assert await alice.fetch() == ((), False, None)

    assert await room.publish_many(numbered(1, 16)) == [True] * 16
    some = await alice.fetch(15)
    assert (ids(some), some.more) == ([f"m{number}" for number in range(1, 16)], True)
    whole = await alice.fetch(17)
    assert (ids(whole), whole.more) == ([f"m{number}" for number in range(1, 17)], False)
    assert [message.content for message in whole.messages] == list(range(1, 17))

    assert [await alice.ack(whole), await alice.ack(whole)] == [True, False]
    assert await alice.fetch() == ((), False, None)
    assert await room.publish_many(numbered(1, 16)) == [False] * 16
    assert await alice.fetch() == ((), False, None)
    assert await room.publish("m17", "new")
    assert ids(await alice.fetch()) == ["m17"]
    assert [await alice.ack(whole), await alice.ack(some)] == [False, False]
    assert ids(await alice.fetch()) == ["m17"]


async def test_long_polling(room: Channel, store: ChannelStore, other: penstock.Penstock) -> None:
    alice = await room.subscribe("alice")
    poll = asyncio.create_task(alice.fetch(timeout_ms=120_000))
    await until(lambda: store.waiting == 1)
    await other.channel("room").publish_many(numbered(1, 16))
    batch = await asyncio.wait_for(poll, 30)
    assert (ids(batch), batch.more) == ([f"m{number}" for number in range(1, 17)], False)


async def test_long_polling_cancel(room: Channel, store: ChannelStore) -> None:
    alice = await room.subscribe("alice")
    poll = asyncio.create_task(alice.fetch(timeout_ms=12_000))
    await until(lambda: store.waiting == 1)
    begin_s = time.monotonic()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert time.monotonic() - begin_s < 6
    assert store.waiting == 0
    # Nobody was hurt: the next one waits, and is served.
    poll = asyncio.create_task(alice.fetch(timeout_ms=12_000))
    await until(lambda: store.waiting == 1)
    await room.publish("m1", 1)
    assert ids(await poll) == ["m1"]


async def test_message_age_detection(room: Channel, store: ChannelStore) -> None:
    await room.publish_many(numbered(1, 2))
    alice = await room.subscribe("alice")
    names = [f"m{number}" for number in range(1, 8)]

    async def old() -> list[str]:
        answers = await store.are_old("room", "alice", names)
        return [name for name, is_old in zip(names, answers, strict=True) if is_old]

    assert await old() == ["m1", "m2"]  # before its time; the others are not there yet
    await room.publish_many(numbered(3, 4))
    assert await old() == ["m1", "m2"]  # not fetched
    first = await alice.fetch()
    assert await old() == ["m1", "m2"]  # not acknowledged
    await room.publish_many(numbered(5, 6))
    assert await alice.ack(first)
    assert await old() == ["m1", "m2", "m3", "m4"]  # a receipt is for its own batch only
    assert ids(await alice.fetch()) == ["m5", "m6"]
    assert await store.old_clocks("room", "alice", names) == [1, 2, 3, 4, None, None, None]
    assert await store.are_old("room", "alice", []) == []


async def test_many_queued_messages(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 32))
    for first, more in ((1, True), (17, False)):
        batch = await alice.fetch(16)
        assert (ids(batch), batch.more) == ([f"m{number}" for number in range(first, first + 16)], more)
        assert await alice.ack(batch)
    assert await alice.fetch() == ((), False, None)


async def test_channels_do_not_mix(ps: penstock.Penstock) -> None:
    """One call is about one channel: the same ids in another one are other messages."""
    one, two = ps.channel("one"), ps.channel("two")
    alice_one, alice_two = await one.subscribe("alice"), await two.subscribe("alice")
    assert await one.publish("m1", "of one")
    assert await two.publish("m1", "of two")
    assert [message.content for message in (await alice_one.fetch()).messages] == ["of one"]
    assert await alice_one.ack(await alice_one.fetch())
    assert [message.content for message in (await alice_two.fetch()).messages] == ["of two"]


BAD_NAMES: list[Any] = [
    "", "-a", "_a", "A", "a" * 64, "a\n", "a b", "a.b", "a{b}", "ä", "a/b", "a*", None, 5, b"a",
]  # fmt: skip


async def test_invalid_channel(ps: penstock.Penstock) -> None:
    for name in BAD_NAMES:
        with pytest.raises(UsageError, match="name must be 1 to 63 of the characters"):
            ps.channel(name)


async def test_invalid_names(room: Channel) -> None:
    for name in BAD_NAMES:
        with pytest.raises(UsageError, match="subscriber must be 1 to 63"):
            await room.subscribe(name)
        with pytest.raises(UsageError, match="message_id must be 1 to 63"):
            await room.message(name)
        if name is not None:  # which asks for an id of its own
            with pytest.raises(UsageError, match="message_id must be 1 to 63"):
                await room.publish(name, 1)


async def test_the_longest_names(ps: penstock.Penstock) -> None:
    name = "9" + "a_-" * 20 + "zz"
    assert len(name) == 63
    room = ps.channel(name)
    alice = await room.subscribe(name)
    assert await room.publish(name, 1)
    batch = await alice.fetch()
    assert ids(batch) == [name]
    assert await alice.ack(batch)


async def test_invalid_subscriber(room: Channel, store: ChannelStore) -> None:
    nobody = room.subscription("nobody")
    for exists in (False, True):
        if exists:  # the channel, through somebody else
            await room.subscribe("alice")
            await room.publish("m1", 1)
        begin_s = time.monotonic()
        with pytest.raises(SubscriptionNotFoundError, match="channel 'room' has no subscriber 'nobody'"):
            await nobody.fetch(timeout_ms=10_000)
        assert time.monotonic() - begin_s < 5
        with pytest.raises(SubscriptionNotFoundError):
            await nobody.backlog()
        with pytest.raises(SubscriptionNotFoundError):
            await store.are_old("room", "nobody", ["m1"])
        with pytest.raises(ReceiptError):
            await nobody.ack("e30=")
        assert not await nobody.unsubscribe()
        assert store.waiting == 0
    gone = await room.subscribe("gone")
    await room.publish("m2", 2)
    receipt = (await gone.fetch()).receipt
    assert receipt is not None
    await gone.unsubscribe()
    with pytest.raises(SubscriptionNotFoundError):
        await gone.ack(receipt)
    with pytest.raises(SubscriptionNotFoundError):
        await gone.nack(receipt)


async def test_invalid_message(room: Channel) -> None:
    alice = await room.subscribe("alice")
    for content in (object(), {1, 2}, float("nan"), float("inf"), b"1", "\ud800", {(1,): 2}):
        with pytest.raises(ContentError, match="the content of a message must be JSON"):
            await room.publish_many([("m1", 1), ("m2", content)])
    assert await alice.fetch() == ((), False, None)
    assert await room.publish("m1", 2)


async def test_arguments_that_make_no_sense(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", 1)
    with pytest.raises(UsageError, match="limit must not be negative, not -1"):
        await alice.fetch(-1)
    with pytest.raises(UsageError, match="delay_ms must not be negative, not -1"):
        await alice.nack(await alice.fetch(), delay_ms=-1)
    with pytest.raises(UsageError, match="limit must be a whole number above 0, not 0"):
        await alice.backlog(limit=0)
    with pytest.raises(UsageError, match="receipt must be the receipt of a batch that has messages"):
        await alice.ack(penstock.channels.Batch())
    for expire_ms in (0, -1, True, 1.5, "1"):
        with pytest.raises(UsageError, match="expire_ms must be a whole number above 0"):
            ps.channel("room", expire_ms=expire_ms)  # type: ignore[arg-type]


async def test_info_and_names(ps: penstock.Penstock, room: Channel, store: ChannelStore) -> None:
    assert await room.info() is None
    assert await store.names() == []
    await room.subscribe("alice")
    await room.publish_many(numbered(1, 3))
    bob = await room.subscribe("bob")
    await room.publish("m4", 4)
    await ps.channel("attic").publish("m1", 1)
    info = await room.info()
    assert info is not None
    assert (info.name, info.clock, info.unread) == ("room", 4, {"alice": 4, "bob": 1})
    assert EXPIRE_MS < info.ttl_ms <= EXPIRE_MS + 15_000
    assert await bob.ack(await bob.fetch())
    info = await room.info()
    assert info is not None
    assert info.unread == {"alice": 4, "bob": 0}
    assert await store.names() == await ps.channel_names() == ["attic", "room"]


async def test_what_things_say_of_themselves(room: Channel, store: ChannelStore) -> None:
    assert repr(room) == "<Channel room>"
    assert repr(room.subscription("alice")) == "<Subscription alice of room>"
    assert repr(store).startswith("<ChannelStore default on <")
    assert repr(store).endswith(", 0 waiting>")
