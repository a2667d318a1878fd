"""External ids: one transaction an owner and id for a period; and starts whose reply was lost."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.errors import BackpressureError, DuplicateError, OutcomeUnknownError, UnknownPipelineError
from penstock.transactions import keys
from penstock.transactions.model import Limit
from penstock.transactions.store import TransactionStore
from tests.places import until
from tests.transactions.conftest import Desk, put_pipeline


async def test_the_same_start_gives_the_same_transaction(desk: Desk) -> None:
    first = await desk.store.start("noop", b'{"a":1}', owner="acme", external_id="x")
    before = await desk.everything()
    second = await desk.store.start("noop", b'{"a":1}', owner="acme", external_id="x", priority=9)
    assert (first.is_new, second) == (True, (first.id, False))
    assert await desk.everything() == before


@pytest.mark.parametrize(("pipeline", "data"), [("noop", b'{"a":2}'), ("mail", b'{"a":1}')])
async def test_another_body_or_pipeline_is_refused(desk: Desk, pipeline: str, data: bytes) -> None:
    await put_pipeline(desk.store, "mail")
    first = await desk.start(data=b'{"a":1}', external_id="x")
    with pytest.raises(DuplicateError) as caught:
        await desk.start(pipeline, data, external_id="x")
    assert caught.value.transaction == first


async def test_owners_do_not_know_each_others_ids(desk: Desk) -> None:
    mine = await desk.start(owner="ann", external_id="x")
    yours = await desk.start(owner="bob", external_id="x")
    assert mine != yours
    assert await desk.store.find_external("ann", "x") == mine
    assert await desk.store.find_external("bob", "x") == yours
    assert await desk.store.find_external("cid", "x") is None


async def test_names_that_run_together_are_not_mixed_up(desk: Desk) -> None:
    one = await desk.start(owner="a:b", external_id="c")
    other = await desk.start(owner="a", external_id="b:c")
    if one == other:
        pytest.fail("the external id of one owner was taken for that of another")
    assert await desk.store.find_external("a:b", "c") == one


async def test_it_is_taken_after_the_end_too(desk: Desk) -> None:
    tx = await desk.ended("failed", external_id="x")
    assert await desk.start(external_id="x") == tx


async def test_after_its_period_it_is_free(desk: Desk) -> None:
    first = await desk.start(external_id="x", external_id_ms=30)

    async def is_free() -> bool:
        return await desk.store.find_external("acme", "x") is None

    await until(is_free)
    second = await desk.store.start("noop", b"{}", owner="acme", external_id="x")
    assert second.is_new
    assert second.id != first


async def test_a_start_that_fails_does_not_use_it_up(desk: Desk) -> None:
    with pytest.raises(UnknownPipelineError):
        await desk.start("nope", external_id="x")
    await desk.store.set_limit("g:shop", Limit(max_queued=1))
    full = await desk.start()
    with pytest.raises(BackpressureError):
        await desk.start(external_id="x")
    assert await desk.store.find_external("acme", "x") is None
    await desk.store.control("cancel", full, "ann")
    assert await desk.store.find_external("acme", "x") is None
    assert await desk.start(external_id="x") == await desk.store.find_external("acme", "x")


async def test_one_id_has_one_partition(store: TransactionStore) -> None:
    await put_pipeline(store, "noop")
    partitions = await store.partitions()
    for number in range(20):
        started = await store.start("noop", b"{}", owner="acme", external_id=f"x{number}")
        assert keys.partition_of(started.id) == keys.home_of("acme", f"x{number}", partitions)
        assert await store.find_external("acme", f"x{number}") == started.id
        assert (await store.start("noop", b"{}", owner="acme", external_id=f"x{number}")).id == started.id


# ------------------------------------------------------------------------------- replies that are lost


class Forgetful(TransactionStore):
    """The reply of the first script is lost: before it ran, or after."""

    def __init__(self, client: penstock.Penstock, when: str) -> None:
        super().__init__(client, partitions=1)
        self._when = when

    async def run(self, name: str, partition: int, *arguments: Any, readonly: bool = False) -> Any:
        when, self._when = self._when, ""
        if when == "before":
            raise OutcomeUnknownError("the connection was cut")
        reply = await super().run(name, partition, *arguments, readonly=readonly)
        if when == "after":
            raise OutcomeUnknownError("the connection was cut")
        return reply


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("external_id", [None, "x"])
async def test_a_start_whose_reply_was_lost_begins_once(
    desk: Desk, ps: penstock.Penstock, when: str, external_id: str | None
) -> None:
    started = await Forgetful(ps, when).start("noop", b"{}", owner="acme", external_id=external_id)
    assert started.is_new
    assert [record.id for record in await desk.take()] == [started.id]
