"""How many stores must answer, and which of them are asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import penstock
from penstock.channels import ChannelStore
from penstock.channels.stores import STORE_BREAKER, ChannelStores
from penstock.clock import ManualClock
from penstock.errors import ClosedError, ConfigError, SubscriptionNotFoundError, UnavailableError
from penstock.webhooks.breaker import BreakerState
from tests.channels.stores.support import CHANNEL, Room, child, cut, embedded_urls, heal, ids, opened, parts
from tests.places import until


class TestQuorum:
    async def test_one_of_two_is_enough(self, pair: ChannelStores):
        room = Room(pair)
        cut(pair, "b")
        assert await room.create()
        assert await room.say("m") == [True]
        batch = await room.fetch()
        assert ids(batch) == ["m"]
        assert parts(batch.receipt) == ["a"]
        assert await room.ack(batch)
        states = await pair.probe()
        assert states["a"] == "ok"
        assert "the connection was cut" in states["b"]

    @pytest.mark.parametrize("fault", ["lost", "mute"])
    async def test_one_of_three_is_not(self, three: ChannelStores, fault: str):
        room = Room(three)
        await room.create()
        await room.say("m")
        batch = await room.fetch()
        cut(three, "a", "c", fault=fault)
        with pytest.raises(UnavailableError, match=r"^1 of 3 stores confirmed and 2 must"):
            await room.say("n")
        # Now it is known, and nothing is even begun.
        begun = [len(child(three, name).begun) for name in "abc"]
        for attempt in (
            room.say("o"), room.create(), room.remove(), room.ack(batch), room.nack(batch), room.fetch(),
        ):  # fmt: skip
            with pytest.raises(UnavailableError, match=r"0 of 3 stores confirmed .*a: .*; c: "):
                await attempt
        with pytest.raises(UnavailableError):
            await three.probe()
        assert [len(child(three, name).begun) for name in "abc"] == [begun[0], begun[1] + 1, begun[2]]

    async def test_nobody(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        await room.create()
        await room.say("m")
        receipt = (await room.fetch()).receipt
        assert receipt is not None
        for _ in range(2):
            cut(pair, "a", "b")
            for attempt in (
                room.say("n"), room.create(), room.remove(), room.fetch(timeout_ms=60_000), room.ack(receipt),
                room.are_old("m"), room.unread(), pair.find(CHANNEL, "m"), pair.info(CHANNEL), pair.names(),
                pair.outboxes(), pair.read_outbox(CHANNEL, 1), pair.forwarded(CHANNEL, []), pair.probe(),
                room.publish(("n", b"1"), outbox=True),
            ):  # fmt: skip
                with pytest.raises(UnavailableError, match="0 of 2"):
                    await attempt
            heal(pair, clock)
        assert ids(await room.fetch()) == ["m"]

    async def test_a_fetch_needs_it_too(self, three: ChannelStores, clock: ManualClock):
        """One store alone may not know what the two others have recorded."""
        room = Room(three)
        await room.create()
        await room.say("m")
        batch = await room.fetch()
        cut(three, "a")
        assert await room.ack(batch)
        heal(three, clock)
        cut(three, "b", "c")
        with pytest.raises(UnavailableError, match=r"^1 of 3"):
            await room.fetch()
        heal(three, clock)
        cut(three, "b")
        assert ids(await room.fetch()) == []

    async def test_a_store_that_dies_before_it_tells_what_is_old(
        self, three: ChannelStores, clock: ManualClock
    ):
        room, first = Room(three), child(three, "a")
        await room.create()
        await room.say("m")
        batch = await room.fetch()
        cut(three, "b")
        assert await room.ack(batch)
        heal(three, clock)
        cut(three, "c")

        async def die() -> None:
            first.fault = "lost"

        async def live_through_another_look() -> None:
            first.fault, first.hook = "hook", die

        first.fault, first.hook = "hook", live_through_another_look
        first.begun.clear()
        with pytest.raises(UnavailableError):
            await room.fetch()
        assert first.begun == ["fetch", "fetch", "old_clocks"]

    async def test_a_write_without_a_quorum_can_be_repeated(self, three: ChannelStores, clock: ManualClock):
        room = Room(three)
        await room.create()
        cut(three, "a", "b")
        with pytest.raises(UnavailableError):
            await room.say("m")
        heal(three, clock)
        assert await room.say("m") == [False]  # one store had it
        assert ids(await room.fetch()) == ["m"]

    async def test_a_refusal_of_all_is_the_answer(self, three: ChannelStores):
        room = Room(three)
        cut(three, "c")
        with pytest.raises(SubscriptionNotFoundError):
            await room.fetch(timeout_ms=60_000)

    async def test_a_refusal_of_too_few_is_not(self, three: ChannelStores):
        room = Room(three)
        cut(three, "b", "c")
        with pytest.raises(UnavailableError):
            await room.fetch()


class TestBreakers:
    async def test_a_dead_store_costs_one_time_limit(self, tmp_path: Path, clock: ManualClock):
        async with opened(embedded_urls(tmp_path, "ab"), 1, clock=clock, timeout_ms=200) as stores:
            room, dead = Room(stores), stores.members["b"]
            await room.create()
            attempts = dead.attempts
            cut(stores, "b", fault="silent")
            await room.say("m0")
            await until(lambda: dead.breaker.state is BreakerState.OPEN)
            for number in range(1, 50):
                await room.say(f"m{number}")
                await room.ack(await room.fetch())
            assert dead.attempts == attempts + 1
            assert not dead.pending

            clock.advance_ms(STORE_BREAKER.open_ms)
            assert dead.breaker.state is BreakerState.HALF_OPEN
            await asyncio.gather(*(room.say(f"n{number}") for number in range(50)))
            await until(lambda: dead.breaker.state is BreakerState.OPEN)
            assert dead.attempts == attempts + 2

            heal(stores, clock)
            await room.say("back")
            assert dead.breaker.state is BreakerState.CLOSED
            assert await child(stores, "b").store.find(CHANNEL, "back") is not None

    async def test_a_slow_store_does_not_slow_a_write(self, tmp_path: Path, clock: ManualClock):
        async with opened(embedded_urls(tmp_path, "ab"), 1, clock=clock, grace_ms=1) as stores:
            room, slow = Room(stores), child(stores, "b")
            await room.create()
            await stores.members.drain()
            cut(stores, "b", fault="slow")
            assert await room.say("m") == [True]
            assert len(stores.members["b"].pending) == 1
            # It had its grace. Until it answers, nobody waits for it again.
            stores.members._grace_s = 3_600.0
            await asyncio.wait_for(room.say("n"), 10)
            assert len(stores.members["b"].pending) == 2
            slow.go.set()
            await stores.members["b"].drain()
            assert await slow.store.find(CHANNEL, "m") is not None

    async def test_close_waits_for_the_rest(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "ab"), 1, grace_ms=1) as stores:
            room, slow = Room(stores), child(stores, "b")
            cut(stores, "b", fault="slow")
            await room.say("m")
            closing = asyncio.create_task(stores.close())
            await asyncio.sleep(0)
            assert not closing.done()
            slow.go.set()
            await closing
            assert await slow.store.find(CHANNEL, "m") is not None
            for attempt in (room.say("n"), room.fetch()):
                with pytest.raises(ClosedError):
                    await attempt

    async def test_what_waits_for_a_slow_store_is_bounded(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "ab"), 1, grace_ms=0, max_pending=3) as stores:
            room, slow = Room(stores), child(stores, "b")
            cut(stores, "b", fault="slow")
            for number in range(10):
                await room.say(f"m{number}")
            assert len(stores.members["b"].pending) == 3
            slow.go.set()

    async def test_a_refusal_is_no_failure(self, pair: ChannelStores):
        for _ in range(5):
            with pytest.raises(SubscriptionNotFoundError):
                await Room(pair).fetch()
        assert {member.breaker.state for member in pair.members} == {BreakerState.CLOSED}

    async def test_a_cancelled_caller_leaves_the_write_running(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "ab"), 2) as stores:
            room, slow = Room(stores), child(stores, "b")
            cut(stores, "b", fault="slow")
            task = asyncio.create_task(room.say("m"))
            await until(lambda: slow.begun)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            slow.go.set()
            await stores.members.drain()
            assert await slow.store.find(CHANNEL, "m") is not None


def test_settings_that_make_no_sense(tmp_path: Path):
    store = ChannelStore(penstock.open(tmp_path / "a.pen"), "a")
    with pytest.raises(ConfigError, match="at least one store"):
        ChannelStores({}, 1)
    for quorum in (0, 2, -1, True):
        with pytest.raises(ConfigError, match="quorum must be from 1 to 1"):
            ChannelStores({"a": store}, quorum)
    with pytest.raises(ConfigError, match="'b' calls itself 'a'"):
        ChannelStores({"b": store}, 1)
