"""Queues of subscribers: what is dropped when they are full, and how messages are taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.pubsub import Dropped, Gap, Item, KeyspaceEvent, Message, parse_keyspace
from penstock.client.pubsub.inbox import Inbox
from penstock.errors import BackpressureError
from tests.places import until
from tests.unit.client.pubsub.harness import Setting, start
from tests.unit.client.waiting import outcome, settle


def filled(overflow: Any, count: int) -> Inbox:
    inbox = Inbox(3, overflow)
    for number in range(count):
        inbox.put(message(number))
    return inbox


def message(number: int) -> Message:
    return Message(b"c", b"%d" % number)


def drained(inbox: Inbox) -> list[Item]:
    items: list[Item] = []
    while (item := inbox.take()) is not None:
        items.append(item)
    return items


def gap(*channels: bytes, server: str = "s", duration_s: float = 1.0) -> Gap:
    return Gap(server, channels, duration_s)


async def test_drop_oldest() -> None:
    inbox = filled("drop_oldest", 6)
    assert drained(inbox) == [Dropped(3), message(3), message(4), message(5)]
    assert (len(inbox), inbox.dropped) == (0, 3)


async def test_drop_newest() -> None:
    inbox = filled("drop_newest", 6)
    assert inbox.take() == message(0)
    inbox.put(message(6))
    inbox.put(message(7))
    assert drained(inbox) == [message(1), message(2), Dropped(3), message(6), Dropped(1)]
    inbox.put(message(8))
    assert drained(inbox) == [message(8)]


async def test_a_gap_is_never_dropped_and_meets_its_like() -> None:
    inbox = Inbox(2, "drop_oldest")
    inbox.put(message(0))
    inbox.put_gap(gap(b"a"))
    inbox.put(message(1))
    inbox.put_gap(gap(b"a", b"b", duration_s=2.0))
    inbox.put_gap(gap(b"z", server="t"))
    for number in range(2, 5):
        inbox.put(message(number))
    assert drained(inbox) == [
        Dropped(3),
        gap(b"a", b"b", duration_s=3.0),
        gap(b"z", server="t"),
        message(3),
        message(4),
    ]
    for _ in range(1000):
        inbox.put_gap(gap(b"a"))
        inbox.put(message(9))
    assert len(inbox._items) <= 5


async def test_drop_newest_keeps_the_order_of_losses() -> None:
    inbox = filled("drop_newest", 4)
    inbox.put_gap(gap(b"c"))
    inbox.put(message(4))
    assert drained(inbox) == [message(0), message(1), message(2), Dropped(2), gap(b"c")]


async def test_overflow_can_end_a_subscriber(it: Setting) -> None:
    hub = it.hub(pubsub_queue_len=2, pubsub_overflow="close")
    async with hub.subscriber() as slow, hub.subscriber() as quick:
        await slow.subscribe("a")
        await quick.subscribe("a", "b")
        for number in range(3):
            it.broker.publish("a", str(number))
            assert await quick.get() == Message(b"a", b"%d" % number)
        assert slow.waiting == 2
        assert [(await slow.get()) for _ in range(2)] == [Message(b"a", b"0"), Message(b"a", b"1")]
        with pytest.raises(BackpressureError, match="pubsub_queue_len 2"):
            await slow.get()
        assert it.broker.has == {("", b"a"), ("", b"b")}
        await quick.unsubscribe("a")
        assert it.broker.has == {("", b"b")}


async def test_the_last_subscriber_may_fail_amid_a_delivery(it: Setting) -> None:
    async with it.hub(pubsub_queue_len=1, pubsub_overflow="close").subscriber() as sub:
        await sub.subscribe("a")
        for number in range(3):
            it.broker.publish("a", str(number))
        assert await sub.get() == Message(b"a", b"0")
        with pytest.raises(BackpressureError):
            await sub.get()
        await until(lambda: not it.servers())


async def test_a_full_queue_does_not_stop_the_loop(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        for number in range(1000):
            it.broker.publish("a", str(number))
        await settle()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = start(others())
        for _ in range(1000):
            await sub.get()
        task.cancel()
        await outcome(task)
        assert turns >= 5


# ------------------------------------------------------------------------------------------- taking


async def test_get_waits_as_long_as_it_is_told(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        assert await sub.get(timeout_ms=5) is None
        waiting = start(sub.get())
        await settle()
        it.broker.publish("a", "x")
        assert await outcome(waiting) == Message(b"a", b"x")


async def test_a_cancelled_get_takes_nothing(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        one, two = start(sub.get()), start(sub.get())
        await settle()
        inbox = sub._inbox
        inbox.put(message(1))  # calls the first …
        one.cancel()  # … which goes away before it hears
        assert await outcome(two) == message(1)
        assert isinstance(await outcome(one), asyncio.CancelledError)
        three, four = start(sub.get()), start(sub.get())
        await settle()
        three.cancel()
        await settle()
        inbox.put(message(2))
        assert await outcome(four) == message(2)
        assert not inbox._waiters


async def test_messages_alone(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        it.broker.publish("a", "1")
        await settle()
        it.broker.cut()
        await until(lambda: it.broker.has)
        it.broker.publish("a", "2")
        seen = []
        async for each in sub.messages():
            seen.append(each.data)
            if len(seen) == 2:
                break
        assert seen == [b"1", b"2"]


# ----------------------------------------------------------------------------------- events of keys


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (Message(b"__keyspace@0__:a:b", b"set"), KeyspaceEvent(0, b"a:b", "set")),
        (Message(b"__keyevent@12__:expired", b"k\xff"), KeyspaceEvent(12, b"k\xff", "expired")),
        (Message("__keyspace@1__:k\n", "del"), KeyspaceEvent(1, "k\n", "del")),
        (Message("__keyevent@1__:del", "k", "__key*"), KeyspaceEvent(1, "k", "del")),
        (Message(b"__keyspace@x__:k", b"set"), None),
        (Message(b"news", b"set"), None),
        (Gap("s", (b"__keyspace@0__:k",), 1.0), None),
        (Dropped(1), None),
    ],
)
def test_parse_keyspace(item: Item, event: KeyspaceEvent | None) -> None:
    assert parse_keyspace(item) == event
