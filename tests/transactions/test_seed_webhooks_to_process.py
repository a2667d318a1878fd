"""webhooksToProcess: which webhooks are due, and what became of others. The next look is the lease."""

from __future__ import annotations

from typing import Any

import pytest

from tests.transactions.conftest import LONG_MS, Desk

HOOK = {"webhook": "https://shop.example/hook"}
REPORTS = {**HOOK, "webhook_progress": "1"}


async def ask(
    desk: Desk, *results: Any, most: int = 10, lease_ms: int = LONG_MS
) -> tuple[int, list[tuple[str, str, dict[str, str]]]]:
    """ms until the next is due, and what is due now: transaction, event, record."""
    left_ms, *items = await desk.store.run(
        "webhooks_to_process", 0, most, lease_ms, len(results) // 4, *results
    )
    return left_ms, [
        (
            bytes(tx).decode(),
            bytes(event).decode(),
            {bytes(flat[at]).decode(): bytes(flat[at + 1]).decode() for at in range(0, len(flat), 2)},
        )
        for tx, event, flat in items
    ]


def events(asked: tuple[int, list[tuple[str, str, dict[str, str]]]]) -> list[tuple[str, str]]:
    return [(tx, event) for tx, event, _ in asked[1]]


async def reporting(desk: Desk, *reports: bytes, fields: dict[str, str]) -> str:
    """A transaction that has reported its progress."""
    record = await desk.begun(fields=fields)
    for number, report in enumerate(reports, 1):
        assert await desk.settle(record, "keep", seq=number, fields=["progress", report]) == "ok"
    return record.id


# -------------------------------------------------------------------------------- what is handed out


async def test_nothing_is_due_where_nobody_asked_for_webhooks(desk: Desk) -> None:
    await desk.ended()
    assert await ask(desk) == (-1, [])


async def test_the_end_is_due_at_once_with_the_whole_record(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    stored = await desk.record(tx)
    _, items = await ask(desk)
    assert items == [(tx, "complete.0", stored)]


async def test_handing_out_is_a_lease(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    now_ms = await desk.now_ms()
    left_ms, _ = await ask(desk, lease_ms=60_000)
    assert left_ms == 60_000
    due_ms = await desk.score("webhooksZ", f"{tx} complete.0")
    assert due_ms is not None
    assert now_ms + 60_000 <= due_ms <= await desk.now_ms() + 60_000
    assert events(await ask(desk)) == []


async def test_whoever_takes_it_and_dies_leaves_it_to_the_next(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    assert events(await ask(desk, lease_ms=30)) == [(tx, "complete.0")]
    await desk.reach_ms(await desk.score("webhooksZ", f"{tx} complete.0") or 0)
    assert events(await ask(desk)) == [(tx, "complete.0")]


async def test_no_more_than_asked_for_and_the_oldest_first(desk: Desk) -> None:
    for _ in range(4):
        await desk.ended(fields=HOOK)
    oldest = [member.split(" ")[0] for member in await desk.members("webhooksZ")]
    assert [tx for tx, _ in events(await ask(desk, most=3))] == oldest[:3]
    assert (await ask(desk, most=0))[0] == 0
    assert [tx for tx, _ in events(await ask(desk, most=3))] == oldest[3:]


async def test_one_without_a_record_leaves_the_list(desk: Desk) -> None:
    gone, there = await desk.ended(fields=HOOK), await desk.ended(fields=HOOK)
    await desk.execute("DEL", f"stateH:{gone}")
    assert events(await ask(desk)) == [(there, "complete.0")]
    assert await desk.members("webhooksZ") == [f"{there} complete.0"]


# --------------------------------------------------------------------------------- what became of it


@pytest.mark.parametrize("outcome", ["delivered", "failed", "cancelled"])
async def test_a_final_result_ends_it_and_the_archive_waits_no_longer(desk: Desk, outcome: str) -> None:
    tx = await desk.ended(fields=HOOK)
    await ask(desk)
    now_ms = await desk.now_ms()
    assert await ask(desk, tx, "complete.0", outcome, "the answer was 200", most=0) == (-1, [])
    record = await desk.record(tx)
    assert (record["webhook_status"], record["webhook_comment"]) == (outcome, "the answer was 200")
    assert now_ms <= int(record["webhook_ms"]) <= await desk.now_ms()
    assert await desk.places(tx) == {"toArchiveZ"}
    assert await desk.score("toArchiveZ", tx) == int(record["webhook_ms"]) + 60_000
    assert any('"kind":"webhook"' in entry and outcome in entry for entry in await desk.trail(tx))


async def test_one_that_was_given_up_is_kept_for_longer(desk: Desk) -> None:
    record = await desk.begun(fields=HOOK)
    assert await desk.settle(record, "end", "internal-error", 1) == "ok"
    await ask(desk, record.id, "complete.0", "delivered", "", most=0)
    webhook_ms = int(await desk.field(record.id, "webhook_ms") or 0)
    assert await desk.score("toArchiveZ", record.id) == webhook_ms + 604_800_000


async def test_later_comes_back_when_it_says(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    await ask(desk)
    assert await ask(desk, tx, "complete.0", "later", 40) == (40, [])
    assert await desk.field(tx, "webhook_status") == "pending"
    await desk.reach_ms(await desk.score("webhooksZ", f"{tx} complete.0") or 0)
    assert events(await ask(desk)) == [(tx, "complete.0")]


async def test_later_does_not_bring_back_what_is_done_with(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    await ask(desk, tx, "complete.0", "delivered", "", most=0)
    assert await ask(desk, tx, "complete.0", "later", 0) == (-1, [])


async def test_a_second_result_changes_nothing(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    await ask(desk, tx, "complete.0", "delivered", "", most=0)
    before = await desk.everything()
    await ask(desk, tx, "complete.0", "failed", "who knows", most=0)
    assert await desk.everything() == before


async def test_results_and_more_in_one_call(desk: Desk) -> None:
    first, second = await desk.ended(fields=HOOK), await desk.ended(fields=HOOK)
    assert len(events(await ask(desk))) == 2
    third = await desk.ended(fields=HOOK)
    words = (first, "complete.0", "delivered", "", second, "complete.0", "later", 0)
    assert set(events(await ask(desk, *words))) == {(second, "complete.0"), (third, "complete.0")}
    assert await desk.field(first, "webhook_status") == "delivered"


async def test_the_result_of_an_earlier_run_says_nothing_about_this_one(desk: Desk) -> None:
    tx = await desk.ended(fields=HOOK)
    await ask(desk)
    await desk.store.control("replay", tx, "ann", argument=0)
    assert await desk.members("webhooksZ") == []
    await ask(desk, tx, "complete.0", "delivered", "", most=0)
    assert await desk.places(tx) == {"qAdminZ:shop"}
    assert await desk.end(await desk.take_one()) == "ok"
    assert events(await ask(desk)) == [(tx, "complete.1")]
    await ask(desk, tx, "complete.0", "delivered", "", most=0)
    assert await desk.field(tx, "webhook_status") == "pending"


# ------------------------------------------------------------------------------------------ progress


async def test_a_report_is_an_event_of_its_own(desk: Desk) -> None:
    async with desk.hearing("tx.webhooks") as heard:
        tx = await reporting(desk, b'{"done":1}', b'{"done":2}', fields=REPORTS)
        assert await heard() == [("tx.webhooks", desk.prefix)] * 2
    _, items = await ask(desk)
    assert [(event, record[f"w:{event}"]) for _, event, record in items] == [
        ("progress.1", '{"done":1}'),
        ("progress.2", '{"done":2}'),
    ]
    assert {found for found, _, _ in items} == {tx}


async def test_reports_are_not_sent_to_whoever_did_not_ask_for_them(desk: Desk) -> None:
    await reporting(desk, b'{"done":1}', fields=HOOK)
    assert await ask(desk) == (-1, [])


async def test_a_report_that_was_sent_is_forgotten_and_the_end_still_comes(desk: Desk) -> None:
    tx = await reporting(desk, b'{"done":1}', fields=REPORTS)
    await ask(desk)
    await ask(desk, tx, "progress.1", "delivered", "", most=0)
    record = await desk.record(tx)
    assert "w:progress.1" not in record
    assert "webhook_status" not in record
    assert record["progress"] == '{"done":1}'
    words = ("end", tx, 1, 2, "", 0, 0, 0, 2, "success", 0)
    assert await desk.store.run("settle", 0, *words) == [b"ok"]
    assert events(await ask(desk)) == [(tx, "complete.0")]
