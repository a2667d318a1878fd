"""Dequeue: admin, then out, then in; and for each transaction the checks. A test for each numbered step."""

from __future__ import annotations

import pytest

from penstock.transactions.model import Limit
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline


async def moved(desk: Desk, *places: tuple[str, str]) -> list[str]:
    """A transaction in each of these queues, in this order; it was put there by whoever had it."""
    for _ in places:
        await desk.start()
    records = await desk.take(len(places))
    for record, (queue, group) in zip(records, places, strict=True):
        assert await desk.settle(record, "queue", queue, group) == "ok"
    return [record.id for record in records]


async def test_admin_goes_before_out_and_out_before_in(desk: Desk) -> None:
    begins, out, admin = await moved(desk, ("In", "shop"), ("Out", "shop"), ("Admin", "shop"))
    assert [record.id for record in await desk.take(10)] == [admin, out, begins]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_no_more_than_asked_for_the_first_queues_first(desk: Desk, limit: int) -> None:
    begins, out, admin = await moved(desk, ("In", "shop"), ("Out", "shop"), ("Admin", "shop"))
    taken = await desk.dequeue(limit)
    assert [record.id for record in taken.records] == [admin, out, begins][:limit]
    assert taken.is_more


async def test_every_group_is_asked_for_its_admin_before_any_for_its_out(desk: Desk) -> None:
    begins, out, admin = await moved(desk, ("In", "shop"), ("Out", "shop"), ("Admin", "post"))
    taken = await desk.take(10, groups=["shop", "post"])
    assert [record.id for record in taken] == [admin, out, begins]


async def test_other_groups_are_left_alone(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post")
    tx = await desk.start("mail")
    taken = await desk.dequeue()
    assert (taken.records, taken.is_more) == ([], False)
    assert await desk.members("qInZ:post") == [tx]


async def test_step_1_one_without_a_record_is_left_out(desk: Desk) -> None:
    gone, there = await desk.start(), await desk.start()
    await desk.execute("DEL", f"stateH:{gone}")
    assert [record.id for record in await desk.take()] == [there]
    assert await desk.members("processingZ") == [there]


async def test_step_2_the_whole_record_is_given(desk: Desk) -> None:
    tx = await desk.start(data=b'{"cart": 1}', external_id="x", fields={"metadata": b'{"a":1}'})
    stored = await desk.record(tx)
    record = await desk.take_one()
    assert {name.decode(): value.decode() for name, value in record.fields.items()} == stored
    assert record.data == b'{"cart": 1}'
    assert record.token == 1


async def test_step_3_one_that_was_cancelled_in_the_queue_is_not_given(desk: Desk) -> None:
    cancelled, there = await desk.start(), await desk.start()
    assert await desk.store.control("cancel", cancelled, "ann") == ["cancelled"]
    # Even if its place was not taken away, as by a restored copy of the queue.
    await desk.execute("ZADD", "qInZ:shop", 0, cancelled)
    assert [record.id for record in await desk.take()] == [there]
    assert await desk.field(cancelled, "status") == "cancelled"
    assert await desk.places(cancelled) == {"toArchiveZ"}


@pytest.mark.parametrize("kind", ["sleep", "wait", "join", "running"])
async def test_step_4_one_that_is_not_queued_is_not_given(desk: Desk, kind: str) -> None:
    record = await desk.begun()
    arguments = {
        "sleep": (LONG_MS, 0),
        "wait": ("go", 0, "-"),
        "join": (0, "0", "noop", "", "", "other", b"1", 1),
    }
    await put_pipeline(desk.store, "noop", group="other")
    if kind in arguments:
        assert await desk.settle(record, kind, *arguments[kind]) == "ok"
    before = await desk.record(record.id)
    await desk.execute("ZADD", "qOutZ:shop", 0, record.id)
    assert await desk.take() == []
    assert await desk.record(record.id) == before


async def test_step_5_it_keeps_the_version_that_it_was_started_with(desk: Desk) -> None:
    tx = await desk.start()
    await put_pipeline(desk.store, "noop", group="elsewhere", version="v2")
    record = await desk.take_one()
    assert (record.id, record.text(b"version"), record.text(b"group")) == (tx, "v1", "shop")


async def test_step_5_its_limits_let_it_pass_or_it_is_put_aside(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail")
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    held, free = await desk.start(), await desk.start("mail")
    assert [record.id for record in await desk.take()] == [free]
    assert await desk.places(held) == {"heldZ:p:noop"}
    assert (await desk.field(held, "state"), await desk.field(held, "held")) == ("queued", "p:noop")


async def test_step_6_it_runs_from_now(desk: Desk) -> None:
    tx = await desk.start()
    before_ms = await desk.now_ms()
    await desk.take(worker="w7")
    record = await desk.record(tx)
    assert (record["state"], record["status"]) == ("running", "running")
    assert (record["token"], record["seq"], record["worker"], record["limits"]) == ("1", "0", "w7", "")
    assert before_ms <= int(record["taken_ms"]) <= await desk.now_ms()


async def test_step_7_processing_tells_since_when_and_the_lease_until_when(desk: Desk) -> None:
    tx = await desk.start()
    await desk.take(lease_ms=5_000)
    taken_ms = int(await desk.field(tx, "taken_ms") or 0)
    assert await desk.places(tx) == {"processingZ", "leasesZ"}
    assert await desk.score("processingZ", tx) == taken_ms
    assert await desk.score("leasesZ", tx) == taken_ms + 5_000


async def test_step_7_it_stays_there_until_it_is_queued_again_or_ends(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.settle(record, "keep", fields=["step", 1]) == "ok"
    assert await desk.members("processingZ") == [record.id]
    assert await desk.end(record, seq=2) == "ok"
    assert await desk.members("processingZ") == await desk.members("leasesZ") == []


async def test_it_is_counted_with_the_time_it_waited(desk: Desk) -> None:
    await desk.begun()
    counted = [
        field
        for name, value in (await desk.everything()).items()
        if name.startswith("stats2H:")
        for field in value
        if field.startswith("s ")
    ]
    assert len(counted) == 1
    what, bucket, *names = counted[0].split()
    assert (what, names) == ("s", ["noop", "shop", "acme"])
    assert 0 <= int(bucket) < 30  # 2^(30/2) ms, half a minute


async def test_more_than_one_call_gives_is_said_to_be_there(desk: Desk) -> None:
    for _ in range(70):
        await desk.start()
    first = await desk.dequeue(65)
    assert (len(first.records), first.is_more) == (65, True)
    second = await desk.dequeue(65)
    assert (len(second.records), second.is_more) == (5, False)


async def test_what_is_due_next_is_told(desk: Desk) -> None:
    assert (await desk.dequeue()).next_ms is None
    await desk.start(delay_ms=LONG_MS)
    next_ms = (await desk.dequeue()).next_ms
    assert next_ms is not None
    assert LONG_MS - 60_000 < next_ms <= LONG_MS
    await desk.start()
    assert (await desk.dequeue(lease_ms=10_000)).next_ms == 10_000
