"""Giving back, and looking without changing anything."""

from __future__ import annotations

import asyncio
import time

import penstock
from penstock.channels import Channel, ChannelStore, Subscription
from tests.channels.conftest import TTL_S, ids, number_at, numbered
from tests.places import until

LONG_MS = 60_000


async def _subscriber_with(room: Channel, count: int) -> Subscription:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, count))
    return alice


async def test_giving_back_at_once(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 3)
    batch = await alice.fetch(2)
    assert await alice.nack(batch)
    assert await alice.fetch(2) == batch
    assert await ps.execute("EXISTS", "c.{room}.nack.alice") == 0


async def test_giving_back_for_a_time(room: Channel) -> None:
    alice, bob = await _subscriber_with(room, 3), await room.subscribe("bob")
    batch = await alice.fetch(2)
    begin_s = time.monotonic()
    assert await alice.nack(batch, delay_ms=700)
    assert await alice.fetch() == ((), False, None)
    await room.publish("m4", 4)  # which does not break the pause
    assert ids(await bob.fetch()) == ["m4"]  # nor is anybody else held back
    again = await alice.fetch(timeout_ms=LONG_MS)
    assert ids(again) == ["m1", "m2", "m3", "m4"]
    assert 0.65 < time.monotonic() - begin_s < 30


async def test_a_poll_is_held_back_for_its_time_only(room: Channel) -> None:
    alice = await _subscriber_with(room, 1)
    assert await alice.nack(await alice.fetch(), delay_ms=LONG_MS)
    assert await alice.fetch(timeout_ms=50) == ((), False, None)


async def test_giving_back_at_once_ends_a_pause(
    room: Channel, store: ChannelStore, other: penstock.Penstock
) -> None:
    alice = await _subscriber_with(room, 2)
    batch = await alice.fetch()
    assert await alice.nack(batch, delay_ms=LONG_MS)
    poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
    await until(lambda: store.waiting == 1)
    assert await other.channel("room").subscription("alice").nack(batch)
    assert ids(await asyncio.wait_for(poll, 10)) == ["m1", "m2"]


async def test_an_acknowledgement_ends_a_pause(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 3)
    batch = await alice.fetch(2)
    assert await alice.nack(batch, delay_ms=LONG_MS)
    assert await alice.ack(batch)
    assert await ps.execute("EXISTS", "c.{room}.nack.alice") == 0
    assert ids(await alice.fetch()) == ["m3"]


async def test_a_pause_is_of_one_life_of_a_subscriber(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 2)
    receipt = await alice.fetch()
    assert await alice.nack(receipt, delay_ms=LONG_MS)
    assert await alice.unsubscribe()
    assert await ps.execute("EXISTS", "c.{room}.nack.alice") == 0
    await alice.create()
    await room.publish("m3", 3)
    assert await alice.nack(await alice.fetch(), delay_ms=LONG_MS)
    await ps.execute("DEL", "c.{room}.r.alice")  # it expires, and its mark stays
    assert await alice.create()
    await room.publish("m4", 4)
    assert ids(await alice.fetch()) == ["m4"]


async def test_the_newest_pause_counts(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 3)
    one, three = await alice.fetch(1), await alice.fetch(3)
    assert await alice.nack(three, delay_ms=2 * LONG_MS)
    assert await alice.nack(one, delay_ms=LONG_MS)
    assert await ps.execute("GET", "c.{room}.nack.alice") == b"1"
    assert 0 < await ps.execute("PTTL", "c.{room}.nack.alice") <= LONG_MS
    assert await alice.fetch() == ((), False, None)
    assert await alice.ack(one)
    assert ids(await alice.fetch()) == ["m2", "m3"]


# ------------------------------------------------------------------------------- looking


async def test_pages_of_a_backlog(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 10)
    await alice.ack(await alice.fetch(2))
    pages: list[list[int]] = []
    after: int | None = None
    while True:
        page = await alice.backlog(after=after, limit=3)
        assert page.unread == 8
        pages.append([message.content for message in page.messages])
        after = page.after
        if after is None:
            break
    assert pages == [[3, 4, 5], [6, 7, 8], [9, 10]]
    assert await number_at(ps, "c.{room}.r.alice") == 2
    whole = await alice.backlog()
    assert ([message.clock for message in whole.messages], whole.after) == (list(range(3, 11)), None)
    # From a place that is not unread, it begins at the cursor.
    for elsewhere in (1, 2, 11, 10**15, -5):
        assert await alice.backlog(after=elsewhere) == whole
    assert await alice.backlog(after=10) == ((), None, 8)
    assert len((await alice.backlog(limit=10**9)).messages) == 8


async def test_a_backlog_with_holes(room: Channel, ps: penstock.Penstock) -> None:
    alice = await _subscriber_with(room, 6)
    for clock in (1, 2, 4, 6):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}")
    page = await alice.backlog(limit=1)
    assert ([message.id for message in page.messages], page.after, page.unread) == (["m3"], 3, 6)
    page = await alice.backlog(after=3, limit=5)
    assert ([message.id for message in page.messages], page.after, page.unread) == (["m5"], None, 6)
    assert await number_at(ps, "c.{room}.r.alice") == 0  # unlike a fetch, it steps over nothing
    await ps.execute("SET", "c.{room}.clock", 12_000, "EX", TTL_S)
    await ps.execute("SET", "c.{room}.m.12000", '{"id":"far","content":1}', "EX", TTL_S)
    found: list[str] = []
    after: int | None = 6
    pages = 0
    while after is not None:
        page = await alice.backlog(after=after)
        found += [message.id for message in page.messages]
        after, pages = page.after, pages + 1
    assert (found, pages) == (["far"], 3)


async def test_a_backlog_of_large_messages(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many([(f"m{number}", "x" * 3_000_000) for number in (1, 2, 3)])
    await room.publish("m4", "y" * 9_000_000)
    pages: list[list[str]] = []
    after: int | None = None
    while True:
        page = await alice.backlog(after=after)
        pages.append([message.id for message in page.messages])
        after = page.after
        if after is None:
            break
    assert pages == [["m1", "m2"], ["m3"], ["m4"]]


async def test_a_backlog_of_nothing(room: Channel) -> None:
    alice = await room.subscribe("alice")
    assert await alice.backlog() == ((), None, 0)
    await room.publish("m1", 1)
    assert await alice.nack(await alice.fetch(), delay_ms=LONG_MS)
    assert [message.id for message in (await alice.backlog()).messages] == ["m1"]  # also while paused
