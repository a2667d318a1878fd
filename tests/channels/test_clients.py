"""The same through other doors: clients that decode, code without ``await``, several clients of a place."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import penstock
import penstock.blocking
from penstock.errors import ReceiptError, SubscriptionNotFoundError, UsageError
from tests.channels.conftest import ids, numbered


async def test_a_client_that_decodes(url: str) -> None:
    async with penstock.open(url, decode_responses=True) as ps:
        room = ps.channel("room")
        alice = await room.subscribe("alice")
        assert await room.publish_many([*numbered(1, 3), ("m1", 9)]) == [True, True, True, False]
        batch = await alice.fetch(2, timeout_ms=1_000)
        assert (ids(batch), batch.more) == (["m1", "m2"], True)
        assert [(message.raw, message.content) for message in batch.messages] == [(b"1", 1), (b"2", 2)]
        assert await alice.nack(batch)
        assert [await alice.ack(batch), await alice.ack(batch)] == [True, False]
        page = await alice.backlog()
        assert ([message.id for message in page.messages], page.after, page.unread) == (["m3"], None, 1)
        found = await room.message("m3")
        assert found is not None
        assert (found.id, found.clock) == ("m3", 3)
        info = await room.info()
        assert info is not None
        assert (info.clock, info.unread) == (3, {"alice": 1})
        assert await ps.channel_names() == ["room"]
        assert await alice.unsubscribe()
        with pytest.raises(SubscriptionNotFoundError):
            await alice.fetch()


async def test_receipts_between_clients_that_decode_and_others(url: str, ps: penstock.Penstock) -> None:
    async with penstock.open(url, decode_responses=True) as decoding:
        alice = await ps.channel("room").subscribe("alice")
        await decoding.channel("room").publish_many(numbered(1, 2))
        receipt = (await decoding.channel("room").subscription("alice").fetch(1)).receipt
        assert receipt is not None
        assert await alice.ack(receipt)
        receipt = (await alice.fetch()).receipt
        assert receipt is not None
        assert await decoding.channel("room").subscription("alice").ack(receipt)


@pytest.fixture
def blocking(url: str) -> Iterator[penstock.blocking.Client]:
    with penstock.blocking.open(url) as client:
        yield client


def test_without_await(blocking: penstock.blocking.Client) -> None:
    room = blocking.channel("room", expire_ms=60_000)
    assert (room.name, room.expire_ms) == ("room", 60_000)
    alice = room.subscribe("alice")
    assert type(room) is penstock.blocking.Channel
    assert type(alice) is penstock.blocking.Subscription
    assert alice.subscriber == "alice"
    assert room.publish("m1", {"a": 1})
    assert room.publish_many(numbered(2, 4)) == [True] * 3
    batch = alice.fetch(2)
    assert (ids(batch), batch.more) == (["m1", "m2"], True)
    assert alice.nack(batch)
    assert [alice.ack(batch), alice.ack(batch)] == [True, False]
    assert [message.id for message in alice.backlog(limit=1).messages] == ["m3"]
    found = room.message("m1")
    assert found is not None
    assert found.content == {"a": 1}
    info = room.info()
    assert info is not None
    assert info.unread == {"alice": 2}
    with pytest.raises(ReceiptError):
        alice.ack("e30=")
    with pytest.raises(UsageError):
        room.publish("NO", 1)
    assert not alice.create()
    assert alice.unsubscribe()
    with pytest.raises(SubscriptionNotFoundError):
        room.subscription("alice").fetch(timeout_ms=10_000)


def test_waiting_without_await(blocking: penstock.blocking.Client) -> None:
    room = blocking.channel("room")
    alice = room.subscribe("alice")
    publisher = threading.Timer(0.05, room.publish, ("m1", 1))
    publisher.start()
    assert ids(alice.fetch(timeout_ms=60_000)) == ["m1"]
    publisher.join()


def test_consuming_without_await(blocking: penstock.blocking.Client) -> None:
    room = blocking.channel("room")
    alice = room.subscribe("alice")
    room.publish_many(numbered(1, 5))
    seen = []
    for message in alice.consume(2):
        seen.append(message.id)
        if len(seen) == 5:
            break
    assert seen == ["m1", "m2", "m3", "m4", "m5"]
    assert ids(alice.fetch()) == ["m5"]  # its batch was not handled to the end
