"""The end: of a subscriber, of the client; other loops; what is told of the state."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.events import Disconnected
from penstock.client.pubsub import Item, Message
from penstock.errors import ClosedError
from tests.places import until
from tests.unit.client.pubsub.harness import NEVER, Setting, start
from tests.unit.client.waiting import outcome, settle


async def test_close_ends_everybody_who_waits(it: Setting) -> None:
    hub = it.hub()
    sub = hub.subscriber()
    await sub.subscribe("a")
    it.broker.publish("a", "not taken")
    await settle()
    gate = it.broker.hold("SUBSCRIBE")

    async def iterate() -> list[Item]:
        return [item async for item in sub]

    iterating, getting, coming = start(iterate()), start(sub.get()), start(sub.subscribe("b"))
    await until(lambda: gate.held)
    await sub.close()
    await sub.close()
    assert await outcome(iterating) == [Message(b"a", b"not taken")]
    assert isinstance(await outcome(getting), ClosedError)
    assert isinstance(await outcome(coming), ClosedError)
    for use in (sub.get(), sub.subscribe("x"), sub.unsubscribe("x")):
        with pytest.raises(ClosedError):
            await use
    assert not it.servers()
    assert it.broker.server.connection.is_closing()
    assert not [event for event in it.events if isinstance(event, Disconnected)]


async def test_closing_unsubscribes_what_nobody_else_wants(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one:
        await one.subscribe("a")
        async with hub.subscriber() as two:
            await two.subscribe("a", "b", "c")
        await until(lambda: it.broker.has == {("", b"a")})
        assert it.broker.sent[-1] == "UNSUBSCRIBE b c"
    async with hub.subscriber() as three:
        await three.subscribe("d")
    assert len(it.broker.server.connections) == 2


async def test_the_end_of_the_client_is_that_of_its_subscribers(it: Setting) -> None:
    hub = it.hub()
    one, idle = hub.subscriber(), hub.subscriber()
    await one.subscribe("a")
    waiting = [start(one.get()), start(idle.get())]
    await settle()
    await hub.close()
    for task in waiting:
        assert isinstance(await outcome(task), ClosedError)
    with pytest.raises(ClosedError, match="client is closed"):
        hub.subscriber()
    with pytest.raises(ClosedError):
        await one.subscribe("b")
    assert hub.statistics() == {
        "subscribers": 0,
        "waiting": 0,
        "dropped": 0,
        "channels": 0,
        "patterns": 0,
        "shard_channels": 0,
        "servers": {},
    }


async def test_close_during_an_outage(it: Setting) -> None:
    hub = it.hub(reconnect=NEVER)
    async with hub.subscriber() as sub:
        await sub.subscribe("a")
        it.broker.cut()
        coming = start(sub.subscribe("b"))
        await settle()
    assert isinstance(await outcome(coming), ClosedError)


async def test_another_loop_is_told_so(it: Setting) -> None:
    hub = it.hub()
    sub = hub.subscriber()

    def elsewhere() -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            asyncio.run(sub.subscribe("a"))
        with pytest.raises(ClosedError, match="another event loop"):
            asyncio.run(sub.get())

    await asyncio.to_thread(elsewhere)


async def test_repr_tells_the_state(it: Setting) -> None:
    async with it.hub(pubsub_queue_len=1).subscriber() as sub:
        await sub.subscribe("a")
        it.broker.publish("a", "x")
        it.broker.publish("a", "y")
        await settle()
        assert repr(sub) == "<Subscriber subscriptions=1 <Inbox open messages=1 dropped=1>>"
    assert "closed" in repr(sub)
