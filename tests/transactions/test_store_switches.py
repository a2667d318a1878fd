"""Switches and sleep: no change is overlooked, nobody wakes too early or more than a look too late."""

from __future__ import annotations

import pytest

from penstock.errors import TransactionEndedError, TransactionNotFoundError, UsageError
from penstock.transactions import keys
from penstock.transactions.model import Record
from tests.transactions.conftest import LONG_MS, Desk


async def waiting(desk: Desk, name: str = "go", timeout_ms: int = 0, saw: str = "-") -> Record:
    record = await desk.begun()
    assert await desk.settle(record, "wait", name, timeout_ms, saw) == "ok"
    return record


# ------------------------------------------------------------------------------------------- the mark


async def test_a_switch_is_marked_until_it_was_acknowledged(desk: Desk) -> None:
    tx, store = await desk.start(), desk.store
    assert await store.get_switch(tx, "go") == (None, False)
    assert await store.set_switch(tx, "go", "yes", who="ann") == "updated"
    assert await desk.field(tx, "s:go") == "!yes"
    assert await store.get_switch(tx, "go") == await store.get_switch(tx, "go") == ("yes", True)
    assert await store.get_switch(tx, "go", acknowledge=True) == ("yes", True)
    assert await desk.field(tx, "s:go") == "=yes"
    assert await store.get_switch(tx, "go", acknowledge=True) == ("yes", False)


async def test_setting_what_it_is_already_changes_nothing(desk: Desk) -> None:
    tx, store = await desk.start(), desk.store
    await store.set_switch(tx, "go", "yes")
    await store.get_switch(tx, "go", acknowledge=True)
    before = await desk.everything()
    assert await store.set_switch(tx, "go", "yes") == "nochange"
    assert await desk.everything() == before
    assert await store.set_switch(tx, "go", "no") == "updated"
    assert await store.get_switch(tx, "go") == ("no", True)


async def test_every_change_is_in_the_trail(desk: Desk) -> None:
    tx = await desk.start()
    await desk.store.set_switch(tx, "go", 'a "quoted" word', who="ann")
    await desk.store.set_switch(tx, "go", None, who="bob")
    first, second = await desk.trail(tx)
    assert '"kind":"switch"' in first
    assert r"ann: go=a \"quoted\" word" in first
    assert "bob: go deleted" in second


async def test_a_switch_may_be_deleted(desk: Desk) -> None:
    tx, store = await desk.start(), desk.store
    assert await store.set_switch(tx, "go", None) == "nochange"
    await store.set_switch(tx, "go", "yes")
    assert await store.set_switch(tx, "go", None) == "updated"
    assert await store.get_switch(tx, "go") == (None, False)


async def test_there_is_a_limit_and_what_was_deleted_does_not_count(desk: Desk) -> None:
    tx, store = await desk.start(), desk.store
    for number in range(100):
        assert await store.set_switch(tx, f"s{number}", "1") == "updated"
    with pytest.raises(UsageError, match="100 switches already"):
        await store.set_switch(tx, "more", "1")
    assert await store.set_switch(tx, "s7", "2") == "updated"
    assert await store.set_switch(tx, "s7", None) == "updated"
    assert await store.set_switch(tx, "more", "1") == "updated"


async def test_who_may_not_gets_nothing(desk: Desk) -> None:
    tx, store = await desk.start(), desk.store
    before = await desk.everything()
    with pytest.raises(TransactionNotFoundError):
        await store.set_switch(tx, "go", "yes", owner="umbrella")
    with pytest.raises(TransactionNotFoundError):
        await store.get_switch(tx, "go", owner="umbrella", acknowledge=True)
    with pytest.raises(TransactionNotFoundError):
        await store.set_switch(keys.new_id(0, 1), "go", "yes")
    with pytest.raises(UsageError, match="name must be"):
        await store.set_switch(tx, "two words", "yes")
    with pytest.raises(UsageError, match="at most 1024"):
        await store.set_switch(tx, "go", "x" * 1_025)
    assert await desk.everything() == before


async def test_the_switches_of_one_that_has_ended_stay_as_they_are(desk: Desk) -> None:
    record = await desk.begun()
    await desk.store.set_switch(record.id, "go", "yes")
    assert await desk.end(record) == "ok"
    with pytest.raises(TransactionEndedError):
        await desk.store.set_switch(record.id, "go", "no")
    assert await desk.store.get_switch(record.id, "go") == ("yes", True)


# -------------------------------------------------------------------------------------------- waiting


async def test_one_that_waits_for_ever_rests_outside_of_every_queue(desk: Desk) -> None:
    record = await waiting(desk)
    assert await desk.field(record.id, "state") == "waiting"
    assert await desk.field(record.id, "awaits") == "go"
    assert await desk.places(record.id) == {"sleepingZ"}
    assert await desk.score("sleepingZ", record.id) == float("inf")
    assert (await desk.dequeue()).next_ms is None


async def test_setting_the_switch_wakes_it(desk: Desk) -> None:
    record = await waiting(desk)
    assert await desk.store.set_switch(record.id, "other", "yes") == "updated"
    assert await desk.field(record.id, "state") == "waiting"
    assert await desk.store.set_switch(record.id, "go", "yes") == "woken"
    assert await desk.places(record.id) == {"qOutZ:shop"}
    again = await desk.take_one()
    assert (again.text(b"s:go"), again.text(b"timed_out")) == ("!yes", "")


async def test_a_switch_that_was_set_between_look_and_wait_is_not_overlooked(desk: Desk) -> None:
    record = await desk.begun()
    # The step looks, sees nothing, and decides to wait; meanwhile somebody sets the switch.
    assert await desk.store.get_switch(record.id, "go", acknowledge=True) == (None, False)
    assert await desk.store.set_switch(record.id, "go", "yes") == "updated"
    assert await desk.settle(record, "wait", "go", 0, "-") == "ok"
    assert await desk.places(record.id) == {"qOutZ:shop"}
    assert await desk.store.set_switch(record.id, "go", "no") == "updated"


@pytest.mark.parametrize("change", ["yes", None], ids=["changed", "deleted"])
async def test_nor_is_a_change_of_one_that_was_seen(desk: Desk, change: str | None) -> None:
    record = await desk.begun()
    await desk.store.set_switch(record.id, "go", "not yet")
    assert await desk.store.get_switch(record.id, "go", acknowledge=True) == ("not yet", True)
    await desk.store.set_switch(record.id, "go", change)
    assert await desk.settle(record, "wait", "go", 0, "=not yet") == "ok"
    assert await desk.field(record.id, "state") == "queued"


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_what_was_seen_and_did_not_change_is_waited_for(desk: Desk, acknowledged: bool) -> None:
    record = await desk.begun()
    await desk.store.set_switch(record.id, "go", "not yet")
    await desk.store.get_switch(record.id, "go", acknowledge=acknowledged)
    assert await desk.settle(record, "wait", "go", 0, "=not yet") == "ok"
    assert await desk.field(record.id, "state") == "waiting"
    assert await desk.store.set_switch(record.id, "go", "yes") == "woken"


async def test_a_wait_has_an_end_and_says_so(desk: Desk) -> None:
    record = await waiting(desk, timeout_ms=30)
    due_ms = await desk.score("sleepingZ", record.id) or 0
    assert await desk.take() == [] or await desk.now_ms() >= due_ms
    await desk.reach_ms(due_ms)
    again = await desk.take_one()
    assert (again.id, again.text(b"timed_out")) == (record.id, "1")


async def test_the_next_wait_does_not_remember_that(desk: Desk) -> None:
    record = await waiting(desk, timeout_ms=1)
    await desk.reach_ms(await desk.score("sleepingZ", record.id) or 0)
    again = await desk.take_one()
    assert await desk.settle(again, "wait", "go", 0, "-") == "ok"
    assert await desk.field(record.id, "timed_out") == ""


async def test_a_deadline_ends_a_wait(desk: Desk) -> None:
    record = await desk.begun(deadline_ms=20)
    assert await desk.settle(record, "wait", "go", LONG_MS, "-") == "ok"
    deadline_ms = int(await desk.field(record.id, "deadline_ms") or 0)
    assert await desk.score("sleepingZ", record.id) >= deadline_ms
    await desk.reach_ms(await desk.score("sleepingZ", record.id) or 0)
    assert (await desk.take_one()).id == record.id


async def test_those_who_listen_are_told_of_switches(desk: Desk) -> None:
    record = await desk.begun()
    topic = f"tx.events.{record.id}"
    await desk.store.get(record.id, watch_ms=LONG_MS)
    async with desk.hearing(topic) as heard:
        await desk.store.set_switch(record.id, "go", "yes")
        assert await heard() == [(topic, "switch")]


# ------------------------------------------------------------------------------------------ sleeping


async def test_sleep_is_to_the_millisecond(desk: Desk) -> None:
    record = await desk.begun()
    before_ms = await desk.now_ms()
    assert await desk.settle(record, "sleep", 50, 0) == "ok"
    after_ms = await desk.now_ms()
    due_ms = await desk.score("sleepingZ", record.id) or 0
    assert before_ms + 50 <= due_ms <= after_ms + 50
    # Asked without a pause, it is given out by the first look that comes at its time or later.
    last_ms = 0
    while not (found := await desk.dequeue()).records:
        assert found.now_ms < due_ms
        last_ms = found.now_ms
        assert found.next_ms == due_ms - found.now_ms
    assert last_ms < due_ms <= found.now_ms


async def test_those_who_sleep_wake_in_their_order(desk: Desk) -> None:
    records = [await desk.begun() for _ in range(4)]
    for record, delay_ms in zip(records, (40, 20, 30, 10), strict=True):
        assert await desk.settle(record, "sleep", delay_ms, 0) == "ok"
    order = await desk.members("sleepingZ")
    await desk.reach_ms(await desk.score("sleepingZ", order[-1]) or 0)
    assert [record.id for record in await desk.take()] == order


async def test_a_deadline_ends_a_sleep(desk: Desk) -> None:
    record = await desk.begun(deadline_ms=LONG_MS)
    assert await desk.settle(record, "sleep", 2 * LONG_MS, 0) == "ok"
    assert await desk.score("sleepingZ", record.id) == int(await desk.field(record.id, "deadline_ms") or 0)


async def test_a_deadline_that_has_passed_wakes_at_once(desk: Desk) -> None:
    record = await desk.begun(deadline_ms=1)
    await desk.pass_ms(2)
    assert await desk.settle(record, "sleep", LONG_MS, 0) == "ok"
    assert (await desk.take_one()).id == record.id


@pytest.mark.parametrize("is_retry", [0, 1])
async def test_a_retry_is_counted_as_one(desk: Desk, is_retry: int) -> None:
    record = await desk.begun()
    assert await desk.settle(record, "sleep", LONG_MS, is_retry) == "ok"
    counted = [
        field for name, value in (await desk.everything()).items() if "stats1" in name for field in value
    ]
    assert ("r noop shop acme" in counted) == bool(is_retry)


async def test_a_delayed_start_begins_with_those_who_begin(desk: Desk) -> None:
    tx = await desk.start(delay_ms=LONG_MS)
    assert await desk.take() == []
    await desk.execute("ZADD", "sleepingZ", await desk.now_ms(), tx)  # as if its time had come
    await desk.store.renew(0, [], LONG_MS)  # which wakes it, too
    assert await desk.places(tx) == {"qInZ:shop"}
    assert (await desk.take_one()).id == tx
