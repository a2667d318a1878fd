"""After a loss: everything is asked for again, and each subscriber learns of its gap."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.events import Connected, Disconnected
from penstock.client.policies import Constant
from penstock.client.pubsub import Gap, Message
from penstock.errors import CommandError
from tests.places import until
from tests.unit.client.pubsub.harness import Setting, taken, texts
from tests.unit.client.waiting import settle


async def test_after_a_loss_everything_is_asked_for_again_in_few_commands(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a", "b")
        await two.subscribe("b", "c")
        await two.psubscribe("p", "q")
        await two.ssubscribe("{s}1", "{s}2")
        await two.ssubscribe("{t}")
        it.broker.publish("b", "before")
        await settle()
        before = len(it.broker.sent)
        it.broker.cut()
        await until(lambda: len(it.broker.has) == 8)
        await settle()  # confirmations arrive; a real server publishes only behind them
        it.broker.publish("b", "after")
        await settle()
        assert it.broker.sent[before:] == [
            "SUBSCRIBE a b c",
            "PSUBSCRIBE p q",
            "SSUBSCRIBE {s}1 {s}2",
            "SSUBSCRIBE {t}",
        ]
        before_it, gap, after_it = taken(one)
        assert (before_it, after_it) == (Message(b"b", b"before"), Message(b"b", b"after"))
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("home:1", (b"a", b"b"))
        assert 0 < gap.duration_s < 5
        _, gap, _ = taken(two)
        assert isinstance(gap, Gap)
        assert gap.channels == (b"b", b"c", b"p", b"q", b"{s}1", b"{s}2", b"{t}")
        assert it.events == [
            Connected("home:1", is_reconnection=False),
            Disconnected("home:1", it.events[1].error if isinstance(it.events[1], Disconnected) else None),
            Connected("home:1", is_reconnection=True),
        ]


async def test_a_message_between_two_confirmations_comes_after_its_gap(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        gate = it.broker.hold("PSUBSCRIBE")
        it.broker.cut()
        await until(lambda: gate.held)
        assert taken(sub) == []  # told with the rest, as long as nothing comes
        it.broker.publish("a", "early")
        await settle()
        gap, message = taken(sub)
        assert isinstance(gap, Gap)
        assert (gap.channels, message) == ((b"a",), Message(b"a", b"early"))
        gate.release(it.broker.confirm((b"PSUBSCRIBE", b"p")))
        await settle()
        (gap,) = taken(sub)
        assert isinstance(gap, Gap)
        assert gap.channels == (b"p",)


async def test_one_gap_for_an_outage_of_many_attempts(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        it.broker.server.refuse_connections(3)
        it.broker.cut()
        assert isinstance(await sub.get(), Gap)
        assert texts(sub) == []


async def test_lost_again_before_all_is_back(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        gate = it.broker.hold("PSUBSCRIBE")
        it.broker.cut()
        await until(lambda: gate.held)
        it.broker.server.on("PSUBSCRIBE").reply(it.broker.confirm)
        it.broker.cut()
        await until(lambda: len(it.broker.has) == 2)
        await settle()  # both are confirmed; whoever takes earlier gets two gaps
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert sorted(gap.channels) == [b"a", b"p"]  # two that met: nothing came in between
        assert texts(sub) == []


async def test_who_subscribes_during_the_outage_has_no_gap(it: Setting) -> None:
    hub = it.hub(reconnect=Constant(base_ms=20))
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        it.broker.cut()
        await two.subscribe("a", "b")
        await settle()
        assert texts(one) == ["Gap"]
        assert texts(two) == []
        assert it.broker.sent == ["SUBSCRIBE a", "SUBSCRIBE a b"]


async def test_unsubscribed_during_the_outage_is_not_asked_for_again(it: Setting) -> None:
    async with it.hub(reconnect=Constant(base_ms=20)).subscriber() as sub:
        await sub.subscribe("a", "b")
        it.broker.cut()
        await sub.unsubscribe("a")
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert gap.channels == (b"b",)
        assert it.broker.sent[1:] == ["SUBSCRIBE b"]


async def test_a_subscription_that_is_refused_after_a_loss_fails_its_subscribers(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("b")
        it.broker.publish("a", "kept")
        await settle()
        it.broker.server.on("SUBSCRIBE").reply(
            lambda words: CommandError("NOPERM no more") if b"a" in words else it.broker.confirm(words)
        )
        it.broker.cut()
        assert isinstance(await two.get(), Gap)
        assert await one.get() == Message(b"a", b"kept")
        for _ in range(2):
            with pytest.raises(CommandError, match="NOPERM no more"):
                await one.get()
        with pytest.raises(CommandError):
            async for _ in one:
                pass
        with pytest.raises(CommandError):
            await one.subscribe("c")
        assert it.broker.has == {("", b"b")}


async def test_a_silent_peer_is_found_out(it: Setting) -> None:
    async with it.hub(idle_ping_ms=10, unresponsive_timeout_ms=40).subscriber() as sub:
        await sub.subscribe("a")
        gate = it.broker.hold("PING")
        async with asyncio.timeout(10):
            assert isinstance(await sub.get(), Gap)
        assert gate.held
        assert it.broker.has == {("", b"a")}
