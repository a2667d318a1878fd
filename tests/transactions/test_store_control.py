"""What people do to a transaction: cancel, replay, wake, change its priority; in every state it may be in."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import TransactionEndedError, TransactionNotFoundError
from penstock.transactions import keys
from penstock.transactions.model import Limit
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline

STATES = ("queued", "held", "running", "sleeping", "delayed", "waiting", "joining", "ended")

#: what a worked transaction could undo
UNDO = "0 1"


async def brought_to(desk: Desk, state: str, **options: Any) -> str:
    """A transaction in this state."""
    if state == "delayed":
        return await desk.start(delay_ms=LONG_MS, **options)
    if state == "held":
        tx = await desk.start(**options)
        await desk.store.set_limit("p:noop", Limit(is_paused=True))
        assert await desk.take() == []
        return tx
    if state == "queued":
        return await desk.start(**options)
    record = await desk.begun(**options)
    kinds: dict[str, tuple[Any, ...]] = {
        "sleeping": ("sleep", LONG_MS, 0),
        "waiting": ("wait", "go", 0, "-"),
        "joining": ("join", 0, "0", "noop", "", "", "", b"1", 1),
        "ended": ("end", "failed", 0),
    }
    if state in kinds:
        assert await desk.settle(record, *kinds[state]) == "ok"
    return record.id


async def settle_by_hand(
    desk: Desk, tx: str, seq: int, kind: str, *arguments: Any, fields: list[Any]
) -> None:
    token = int(await desk.field(tx, "token") or 0)
    words = (kind, tx, token, seq, "", len(fields), *fields, 0, 0, len(arguments), *arguments)
    assert await desk.store.run("settle", 0, *words) == [b"ok"]


# --------------------------------------------------------------------------------------------- cancel


@pytest.mark.parametrize("state", ["queued", "held", "sleeping", "delayed", "waiting", "joining"])
async def test_one_that_nobody_has_is_cancelled_at_once(desk: Desk, state: str) -> None:
    tx = await brought_to(desk, state, external_id="x")
    reply = await desk.store.control("cancel", tx, "ann: enough")
    assert reply[0] == "cancelled"
    record = await desk.record(tx)
    assert (record["state"], record["status"], record["note"]) == ("ended", "cancelled", "ann: enough")
    assert "held" not in record
    assert await desk.places(tx) == {"toArchiveZ"}
    assert any('"kind":"cancel"' in entry and "ann: enough" in entry for entry in await desk.trail(tx))


async def test_one_that_runs_is_asked_to_end(desk: Desk) -> None:
    record = await desk.begun()
    async with desk.hearing("tx.worker.w1") as heard:
        assert await desk.store.control("cancel", record.id, "ann") == ["requested"]
        assert await heard() == [("tx.worker.w1", record.id)]
    assert await desk.field(record.id, "state") == "running"
    # Whoever missed that hears it with every write and renewal.
    assert await desk.settle(record, "keep") == "cancel"
    renewal = await desk.store.renew(0, [(record.id, record.token)], LONG_MS)
    assert renewal.unwanted == [record.id]
    assert await desk.settle(record, "end", "cancelled", 0, seq=2) == "ok"


@pytest.mark.parametrize("kind", ["queue", "sleep", "wait"])
async def test_what_its_worker_wants_next_is_done_and_answered_with_the_wish(desk: Desk, kind: str) -> None:
    record = await desk.begun()
    await desk.store.control("cancel", record.id, "ann")
    arguments: dict[str, tuple[Any, ...]] = {
        "queue": ("Out", "shop"),
        "sleep": (1, 0),
        "wait": ("go", 1, "-"),
    }
    assert await desk.settle(record, kind, *arguments[kind]) == "cancel"
    await desk.pass_ms(2)
    assert (await desk.take_one()).text(b"cancel") == "ann"


async def test_a_worker_that_dies_does_not_take_the_wish_with_it(desk: Desk) -> None:
    await desk.start()
    record = await desk.take_one(lease_ms=1)
    await desk.store.control("cancel", record.id, "ann")
    await desk.pass_ms(2)
    assert (await desk.take_one()).text(b"cancel") == "ann"


@pytest.mark.parametrize("state", ["queued", "held", "sleeping", "waiting", "joining"])
async def test_what_must_be_undone_is_queued_for_that_first(desk: Desk, state: str) -> None:
    tx = await brought_to(desk, state, fields={"undo": "1 0"})
    reply = await desk.store.control("cancel", tx, "ann")
    assert reply[0] == "requested"
    assert await desk.places(tx) == {"qAdminZ:shop"}
    record = await desk.record(tx)
    assert (record["state"], record["queue"], record["cancel"]) == ("queued", "Admin", "ann")
    await desk.store.set_limit("p:noop", None)
    taken = await desk.take(1)
    assert [found.id for found in taken] == [tx]


async def test_one_that_has_ended_cannot_be_cancelled(desk: Desk) -> None:
    tx = await desk.ended()
    before = await desk.everything()
    with pytest.raises(TransactionEndedError, match="it has ended already"):
        await desk.store.control("cancel", tx, "ann")
    assert await desk.everything() == before


async def test_a_cancelled_one_tells_its_webhook_and_those_who_listen(desk: Desk) -> None:
    tx = await desk.start(fields={"webhook": "https://a.b"})
    topic = f"tx.events.{tx}"
    await desk.store.get(tx, watch_ms=LONG_MS)
    async with desk.hearing(topic) as heard:
        await desk.store.control("cancel", tx, "ann")
        assert await heard() == [(topic, "ended")]
    assert await desk.members("webhooksZ") == [f"{tx} complete.0"]


@pytest.mark.parametrize("verb", ["cancel", "replay", "wake", "priority"])
@pytest.mark.parametrize("state", ["queued", "ended"])
async def test_nobody_touches_what_belongs_to_another(desk: Desk, verb: str, state: str) -> None:
    tx = await brought_to(desk, state)
    before = await desk.everything()
    with pytest.raises(TransactionNotFoundError, match=tx):
        await desk.store.control(verb, tx, "eve", owner="umbrella", argument=1)
    assert await desk.everything() == before
    with pytest.raises(TransactionNotFoundError):
        await desk.store.control(verb, keys.new_id(0, 1), "ann", argument=1)


# --------------------------------------------------------------------------------------------- replay


async def worked(desk: Desk, **options: Any) -> str:
    """One that went through three steps and failed at the last."""
    tx = (await desk.begun(data=b'"d0"', **options)).id
    for step in (1, 2):
        written = [
            "step",
            step,
            "data",
            step,
            f"d:{step}",
            f'"d{step}"',
            f"o:{step - 1}:mail",
            "1",
            f"z:{step}",
            "9",
        ]
        await settle_by_hand(desk, tx, step, "keep", fields=written)
    fields = [
        "o:2:card",
        "1",
        "fate",
        "{}",
        "undo",
        UNDO,
        "attempt",
        3,
        "d:3",
        '"out"',
        "data",
        3,
        "has_output",
        1,
    ]
    await settle_by_hand(desk, tx, 3, "end", "failed", 0, fields=fields)
    return tx


@pytest.mark.parametrize("step", [0, 1, 2])
async def test_a_replay_goes_on_from_a_step_as_if_later_ones_had_never_been(desk: Desk, step: int) -> None:
    tx = await worked(desk)
    assert await desk.store.control("replay", tx, "ann: card is back", argument=step) == []
    assert await desk.places(tx) == {"qAdminZ:shop"}
    record = await desk.record(tx)
    assert (record["state"], record["status"], record["run"]) == ("queued", "running", "1")
    assert (record["step"], record["data"], record["attempt"]) == (str(step), str(step), "0")
    assert {name for name in record if name[:2] == "d:"} == {f"d:{number}" for number in range(step + 1)}
    assert {name for name in record if name[:2] == "o:"} == {f"o:{number}:mail" for number in range(step)}
    assert {name for name in record if name[:2] == "z:"} == {f"z:{number}" for number in range(1, step)}
    assert record["undo"].split() == [number for number in UNDO.split() if int(number) < step]
    for gone in ("fate", "ended_ms", "note", "has_output", "deadline_ms"):
        assert gone not in record
    assert any('"kind":"replay"' in entry and f"from step {step}" in entry for entry in await desk.trail(tx))
    taken = await desk.take_one()
    assert taken.data == f'"d{step}"'.encode()


async def test_a_step_that_changed_nothing_is_replayed_with_what_came_before_it(desk: Desk) -> None:
    tx = await worked(desk)
    await desk.execute("HDEL", f"stateH:{tx}", "d:2")
    await desk.store.control("replay", tx, "ann", argument=2)
    assert (await desk.take_one()).data == b'"d1"'


async def test_a_replay_takes_back_what_its_end_has_begun(desk: Desk) -> None:
    tx = await worked(desk, fields={"webhook": "https://a.b"})
    await desk.store.get(tx, is_reply=True)
    await desk.store.control("replay", tx, "ann", argument=0)
    assert await desk.members("webhooksZ") == await desk.members("toArchiveZ") == []
    record = await desk.record(tx)
    assert "webhook_status" not in record
    assert "notified_ms" not in record
    assert await desk.end(await desk.take_one()) == "ok"
    assert await desk.members("webhooksZ") == [f"{tx} complete.1"]


async def test_the_number_of_a_token_never_comes_twice(desk: Desk) -> None:
    tx = await desk.ended()
    await desk.store.control("replay", tx, "ann", argument=0)
    assert (await desk.take_one()).token == 2


@pytest.mark.parametrize("state", [state for state in STATES if state != "ended"])
async def test_only_one_that_has_ended_can_be_replayed(desk: Desk, state: str) -> None:
    tx = await brought_to(desk, state)
    before = await desk.everything()
    with pytest.raises(TransactionEndedError, match="it has not ended"):
        await desk.store.control("replay", tx, "ann", argument=0)
    assert await desk.everything() == before


async def test_a_child_is_replayed_with_its_parent(desk: Desk) -> None:
    parent = await brought_to(desk, "joining")
    child = await desk.take_one()
    assert await desk.end(child, "failed") == "ok"
    with pytest.raises(TransactionEndedError, match=f"replay {parent}"):
        await desk.store.control("replay", child.id, "ann", argument=0)


async def test_a_replay_may_be_told_of(desk: Desk) -> None:
    tx = await desk.start()
    await desk.store.get(tx, watch_ms=LONG_MS)
    assert await desk.end(await desk.take_one()) == "ok"
    topic = f"tx.events.{tx}"
    async with desk.hearing(topic) as heard:
        await desk.store.control("replay", tx, "ann", argument=0)
        assert await heard() == [(topic, "replay")]


# ----------------------------------------------------------------------------------------------- wake


@pytest.mark.parametrize(("state", "queue"), [("sleeping", "Out"), ("waiting", "Out"), ("delayed", "In")])
async def test_one_that_rests_can_be_woken(desk: Desk, state: str, queue: str) -> None:
    tx = await brought_to(desk, state)
    assert await desk.store.control("wake", tx, "ann") == []
    assert await desk.places(tx) == {f"q{queue}Z:shop"}
    assert any('"kind":"wake"' in entry for entry in await desk.trail(tx))
    taken = await desk.take_one()
    assert (taken.id, taken.text(b"timed_out")) == (tx, "")


@pytest.mark.parametrize("state", ["queued", "held", "running", "joining", "ended"])
async def test_others_cannot(desk: Desk, state: str) -> None:
    tx = await brought_to(desk, state)
    before = await desk.everything()
    with pytest.raises(TransactionEndedError, match="neither sleeps nor waits"):
        await desk.store.control("wake", tx, "ann")
    assert await desk.everything() == before


# ------------------------------------------------------------------------------------------- priority


async def test_a_higher_priority_counts_while_it_is_queued(desk: Desk) -> None:
    first, second, third = [await desk.start() for _ in range(3)]
    assert await desk.store.control("priority", third, "ann", argument=9) == []
    assert await desk.store.control("priority", first, "ann", argument=0) == []
    assert [record.id for record in await desk.take()] == [third, second, first]
    assert any('"kind":"priority"' in entry for entry in await desk.trail(third))


async def test_it_counts_while_it_is_held(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    first, second, third = [await desk.start() for _ in range(3)]
    assert await desk.take() == []
    await desk.store.control("priority", third, "ann", argument=9)
    await desk.store.control("priority", first, "ann", argument=0)
    assert await desk.places(third) == {"heldZ:p:noop"}
    assert await desk.members("heldZ:p:noop") == [third, second, first]
    await desk.store.set_limit("p:noop", Limit(concurrency=2))
    assert [record.id for record in await desk.take()] == [third, second]


@pytest.mark.parametrize("state", ["running", "sleeping", "delayed", "waiting", "joining"])
async def test_it_counts_when_it_is_queued_next(desk: Desk, state: str) -> None:
    tx = await brought_to(desk, state)
    before = await desk.places(tx)
    await desk.store.control("priority", tx, "ann", argument=9)
    assert await desk.places(tx) == before
    assert await desk.field(tx, "priority") == "9"
    if state == "running":
        await settle_by_hand(desk, tx, 1, "queue", "Out", "shop", fields=[])
    elif state == "joining":
        assert await desk.end(await desk.take_one()) == "ok"
    else:
        await desk.store.control("wake", tx, "ann")
    (place,) = await desk.places(tx)
    assert (await desk.score(place, tx) or 0) < 2**46


async def test_it_does_not_count_after_the_end(desk: Desk) -> None:
    tx = await desk.ended()
    with pytest.raises(TransactionEndedError):
        await desk.store.control("priority", tx, "ann", argument=9)


async def test_a_new_priority_moves_it_to_no_other_queue_or_group(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post")
    tx = await desk.start("mail")
    await desk.store.control("priority", tx, "ann", argument=9)
    assert await desk.places(tx) == {"qInZ:post"}
