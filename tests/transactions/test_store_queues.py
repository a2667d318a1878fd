"""Queues: by priority, and inside one priority fair between owners; who is told that there is work."""

from __future__ import annotations

import asyncio

import pytest

from tests.transactions.conftest import LONG_MS, Desk, only_on, put_pipeline

# ---------------------------------------------------------------------------------------- priorities


async def test_the_most_urgent_go_first(desk: Desk) -> None:
    ids = {priority: await desk.start(priority=priority) for priority in (3, 0, 9, 5, 7)}
    assert [record.id for record in await desk.take()] == [ids[priority] for priority in (9, 7, 5, 3, 0)]


async def test_of_one_owner_and_priority_the_first_come_first(desk: Desk) -> None:
    ids = [await desk.start() for _ in range(20)]
    assert [record.id for record in await desk.take(20)] == ids


async def test_an_urgent_one_passes_by_whoever_waits_already(desk: Desk) -> None:
    for _ in range(70):
        await desk.start()
    await desk.take(3)
    urgent = await desk.start(priority=6)
    assert (await desk.take_one()).id == urgent


async def test_a_queue_goes_before_a_priority(desk: Desk) -> None:
    """Who goes on is let out before anybody is let in, however urgent."""
    record = await desk.begun(priority=0)
    assert await desk.settle(record, "queue", "Out", "shop") == "ok"
    urgent = await desk.start(priority=9)
    assert [taken.id for taken in await desk.take()] == [record.id, urgent]


# ------------------------------------------------------------------------------------------ fairness


@only_on("embedded", "server")
async def test_one_who_queues_a_thousand_does_not_keep_another_waiting(desk: Desk) -> None:
    await asyncio.gather(*(desk.start(owner="glutton") for _ in range(1_000)))
    await desk.take(10)
    modest = await desk.start(owner="modest")
    assert modest in [record.id for record in await desk.take(2)]


async def test_owners_take_turns(desk: Desk) -> None:
    for owner, count in (("ann", 6), ("bob", 3), ("cid", 1)):
        for _ in range(count):
            await desk.start(owner=owner)
    order = [record.text(b"owner") for record in await desk.take()]
    assert sorted(order[:3]) == ["ann", "bob", "cid"]
    assert sorted(order[3:5]) == sorted(order[5:7]) == ["ann", "bob"]
    assert order[7:] == ["ann", "ann", "ann"]


async def test_who_waited_for_nothing_has_saved_no_turns(desk: Desk) -> None:
    """One who comes after a long time is served in the next turn, not before everybody for as long."""
    for _ in range(12):
        await desk.start(owner="ann")
    await desk.take(6)
    for _ in range(6):
        await desk.start(owner="bob")
    order = [record.text(b"owner") for record in await desk.take(6)]
    assert sorted(order) == ["ann"] * 3 + ["bob"] * 3


async def test_fairness_is_forgotten_with_the_last_who_waits(desk: Desk) -> None:
    for _ in range(5):
        await desk.start(owner="ann")
    assert await desk.execute("EXISTS", "fairH:In:shop") == 1
    await desk.take(5)
    assert await desk.execute("EXISTS", "fairH:In:shop") == 0


async def test_fairness_is_forgotten_too_if_the_last_is_cancelled(desk: Desk) -> None:
    for tx in [await desk.start(owner="ann") for _ in range(3)]:
        await desk.store.control("cancel", tx, "ann")
    assert await desk.execute("EXISTS", "fairH:In:shop") == 0


async def test_priorities_have_turns_of_their_own(desk: Desk) -> None:
    for _ in range(5):
        await desk.start(owner="ann", priority=9)
    ann, bob = await desk.start(owner="ann", priority=1), await desk.start(owner="bob", priority=1)
    await desk.take(5)
    assert {record.id for record in await desk.take(2)} == {ann, bob}


# ------------------------------------------------------------------------------------------ wake-ups


async def test_a_queue_that_stops_being_empty_tells_its_group(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post")
    async with desk.hearing("tx.work.shop", "tx.work.post") as heard:
        await desk.start()
        assert await heard() == [("tx.work.shop", desk.prefix)]
        for _ in range(5):
            await desk.start(owner="umbrella")
        assert await heard() == []
        await desk.take()
        assert await heard() == []
        await desk.start()
        assert await heard() == [("tx.work.shop", desk.prefix)]
        await desk.start("mail")
        assert await heard() == [("tx.work.post", desk.prefix)]


async def test_who_left_some_of_it_hears_nothing_of_more(desk: Desk) -> None:
    await desk.start()
    await desk.start()
    await desk.take(1)
    async with desk.hearing("tx.work.shop") as heard:
        await desk.start()
        assert await heard() == []


async def test_each_queue_of_a_group_tells_for_itself(desk: Desk) -> None:
    record = await desk.begun()
    await desk.start()
    async with desk.hearing("tx.work.shop") as heard:
        assert await desk.settle(record, "queue", "Out", "shop") == "ok"
        assert await heard() == [("tx.work.shop", desk.prefix)]


@pytest.mark.parametrize("kind", ["end", "sleep", "wait", "keep"])
async def test_what_queues_nothing_tells_no_worker(desk: Desk, kind: str) -> None:
    record = await desk.begun()
    arguments = {"end": ("success", 0), "sleep": (LONG_MS, 0), "wait": ("go", 0, "-"), "keep": ()}
    async with desk.hearing("tx.work.shop") as heard:
        assert await desk.settle(record, kind, *arguments[kind]) == "ok"
        assert await heard() == []


async def test_the_agenda_is_told_when_something_becomes_due_earlier(desk: Desk) -> None:
    async with desk.hearing("tx.agenda") as heard:
        await desk.start(delay_ms=LONG_MS)
        assert await heard() == [("tx.agenda", desk.prefix)]
        await desk.start(delay_ms=2 * LONG_MS)
        assert await heard() == []
        record = await desk.begun()
        assert await desk.settle(record, "sleep", LONG_MS // 2, 0) == "ok"
        assert await heard() == [("tx.agenda", desk.prefix)]
        other = await desk.begun()
        assert await desk.settle(other, "wait", "go", 0, "-") == "ok"  # for ever
        assert await heard() == []
