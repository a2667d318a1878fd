"""Stores that come too late or were away, and how they are brought up to date."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.channels.stores import ChannelStores
from penstock.clock import ManualClock
from penstock.errors import SubscriptionNotFoundError
from tests.channels.stores.support import (
    ALICE,
    CHANNEL,
    Room,
    child,
    cut,
    embedded_urls,
    heal,
    ids,
    numbered,
    opened,
    parts,
)
from tests.places import until


class TestLagging:
    async def lag(self, stores: ChannelStores, clock: ManualClock, count: int = 3) -> Room:
        """A room whose messages were acknowledged everywhere but in store b, which has them still."""
        room = Room(stores)
        await room.create()
        await room.publish(*numbered(1, count))
        batch = await room.fetch(limit=count)
        cut(stores, "b")
        assert await room.ack(batch)
        heal(stores, clock)
        assert await Room(child(stores, "b").store).unread() == count
        return room

    @pytest.mark.parametrize("limit", [1, 2, 64])
    async def test_a_short_poll_gives_nothing_and_moves_it(
        self, pair: ChannelStores, clock: ManualClock, limit: int
    ):
        room = await self.lag(pair, clock)
        assert await room.fetch(limit=limit) == ((), False, None)
        assert await Room(child(pair, "b").store).unread() == 0

    async def test_a_long_poll_goes_on_waiting(self, pair: ChannelStores, clock: ManualClock):
        room = await self.lag(pair, clock, 200)
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: all(member.store.waiting for member in pair.members))
        assert await Room(child(pair, "b").store).unread() == 0
        await room.say("new")
        batch = await asyncio.wait_for(poll, 10)
        assert ids(batch) == ["new"]
        assert parts(batch.receipt) == ["a", "b"]

    async def test_new_messages_are_not_held_up(self, pair: ChannelStores, clock: ManualClock):
        room = await self.lag(pair, clock)
        await room.say("new")
        batch = await room.fetch(limit=2)
        assert ids(batch) == ["new"]
        await room.ack(batch)
        assert ids(await room.fetch()) == []
        for member in pair.members:
            assert await Room(member.store).unread() == 0

    async def test_a_backlog_does_not_show_it(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        await room.create()
        await room.say("m1", "m2")
        batch = await room.fetch(limit=1)
        cut(pair, "a")  # the first, whose pages are shown
        await room.ack(batch)
        heal(pair, clock)
        page = await pair.backlog(CHANNEL, ALICE, limit=9)
        assert [message.id for message in page.messages] == ["m2"]
        assert page.unread == 1
        assert await room.are_old("m1", "m2") == [True, False]

    async def test_messages_that_one_store_missed(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        await room.create()
        await room.say("m1")
        cut(pair, "a")
        await room.say("m2")
        heal(pair, clock)
        await room.say("m3")
        first = await room.fetch(limit=2)
        assert ids(first) == ["m1", "m2"]
        assert first.more
        assert parts(first.receipt) == ["a", "b"]
        assert await room.ack(first)
        last = await room.fetch()
        assert ids(last) == ["m3"]
        await room.ack(last)
        assert [await Room(member.store).unread() for member in pair.members] == [0, 0]

    async def test_opposite_orders_lose_nothing(self, pair: ChannelStores):
        room = Room(pair)
        await room.create()
        await Room(child(pair, "a").store).say("x", "y")
        await Room(child(pair, "b").store).say("y", "x")
        seen = []
        for _ in range(2):
            batch = await room.fetch(limit=1)
            seen += ids(batch)
            assert await room.ack(batch)
        assert seen == ["x", "y"]
        assert ids(await room.fetch()) == []
        assert [await Room(member.store).unread() for member in pair.members] == [0, 0]

    async def test_reading_ahead_passes_it_without_acknowledging(
        self, pair: ChannelStores, clock: ManualClock
    ):
        room = Room(pair)
        await room.create()
        await room.say("m1", "m2", "m3")
        first = await room.fetch(limit=1)
        cut(pair, "b")
        await room.ack(await room.fetch(limit=2))
        heal(pair, clock)
        ahead = await room.fetch(after=first.receipt)
        assert ids(ahead) == ["m3"]
        assert await Room(child(pair, "b").store).unread() == 3
        assert await room.ack(ahead)
        assert await Room(child(pair, "b").store).unread() == 0

    async def test_a_message_on_its_way_is_waited_for(self, tmp_path: Path):
        """It reaches the second store after a waiting fetch has found it in the first."""
        async with opened(embedded_urls(tmp_path, "ab"), 1, window_ms=10_000) as stores:
            room, early, late = Room(stores), child(stores, "a"), child(stores, "b")
            await room.create()
            poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
            await until(lambda: early.waiting and late.waiting)
            await Room(early.store).say("m")
            await until(lambda: not early.waiting)
            await Room(late.store).say("m")
            batch = await asyncio.wait_for(poll, 30)
            assert ids(batch) == ["m"]
            assert parts(batch.receipt) == ["a", "b"]

    async def test_a_message_that_too_few_gave_is_looked_for_once_more(self, three: ChannelStores):
        room = Room(three)
        await room.create()
        await Room(child(three, "a").store).say("m")
        other = child(three, "b")
        other.fault, other.hook = "hook", lambda: Room(other.store).say("m")
        batch = await room.fetch()
        assert ids(batch) == ["m"]
        assert parts(batch.receipt) == ["a", "b"]

    async def test_a_store_that_cannot_be_moved_is_left_out(self, pair: ChannelStores, clock: ManualClock):
        room = await self.lag(pair, clock)
        stubborn = child(pair, "b")

        async def refuse(*_: object, **__: object) -> bool:
            return False

        stubborn.ack = refuse
        assert await room.fetch() == ((), False, None)
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: child(pair, "a").waiting)
        await room.say("new")
        assert ids(await asyncio.wait_for(poll, 10)) == ["new"]


class TestRepair:
    async def test_a_missing_subscriber_is_made_from_now_on(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        cut(pair, "b")
        await room.create()
        heal(pair, clock)
        await room.say("m1")
        assert ids(await room.fetch()) == ["m1"]
        # It began behind m1 in store b, which is no reason to take m1 for acknowledged.
        assert ids(await room.fetch()) == ["m1"]
        await room.say("m2")
        batch = await room.fetch()
        assert ids(batch) == ["m1", "m2"]
        assert await room.ack(batch)
        cut(pair, "a")
        assert ids(await room.fetch()) == []
        assert await room.are_old("m1", "m2") == [True, True]

    async def test_creating_it_again_is_no_acknowledgement(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        cut(pair, "b")
        assert await room.create()
        heal(pair, clock)
        await room.say("m1")
        assert not await room.create()
        assert ids(await room.fetch()) == ["m1"]
        assert await room.are_old("m1") == [False]

    async def test_what_was_acknowledged_after_a_repair_stays_so(
        self, pair: ChannelStores, clock: ManualClock
    ):
        room = Room(pair)
        cut(pair, "b")
        await room.create()
        heal(pair, clock)
        await room.fetch()
        await room.say("m1")
        batch = await room.fetch()
        cut(pair, "a")
        assert await room.ack(batch)
        heal(pair, clock)
        assert ids(await room.fetch()) == []
        assert await Room(child(pair, "a").store).unread() == 0

    async def test_a_waiting_fetch_repairs_too(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        await room.create()
        await Room(child(pair, "b").store).remove()
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: child(pair, "a").waiting)
        await room.say("m1")
        assert ids(await asyncio.wait_for(poll, 10)) == ["m1"]
        assert await Room(child(pair, "b").store).unread() <= 1

    async def test_a_removed_subscriber_is_not_revived_by_one_of_three(
        self, three: ChannelStores, clock: ManualClock
    ):
        room = Room(three)
        await room.create()
        cut(three, "c")
        assert await room.remove()
        heal(three, clock)
        with pytest.raises(SubscriptionNotFoundError):
            await room.fetch(timeout_ms=60_000)

    async def test_one_of_three_is_believed_while_another_is_out(
        self, three: ChannelStores, clock: ManualClock
    ):
        room = Room(three)
        cut(three, "c")
        await room.create()
        await room.say("m")
        heal(three, clock)
        cut(three, "b")
        assert ids(await room.fetch()) == ["m"]

    async def test_marks_are_not_shown(self, pair: ChannelStores):
        await Room(pair).create()
        info = await pair.info(CHANNEL)
        assert info is not None
        assert info.unread == {ALICE: 0}
        await Room(pair).remove()
        raw = await child(pair, "a").store.info(CHANNEL)
        assert raw is not None
        assert raw.unread == {}
