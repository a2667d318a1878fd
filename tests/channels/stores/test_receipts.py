"""What a receipt of several stores says, and what is written down until a store is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.channels.receipts import unwrap, wrap
from penstock.channels.stores import ChannelStores
from penstock.clock import ManualClock
from penstock.errors import ReceiptError, SubscriptionNotFoundError, UnavailableError
from tests.channels.stores.support import CHANNEL, Room, child, cut, embedded_urls, heal, ids, opened, parts


class TestReceipts:
    async def test_a_store_that_was_added(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "a"), 1) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        async with opened(embedded_urls(tmp_path, "ab"), 2) as after:
            assert await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_a_store_that_was_swapped(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "ab"), 2) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
            assert parts(batch.receipt) == ["a", "b"]
        async with opened(embedded_urls(tmp_path, "bc"), 2) as after:
            assert await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_a_store_that_was_emptied(self, tmp_path: Path):
        """It has another secret, and knows neither the subscriber nor the receipt."""
        async with opened(embedded_urls(tmp_path, "ab"), 2) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        fresh = {**embedded_urls(tmp_path, "a"), "b": f"embedded:{tmp_path / 'other.pen'}?durability=relaxed"}
        async with opened(fresh, 2) as after:
            assert ids(await Room(after).fetch()) == ["m1"]
            assert await Room(after).ack(batch)
            assert not await Room(after).ack(batch)
            assert ids(await Room(after).fetch()) == []

    async def test_of_strangers_only(self, tmp_path: Path):
        async with opened(embedded_urls(tmp_path, "ab"), 1) as before:
            await Room(before).create()
            await Room(before).say("m1")
            batch = await Room(before).fetch()
        async with opened(embedded_urls(tmp_path, "cd"), 1) as after:
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
