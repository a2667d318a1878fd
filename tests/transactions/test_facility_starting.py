"""Starting and finding transactions: every option, and every refusal in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.clock import SystemClock
from penstock.errors import (
    BackpressureError,
    ContentError,
    DuplicateError,
    TransactionEndedError,
    TransactionNotFoundError,
    UnknownPipelineError,
    UsageError,
)
from penstock.transactions import Limit, Query, Schedule, Wait
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import Shop

NOBODY = "tx-0-" + "0" * 31


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    shop = Shop(ps)
    await shop.deploy("add")
    return shop


async def test_every_option(shop: Shop) -> None:
    handle = await shop.transactions.start(
        "main",
        {"n": 1},
        owner="acme",
        external_id="order 42",
        external_id_ms=60_000,
        webhook="https://example.com/hook",
        metadata={"trace": 1},
        priority=9,
        delay_ms=60,
        deadline_ms=600_000,
    )
    assert handle.is_new
    found = await handle.get()
    assert (found.state, found.status, found.input) == ("sleeping", "running", {"n": 1})
    assert (found.owner, found.external_id, found.priority) == ("acme", "order 42", 9)
    assert (found.metadata, found.webhook) == ({"trace": 1}, "https://example.com/hook")
    assert found.deadline_ms == found.created_ms + 600_060
    async with shop.working():
        ended = await shop.ended(handle)
    assert ended.output == {"n": 2}
    assert ended.taken_ms - ended.created_ms >= 60


@only_on("embedded", "server")
async def test_starting_later(shop: Shop) -> None:
    async with shop.working():
        at_ms = SystemClock().now_ms() + 80
        later = await shop.transactions.start("main", {}, at_ms=at_ms)
        past = await shop.transactions.start("main", {}, at_ms=1)
        assert (await shop.ended(past)).is_success
        assert (await shop.ended(later)).taken_ms >= at_ms - 1


async def test_the_same_external_id(shop: Shop) -> None:
    first = await shop.start(input={"n": 1}, external_id="o-1")
    same = await shop.start(input={"n": 1}, external_id="o-1")
    assert (same.id, same.is_new, first.is_new) == (first.id, False, True)
    with pytest.raises(DuplicateError, match=f"external_id 'o-1' belongs to {first.id}") as caught:
        await shop.start(input={"n": 2}, external_id="o-1")
    assert caught.value.transaction == first.id
    other = await shop.start(input={"n": 2}, external_id="o-1", owner="acme")
    assert other.id != first.id
    assert (await shop.transactions.find("o-1")).id == first.id
    assert (await shop.transactions.find("o-1", owner="acme")).id == other.id
    with pytest.raises(TransactionNotFoundError, match="there is no transaction with external id 'o-2'"):
        await shop.transactions.find("o-2")


@only_on("embedded", "server")
async def test_an_external_id_for_its_period(shop: Shop) -> None:
    first = await shop.start(external_id="o-1", external_id_ms=30)
    store = shop.transactions.store
    await until(lambda: _is_free(store, "o-1"))
    assert (await shop.transactions.find("o-1")).id == first.id  # whoever had it last
    second = await shop.start(input={"n": 5}, external_id="o-1")
    assert second.is_new
    # A start that is refused uses no id up.
    with pytest.raises(UnknownPipelineError):
        await shop.start("nowhere", external_id="o-2")
    assert await _is_free(store, "o-2")


async def _is_free(store: Any, external_id: str) -> bool:
    return await store.find_external("default", external_id) is None


@only_on("embedded")
@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"pipeline": "no spaces"}, UsageError, "pipeline must be 1 to 128 letters"),
        ({"pipeline": "nowhere"}, UnknownPipelineError, "there is no pipeline 'nowhere': commit"),
        ({"pipeline": "part"}, UnknownPipelineError, "pipeline 'part' is a part of others"),
        ({"version": "f" * 20}, UnknownPipelineError, "the pipeline has no version 'ffff"),
        ({"owner": ""}, UsageError, "owner must be 1 to 128 letters"),
        ({"input": object()}, UsageError, "input must be JSON"),
        ({"input": "x" * 1_048_576}, UsageError, "input must have at most 1048576 bytes"),
        ({"metadata": object()}, UsageError, "metadata must be JSON"),
        ({"external_id": ""}, UsageError, "external_id must be 1 to 256 printable characters"),
        ({"external_id": "a\nb"}, UsageError, "external_id must be 1 to 256 printable characters"),
        ({"external_id": "a", "external_id_ms": 0}, UsageError, "external_id_ms must be 1 to"),
        ({"priority": 10}, UsageError, "priority must be 0 to 9"),
        ({"delay_ms": -1}, UsageError, "delay_ms must be 0 to 31622400000"),
        ({"at_ms": 10**15}, UsageError, "delay_ms must be 0 to 31622400000"),
        ({"at_ms": 1, "delay_ms": 1}, UsageError, "give at_ms or delay_ms, not both"),
        ({"deadline_ms": -1}, UsageError, "deadline_ms must be 0 to 31622400000"),
        ({"webhook": "ftp://x"}, UsageError, "webhook"),
    ],
)
async def test_refusals(shop: Shop, options: dict[str, Any], error: type[Exception], why: str) -> None:
    await shop.deploy("noop", name="part", is_startable=False)
    with pytest.raises(error, match=why) as caught:
        await shop.transactions.start(**{"pipeline": "main", "input": {}, **options})
    assert "\n" not in str(caught.value)
    assert not issubclass(error, ContentError)
    assert (await shop.transactions.list()).items == []  # nothing was begun


async def test_a_full_queue_refuses(shop: Shop) -> None:
    partitions = await shop.transactions.store.partitions()
    await shop.transactions.limit(Limit(max_queued=2 * partitions), node_group="shop")
    for _ in range(2 * partitions):
        await shop.start()
    with pytest.raises(
        BackpressureError, match=r"2 transactions wait for node group 'shop' \(max_queued is 2\)"
    ):
        await shop.start()
    async with shop.working():
        await until(lambda: _ended(shop, 2 * partitions))
        assert (await shop.ended(await shop.start())).is_success


async def _ended(shop: Shop, count: int) -> bool:
    return len((await shop.transactions.list(Query(state="ended"))).items) == count


# ----------------------------------------------------------------------------------------------- owners


async def test_everything_asks_for_the_owner(shop: Shop) -> None:
    await shop.deploy(Wait("go"), name="waits")
    t = shop.transactions
    handle = await shop.start("waits", owner="acme")
    wrong = {"owner": "bob"}
    calls = [
        lambda: t.get(handle.id, **wrong),
        lambda: t.wait(handle.id, timeout_ms=10, **wrong),
        lambda: anext(t.changes(handle.id, **wrong)),
        lambda: t.children(handle.id, **wrong),
        lambda: t.cancel(handle.id, **wrong),
        lambda: t.retry(handle.id, **wrong),
        lambda: t.replay(handle.id, 0, **wrong),
        lambda: t.wake(handle.id, **wrong),
        lambda: t.set_priority(handle.id, 1, **wrong),
        lambda: t.set_switch(handle.id, "go", 1, **wrong),
        lambda: t.get_switch(handle.id, "go", **wrong),
        lambda: t.handle(handle.id, "bob").get(),
    ]
    for call in calls:
        with pytest.raises(TransactionNotFoundError, match=f"there is no transaction {handle.id}"):
            await call()
    assert (await handle.get(trail=True)).trail == []
    assert [one.id for one in (await t.list(Query(owner="acme"))).items] == [handle.id]
    assert (await t.list(Query(owner="bob"))).items == []
    async with shop.working():
        await shop.reaches(handle, "waiting")
        assert await t.set_switch(handle.id, "go", 1, owner="acme") == "woken"
        assert (await t.wait(handle.id, owner="acme")).is_success
        assert await t.children(handle.id, owner="acme") == []


@only_on("embedded")
async def test_what_is_not_there_and_what_is_no_id(shop: Shop) -> None:
    t = shop.transactions
    for call in (t.get, t.wait, t.cancel, t.retry, t.replay, t.wake):
        with pytest.raises(TransactionNotFoundError, match=f"there is no transaction {NOBODY}"):
            await call(NOBODY)
        with pytest.raises(UsageError, match="'garbage' is not the id of a transaction"):
            await call("garbage")
    with pytest.raises(UsageError, match="'garbage' is not the id"):
        t.handle("garbage")
    with pytest.raises(UsageError, match="there is no archive"):
        await t.search_archive(None)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- control and limits


async def test_pausing_and_resuming(shop: Shop) -> None:
    t = shop.transactions
    async with shop.working():
        for what in ({"pipeline": "main"}, {"owner": "default"}, {"node_group": "shop"}):
            await t.limit(Limit(concurrency=7), **what)
            await t.pause(**what)
            handle = await shop.start()
            assert (await t.wait(handle.id, timeout_ms=60)).state == "queued", what
            await t.resume(**what)
            assert (await shop.ended(handle)).is_success
            await t.limit(None, **what)
    assert await t.looking.limits() == {}


@only_on("embedded", "server")
async def test_a_limit_of_concurrency(shop: Shop) -> None:
    inside: list[int] = []
    most: list[int] = []

    @shop.step("count")
    def count(tx: Any) -> None:
        inside.append(1)
        most.append(len(inside))
        tx.progress({"inside": len(inside)})
        inside.pop()

    await shop.deploy("count", name="few")
    await shop.transactions.limit(Limit(concurrency=2), pipeline="few")
    handles = [await shop.start("few") for _ in range(20)]
    async with shop.working():
        for handle in handles:
            assert (await shop.ended(handle)).is_success
    assert max(most) <= 2


@only_on("embedded")
@pytest.mark.parametrize("what", [{}, {"pipeline": "a", "owner": "b"}])
async def test_a_limit_is_of_one_thing(shop: Shop, what: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="give exactly one of pipeline, owner, node_group"):
        await shop.transactions.pause(**what)
    with pytest.raises(UsageError, match="owner must be 1 to 128"):
        await shop.transactions.pause(owner="no spaces")


@only_on("embedded", "server")
async def test_priorities_decide_who_is_first(shop: Shop) -> None:
    order: list[int] = []

    @shop.step("note")
    async def note(tx: Any) -> None:
        order.append(tx.input)

    await shop.deploy("note", name="notes")
    handles = [await shop.start("notes", number, priority=number) for number in (1, 5, 9)]
    await shop.transactions.set_priority(handles[0].id, 8)
    async with shop.working(concurrency=1):
        for handle in handles:
            await shop.ended(handle)
        with pytest.raises(TransactionEndedError, match="it has ended already"):
            await shop.transactions.set_priority(handles[0].id, 1)
    assert order == [9, 1, 5]


@only_on("embedded", "server")
async def test_switches_are_text(shop: Shop) -> None:
    await shop.deploy(Wait("never"), name="waits")
    handle = await shop.start("waits")
    for value, text in ((True, "true"), (1.5, "1.5"), (7, "7"), ("yes", "yes")):
        assert await handle.set_switch("mode", value) == "updated"
        assert await shop.transactions.get_switch(handle.id, "mode") == text
    assert await handle.set_switch("mode", "yes") == "nochange"
    assert await handle.set_switch("mode", None) == "updated"
    assert await shop.transactions.get_switch(handle.id, "mode") is None
    with pytest.raises(UsageError, match="name must be 1 to 128"):
        await handle.set_switch("no spaces", 1)
    with pytest.raises(UsageError, match="value must have at most 1024 characters"):
        await handle.set_switch("mode", "x" * 1_025)


@only_on("embedded", "server")
async def test_a_schedule_starts_transactions(shop: Shop) -> None:
    async with shop.working():
        at_ms = SystemClock().now_ms() + 50
        await shop.transactions.schedules.put(Schedule("soon", "main", {"n": 41}, owner="acme", at_ms=at_ms))
        await until(lambda: _found(shop))
        (started,) = (await shop.transactions.list(Query(owner="acme"))).items
        ended = await shop.ended(shop.transactions.handle(started.id))
    assert ended.output == {"n": 42}


async def _found(shop: Shop) -> bool:
    return len((await shop.transactions.list(Query(owner="acme"))).items) == 1


@only_on("embedded", "server")
async def test_settings_of_the_store(shop: Shop) -> None:
    store = shop.transactions.store
    await store.configure(archive_delay_ms=1, max_losses=2)
    async with shop.working():
        handle = await shop.start()
        ended = await shop.ended(handle)
    due_ms = float(await shop.ps.execute("ZSCORE", "{p0}.toArchiveZ", handle.id))
    assert due_ms == ended.ended_ms + 1
    with pytest.raises(UsageError, match="there is no setting 'colour'"):
        await store.configure(colour=1)
    with pytest.raises(UsageError, match="max_losses must be at least 0"):
        await store.configure(max_losses=-1)
