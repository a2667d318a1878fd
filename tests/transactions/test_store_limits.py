"""Limits: concurrency, rate, pause, admission; who is put aside comes back, whatever became of the others."""

from __future__ import annotations

import random

import pytest

from penstock.errors import BackpressureError, UsageError
from penstock.transactions.model import Limit, Record
from penstock.transactions.store import TransactionStore, limit_text
from tests.places import until
from tests.transactions.conftest import Desk, only_on, put_pipeline

# --------------------------------------------------------------------------------------- concurrency


@pytest.mark.parametrize("name", ["p:noop", "o:acme"])
async def test_no_more_run_than_may(desk: Desk, name: str) -> None:
    await desk.store.set_limit(name, Limit(concurrency=2))
    ids = [await desk.start() for _ in range(5)]
    first = await desk.take()
    assert [record.id for record in first] == ids[:2]
    assert await desk.members(f"heldZ:{name}") == ids[2:]
    assert await desk.execute("HGET", "usageH", name) == b"2"
    assert await desk.take() == []
    # As one ends, the next of them takes its place, and its old place in the queue.
    assert await desk.end(first[1]) == "ok"
    assert [record.id for record in await desk.take()] == ids[2:3]


@pytest.mark.parametrize("kind", ["queue", "sleep", "wait", "join", "end", "lost"])
async def test_a_place_is_free_as_soon_as_it_does_not_run(desk: Desk, kind: str) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    await desk.store.set_limit("p:part", Limit(is_paused=True))
    await put_pipeline(desk.store, "part")
    tx, waits = await desk.start(), await desk.start()
    record = await desk.take_one(lease_ms=1 if kind == "lost" else 600_000)
    assert record.id == tx
    assert await desk.take() == [] or kind == "lost"
    arguments = {
        "queue": ("Out", "elsewhere"), "sleep": (600_000, 0), "wait": ("go", 0, "-"), "end": ("success", 0),
        "join": (0, "0", "part", "", "", "", b"1", 1),
    }  # fmt: skip
    if kind == "lost":
        await until(lambda: _is_queued(desk, tx))
        assert await desk.execute("HGET", "usageH", "p:noop") in (None, b"1")
        # Both want the only place now, and one of them has it.
        assert len(await desk.take()) <= 1
        assert await desk.execute("HGET", "usageH", "p:noop") == b"1"
        return
    assert await desk.settle(record, kind, *arguments[kind]) == "ok"
    assert await desk.field(tx, "limits") == ""
    assert [taken.id for taken in await desk.take()] == [waits]


async def _is_queued(desk: Desk, tx: str) -> bool:
    await desk.dequeue(0)
    return await desk.field(tx, "losses") == "1"


async def test_keeping_it_keeps_the_place(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    await desk.start()
    await desk.start()
    record = await desk.take_one()
    assert await desk.settle(record, "keep", fields=["step", 1]) == "ok"
    assert await desk.take() == []
    assert await desk.execute("HGET", "usageH", "p:noop") == b"1"


async def test_who_is_put_aside_holds_nobody_else_up(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail")
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    for _ in range(300):
        await desk.start()
    mail = await desk.start("mail", owner="umbrella")
    found: list[str] = []
    for _ in range(10):
        found += [record.id for record in await desk.take(4)]
    assert mail in found
    assert len(found) == 2


async def test_a_limit_that_comes_while_some_run_counts_who_begins_after_it(desk: Desk) -> None:
    before = await desk.begun()
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    await desk.start()
    await desk.start()
    (after,) = await desk.take()
    assert await desk.end(before) == "ok"
    assert await desk.take() == []
    assert await desk.end(after) == "ok"
    assert len(await desk.take()) == 1


async def test_who_began_under_a_rate_alone_is_counted_when_a_concurrency_comes(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(rate=1_000, burst=1_000))
    first = await desk.begun()
    await desk.store.set_limit("p:noop", Limit(concurrency=2))
    for _ in range(3):
        await desk.start()
    second = await desk.take_one()
    assert await desk.take() == []
    assert await desk.end(first) == "ok"
    (third,) = await desk.take()
    assert await desk.execute("HGET", "usageH", "p:noop") == b"2"
    assert await desk.end(second) == await desk.end(third) == "ok"


async def test_a_limit_that_grows_lets_as_many_go_on_as_have_room(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    for _ in range(300):
        await desk.start()
    taken = 0
    while found := await desk.dequeue(100):
        taken += len(found.records)
        if not found.is_more:
            break
    assert taken == 1
    await desk.store.set_limit("p:noop", Limit(concurrency=251))
    while found := await desk.dequeue(100):
        taken += len(found.records)
        if not found.is_more:
            break
    assert taken == 251


async def test_a_limit_that_goes_lets_everybody_go_on(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    for _ in range(250):
        await desk.start()
    taken = 0

    async def take_more() -> bool:
        nonlocal taken
        taken += len(await desk.take(100))
        return taken == 250

    await take_more()
    assert taken == 1
    assert await desk.store.set_limit("p:noop", None)
    assert not await desk.store.set_limit("p:noop", None)
    await until(take_more)
    assert await desk.execute("EXISTS", "heldZ:p:noop") == 0
    # Who began under the limit still takes its count away when it ends.
    for name in ("usageH", "bucketH", "limitsH"):
        if name != "usageH":
            assert await desk.execute("EXISTS", name) == 0
    (record,) = [tx for tx in await desk.members("processingZ") if await desk.field(tx, "limits")]
    token = int(await desk.field(record, "token") or 0)
    assert await desk.end(Record(record, {}, token)) == "ok"
    assert await desk.execute("EXISTS", "usageH") == 0


# ---------------------------------------------------------------------------------------------- rate


async def test_no_more_begin_in_a_second_than_may(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(rate=20, burst=3))
    for _ in range(8):
        await desk.start()
    begun = await desk.dequeue()
    assert len(begun.records) == 3
    times = [begun.now_ms] * 3
    # Workers are told when to come back: a token is there every 50 ms.
    assert begun.next_ms is not None
    assert 1 <= begun.next_ms <= 50

    async def take_more() -> bool:
        found = await desk.dequeue()
        times.extend([found.now_ms] * len(found.records))
        assert found.next_ms is not None
        return len(times) == 8

    await until(take_more)
    for place in range(3, 8):
        assert times[place] - times[0] >= 50 * (place - 2) - 1
    assert times[-1] - times[0] < 5_000


async def test_a_worker_that_got_nothing_is_told_when_a_token_is_there(desk: Desk) -> None:
    await desk.store.set_limit("o:acme", Limit(rate=10))
    await desk.start()
    await desk.start()
    first = await desk.take_one()
    assert await desk.end(first) == "ok"
    found = await desk.dequeue()
    assert found.records == []
    assert found.next_ms is not None
    assert 1 <= found.next_ms <= 100


async def test_tokens_are_saved_up_to_the_burst_and_no_further(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(rate=1_000, burst=2))
    for _ in range(6):
        await desk.start()
    assert len(await desk.take(1)) == 1
    await desk.pass_ms(20)
    assert len(await desk.take()) in (2, 3)  # a token may come while it looks


async def test_a_clock_that_was_set_back_does_not_stop_a_rate(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(rate=100))
    in_a_year_ms = await desk.now_ms() + 366 * 86_400_000
    await desk.execute("HSET", "bucketH", "p:noop", f"0.000000 {in_a_year_ms}")
    tx = await desk.start()
    taken: list[str] = []

    async def take_more() -> bool:
        taken.extend(record.id for record in await desk.take())
        return bool(taken)

    await until(take_more)
    assert taken == [tx]


async def test_a_full_concurrency_does_not_make_workers_look_every_millisecond(desk: Desk) -> None:
    """A token alone does not help whoever waits for a place."""
    await desk.store.set_limit("p:noop", Limit(concurrency=1, rate=1_000, burst=1_000))
    await desk.start()
    await desk.start()
    await desk.take()
    found = await desk.dequeue()
    assert found.next_ms is not None
    assert found.next_ms > 100


# ------------------------------------------------------------------------------------- pause, resume


@pytest.mark.parametrize("name", ["p:noop", "o:acme", "g:shop"])
async def test_what_is_paused_rests_until_it_is_resumed(desk: Desk, name: str) -> None:
    ids = [await desk.start() for _ in range(3)]
    await desk.store.set_limit(name, Limit(is_paused=True))
    assert await desk.take() == []
    late = await desk.start()
    assert await desk.take() == []
    topic = "tx.work.shop" if name == "g:shop" else "tx.agenda"
    async with desk.hearing(topic) as heard:
        await desk.store.set_limit(name, None)
        assert await heard() == [(topic, desk.prefix)]
    assert [record.id for record in await desk.take()] == [*ids, late]


async def test_resuming_by_a_limit_that_limits_nothing_lets_everybody_go_on(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    for _ in range(250):
        await desk.start()
    while (await desk.dequeue(100)).is_more:
        pass
    assert await desk.execute("ZCARD", "heldZ:p:noop") == 250
    await desk.store.set_limit("p:noop", Limit())
    taken = 0

    async def take_more() -> bool:
        nonlocal taken
        taken += len(await desk.take(100))
        return taken == 250

    await until(take_more)


async def test_a_pause_lets_who_runs_go_on(desk: Desk) -> None:
    record = await desk.begun()
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    renewal = await desk.store.renew(0, [(record.id, record.token)], 60_000)
    assert (renewal.lost, renewal.unwanted) == ([], [])
    assert await desk.end(record) == "ok"


async def test_one_that_is_paused_needs_no_looking_after(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    await desk.start()
    await desk.dequeue()
    assert (await desk.dequeue()).next_ms is None


# ----------------------------------------------------------------------------- nobody stands still


@only_on("embedded", "server")
async def test_a_place_that_was_given_to_one_that_is_cancelled_goes_to_the_next(desk: Desk) -> None:
    await desk.store.set_limit("o:acme", Limit(concurrency=1))
    _, second, third = [await desk.start() for _ in range(3)]
    (record,) = await desk.take()
    assert await desk.end(record) == "ok"
    assert await desk.places(second) == {"qInZ:shop"}
    await desk.store.control("cancel", second, "ann")
    await until(lambda: _takes(desk, third))


@only_on("embedded", "server")
async def test_a_place_that_was_given_to_a_group_without_workers_does_not_stop_the_others(desk: Desk) -> None:
    await put_pipeline(desk.store, "mail", group="post")
    await desk.store.set_limit("o:acme", Limit(concurrency=1))
    record = await desk.begun()
    mail, third = await desk.start("mail", priority=6), await desk.start()
    assert await desk.take(groups=["post"]) == await desk.take() == []  # both are put aside
    assert await desk.end(record) == "ok"
    assert await desk.places(mail) == {"qInZ:post"}
    await until(lambda: _takes(desk, third))


async def _takes(desk: Desk, tx: str) -> bool:
    return tx in [record.id for record in await desk.take()]


async def test_one_limit_does_not_keep_the_room_of_another(desk: Desk) -> None:
    """The head may not run because of its pipeline; its owner's room is for another pipeline of the owner."""
    await put_pipeline(desk.store, "mail")
    await desk.store.set_limit("o:acme", Limit(concurrency=1))
    first = await desk.begun()
    await desk.start()
    mail = await desk.start("mail")
    assert await desk.take() == []
    assert len(await desk.members("heldZ:o:acme")) == 2
    await desk.store.set_limit("p:noop", Limit(is_paused=True))
    assert await desk.end(first) == "ok"
    await until(lambda: _takes(desk, mail))


async def test_whoever_comes_later_does_not_pass_by_those_who_are_held(desk: Desk) -> None:
    """However steadily others come: turns do not begin anew while somebody is put aside."""
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    old = [await desk.start() for _ in range(20)]
    record = await desk.take_one()
    while (await desk.dequeue()).is_more:
        pass  # the others are put aside, and the queue is empty
    order = []
    for _ in range(20):
        await desk.start()
        order.append(record.id)
        assert await desk.end(record) == "ok"
        (record,) = await desk.take()
    assert order == old


async def test_owners_take_turns_among_those_who_are_held_too(desk: Desk) -> None:
    await desk.store.set_limit("p:noop", Limit(concurrency=1))
    for _ in range(50):
        await desk.start(owner="glutton")
    record = await desk.take_one()
    while (await desk.dequeue()).is_more:
        pass
    modest = await desk.start(owner="modest")
    turns = 0
    while record.id != modest:
        turns += 1
        assert await desk.end(record) == "ok"
        (record,) = await desk.take()
    assert turns <= 3


@only_on("embedded", "server")
@pytest.mark.parametrize("seed", range(6))
async def test_nobody_stands_still_for_ever(desk: Desk, seed: int) -> None:
    """Random limits on pipelines and owners, changed on the way: when workers go on, everybody ends."""
    chance = random.Random(seed)
    pipelines, owners = ["noop", "mail", "ship"], ["ann", "bob", "cid"]
    for name, group in zip(pipelines, ["shop", "shop", "post"], strict=True):
        await put_pipeline(desk.store, name, group=group)
    names = [f"p:{name}" for name in pipelines] + [f"o:{name}" for name in owners]
    limits = [None, Limit(concurrency=1), Limit(concurrency=3), Limit(is_paused=True),
              Limit(rate=200, burst=3), Limit(concurrency=2, rate=500, burst=2)]  # fmt: skip
    ids: set[str] = set()
    running: list[Record] = []
    for _ in range(250):
        match chance.randrange(5):
            case 0 | 1:
                ids.add(
                    await desk.start(
                        chance.choice(pipelines), owner=chance.choice(owners), priority=chance.choice([1, 5])
                    )
                )
            case 2:
                groups = chance.choice([["shop"], ["post"], ["shop", "post"]])
                running += await desk.take(chance.randint(1, 5), groups=groups)
            case 3 if running:
                record = running.pop(chance.randrange(len(running)))
                assert await desk.end(record) == "ok"
            case _:
                await desk.store.set_limit(chance.choice(names), chance.choice(limits))
        if ids and chance.random() < 0.05:
            tx = chance.choice(sorted(ids))
            if await desk.field(tx, "state") == "queued":
                await desk.store.control("cancel", tx, "ann")
    for name in names:  # those that are paused now may rest
        limit = chance.choice([limit for limit in limits if limit is None or not limit.is_paused])
        await desk.store.set_limit(name, limit)

    async def work() -> bool:
        running.extend(await desk.take(chance.randint(1, 5), groups=["shop", "post"]))
        chance.shuffle(running)
        while len(running) > chance.choice([0, 0, 2]):
            assert await desk.end(running.pop()) == "ok"
        return not running and all([await desk.field(tx, "state") == "ended" for tx in ids])

    await until(work, limit_s=60)
    assert await desk.execute("EXISTS", "usageH") == 0
    assert [name for name in await desk.everything() if name.startswith("heldZ")] == []


# ----------------------------------------------------------------------------------------- admission


async def test_a_refusal_tells_and_writes_nothing(desk: Desk) -> None:
    await desk.store.set_limit("g:shop", Limit(max_queued=1))
    await desk.start()
    before = await desk.everything()
    for _ in range(2):
        with pytest.raises(BackpressureError, match="node group 'shop'"):
            await desk.start(external_id="x", delay_ms=5)
    assert await desk.everything() == before


async def test_who_goes_on_is_never_refused(desk: Desk) -> None:
    record = await desk.begun()
    await desk.store.set_limit("g:shop", Limit(max_queued=1))
    await desk.start()
    assert await desk.settle(record, "join", 0, "0", "noop", "", "", "", b"1", 1) == "ok"
    assert await desk.execute("ZCARD", "qInZ:shop") == 2


# ------------------------------------------------------------------------------------------- setting


async def test_setting_the_same_again_changes_nothing(desk: Desk) -> None:
    assert await desk.store.set_limit("p:noop", Limit(concurrency=2))
    assert not await desk.store.set_limit("p:noop", Limit(concurrency=2))
    assert await desk.store.set_limit("p:noop", Limit(concurrency=3))


def test_each_partition_gets_its_share_and_at_least_one() -> None:
    limit = Limit(concurrency=20, rate=8.0, burst=3, max_queued=100)
    assert limit_text(limit, 16) == "0 2 0.5 1 7"
    assert limit_text(Limit(is_paused=True), 16) == "1 0 0 1 0"


@pytest.mark.parametrize("options", [{"concurrency": -1}, {"rate": -0.5}, {"burst": 0}, {"max_queued": -1}])
def test_a_limit_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(options))} must be at least"):
        Limit(**options)  # type: ignore[arg-type]


@only_on("cluster")
async def test_every_partition_of_a_cluster_has_the_limit(store: TransactionStore) -> None:
    await store.set_limit("p:noop", Limit(concurrency=32))
    for place in range(await store.partitions()):
        found = await store.client.execute("HGET", f"{{p{place}}}.limitsH", "p:noop")
        assert found == b"0 2 0 1 0"


async def test_those_who_are_held_count_as_waiting(desk: Desk) -> None:
    await desk.store.set_limit("g:shop", Limit(max_queued=2))
    await desk.store.set_limit("o:acme", Limit(is_paused=True))
    await desk.start(owner="acme")
    await desk.start(owner="acme")
    assert await desk.take() == []
    with pytest.raises(BackpressureError, match="2 transactions wait"):
        await desk.start(owner="acme")
