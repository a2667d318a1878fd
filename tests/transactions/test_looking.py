"""Looking at transactions: lists with cursors, groups, what runs, what was given up, limits, workers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import penstock
from penstock.errors import TransactionNotFoundError, UsageError
from penstock.transactions import keys, listing
from penstock.transactions.listing import Query
from penstock.transactions.looking import Looking, Overview
from penstock.transactions.model import Limit, Record, Settlement, Transaction
from penstock.transactions.pipelines.definition import Pipeline
from penstock.transactions.pipelines.registry import PipelineRegistry
from penstock.transactions.pipelines.steps import Parallel, Step
from penstock.transactions.store import TransactionStore
from penstock.transactions.workers_registry import WorkerInfo, WorkerRegistry
from tests.places import until
from tests.transactions.conftest import put_pipeline

LEASE_MS = 600_000


@pytest.fixture
async def looking(store: TransactionStore) -> Looking:
    await put_pipeline(store, "checkout", group="shop")
    await put_pipeline(store, "report", group="office")
    return Looking(store)


async def start(
    store: TransactionStore, pipeline: str = "checkout", owner: str = "acme", **options: Any
) -> str:
    return (await store.start(pipeline, b"{}", owner=owner, **options)).id


async def take(store: TransactionStore, group: str = "shop", limit: int = 100) -> dict[str, Record]:
    """Everybody who waits for a group."""
    found: dict[str, Record] = {}
    for place in range(await store.partitions()):
        taken = await store.dequeue(place, "worker-1", [group], limit=limit, lease_ms=LEASE_MS)
        found.update((record.id, record) for record in taken.records)
    return found


async def settle(store: TransactionStore, record: Record, kind: str, *arguments: Any, note: str = "") -> None:
    settlement = Settlement(kind, record.id, record.token, 1, note, arguments=arguments)
    assert await store.settle(keys.partition_of(record.id), [settlement]) == ["ok"]


async def everything(looking: Looking, query: Query, limit: int = 7) -> list[Transaction]:
    found: list[Transaction] = []
    cursor = None
    while True:
        page = await looking.list(query, limit=limit, cursor=cursor)
        found += page.items
        if page.cursor is None:
            return found
        cursor = page.cursor


def ids(items: list[Transaction]) -> list[str]:
    return [item.id for item in items]


def in_order(items: list[Transaction]) -> bool:
    places = [(item.created_ms, item.id) for item in items]
    return places == sorted(places, reverse=True)


async def set_created(store: TransactionStore, tx: str, owner: str, created_ms: int) -> None:
    """As if it had been created then."""
    prefix = keys.prefix_of(keys.partition_of(tx))
    await store.client.execute("HSET", f"{prefix}stateH:{tx}", "created_ms", created_ms)
    for index in ("indexZ", f"ownerZ:{owner}"):
        await store.client.execute("ZADD", f"{prefix}{index}", created_ms, tx)


class TestLists:
    async def test_pages_are_newest_first_and_together_everything(
        self, store: TransactionStore, looking: Looking
    ) -> None:
        started = [await start(store) for _ in range(40)]
        for limit in (1, 7, 40, 1000):
            found = await everything(looking, Query(), limit)
            assert sorted(ids(found)) == sorted(started)
            assert in_order(found)
        page = await looking.list(limit=40)
        assert (len(page.items), page.cursor) == (40, None)

    async def test_an_item_shows_how_it_is_and_not_what_may_be_large(
        self, store: TransactionStore, looking: Looking
    ) -> None:
        tx = await start(store, external_id="order-1", priority=7, fields={"metadata": '{"k":1}'})
        (item,) = (await looking.list()).items
        assert (item.id, item.owner, item.pipeline, item.node_group) == (tx, "acme", "checkout", "shop")
        assert (item.state, item.status, item.priority, item.external_id) == (
            "queued",
            "running",
            7,
            "order-1",
        )
        assert (item.metadata, item.input, item.trail) == ({"k": 1}, None, [])

    async def test_filters(self, store: TransactionStore, looking: Looking) -> None:
        a = await start(store, "checkout", "acme")
        b = await start(store, "report", "acme")
        c = await start(store, "report", "zeta", external_id="x")
        for query, wanted in [
            (Query(owner="acme"), {a, b}),
            (Query(owner="nobody"), set()),
            (Query(pipeline="report"), {b, c}),
            (Query(node_group="shop"), {a}),
            (Query(external_id="x"), {c}),
            (Query(owner="zeta", external_id="x"), {c}),
            (Query(owner="acme", external_id="x"), set()),
            (Query(status="running"), {a, b, c}),
            (Query(status="failed"), set()),
            (Query(state="queued", node_group="office"), {b, c}),
        ]:
            assert sorted(ids(await everything(looking, query, 1))) == sorted(wanted), query

    async def test_by_time(self, store: TransactionStore, looking: Looking) -> None:
        started = [await start(store) for _ in range(6)]
        for at, tx in enumerate(started):
            await set_created(store, tx, "acme", 1_000 + at)
        found = await everything(looking, Query(since_ms=1_001, until_ms=1_004), 2)
        assert ids(found) == [started[3], started[2], started[1]]

    async def test_states(self, store: TransactionStore, looking: Looking) -> None:
        started = [await start(store) for _ in range(6)]
        records = await take(store)
        asleep, waiting, joining, ended, dead, running = (records[tx] for tx in started)
        await settle(store, asleep, "sleep", 600_000, 0)
        await settle(store, waiting, "wait", "go", 0, "-")
        await settle(store, joining, "join", "0", "0", "report", "", "", "", b"1", 1)
        await settle(store, ended, "end", "success", 0)
        await settle(store, dead, "end", "failed", 1, note="it broke")
        queued = await start(store)
        child = f"{joining.id}.1.0"
        for state, wanted in [
            ("sleeping", {asleep.id}),
            ("waiting", {waiting.id}),
            ("joining", {joining.id}),
            ("ended", {ended.id, dead.id}),
            ("dead", {dead.id}),
            ("running", {running.id}),
            ("queued", {queued, child}),
        ]:
            assert sorted(ids(await everything(looking, Query(state=state), 1))) == sorted(wanted), state
        assert ids(await everything(looking, Query(state="queued", roots_only=True))) == [queued]

    @pytest.mark.parametrize("most_in_set", [0, 2_000])
    async def test_sets_of_a_state_and_the_index_say_the_same(
        self, store: TransactionStore, looking: Looking, most_in_set: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "MAX_SET", most_in_set)
        await store.set_limit("o:held", Limit(is_paused=True))
        created = [await start(store, owner=random.choice(["acme", "held"])) for _ in range(60)]
        records = await take(store, limit=max(1, 8 // await store.partitions()))
        for record in list(records.values())[::2]:
            await settle(store, record, "end", random.choice(["success", "failed"]), 1)
        for state in listing.STATES:
            query = Query(state=state, node_group="shop")
            found = await everything(looking, query, 4)
            assert in_order(found)
            expected = {tx for tx in created if await self._is_in(store, tx, state)}
            assert sorted(ids(found)) == sorted(expected), state
        first = (await looking.list(Query(state="running"), limit=1)).items[0].created_ms
        recent = await everything(looking, Query(state="running", since_ms=first), 1)
        assert {item.created_ms for item in recent} == {first}
        assert await everything(looking, Query(state="running", since_ms=first + 1)) == []

    async def _is_in(self, store: TransactionStore, tx: str, state: str) -> bool:
        found = await store.get(tx)
        assert found is not None
        if state != "dead":
            return found[0].state == state
        dead = f"{keys.prefix_of(keys.partition_of(tx))}deadZ"
        return await store.client.execute("ZSCORE", dead, tx) is not None

    async def test_many_of_one_millisecond(
        self, store: TransactionStore, looking: Looking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "BATCH", 8)
        started = [await start(store) for _ in range(70)]
        for tx in started:
            await set_created(store, tx, "acme", 5_000)
        found = await everything(looking, Query(), 3)
        assert ids(found) == sorted(started, reverse=True)

    async def test_a_page_reads_a_bounded_number_of_rows(
        self, store: TransactionStore, looking: Looking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "MAX_ROWS", 8)
        monkeypatch.setattr(listing, "BATCH", 4)
        wanted = await start(store, "report")
        for _ in range(20):
            await start(store)
        page = await looking.list(Query(pipeline="report"))
        assert page.items == []
        assert page.cursor is not None
        assert ids(await everything(looking, Query(pipeline="report"), 100)) == [wanted]

    async def test_what_comes_and_goes_between_pages_changes_nothing_else(
        self, store: TransactionStore, looking: Looking
    ) -> None:
        started = [await start(store) for _ in range(10)]
        for at, tx in enumerate(started):
            await set_created(store, tx, "acme", 1_000 + at)
        page = await looking.list(limit=4)
        last = page.items[-1].id
        prefix = keys.prefix_of(keys.partition_of(last))
        await store.client.execute("DEL", f"{prefix}stateH:{last}")
        await store.client.execute("ZREM", f"{prefix}indexZ", last)
        await start(store)
        rest = await looking.list(limit=100, cursor=page.cursor)
        assert ids(page.items) + ids(rest.items) == started[::-1]

    async def test_who_has_an_external_id_is_found_without_a_walk(
        self, store: TransactionStore, looking: Looking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "MAX_ROWS", 2)
        monkeypatch.setattr(listing, "BATCH", 2)
        tx = await start(store, external_id="order-1")
        for _ in range(60):
            await start(store)
        page = await looking.list(Query(owner="acme", external_id="order-1"), limit=1)
        assert ids(page.items) == [tx]

    async def test_a_broken_record_hides_no_other(self, store: TransactionStore, looking: Looking) -> None:
        good, bad = await start(store), await start(store)
        prefix = keys.prefix_of(keys.partition_of(bad))
        await store.client.execute("DEL", f"{prefix}stateH:{bad}")
        await store.client.execute("SET", f"{prefix}stateH:{bad}", "not a hash")
        await store.client.execute("ZADD", f"{prefix}indexZ", 99, "no id at all")
        assert ids(await everything(looking, Query())) == [good]

    async def test_cursors_are_checked(self, store: TransactionStore, looking: Looking) -> None:
        for _ in range(3):
            await start(store)
        page = await looking.list(limit=1)
        assert page.cursor is not None
        changed = page.cursor[:-3] + ("AAA" if page.cursor[-3:] != "AAA" else "BBB")
        for cursor, query in [
            ("", Query()), ("!", Query()), ("AAAA", Query()), (changed, Query()), ("é", Query()),
            (page.cursor, Query(owner="acme")), (page.cursor, Query(since_ms=1)),
        ]:  # fmt: skip
            with pytest.raises(UsageError, match="cursor is not one that this query gave"):
                await looking.list(query, cursor=cursor)

    async def test_what_makes_no_sense_is_refused(self, looking: Looking) -> None:
        for limit in (0, 1001):
            with pytest.raises(UsageError, match="limit must be 1 to 1000"):
                await looking.list(limit=limit)
        for settings in ({"state": "lost"}, {"status": "fine"}, {"owner": "a b"}, {"external_id": ""}):
            with pytest.raises(UsageError, match=f"{next(iter(settings))} must be"):
                Query(**settings)


class TestWhatIsOn:
    async def test_who_runs_since_when(self, store: TransactionStore, looking: Looking) -> None:
        started = [await start(store) for _ in range(3)]
        assert await looking.running() == []
        await take(store)
        for at, tx in enumerate(started):
            prefix = keys.prefix_of(keys.partition_of(tx))
            await store.client.execute("ZADD", f"{prefix}processingZ", 1_000 - at, tx)
        running = await looking.running(2)
        assert [(one.transaction.id, one.since_ms) for one in running] == [
            (started[2], 998),
            (started[1], 999),
        ]
        assert running[0].transaction.worker == "worker-1"
        assert running[0].lease_ms is not None
        assert running[0].lease_ms > running[0].transaction.created_ms

    async def test_who_was_given_up_and_why(self, store: TransactionStore, looking: Looking) -> None:
        failed, broken = await start(store), await start(store)
        prefix = keys.prefix_of(keys.partition_of(broken))
        await store.client.execute("HDEL", f"{prefix}stateH:{broken}", "pipeline")
        records = await take(store)
        assert set(records) == {failed}
        await settle(store, records[failed], "end", "failed", 1, note="no card")
        dead = {one.id: one for one in await looking.dead()}
        assert set(dead) == {failed, broken}
        assert dead[failed].reason == "no card"
        assert "lacks owner, pipeline" in dead[broken].reason
        assert dead[failed].transaction is not None
        assert dead[failed].transaction.status == "failed"

    async def test_a_dead_one_without_a_record(self, store: TransactionStore, looking: Looking) -> None:
        tx = keys.new_id(0, 1)
        await store.client.execute("ZADD", "{p0}.deadZ", 5, tx, 6, "garbage")
        (dead,) = await looking.dead()
        assert (dead.id, dead.dead_ms, dead.transaction) == (tx, 5, None)

    async def test_children(self, store: TransactionStore, looking: Looking) -> None:
        parent = await start(store)
        record = (await take(store))[parent]
        words = [word for slot in range(20) for word in (slot, "report", "", "", "", b"1", 1)]
        await settle(store, record, "join", "1", *words)
        wanted = [f"{parent}.1.{slot}" for slot in range(20)]
        assert ids(await looking.children(parent)) == wanted
        # The first that fails ends the join: the others have not come back, and are children all the same.
        children = await take(store, "office")
        await settle(store, children[wanted[3]], "end", "failed", 0)
        record = (await take(store))[parent]
        await settle(store, record, "join", "0", "0", "report", "", "", "", b"1", 1)
        assert ids(await looking.children(parent)) == [*wanted, f"{parent}.2.0"]
        assert ids(await looking.children(parent, limit=5)) == wanted[:5]
        assert await looking.children(wanted[0]) == []
        with pytest.raises(TransactionNotFoundError):
            await looking.children(keys.new_id(0, 1))


class TestGroupsAndNumbers:
    async def test_groups(self, ps: penstock.Penstock, store: TransactionStore, looking: Looking) -> None:
        for _ in range(4):
            await start(store)
        await start(store, owner="slow")
        await store.set_limit("o:slow", Limit(is_paused=True))
        await store.set_limit("g:idle", Limit(is_paused=True))
        await WorkerRegistry(ps).announce(WorkerInfo(id="w", node_groups=["gpu"]))
        await WorkerRegistry(ps).set_concurrency("wished", 3)
        records = await take(store)
        assert len(records) == 4
        first, second, *_ = records.values()
        await settle(store, first, "queue", "Out", "shop")
        await settle(store, second, "queue", "Admin", "shop")
        groups = {group.name: group for group in await looking.groups()}
        assert {"shop", "idle", "gpu", "wished"} <= set(groups)
        shop = groups["shop"]
        assert (shop.admin, shop.out, shop.in_, shop.held, shop.running) == (1, 1, 0, 1, 2)
        assert shop.oldest_ms is not None
        assert not shop.is_paused
        assert groups["idle"].is_paused
        assert groups["gpu"].oldest_ms is None

    async def test_groups_are_known_from_pipelines_that_never_ran(
        self, ps: penstock.Penstock, store: TransactionStore, looking: Looking
    ) -> None:
        registry = PipelineRegistry(ps, store.partitions)
        branches = {"fast": ["a"], "slow": [Step("b", node_group="gpu")]}
        await registry.deploy(Pipeline("report", [Parallel(branches)], node_group="library"))
        assert [group.name for group in await looking.groups()] == ["gpu", "library"]

    async def test_the_overview(self, store: TransactionStore, looking: Looking) -> None:
        started = [await start(store) for _ in range(4)]
        hooked = await start(store, fields={"webhook": "https://example.com"})
        records = await take(store)
        await settle(store, records[started[0]], "sleep", 600_000, 0)
        await settle(store, records[started[1]], "end", "failed", 1)
        await settle(store, records[hooked], "end", "success", 0)
        record = records[started[2]]
        outgoing = Settlement("keep", record.id, record.token, 1, outbox=["stream:s", b"1", "stream:s", b"2"])
        await store.settle(keys.partition_of(record.id), [outgoing])
        await start(store)
        await start(store, delay_ms=600_000)
        expected = Overview(
            queued=1, running=2, sleeping=2, dead=1, to_archive=1, webhooks=1, outbox=2, total=7
        )
        assert await looking.overview() == expected
        assert await looking.overview(await looking.group_names()) == expected
        assert (await looking.overview([])).queued == 0

    async def test_who_waits_for_a_switch(self, store: TransactionStore, looking: Looking) -> None:
        started = [await start(store) for _ in range(4)]
        records = await take(store)
        await settle(store, records[started[0]], "wait", "paid", 0, "-")
        await settle(store, records[started[1]], "wait", "paid", 600_000, "-")
        await settle(store, records[started[2]], "sleep", 600_000, 0)
        found = await looking.overview()
        assert (found.sleeping, found.waiting, found.running) == (3, 2, 1)
        page = await looking.list(Query(state="waiting"))
        assert {each.id for each in page.items} == {started[0], started[1]}

    async def test_limits(self, store: TransactionStore, looking: Looking) -> None:
        assert await looking.limits() == {}
        limit = Limit(concurrency=32, rate=160.0, burst=48, max_queued=1_600)
        await store.set_limit("p:checkout", limit)
        await store.set_limit("o:acme", Limit(is_paused=True, concurrency=1))
        assert await looking.limits() == {
            "o:acme": Limit(is_paused=True, concurrency=1),
            "p:checkout": limit,
        }


class TestWorkers:
    async def test_who_is_alive(self, ps: penstock.Penstock) -> None:
        registry = WorkerRegistry(ps)
        one = WorkerInfo(
            id="w1", node_groups=["shop"], concurrency=64, running=3, ended=9, host="a", pid=7, version="1",
            started_ms=5, steps=["charge"], state="working",
        )  # fmt: skip
        two = WorkerInfo(id="w2")
        await registry.announce(two)
        await registry.announce(WorkerInfo(id="w1"))
        await registry.announce(one)
        assert await registry.list() == [one, two]
        assert await registry.forget("w2")
        assert not await registry.forget("w2")
        assert await registry.list() == [one]
        with pytest.raises(UsageError, match="id must be"):
            await registry.announce(WorkerInfo(id="two words"))

    async def test_who_falls_silent_is_dropped(self, ps: penstock.Penstock) -> None:
        await WorkerRegistry(ps, ttl_ms=20).announce(WorkerInfo(id="silent"))
        await WorkerRegistry(ps).announce(WorkerInfo(id="alive"))

        async def is_alone() -> bool:
            return [worker.id for worker in await WorkerRegistry(ps).list()] == ["alive"]

        await until(is_alone)
        assert await ps.hkeys("{tx}.workersH") == [b"alive"]

    async def test_one_that_nobody_can_read_hides_no_other(self, ps: penstock.Penstock) -> None:
        await WorkerRegistry(ps).announce(WorkerInfo(id="w1"))
        await ps.execute("HSET", "{tx}.workersH", "w0", "{")
        assert [worker.id for worker in await WorkerRegistry(ps).list()] == ["w1"]

    async def test_wishes_are_kept_and_told(self, ps: penstock.Penstock) -> None:
        registry = WorkerRegistry(ps)
        async with ps.pubsub() as subscriber:
            await subscriber.subscribe("tx.wishes")
            assert await registry.set_concurrency("shop", 16)
            assert not await registry.set_concurrency("shop", 16)
            async with asyncio.timeout(10):
                message = await subscriber.get()
            assert getattr(message, "data", None) == b"shop"
        assert await registry.wishes() == {"shop": 16}
        assert await registry.set_concurrency("shop", None)
        assert await registry.wishes() == {}
        with pytest.raises(UsageError, match="concurrency must be 1"):
            await registry.set_concurrency("shop", 0)
