"""completeTransaction: how one ends. A test for each numbered step."""

from __future__ import annotations

import pytest

from penstock.transactions import keys
from penstock.transactions.model import Ending, Record
from tests.transactions.conftest import LONG_MS, Desk


async def test_step_1_one_without_a_record_cannot_end(desk: Desk) -> None:
    stranger = Record(keys.new_id(0, 1_700_000_000_000), {}, 1)
    before = await desk.everything()
    assert await desk.end(stranger) == "lost"
    assert await desk.everything() == before


@pytest.mark.parametrize("state", ["queued", "sleeping", "waiting", "joining", "ended"])
async def test_step_2_only_one_that_runs_can_end(desk: Desk, state: str) -> None:
    record = await desk.begun()
    kinds = {
        "queued": ("queue", "Out", "elsewhere"),
        "sleeping": ("sleep", LONG_MS, 0),
        "waiting": ("wait", "go", 0, "-"),
        "joining": ("join", 0, "0", "noop", "", "", "", b"1", 1),
        "ended": ("end", "failed", 0),
    }
    assert await desk.settle(record, *kinds[state]) == "ok"
    before = await desk.everything()
    assert before[f"stateH:{record.id}"]["state"] == state
    assert await desk.end(record, seq=2) == "lost"
    assert await desk.everything() == before


async def test_step_2_only_whoever_has_it_can_end_it(desk: Desk) -> None:
    record = await desk.begun()
    before = await desk.everything()
    for token in (0, 2, -1):
        assert await desk.end(Record(record.id, {}, token)) == "lost"
    assert await desk.everything() == before


@pytest.mark.parametrize("status", [str(ending) for ending in Ending])
async def test_step_3_every_ending_is_valid(desk: Desk, status: str) -> None:
    tx = await desk.ended(status)
    assert (await desk.field(tx, "state"), await desk.field(tx, "status")) == ("ended", status)


@pytest.mark.parametrize("status", ["running", "done", "", "Success"])
async def test_step_3_nothing_else_is(desk: Desk, status: str) -> None:
    record = await desk.begun()
    before = await desk.everything()
    assert (await desk.end(record, status)).startswith("error ")
    assert await desk.everything() == before
    assert await desk.end(record, "failed") == "ok"


async def test_step_4_the_new_state_is_saved(desk: Desk) -> None:
    record = await desk.begun()
    before_ms = await desk.now_ms()
    assert await desk.end(record, note="fine", fields=["d:1", b'{"a":1}', "data", 1, "step", 1]) == "ok"
    saved = await desk.record(record.id)
    assert (saved["state"], saved["status"], saved["note"]) == ("ended", "success", "fine")
    assert (saved["d:1"], saved["data"], saved["step"]) == ('{"a":1}', "1", "1")
    assert before_ms <= int(saved["ended_ms"]) <= await desk.now_ms()


async def test_step_5_no_event_is_left_for_it(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.end(record) == "ok"
    assert await desk.places(record.id) == {"toArchiveZ"}
    assert await desk.take() == []


async def test_step_6_a_webhook_is_scheduled_for_now(desk: Desk) -> None:
    before_ms = await desk.now_ms()
    async with desk.hearing("tx.webhooks") as heard:
        tx = await desk.ended(fields={"webhook": "https://a.b"})
        assert await heard() == [("tx.webhooks", desk.prefix)]
    due_ms = await desk.score("webhooksZ", f"{tx} complete.0")
    assert due_ms is not None
    assert before_ms <= due_ms <= await desk.now_ms()
    assert await desk.field(tx, "webhook_status") == "pending"


async def test_step_6_without_a_webhook_there_is_none(desk: Desk) -> None:
    tx = await desk.ended()
    assert await desk.members("webhooksZ") == []
    assert await desk.field(tx, "webhook_status") is None


@pytest.mark.parametrize("delay_ms", [None, 0, 5_000])
async def test_step_7_the_archive_comes_after_a_delay(desk: Desk, delay_ms: int | None) -> None:
    if delay_ms is not None:
        await desk.store.configure(archive_delay_ms=delay_ms)
    tx = await desk.ended()
    ended_ms = int(await desk.field(tx, "ended_ms") or 0)
    assert await desk.score("toArchiveZ", tx) == ended_ms + (60_000 if delay_ms is None else delay_ms)


async def test_step_7_one_that_was_given_up_is_kept_for_longer(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.settle(record, "end", "internal-error", 1) == "ok"
    ended_ms = int(await desk.field(record.id, "ended_ms") or 0)
    assert await desk.score("deadZ", record.id) == ended_ms
    assert await desk.score("toArchiveZ", record.id) == ended_ms + 604_800_000


async def test_step_7_the_archive_waits_for_the_webhook(desk: Desk) -> None:
    await desk.ended(fields={"webhook": "https://a.b"})
    assert await desk.members("toArchiveZ") == []


async def test_step_8_those_who_listen_are_told(desk: Desk) -> None:
    record = await desk.begun()
    topic = f"tx.events.{record.id}"
    async with desk.hearing(topic) as heard:
        assert await desk.store.get(record.id, watch_ms=LONG_MS)
        assert await desk.end(record) == "ok"
        assert await heard() == [(topic, "ended")]


async def test_step_8_nobody_is_told_if_nobody_listens(desk: Desk) -> None:
    record = await desk.begun()
    async with desk.hearing(f"tx.events.{record.id}") as heard:
        assert await desk.end(record) == "ok"
        assert await heard() == []


async def test_the_end_is_counted_with_its_status_and_duration(desk: Desk) -> None:
    await desk.ended("failed")
    counted = [
        field
        for name, value in (await desk.everything()).items()
        if name.startswith("stats3H:")
        for field in value
        if field.startswith("e ")
    ]
    assert len(counted) == 1
    what, status, bucket, *names = counted[0].split()
    assert (what, status, names) == ("e", "failed", ["noop", "shop", "acme"])
    assert 0 <= int(bucket) < 30
