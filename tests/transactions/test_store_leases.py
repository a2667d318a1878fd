"""Leases: a worker that falls silent loses what it had, and whatever it says later changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.transactions.model import Record, Settlement
from tests.places import until
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline

#: Every kind of settlement, with arguments that it may have.
KINDS: dict[str, tuple[Any, ...]] = {
    "keep": (),
    "queue": ("Out", "shop"),
    "sleep": (LONG_MS, 0),
    "wait": ("go", 0, "-"),
    "join": (0, "0", "noop", "", "", "", b"1", 1),
    "end": ("success", 0),
}


async def lose(desk: Desk, lease_ms: int = 1) -> Record:
    """Take the only one, and fall silent until it is somebody else's to take."""
    record = await desk.take_one(lease_ms=lease_ms)

    async def is_back() -> bool:
        await desk.dequeue(1, groups=["nobody"])
        return await desk.score("leasesZ", record.id) is None

    await until(is_back)
    return record


# -------------------------------------------------------------------------------------- a lost worker


async def test_what_a_lost_worker_had_comes_back_by_itself(desk: Desk) -> None:
    tx = await desk.start()
    await lose(desk)
    assert await desk.places(tx) == {"qOutZ:shop"}
    record = await desk.record(tx)
    assert (record["state"], record["queue"], record["losses"], record["limits"]) == (
        "queued",
        "Out",
        "1",
        "",
    )
    assert any(
        '"kind":"lost"' in entry and "worker w1 fell silent" in entry for entry in await desk.trail(tx)
    )
    again = await desk.take_one(worker="w2")
    assert (again.id, again.token) == (tx, 2)


async def test_it_does_not_come_back_before_its_lease_has_ended(desk: Desk) -> None:
    tx = await desk.start()
    await desk.take(lease_ms=LONG_MS)
    found = await desk.dequeue(worker="w2")
    assert found.records == []
    assert found.next_ms is not None
    assert LONG_MS - 60_000 < found.next_ms <= LONG_MS
    assert await desk.field(tx, "state") == "running"


async def test_it_comes_back_at_once_when_the_lease_has_ended(desk: Desk) -> None:
    tx = await desk.start()
    await desk.take(lease_ms=30)
    await desk.reach_ms(await desk.score("leasesZ", tx) or 0)
    assert [record.id for record in await desk.take(worker="w2")] == [tx]


async def test_a_renewal_brings_back_what_others_lost_too(desk: Desk) -> None:
    tx = await desk.start()
    await desk.take(lease_ms=1)
    await desk.pass_ms(2)
    await desk.store.renew(0, [], LONG_MS)
    assert await desk.places(tx) == {"qOutZ:shop"}


async def test_each_loss_is_counted(desk: Desk) -> None:
    await desk.start()
    await lose(desk)
    counted = [
        field
        for name, value in (await desk.everything()).items()
        if name.startswith("stats1H")
        for field in value
    ]
    assert "l noop shop acme" in counted


async def test_many_that_were_lost_come_back_all(desk: Desk) -> None:
    ids = {await desk.start() for _ in range(230)}
    assert len(await desk.take(230, lease_ms=1)) == 230
    found: set[str] = set()

    async def take_more() -> bool:
        found.update(record.id for record in await desk.take(100, worker="w2"))
        return found == ids

    await until(take_more)


# -------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("kind", KINDS)
async def test_who_has_lost_it_changes_nothing(desk: Desk, kind: str) -> None:
    await desk.start()
    old = await lose(desk)
    new = await desk.take_one(worker="w2")
    assert new.token == old.token + 1
    before = await desk.everything()
    parts = {"fields": ["step", 9], "trail": [b"{}"], "outbox": ["stream:x", b"1"]}
    assert await desk.settle(old, kind, *KINDS[kind], **parts) == "lost"
    assert await desk.everything() == before
    assert await desk.settle(new, kind, *KINDS[kind], **parts) == "ok"


@pytest.mark.parametrize("kind", KINDS)
async def test_nor_does_it_before_somebody_else_has_it(desk: Desk, kind: str) -> None:
    await desk.start()
    old = await lose(desk)
    before = await desk.everything()
    assert await desk.settle(old, kind, *KINDS[kind]) == "lost"
    assert await desk.everything() == before


async def test_one_that_is_lost_stops_no_other_of_its_batch(desk: Desk) -> None:
    other = await desk.begun()
    await desk.start()
    old = await lose(desk)
    answers = await desk.store.settle(
        0,
        [
            Settlement("end", old.id, old.token, 1, arguments=["success", 0]),
            Settlement("end", other.id, other.token, 1, arguments=["success", 0]),
            Settlement("fly", other.id, other.token, 2),
        ],
    )
    assert answers == ["lost", "ok", "lost"]


# -------------------------------------------------------------------------------------- repetitions


@pytest.mark.parametrize("kind", KINDS)
async def test_a_write_that_comes_twice_is_answered_and_done_once(desk: Desk, kind: str) -> None:
    record = await desk.begun()
    parts = {"fields": ["step", 1], "trail": [b"{}"], "outbox": ["stream:x", b"1"]}
    assert await desk.settle(record, kind, *KINDS[kind], **parts) == "ok"
    before = await desk.everything()
    assert await desk.settle(record, kind, *KINDS[kind], **parts) == "ok"
    assert await desk.everything() == before


async def test_an_older_write_that_comes_late_is_answered_and_not_done(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.settle(record, "keep", seq=2, fields=["step", 2]) == "ok"
    assert await desk.settle(record, "keep", seq=1, fields=["step", 1]) == "ok"
    assert await desk.field(record.id, "step") == "2"


async def test_each_holder_counts_its_own_writes(desk: Desk) -> None:
    record = await desk.begun()
    assert await desk.settle(record, "queue", "Out", "shop", seq=7) == "ok"
    again = await desk.take_one()
    assert await desk.settle(again, "keep", seq=1, fields=["step", 3]) == "ok"
    assert await desk.field(record.id, "step") == "3"


@pytest.mark.parametrize("kind", ["fly", ""])
async def test_a_kind_that_does_not_exist_is_an_error_and_changes_nothing(desk: Desk, kind: str) -> None:
    record = await desk.begun()
    before = await desk.everything()
    assert (await desk.settle(record, kind)).startswith("error ")
    assert await desk.everything() == before


# ----------------------------------------------------------------------------------------- renewals


async def test_a_renewal_counts_from_now(desk: Desk) -> None:
    record = await desk.begun()
    before_ms = await desk.now_ms()
    renewal = await desk.store.renew(0, [(record.id, record.token)], 5_000)
    assert (renewal.lost, renewal.unwanted, renewal.outbox) == ([], [], 0)
    assert before_ms + 5_000 <= (await desk.score("leasesZ", record.id) or 0) == renewal.now_ms + 5_000
    assert renewal.next_ms == 5_000


async def test_a_renewal_tells_what_is_lost_and_what_is_unwanted(desk: Desk) -> None:
    kept, ended, unwanted = [await desk.begun() for _ in range(3)]
    assert await desk.end(ended) == "ok"
    assert await desk.store.control("cancel", unwanted.id, "ann") == ["requested"]
    gone = Record("tx-0-" + "0" * 31, {}, 1)
    held = [(record.id, record.token) for record in (kept, ended, unwanted, gone)]
    stranger = (kept.id, kept.token + 1)
    renewal = await desk.store.renew(0, [*held, stranger], 5_000)
    assert sorted(renewal.lost) == sorted([ended.id, gone.id, kept.id])
    assert renewal.unwanted == [unwanted.id]


async def test_who_comes_late_but_first_keeps_it(desk: Desk) -> None:
    """Nobody has taken it yet, so nothing was done twice."""
    await desk.start()
    record = await desk.take_one(lease_ms=1)
    await desk.pass_ms(2)
    renewal = await desk.store.renew(0, [(record.id, record.token)], LONG_MS)
    assert renewal.lost == []
    assert await desk.end(record) == "ok"


async def test_a_renewal_tells_how_much_waits_in_the_outbox(desk: Desk) -> None:
    record = await desk.begun()
    await desk.settle(record, "keep", outbox=["stream:x", b"1", "stream:y", b"2"])
    assert (await desk.store.renew(0, [], LONG_MS)).outbox == 6


# -------------------------------------------------------------------------------------- dead letters


@pytest.mark.parametrize("max_losses", [0, 2])
async def test_whoever_loses_too_many_workers_is_given_up(desk: Desk, max_losses: int) -> None:
    await desk.store.configure(max_losses=max_losses)
    tx = await desk.start(fields={"webhook": "https://a.b"})
    for number in range(1, max_losses + 2):
        await lose(desk)
        record = await desk.record(tx)
        if number <= max_losses:
            assert (record["state"], record["losses"]) == ("queued", str(number))
    assert (record["state"], record["status"]) == ("ended", "internal-error")
    assert record["note"] == f"{max_losses + 1} workers in a row fell silent while they had it"
    assert await desk.members("deadZ") == [tx]
    assert await desk.members("webhooksZ") == [f"{tx} complete.0"]
    assert await desk.take() == []
    # Somebody who has found the fault may let it go on.
    assert await desk.store.control("replay", tx, "ann", argument=0) == []
    assert (await desk.take_one()).id == tx
    assert await desk.members("deadZ") == []


async def test_losses_that_a_worker_has_forgotten_do_not_count(desk: Desk) -> None:
    await desk.store.configure(max_losses=1)
    tx = await desk.start()
    for _ in range(3):
        await lose(desk)
        record = await desk.take_one()
        assert await desk.settle(record, "queue", "Out", "shop", fields=["losses", 0]) == "ok"
    assert await desk.field(tx, "state") == "queued"


async def test_a_parent_hears_of_a_child_that_was_given_up(desk: Desk) -> None:
    await desk.store.configure(max_losses=0)
    parent = await desk.begun()
    await put_pipeline(desk.store, "part")
    assert await desk.settle(parent, "join", 0, "0", "part", "", "", "", b"1", 1) == "ok"
    child = await lose(desk)
    assert child.id == f"{parent.id}.1.0"
    record = await desk.record(parent.id)
    assert record["state"] == "queued"
    assert record["c:1.0"].startswith("internal-error ")
