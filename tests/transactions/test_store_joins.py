"""Joins: children are transactions of their own; their parent goes on when they are back, or may not wait."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.transactions.model import Record
from tests.transactions.conftest import LONG_MS, Desk, put_pipeline


@pytest.fixture(autouse=True)
async def part(desk: Desk) -> None:
    await put_pipeline(desk.store, "part", is_startable=False)


def child(
    slot: int, pipeline: str = "part", *, version: str = "", group: str = "", data: bytes = b"1"
) -> list[Any]:
    return [str(slot), pipeline, version, "", group, data, 1]


async def joining(desk: Desk, *children: list[Any], hurry: int = 0, **options: Any) -> Record:
    record = await desk.begun(**options)
    words = [word for one in children for word in one]
    assert await desk.settle(record, "join", hurry, *words) == "ok"
    return record


async def succeed(desk: Desk, record: Record, data: bytes) -> None:
    assert await desk.end(record, fields=["d:1", data, "data", 1]) == "ok"


async def test_children_are_queued_in_the_partition_of_their_parent(desk: Desk) -> None:
    parent = await joining(desk, child(0, data=b'{"a":1}'), child(1, data=b"2"), owner="ann", priority=7)
    ids = [f"{parent.id}.1.0", f"{parent.id}.1.1"]
    assert await desk.members("qInZ:shop") == ids
    record = await desk.record(ids[0])
    created_ms = record.pop("created_ms")
    assert record == {
        "state": "queued", "status": "running", "owner": "ann", "pipeline": "part", "version": "v1",
        "path": "", "group": "shop", "queue": "In", "priority": "7", "token": "0", "step": "0", "data": "0",
        "queued_ms": created_ms, "parent": parent.id, "join": "1", "slot": "0", "depth": "1",
        "d:0": '{"a":1}',
    }  # fmt: skip
    for name in ("indexZ", "ownerZ:ann"):
        assert set(ids) < set(await desk.members(name))
    waits = await desk.record(parent.id)
    assert (waits["state"], waits["pending"], waits["join_last"]) == ("joining", "2", "1")
    assert await desk.places(parent.id) == set()


async def test_the_parent_goes_on_when_the_last_is_back(desk: Desk) -> None:
    parent = await joining(desk, child(0), child(1))
    first, second = await desk.take()
    await succeed(desk, second, b'{"b":2}')
    assert await desk.field(parent.id, "state") == "joining"
    assert await desk.end(first, "failed", note='it "broke"') == "ok"
    assert await desk.places(parent.id) == {"qOutZ:shop"}
    back = await desk.take_one()
    assert back.id == parent.id
    assert back.with_prefix(b"c:") == {"1.0": rb'failed "it \"broke\""', "1.1": b'success {"b":2}'}


async def test_in_a_hurry_the_first_failure_is_enough(desk: Desk) -> None:
    parent = await joining(desk, child(0), child(1), child(2), hurry=1)
    first, second = await desk.take(2)
    await succeed(desk, first, b"1")
    assert await desk.field(parent.id, "state") == "joining"
    assert await desk.end(second, "failed", note="no") == "ok"
    assert await desk.field(parent.id, "state") == "queued"
    # Who was not begun is not begun any more.
    assert [record.id for record in await desk.take()] == [parent.id]
    third = await desk.record(f"{parent.id}.1.2")
    assert (third["state"], third["status"]) == ("ended", "cancelled")
    assert third["note"] == "its parent no longer waits for it"


async def test_who_comes_back_late_changes_nothing(desk: Desk) -> None:
    parent = await joining(desk, child(0), child(1), hurry=1)
    first, second = await desk.take()
    assert await desk.end(first, "failed") == "ok"
    again = await desk.take_one()
    assert await desk.settle(again, "join", 0, *child(0)) == "ok"
    before = await desk.record(parent.id)
    await succeed(desk, second, b"2")
    assert await desk.record(parent.id) == before
    assert before["join_last"] == "2"


async def test_the_next_join_has_children_of_its_own(desk: Desk) -> None:
    parent = await joining(desk, child(0))
    await succeed(desk, await desk.take_one(), b"1")
    again = await desk.take_one()
    assert await desk.settle(again, "join", 0, *child(0)) == "ok"
    second = await desk.take_one()
    assert second.id == f"{parent.id}.2.0"
    await succeed(desk, second, b"2")
    assert (await desk.take_one()).with_prefix(b"c:") == {"1.0": b"success 1", "2.0": b"success 2"}


@pytest.mark.parametrize(
    "one",
    [child(0, "nope"), child(0, "part", version="v9"), child(0, "asleep")],
    ids=["pipeline", "version", "not-active"],
)
async def test_a_pipeline_that_does_not_exist_is_a_child_that_failed(desk: Desk, one: list[Any]) -> None:
    await put_pipeline(desk.store, "asleep", is_active=False)
    parent = await joining(desk, one)
    back = await desk.take_one()
    assert back.id == parent.id
    (result,) = back.with_prefix(b"c:").values()
    assert result.startswith(b'failed "there is no pipeline ' + one[1].encode())
    assert await desk.execute("EXISTS", f"stateH:{parent.id}.1.0") == 0


async def test_others_are_waited_for_nevertheless_but_not_in_a_hurry(desk: Desk) -> None:
    patient = await joining(desk, child(0, "nope"), child(1))
    assert await desk.field(patient.id, "state") == "joining"
    (record,) = await desk.take()
    await succeed(desk, record, b"1")
    assert (await desk.take_one()).id == patient.id
    hurried = await joining(desk, child(0, "nope"), child(1), hurry=1)
    assert [record.id for record in await desk.take()] == [hurried.id]
    assert await desk.field(f"{hurried.id}.1.1", "status") == "cancelled"


async def test_a_join_without_children_is_over_at_once(desk: Desk) -> None:
    parent = await joining(desk)
    assert (await desk.take_one()).id == parent.id


async def test_a_child_may_have_a_version_and_a_group_of_its_own(desk: Desk) -> None:
    await put_pipeline(desk.store, "part", group="post", version="v2")
    parent = await joining(
        desk,
        child(0),
        child(1, version="v1"),
        child(2, version="branch", group="elsewhere"),
        child(3, version="v2"),
    )
    found = [await desk.record(f"{parent.id}.1.{slot}") for slot in range(4)]
    assert [(record["version"], record["group"]) for record in found] == [
        ("v2", "post"), ("v1", "shop"), ("branch", "elsewhere"), ("v2", "post"),
    ]  # fmt: skip


async def test_children_have_children(desk: Desk) -> None:
    parent = await joining(desk, child(0))
    middle = await desk.take_one()
    assert await desk.settle(middle, "join", 0, *child(0), *child(1)) == "ok"
    grandchildren = await desk.take()
    assert [record.id for record in grandchildren] == [f"{parent.id}.1.0.1.0", f"{parent.id}.1.0.1.1"]
    for record in grandchildren:
        await succeed(desk, record, b'"deep"')
    back = await desk.take_one()
    assert back.id == middle.id
    assert back.with_prefix(b"c:") == {"1.0": b'success "deep"', "1.1": b'success "deep"'}
    await succeed(desk, back, b'"middle"')
    assert (await desk.take_one()).with_prefix(b"c:") == {"1.0": b'success "middle"'}


async def test_the_result_of_a_child_is_its_newest_data(desk: Desk) -> None:
    await joining(desk, child(0, data=b'"input"'))
    record = await desk.take_one()
    assert await desk.end(record) == "ok"  # it wrote nothing: what it got is what it gives
    assert (await desk.take_one()).with_prefix(b"c:") == {"1.0": b'success "input"'}


# ----------------------------------------------------------------------------- parents that are gone


async def test_the_children_of_a_cancelled_parent_are_not_begun(desk: Desk) -> None:
    parent = await joining(desk, child(0), child(1))
    (running,) = await desk.take(1)
    reply = await desk.store.control("cancel", parent.id, "ann")
    assert reply == ["cancelled", f"{parent.id}.1."]
    assert await desk.field(parent.id, "status") == "cancelled"
    assert await desk.take() == []
    assert await desk.field(f"{parent.id}.1.1", "status") == "cancelled"
    # One that runs may come to its end; nobody waits for it.
    before = await desk.record(parent.id)
    await succeed(desk, running, b"1")
    assert await desk.record(parent.id) == before


async def test_so_are_the_grandchildren(desk: Desk) -> None:
    parent = await joining(desk, child(0))
    middle = await desk.take_one()
    assert await desk.settle(middle, "join", 0, *child(0)) == "ok"
    await desk.store.control("cancel", middle.id, "ann")
    assert [record.id for record in await desk.take()] == [parent.id]
    assert await desk.field(f"{middle.id}.1.0", "status") == "cancelled"


async def test_the_children_of_a_parent_that_does_not_exist_are_not_begun(desk: Desk) -> None:
    parent = await joining(desk, child(0))
    await desk.execute("DEL", f"stateH:{parent.id}")
    assert await desk.take() == []
    assert await desk.field(f"{parent.id}.1.0", "status") == "cancelled"


async def test_a_child_that_is_cancelled_comes_back_to_its_parent(desk: Desk) -> None:
    parent = await joining(desk, child(0))
    assert await desk.store.control("cancel", f"{parent.id}.1.0", "ann: enough") == ["cancelled"]
    assert (await desk.take_one()).with_prefix(b"c:") == {"1.0": b'cancelled "ann: enough"'}


async def test_the_deadline_of_a_parent_ends_its_waiting(desk: Desk) -> None:
    parent = await joining(desk, child(0), deadline_ms=40)
    assert await desk.places(parent.id) == {"sleepingZ"}
    assert await desk.score("sleepingZ", parent.id) >= int(await desk.field(parent.id, "deadline_ms") or 0)
    await desk.reach_ms(await desk.score("sleepingZ", parent.id) or 0)
    assert parent.id in [record.id for record in await desk.take()]


async def test_who_comes_back_in_time_takes_the_deadline_away(desk: Desk) -> None:
    parent = await joining(desk, child(0), deadline_ms=LONG_MS)
    await succeed(desk, await desk.take_one(), b"1")
    assert await desk.places(parent.id) == {"qOutZ:shop"}
