"""Subscribing: kinds of messages, several subscribers, refusals; wanted, not wanted, wanted again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from penstock.client.policies import Constant
from penstock.client.pubsub import Gap, Message
from penstock.errors import CommandError, CommandTimeoutError
from penstock.protocol.replies import Push
from tests.places import until
from tests.unit.client.pubsub.harness import Setting, start, taken, texts
from tests.unit.client.waiting import outcome, settle


async def test_each_kind_of_message(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a", b"b", "a")
        await sub.psubscribe("p.*")
        await sub.ssubscribe("s")
        assert it.broker.sent == ["SUBSCRIBE a b", "PSUBSCRIBE p.*", "SSUBSCRIBE s"]
        assert (sub.channels, sub.patterns, sub.shard_channels) == ({b"a", b"b"}, {b"p.*"}, {b"s"})
        it.broker.publish("a", "one")
        it.broker.server.push(b"pmessage", b"p.*", b"p.1", b"two")
        it.broker.server.push(b"smessage", b"s", b"three")
        it.broker.publish("stranger", "nobody's")
        assert await sub.get() == Message(b"a", b"one")
        assert await sub.get() == Message(b"p.1", b"two", b"p.*", "pmessage")
        assert await sub.get() == Message(b"s", b"three", None, "smessage")
        assert await sub.get(timeout_ms=0) is None
    assert len(it.broker.server.connections) == 1


async def test_a_name_must_be_text_or_bytes(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        with pytest.raises(TypeError, match="not int"):
            await sub.subscribe(5)  # type: ignore[arg-type]
        await sub.subscribe()
        await sub.unsubscribe("never wanted")
        assert it.broker.sent == []


async def test_text_where_responses_are_decoded(it: Setting) -> None:
    async with it.hub(decode_responses=True).subscriber() as sub:
        it.broker.server.on("SUBSCRIBE").reply(
            lambda arguments: Push(["subscribe", arguments[1].decode(errors="surrogateescape"), 1])
        )
        if it.protocol == 2:
            return  # pushes of this script have the type of RESP3
        await sub.subscribe(b"caf\xc3\xa9")
        await sub.subscribe(b"\xff")
        it.broker.server.push("message", "café", "x")
        assert await sub.get() == Message("café", "x")
        assert sub.channels == {"café", "\udcff"}
        assert it.broker.server.sent == [(b"SUBSCRIBE", "café".encode()), (b"SUBSCRIBE", b"\xff")]


async def test_several_subscribers_are_one_subscription(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("a", "b")
        assert it.broker.sent == ["SUBSCRIBE a", "PING", "SUBSCRIBE b"]
        for number in range(3):
            it.broker.publish("a", str(number))
        it.broker.publish("b", "two's")
        await settle()
        assert texts(one) == ["0", "1", "2"]
        assert texts(two) == ["0", "1", "2", "two's"]
        await one.unsubscribe("a")
        it.broker.publish("a", "later")
        await settle()
        assert (texts(one), texts(two)) == ([], ["later"])
        await two.unsubscribe()
        assert it.broker.sent[3:] == ["UNSUBSCRIBE a b"]
        assert not it.broker.has
        it.broker.publish("a", "leaked")
        await settle()
        assert texts(two) == []


async def test_who_comes_later_sees_nothing_older(it: Setting) -> None:
    """Those who have it already do."""
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        gate = it.broker.hold("PING")
        coming = start(two.subscribe("a"))
        await settle()
        it.broker.publish("a", "older")
        await settle()
        assert not coming.done()
        gate.release(b"PONG")
        await coming
        it.broker.publish("a", "newer")
        await settle()
        assert texts(one) == ["older", "newer"]
        assert texts(two) == ["newer"]


async def test_who_comes_while_it_is_asked_for_waits_for_its_own_answer(it: Setting) -> None:
    hub = it.hub()
    gate = it.broker.hold("SUBSCRIBE")
    pings = it.broker.hold("PING")
    async with hub.subscriber() as one, hub.subscriber() as two:
        first = start(one.subscribe("a"))
        await until(lambda: gate.held)
        second = start(two.subscribe("a"))
        await until(lambda: pings.held)
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await first
        it.broker.publish("a", "between")
        await settle()
        assert not second.done()
        pings.release(b"PONG")
        await second
        assert (texts(one), texts(two)) == (["between"], [])
        assert it.broker.sent == ["SUBSCRIBE a", "PING"]


async def test_a_user_who_may_not_ping(it: Setting) -> None:
    hub = it.hub()
    it.broker.server.on("PING").error("NOPERM no")
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        await two.subscribe("a")
        it.broker.publish("a", "x")
        await settle()
        assert (texts(one), texts(two)) == (["x"], ["x"])


async def test_a_refusal_is_the_callers(it: Setting) -> None:
    hub = it.hub()
    async with hub.subscriber() as one, hub.subscriber() as two:
        await one.subscribe("a")
        it.broker.server.on("SUBSCRIBE").reply(
            lambda words: CommandError("NOPERM no") if b"secret" in words else it.broker.confirm(words)
        )
        with pytest.raises(CommandError, match="NOPERM"):
            await two.subscribe("a", "b", "secret")
        # As before the call, also for what was not refused.
        await until(lambda: it.broker.has == {("", b"a")})
        assert two.channels == frozenset()
        it.broker.publish("a", "x")
        await settle()
        assert (texts(one), texts(two)) == (["x"], [])


async def test_one_refusal_does_not_stop_another_call(it: Setting) -> None:
    hub = it.hub()
    it.broker.server.on("SUBSCRIBE", "a").error("NOPERM no")
    async with hub.subscriber() as sub:
        # Before there is a connection: they would go in one command.
        refused, taken_on = start(sub.subscribe("a")), start(sub.subscribe("b"))
        assert isinstance(await outcome(refused), CommandError)
        assert await outcome(taken_on) is None
        assert sub.channels == {b"b"}


async def test_a_refusal_counts_for_who_is_left_only_if_it_was_theirs(it: Setting) -> None:
    """The one that was refused goes away before the refusal comes."""
    async with it.hub().subscriber() as sub:
        await sub.subscribe("a")
        gate = it.broker.hold("SUBSCRIBE")
        it.broker.cut()
        forbidden = start(sub.subscribe("forbidden"))
        await until(lambda: gate.held)
        assert it.broker.sent[-1] == "SUBSCRIBE a forbidden"
        forbidden.cancel()
        await outcome(forbidden)
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        gate.release(CommandError("NOPERM no"))
        assert isinstance(await sub.get(), Gap)
        assert it.broker.sent[-1] == "SUBSCRIBE a"


async def test_no_answer_is_a_timeout_and_a_withdrawal(it: Setting) -> None:
    async with it.hub(command_timeout_ms=30).subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        with pytest.raises(CommandTimeoutError, match="withdrawn"):
            await sub.subscribe("a")
        assert sub.channels == frozenset()
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a"])
        gate = it.broker.hold("UNSUBSCRIBE")
        it.broker.server.on("SUBSCRIBE").reply(it.broker.confirm)
        await sub.subscribe("b")
        with pytest.raises(CommandTimeoutError, match="needs no repetition"):
            await sub.unsubscribe("b")


# ----------------------------------------------------------------- wanted, not wanted, wanted again


async def test_a_cancelled_subscribe_is_undone_when_it_is_answered(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        task = start(sub.subscribe("a"))
        await until(lambda: gate.held)
        task.cancel()
        assert isinstance(await outcome(task), asyncio.CancelledError)
        assert sub.channels == frozenset()
        assert it.broker.sent == ["SUBSCRIBE a"]
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a"])


async def test_cancelled_before_there_is_a_connection_nothing_is_sent(it: Setting) -> None:
    hub = it.hub(reconnect=Constant(base_ms=20))
    it.broker.server.refuse_connections(1)
    async with hub.subscriber() as sub:
        task = start(sub.subscribe("a"))
        await settle()
        task.cancel()
        await outcome(task)
        await sub.subscribe("b")
        assert it.broker.sent == ["SUBSCRIBE b"]


async def test_two_calls_for_one_channel_and_one_is_cancelled(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        one, two = start(sub.subscribe("a")), start(sub.subscribe("a"))
        await until(lambda: gate.held)
        one.cancel()
        await outcome(one)
        assert sub.channels == {b"a"}
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await two
        three = start(sub.subscribe("a"))
        three.cancel()
        await outcome(three)
        assert sub.channels == {b"a"}
        assert it.broker.sent == ["SUBSCRIBE a"]


async def test_the_last_word_counts(it: Setting) -> None:
    async with it.hub().subscriber() as sub:
        gate = it.broker.hold("SUBSCRIBE")
        leaving_gate = it.broker.hold("UNSUBSCRIBE")
        coming = start(sub.subscribe("a"))
        await until(lambda: gate.held)
        leaving = start(sub.unsubscribe("a"))
        assert await outcome(coming) is None  # overtaken, not failed
        await settle()
        assert not leaving.done()
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await until(lambda: leaving_gate.held)
        again = start(sub.subscribe("a"))
        assert await outcome(leaving) is None
        await settle()
        assert not again.done()
        leaving_gate.release(it.broker.confirm((b"UNSUBSCRIBE", b"a")))
        await until(lambda: gate.held)
        gate.release(it.broker.confirm((b"SUBSCRIBE", b"a")))
        await again
        assert it.broker.sent == ["SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"]


@pytest.mark.parametrize("seed", range(20))
async def test_the_server_ends_up_with_what_is_wanted(it: Setting, seed: int) -> None:
    """Whatever is wanted, withdrawn, cancelled, refused and cut meanwhile, in whatever order."""
    chance = random.Random(seed)
    hub = it.hub(command_timeout_ms=0)
    subscribers = [hub.subscriber() for _ in range(3)]
    it.broker.server.on("SUBSCRIBE").reply(
        lambda words: CommandError("NOPERM no") if b"forbidden" in words else it.broker.confirm(words)
    )
    tasks: list[asyncio.Task[Any]] = []
    for _ in range(200):
        sub = chance.choice(subscribers)
        names = chance.sample(["a", "b", "c", "forbidden"], chance.randint(1, 3))
        action = chance.choice(
            [sub.subscribe, sub.psubscribe, sub.ssubscribe, sub.unsubscribe, sub.punsubscribe]
        )
        tasks.append(start(action(*names)))
        match chance.randrange(12):
            case 0:
                it.broker.cut()
            case 1 | 2:
                chance.choice(tasks).cancel()
            case 3 | 4 | 5:
                await asyncio.sleep(0)
            case 6:
                await asyncio.sleep(0.002)
    for task in tasks:
        error = await outcome(task)
        assert error is None or isinstance(error, CommandError | asyncio.CancelledError), error
    wanted: set[tuple[str, Any]] = set()
    for sub in subscribers:
        for kind, names in (("", sub.channels), ("p", sub.patterns), ("s", sub.shard_channels)):
            wanted |= {(kind, name) for name in names}
    await until(lambda: it.broker.has == wanted)
    await settle()
    assert it.broker.has == wanted
    for sub in subscribers:
        taken(sub)
    for kind, name in wanted:
        word = f"{kind}message".encode()
        it.broker.server.push(*((word, name, b"x", b"x") if kind == "p" else (word, name, b"x")))
    await settle()
    for sub in subscribers:
        assert len(taken(sub)) == len(sub.channels) + len(sub.patterns) + len(sub.shard_channels)
        await sub.close()
