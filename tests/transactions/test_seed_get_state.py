"""getState: how a transaction is, for whoever asks. A test for each numbered step."""

from __future__ import annotations

import pytest

from penstock.transactions import keys
from tests.transactions.conftest import LONG_MS, Desk

HOOK = {"webhook": "https://shop.example/hook", "webhook_cancellable": "1"}


async def test_step_1_a_reply_that_is_about_to_leave_sets_when_it_was_notified(desk: Desk) -> None:
    tx = await desk.ended()
    before_ms = await desk.now_ms()
    found = await desk.store.get(tx, is_reply=True)
    assert found is not None
    notified_ms = found[0].number(b"notified_ms")
    assert before_ms <= notified_ms <= await desk.now_ms()
    # Whoever asks later was not the first to know.
    await desk.pass_ms(2)
    await desk.store.get(tx, is_reply=True)
    assert await desk.field(tx, "notified_ms") == str(notified_ms)


async def test_step_1_who_only_looks_is_not_notified(desk: Desk) -> None:
    tx = await desk.ended()
    assert await desk.store.get(tx)
    assert await desk.field(tx, "notified_ms") is None


async def test_step_1_one_that_goes_on_is_not_notified(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.store.get(record.id, is_reply=True)
    assert await desk.field(record.id, "notified_ms") is None


async def test_step_2_the_record_and_its_trail_are_read(desk: Desk) -> None:
    record = await desk.begun(data=b'{"cart": 1}', external_id="x")
    assert await desk.settle(record, "keep", trail=[b'{"kind":"step"}', b'{"kind":"retry"}']) == "ok"
    found = await desk.store.get(record.id, with_trail=True)
    assert found is not None
    assert {name.decode(): value.decode() for name, value in found[0].fields.items()} == await desk.record(
        record.id
    )
    assert found[1] == [b'{"kind":"step"}', b'{"kind":"retry"}']
    without = await desk.store.get(record.id)
    assert without is not None
    assert without[1] == []


async def test_step_2_one_that_is_not_there_or_belongs_to_somebody_else_is_not_found(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    assert await desk.store.get(keys.new_id(0, 1_700_000_000_000)) is None
    before = await desk.everything()
    assert await desk.store.get(tx, owner="umbrella", is_reply=True, cancels_webhook=True) is None
    assert await desk.everything() == before
    assert await desk.store.get(tx, owner="acme") is not None


async def test_step_3_a_reply_cancels_the_webhook_that_agreed_to_it(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    assert await desk.places(tx) == set()
    assert await desk.members("webhooksZ") == [f"{tx} complete.0"]
    now_ms = await desk.now_ms()
    found = await desk.store.get(tx, is_reply=True, cancels_webhook=True)
    assert found is not None
    assert found[0].text(b"webhook_status") == "cancelled"
    assert await desk.members("webhooksZ") == []
    # What waited for the webhook does so no more.
    archived_ms = await desk.score("toArchiveZ", tx)
    assert archived_ms is not None
    assert 60_000 <= archived_ms - now_ms < 70_000


@pytest.mark.parametrize(
    ("fields", "cancels"),
    [({"webhook": "https://a.b"}, True), (HOOK, False)],
    ids=["webhook-did-not-agree", "caller-does-not-ask"],
)
async def test_step_3_other_webhooks_stay(desk: Desk, fields: dict[str, str], cancels: bool) -> None:
    tx = await desk.ended(fields=fields)
    assert await desk.store.get(tx, is_reply=True, cancels_webhook=cancels)
    assert await desk.members("webhooksZ") == [f"{tx} complete.0"]
    assert await desk.field(tx, "webhook_status") == "pending"
    assert await desk.members("toArchiveZ") == []


async def test_step_3_a_webhook_that_was_delivered_is_not_cancelled(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    await desk.store.run("webhooks_to_process", 0, 0, 1_000, 1, tx, "complete.0", "delivered", "200")
    assert await desk.store.get(tx, is_reply=True, cancels_webhook=True)
    assert await desk.field(tx, "webhook_status") == "delivered"


async def test_step_3_one_that_was_given_up_is_kept_for_longer_after_that(desk: Desk) -> None:
    record = await desk.begun(fields=HOOK)
    assert await desk.settle(record, "end", "internal-error", 1) == "ok"
    now_ms = await desk.now_ms()
    assert await desk.store.get(record.id, is_reply=True, cancels_webhook=True)
    archived_ms = await desk.score("toArchiveZ", record.id)
    assert archived_ms is not None
    assert archived_ms - now_ms >= 604_800_000


async def test_step_4_who_listens_is_remembered_for_as_long_as_they_said(desk: Desk) -> None:
    record = await desk.begun()
    before_ms = await desk.now_ms()
    assert await desk.store.get(record.id, watch_ms=LONG_MS)
    watched_ms = int(await desk.field(record.id, "watched_ms") or 0)
    assert before_ms + LONG_MS <= watched_ms <= await desk.now_ms() + LONG_MS
    # Somebody who listens for a shorter time takes nothing away from the first.
    assert await desk.store.get(record.id, watch_ms=1)
    assert await desk.field(record.id, "watched_ms") == str(watched_ms)


async def test_step_4_looking_changes_nothing(desk: Desk) -> None:
    record = await desk.begun(fields=HOOK)
    tx = await desk.ended(fields=HOOK)
    before = await desk.everything()
    assert await desk.store.get(record.id, with_trail=True)
    assert await desk.store.get(tx, with_trail=True, watch_ms=LONG_MS)
    assert await desk.everything() == before
