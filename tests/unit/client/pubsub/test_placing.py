"""Which server a subscription lives on, how it moves, and when there is none."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.connection import Connection
from penstock.client.events import TopologyChanged
from penstock.client.handshake import ServerFacts
from penstock.client.policies import Constant, NoReconnect
from penstock.client.pubsub import Gap, Message
from penstock.errors import AuthenticationError, CommandError, NotSentError
from tests.places import until
from tests.unit.client.pubsub.harness import NEVER, Setting, start
from tests.unit.client.waiting import outcome, settle


async def test_shard_channels_go_to_their_owners(it: Setting) -> None:
    other = it.add("other:1")
    it.map.owners = {b"s": "other:1"}
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.ssubscribe("s", "t")
        assert (it.broker.has, other.has) == ({("", b"a"), ("s", b"t")}, {("s", b"s")})
        other.server.push(b"smessage", b"s", b"x")
        assert await sub.get() == Message(b"s", b"x", None, "smessage")
        await sub.sunsubscribe()
        assert (it.broker.has, other.has) == ({("", b"a")}, set())


async def test_a_slot_that_moves_takes_its_channels_along(it: Setting) -> None:
    """The router has not heard of it yet: the old owner says where to."""
    other = it.add("other:1")
    async with it.hub().subscriber() as sub:
        await sub.ssubscribe("{s}1", "{s}2")
        it.broker.server.on("SSUBSCRIBE").error("MOVED 1 other:1")
        for name in (b"{s}1", b"{s}2"):
            it.broker.has.discard(("s", name))
            it.broker.server.push(b"sunsubscribe", name, 0)
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("other:1", (b"{s}1", b"{s}2"))
        assert it.broker.sent[1:] == ["SSUBSCRIBE {s}1 {s}2"]
        assert other.sent == ["SSUBSCRIBE {s}1 {s}2"]
        await until(lambda: list(it.servers()) == ["other:1"])
        other.server.push(b"smessage", b"{s}2", b"x")
        assert await sub.get() == Message(b"{s}2", b"x", None, "smessage")


async def test_servers_that_do_not_agree_are_not_asked_too_often(it: Setting) -> None:
    other = it.add("other:1")
    it.broker.server.on("SSUBSCRIBE").error("MOVED 1 other:1")
    other.server.on("SSUBSCRIBE").error("MOVED 1 home:1")
    async with it.hub(reconnect=NEVER, max_redirections=4).subscriber() as sub:
        task = start(sub.ssubscribe("s"))
        await until(lambda: len(it.broker.sent) + len(other.sent) == 5)
        await settle()
        assert len(it.broker.sent) + len(other.sent) == 5
        task.cancel()
        await outcome(task)


@pytest.mark.parametrize("error", ["CLUSTERDOWN wait", "TRYAGAIN please", "ASK 1 home:1"])
async def test_a_refusal_for_now_is_tried_again(it: Setting, error: str) -> None:
    it.broker.server.expect("SSUBSCRIBE").error(error)
    it.broker.server.expect("SSUBSCRIBE").error(error)
    async with it.hub().subscriber() as sub:
        await sub.ssubscribe("s")
        assert it.broker.sent == ["SSUBSCRIBE s"] * 3


async def test_a_redirection_that_leads_nowhere_is_an_error(it: Setting) -> None:
    it.broker.server.on("SSUBSCRIBE").error("MOVED 1 ?:0")
    async with it.hub().subscriber() as sub:
        with pytest.raises(CommandError, match="MOVED"):
            await sub.ssubscribe("s")


async def test_channels_leave_a_server_that_stays_away(it: Setting) -> None:
    other = it.add("other:1")
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        await sub.psubscribe("p")
        it.broker.server.refuse_connections(1_000_000)
        it.map.home = "other:1"
        it.broker.cut()
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert (gap.server, gap.channels) == ("other:1", (b"a", b"p"))
        assert other.has == {("", b"a"), ("p", b"p")}
        assert list(it.servers()) == ["other:1"]


async def test_channels_leave_a_server_that_is_not_part_of_it_any_more(it: Setting) -> None:
    other = it.add("other:1")
    hub = it.hub()
    async with hub.subscriber() as sub:
        await sub.subscribe("a")
        it.map.home = "other:1"
        hub.on_topology(TopologyChanged(added=("other:1",), removed=("home:1", "unknown:1")))
        gap = await sub.get()
        assert isinstance(gap, Gap)
        assert gap.server == "other:1"
        it.broker.publish("a", "from the old one")
        other.publish("a", "from the new one")
        assert await sub.get() == Message(b"a", b"from the new one")


async def test_a_router_that_knows_no_way(it: Setting) -> None:
    it.map.error = NotSentError("no node is known")
    async with it.hub().subscriber() as sub:
        with pytest.raises(NotSentError):
            await sub.subscribe("a")
        it.map.error = None
        await sub.ssubscribe("s")
        it.map.error = NotSentError("the map is being read")
        it.broker.server.push(b"sunsubscribe", b"s", 0)
        await asyncio.sleep(0.01)
        it.map.error = None
        assert isinstance(await sub.get(), Gap)


async def test_credentials_that_are_refused_end_it(it: Setting) -> None:
    async def refused(connection: Connection) -> ServerFacts:
        raise AuthenticationError("wrong password")

    it.broker.dial = refused  # type: ignore[method-assign]
    async with it.hub().subscriber() as sub:
        with pytest.raises(AuthenticationError, match="wrong password"):
            await sub.subscribe("a")


async def test_a_policy_that_gives_up_fails_the_subscribers(it: Setting) -> None:
    hub = it.hub(reconnect=NoReconnect())
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        gate = it.broker.hold("SUBSCRIBE")
        task = start(two.subscribe("b"))
        await until(lambda: gate.held)
        it.broker.cut()
        assert "cut" in str(await outcome(task))
        with pytest.raises(Exception, match="cut"):
            await one.get()
        # Whoever did not have anything yet may try again.
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        await two.subscribe("c")
        assert it.broker.has == {("", b"c")}


async def test_fail_fast_does_not_wait_for_a_connection(it: Setting) -> None:
    hub = it.hub(fail_fast=True, reconnect=Constant(base_ms=20))
    async with hub.subscriber() as sub:
        it.broker.server.refuse_connections(1)
        for _ in range(2):
            with pytest.raises(NotSentError, match="refuses"):
                await sub.subscribe("a")
        await asyncio.sleep(0.03)
        await sub.subscribe("b")
        it.broker.cut()
        with pytest.raises(NotSentError, match="cut"):
            await sub.subscribe("c")
        assert isinstance(await sub.get(), Gap)
        assert it.broker.has == {("", b"b")}
