"""After the largest clock comes the smallest: nothing is lost, repeated or put into another order there."""

from __future__ import annotations

import re

import pytest

import penstock
from penstock.channels import Channel, ChannelStore
from penstock.channels.clocks import MAX, MIN
from penstock.errors import SubscriptionNotFoundError
from tests.channels.conftest import ids, keys_of, number_at, numbered, set_clocks


@pytest.mark.parametrize("before", range(5))
async def test_publish_fetch_and_ack_across_the_edge(
    ps: penstock.Penstock, room: Channel, before: int
) -> None:
    alice = room.subscription("alice")
    await set_clocks(ps, "room", MAX - before, alice=MAX - before)
    clocks = [*range(MAX - before + 1, MAX + 1), *range(MIN, MIN + 5 - before)]
    assert len(clocks) == 5
    assert await room.publish_many(numbered(1, 5)) == [True] * 5
    assert await room.publish_many(numbered(1, 5)) == [False] * 5
    assert await number_at(ps, "c.{room}.clock") == clocks[-1]
    for number, clock in enumerate(clocks, 1):
        assert await number_at(ps, f"c.{{room}}.mid.m{number}") == clock
        assert await ps.execute("GET", f"c.{{room}}.m.{clock}") == b'{"id":"m%d","content":%d}' % (
            number,
            number,
        )

    batch = await alice.fetch()
    assert [(message.id, message.clock) for message in batch.messages] == [
        (f"m{number}", clock) for number, clock in enumerate(clocks, 1)
    ]
    assert not batch.more
    for number, clock in enumerate(clocks, 1):  # one by one
        batch = await alice.fetch(1)
        assert (ids(batch), batch.more) == ([f"m{number}"], number < 5)
        assert [await alice.ack(batch), await alice.ack(batch)] == [True, False]
        assert await number_at(ps, "c.{room}.r.alice") == clock
    assert await alice.fetch() == ((), False, None)


async def test_one_receipt_for_both_sides_of_the_edge(ps: penstock.Penstock, room: Channel) -> None:
    alice = room.subscription("alice")
    await set_clocks(ps, "room", MAX - 2, alice=MAX - 2)
    await room.publish_many(numbered(1, 4))
    both = await alice.fetch()
    assert await alice.ack(both)  # all of it: none comes again
    assert await number_at(ps, "c.{room}.r.alice") == MIN + 1
    assert await alice.fetch() == ((), False, None)
    await room.publish("m5", 5)
    assert ids(await alice.fetch()) == ["m5"]


async def test_looking_and_giving_back_across_the_edge(
    ps: penstock.Penstock, room: Channel, store: ChannelStore
) -> None:
    alice = room.subscription("alice")
    await set_clocks(ps, "room", MAX - 2, alice=MAX - 2)
    await room.publish_many(numbered(1, 5))
    page = await alice.backlog(limit=2)
    assert ([message.id for message in page.messages], page.after, page.unread) == (["m1", "m2"], MAX, 5)
    page = await alice.backlog(after=page.after, limit=2)
    assert ([message.id for message in page.messages], page.after, page.unread) == (
        ["m3", "m4"],
        MIN + 1,
        5,
    )
    page = await alice.backlog(after=page.after, limit=2)
    assert ([message.id for message in page.messages], page.after, page.unread) == (["m5"], None, 5)
    info = await room.info()
    assert info is not None
    assert (info.clock, info.unread) == (MIN + 2, {"alice": 5})
    first = await alice.fetch(3)
    assert await store.are_old("room", "alice", ["m1", "m3", "m5"]) == [False, False, False]
    assert await alice.nack(first, delay_ms=60_000)
    assert await alice.fetch() == ((), False, None)
    assert await alice.ack(first)
    assert await store.are_old("room", "alice", ["m1", "m3", "m4", "m5"]) == [True, True, False, False]
    assert await store.old_clocks("room", "alice", ["m2", "m3"]) == [MAX, MIN]
    assert ids(await alice.fetch()) == ["m4", "m5"]
    found = await room.message("m3")
    assert found is not None
    assert found.clock == MIN


async def test_expired_messages_across_the_edge(ps: penstock.Penstock, room: Channel) -> None:
    alice = room.subscription("alice")
    await set_clocks(ps, "room", MAX - 3, alice=MAX - 3)
    await room.publish_many(numbered(1, 8))
    for clock in (MAX - 2, MAX - 1, MAX, MIN, MIN + 1):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}")
    assert ids(await alice.fetch(2)) == ["m6", "m7"]
    assert await number_at(ps, "c.{room}.r.alice") == MIN + 1


async def test_the_smallest_clocks_and_those_around_zero(ps: penstock.Penstock, room: Channel) -> None:
    for start in (MIN, MIN + 1, -3, -1, 0):
        alice = room.subscription(f"alice{start}")
        await set_clocks(ps, "room", start)
        await alice.create()
        assert await room.publish_many([(f"n{start + MAX}-{number}", number) for number in range(4)])
        batch = await alice.fetch()
        assert [message.clock for message in batch.messages] == list(range(start + 1, start + 5))
        assert await alice.ack(batch)
        assert await number_at(ps, f"c.{{room}}.r.alice{start}") == start + 4
    stored = [key for key in await keys_of(ps) if key.startswith("c.{room}.m.")]
    assert all(re.fullmatch(r"c\.\{room\}\.m\.(0|-?[1-9][0-9]*)", key) for key in stored)


async def test_a_new_subscriber_begins_at_the_edge(ps: penstock.Penstock, room: Channel) -> None:
    await set_clocks(ps, "room", MAX)
    alice = await room.subscribe("alice")
    assert await alice.fetch() == ((), False, None)
    await room.publish("m1", 1)
    bob = await room.subscribe("bob")
    assert ids(await alice.fetch()) == ["m1"]
    assert await bob.fetch() == ((), False, None)


async def test_a_cursor_of_a_channel_that_is_gone(ps: penstock.Penstock, room: Channel) -> None:
    """It lies above the clock and yet nothing went round: nobody searches half of all clocks for messages."""
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 9))
    batch = await alice.fetch()
    await alice.ack(batch)
    await ps.execute("DEL", "c.{room}.clock")
    for clock in (None, 3):
        if clock is not None:
            await ps.execute("SET", "c.{room}.clock", clock)
        for call in (alice.fetch(), alice.backlog(), alice.ack(batch), alice.nack(batch)):
            with pytest.raises(SubscriptionNotFoundError):
                await call
    assert await alice.create()
    await room.publish("n1", 1)
    assert [(message.id, message.clock) for message in (await alice.fetch()).messages] == [("n1", 4)]
