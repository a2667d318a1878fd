"""What several stores do when some of them fail, lag, or are replaced. Faults are made on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import penstock
from penstock.channels import ChannelStore
from penstock.channels.receipts import unwrap, wrap
from penstock.channels.stores import STORE_BREAKER, ChannelStores
from penstock.clock import ManualClock
from penstock.errors import (
    ClosedError,
    ConfigError,
    ReceiptError,
    SubscriptionNotFoundError,
    UnavailableError,
)
from penstock.webhooks.breaker import BreakerState
from tests.channels.test_stores_support import ALICE, CHANNEL, Room, child, ids, numbered, opened
from tests.places import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def urls(tmp_path: Path, names: str) -> dict[str, str]:
    return {name: f"embedded:{tmp_path / name}.pen?durability=relaxed" for name in names}


@pytest.fixture
async def pair(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ChannelStores]:
    """Two stores of which one is enough."""
    async with opened(urls(tmp_path, "ab"), 1, clock=clock) as stores:
        yield stores


@pytest.fixture
async def three(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ChannelStores]:
    """Three stores of which two are needed."""
    async with opened(urls(tmp_path, "abc"), 2, clock=clock) as stores:
        yield stores


def cut(stores: ChannelStores, *names: str, fault: str = "lost") -> None:
    for name in names:
        child(stores, name).fault = fault


def heal(stores: ChannelStores, clock: ManualClock) -> None:
    """Everybody answers again, and breakers may find out."""
    for name in stores.members.names:
        child(stores, name).fault = ""
    clock.advance_ms(STORE_BREAKER.max_open_ms)


def parts(receipt: str | None) -> list[str]:
    assert receipt is not None
    return sorted(unwrap(receipt))


# ---------------------------------------------------------------------------------------- quorum


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


# ---------------------------------------------------------------------------------------- breakers


class TestBreakers:
    async def test_a_dead_store_costs_one_time_limit(self, tmp_path: Path, clock: ManualClock):
        async with opened(urls(tmp_path, "ab"), 1, clock=clock, timeout_ms=200) as stores:
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
        async with opened(urls(tmp_path, "ab"), 1, clock=clock, grace_ms=1) as stores:
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
        async with opened(urls(tmp_path, "ab"), 1, grace_ms=1) as stores:
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
        async with opened(urls(tmp_path, "ab"), 1, grace_ms=0, max_pending=3) as stores:
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
        async with opened(urls(tmp_path, "ab"), 2) as stores:
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


# ---------------------------------------------------------------------------------------- lagging


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
        async with opened(urls(tmp_path, "ab"), 1, window_ms=10_000) as stores:
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


# ---------------------------------------------------------------------------------------- repairing


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


# ---------------------------------------------------------------------------------------- receipts


class TestReceipts:
    async def test_a_store_that_was_added(self, tmp_path: Path):
        async with opened(urls(tmp_path, "a"), 1) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        async with opened(urls(tmp_path, "ab"), 2) as after:
            assert await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_a_store_that_was_swapped(self, tmp_path: Path):
        async with opened(urls(tmp_path, "ab"), 2) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
            assert parts(batch.receipt) == ["a", "b"]
        async with opened(urls(tmp_path, "bc"), 2) as after:
            assert await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_a_store_that_was_emptied(self, tmp_path: Path):
        """It has another secret, and knows neither the subscriber nor the receipt."""
        async with opened(urls(tmp_path, "ab"), 2) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        fresh = {**urls(tmp_path, "a"), "b": f"embedded:{tmp_path / 'other.pen'}?durability=relaxed"}
        async with opened(fresh, 2) as after:
            assert ids(await Room(after).fetch()) == ["m1"]
            assert await Room(after).ack(batch)
            assert not await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_of_strangers_only(self, tmp_path: Path):
        async with opened(urls(tmp_path, "ab"), 1) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        async with opened(urls(tmp_path, "cd"), 1) as after:
            with pytest.raises(ReceiptError, match="nothing of the stores c, d"):
                await Room(after).ack(batch)
            with pytest.raises(ReceiptError):
                await Room(after).fetch(after=batch.receipt)

    async def test_tampered(self, pair: ChannelStores):
        room = Room(pair)
        await room.create()
        await room.say("m1")
        batch = await room.fetch()
        assert batch.receipt is not None
        spoilt = {name: part.replace('"clk":1', '"clk":2') for name, part in unwrap(batch.receipt).items()}
        for receipt in (wrap(spoilt), wrap({}), "nonsense"):
            with pytest.raises(ReceiptError):
                await room.ack(receipt)
            with pytest.raises(ReceiptError):
                await room.fetch(after=receipt)
        assert ids(await room.fetch(after=wrap({**spoilt, "b": unwrap(batch.receipt)["b"]}))) == []
        assert await room.ack(wrap({**spoilt, "b": unwrap(batch.receipt)["b"]}))

    async def test_some_stores_forgot_the_subscriber(self, three: ChannelStores):
        room = Room(three)
        await room.create()
        await room.say("m1")
        batch = await room.fetch()
        await Room(child(three, "a").store).remove()
        await Room(child(three, "b").store).remove()
        assert await room.ack(batch)
        await Room(child(three, "c").store).remove()
        with pytest.raises(SubscriptionNotFoundError):
            await room.ack(batch)


# ---------------------------------------------------------------------------------------- outboxes


class TestOutbox:
    @pytest.mark.parametrize("fault", ["lost", "mute"])
    async def test_the_next_store_keeps_it(self, three: ChannelStores, clock: ManualClock, fault: str):
        room = Room(three)
        cut(three, "a", fault=fault)
        assert await room.publish(("m1", b"1"), outbox=True) == [True]
        heal(three, clock)
        kept = [len(await child(three, name).store.read_outbox(CHANNEL, 9)) for name in "abc"]
        assert kept == [fault == "mute", 1, 0]
        # All of it is handed on in the end, from wherever it is.
        handed = []
        while entries := await three.read_outbox(CHANNEL, 9):
            handed += [entry.partition(b" ")[2] for entry in entries]
            await three.forwarded(CHANNEL, entries)
        assert set(handed) == {b'{"id":"m1","content":1}'}

    async def test_what_a_dead_store_keeps_waits_in_it(self, pair: ChannelStores, clock: ManualClock):
        room = Room(pair)
        await room.publish(("m1", b"1"), outbox=True)
        cut(pair, "a")
        await room.publish(("m2", b"2"), outbox=True)
        entries = await pair.read_outbox(CHANNEL, 9)
        assert [b"m2" in entry for entry in entries] == [True]
        assert await pair.forwarded(CHANNEL, entries) == 0
        heal(pair, clock)
        assert [b"m1" in entry for entry in await pair.read_outbox(CHANNEL, 9)] == [True]

    async def test_no_store_has_a_message_that_nobody_keeps(self, three: ChannelStores, clock: ManualClock):
        """Whatever happens to the keeper, repeating the publishing finds either its copy or none at all."""
        room = Room(three)
        cut(three, "a", "b", "c")
        with pytest.raises(UnavailableError):
            await room.publish(("m1", b"1"), outbox=True)
        heal(three, clock)
        cut(three, "b", "c")
        with pytest.raises(UnavailableError):
            await room.publish(("m1", b"1"), outbox=True)
        heal(three, clock)
        cut(three, "a")
        await room.publish(("m1", b"1"), outbox=True)
        heal(three, clock)
        kept = [len(await child(three, name).store.read_outbox(CHANNEL, 9)) for name in "abc"]
        assert kept == [1, 1, 0]


def test_settings_that_make_no_sense(tmp_path: Path):
    store = ChannelStore(penstock.open(tmp_path / "a.pen"), "a")
    with pytest.raises(ConfigError, match="at least one store"):
        ChannelStores({}, 1)
    for quorum in (0, 2, -1, True):
        with pytest.raises(ConfigError, match="quorum must be from 1 to 1"):
            ChannelStores({"a": store}, quorum)
    with pytest.raises(ConfigError, match="'b' calls itself 'a'"):
        ChannelStores({"b": store}, 1)
