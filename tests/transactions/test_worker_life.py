"""A worker from its start to its stop: how much it takes, how it waits, what it hands back, what is known."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

import penstock
from penstock.errors import ConfigError, UsageError
from penstock.transactions import App, Delay, Function, Retry, Worker
from penstock.transactions.keys import prefix_of
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import Shop


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


class Gate:
    """A step that waits for the test, and counts who is inside."""

    def __init__(self, shop: Shop, name: str = "gate") -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.entered: list[tuple[str, int]] = []

        @shop.step(name)
        async def gate(tx: Any) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.entered.append((tx.id, tx.attempt))
            try:
                await self.open.wait()
            finally:
                self.inside -= 1


# ------------------------------------------------------------------------------------------------ taking


async def test_no_more_at_a_time_than_concurrency(shop: Shop) -> None:
    gate = Gate(shop)
    await shop.deploy("gate", "noop")
    handles = [await shop.start() for _ in range(12)]
    async with shop.working(concurrency=5) as worker:
        await until(lambda: gate.inside == 5)
        assert worker.statistics().running == 5
        # The others wait in the store, for anybody.
        assert (await shop.transactions.looking.overview()).queued == 7
        gate.open.set()
        for handle in handles:
            await shop.ended(handle)
    assert gate.most == 5


@only_on("embedded", "server")
async def test_wishes_change_how_many(shop: Shop) -> None:
    gate = Gate(shop)
    await shop.deploy("gate")
    handles = [await shop.start() for _ in range(12)]
    async with shop.working(concurrency=2) as worker:
        await until(lambda: gate.inside == 2)
        await shop.transactions.workers.set_concurrency("shop", 6)
        await until(lambda: gate.inside == 6)
        await shop.transactions.workers.set_concurrency("shop", None)
        await until(lambda: worker.concurrency == 2)
        worker.wish(100_000)
        assert worker.concurrency == 1_000
        worker.wish(3)
        gate.most = 0
        gate.open.set()
        for handle in handles:
            await shop.ended(handle)
    assert gate.most <= 6


@only_on("embedded", "server")
async def test_two_workers_and_each_step_once(shop: Shop, url: str) -> None:
    seen: Counter[tuple[str, int]] = Counter()

    @shop.step("count")
    async def count(tx: Any) -> None:
        seen[tx.id, tx.number] += 1

    await shop.deploy("count", "count")
    async with penstock.open(url) as other:
        second = other.transactions.worker(shop.app, node_group="shop", concurrency=16)
        async with shop.working(concurrency=16) as first, second:
            handles = [await shop.start() for _ in range(500)]
            for handle in handles:
                await shop.ended(handle)
            taken = first.statistics().taken, second.statistics().taken
    assert sum(taken) == 500
    assert min(taken) > 0
    assert set(seen) == {(handle.id, number) for handle in handles for number in (0, 1)}
    assert set(seen.values()) == {1}


@only_on("embedded", "server")
@pytest.mark.parametrize("how", ["slow", "stop"])
async def test_what_waits_on_the_shelf_is_not_kept_from_others(shop: Shop, how: str) -> None:
    """While steps are quick a worker fetches ahead; then one is not, and the others must not wait for it."""
    gate = Gate(shop)
    await shop.deploy("gate", name="slow")
    await shop.deploy("noop")
    async with shop.working(concurrency=1, lease_ms=600_000) as first:
        for handle in [await shop.start() for _ in range(50)]:
            await shop.ended(handle)
        await shop.transactions.pause(node_group="shop")
        slow = await shop.start("slow", priority=9)
        quick = [await shop.start() for _ in range(5)]
        await shop.transactions.resume(node_group="shop")
        await until(lambda: gate.inside == 1)
        await until(lambda: first.statistics().taken == 56)  # all of them
        if how == "stop":
            first.stop()
        async with shop.working() as second:
            for handle in quick:
                ended = await shop.ended(handle)
                assert (ended.is_success, ended.worker) == (True, second.id)
                assert [entry.kind for entry in ended.trail] == ["step"]
            assert gate.inside == 1
        gate.open.set()
        assert (await shop.ended(slow)).is_success


# ----------------------------------------------------------------------------------------------- waiting


@only_on("server", "redis")
async def test_an_idle_worker_sends_nothing_but_heartbeats(shop: Shop, url: str) -> None:
    async with shop.working(lease_ms=60_000):
        await shop.ended(await _noop(shop))
        async with penstock.open(url) as watcher:
            commands = Counter(await _commands(watcher))
            await asyncio.sleep(1)  # a second of idleness is what is measured
            later = Counter(await _commands(watcher))
    # Ours to ask; a heartbeat every ten seconds may fall into it: renew, wishes, announce.
    sent = later - commands
    sent.subtract({"info": 1})
    assert sum(sent.values()) <= 8, sent


async def _noop(shop: Shop) -> Any:
    await shop.deploy("noop")
    return await shop.start()


async def _commands(client: penstock.Penstock) -> dict[str, int]:
    text = bytes(await client.execute("INFO", "commandstats")).decode()
    lines = [line.removeprefix("cmdstat_").split(":calls=") for line in text.split() if "calls=" in line]
    # What scripts call is counted, too; it is not sent.
    sent = ("evalsha", "eval", "hgetall", "publish", "ping", "subscribe", "info", "hget", "get")
    return {name: int(rest.split(",")[0]) for name, rest in lines if name in sent}


async def test_it_is_woken_for_everything(shop: Shop) -> None:
    """A start, a sleep of another worker, a switch: none is waited for by the clock."""
    await shop.deploy(Delay(1), "noop")
    async with shop.working(lease_ms=600_000):
        for _ in range(20):
            began_s = time.perf_counter()
            await shop.ended(await shop.start())
            assert time.perf_counter() - began_s < 5


# ---------------------------------------------------------------------------------------------- stopping


async def test_a_stop_lets_steps_end_and_the_next_worker_goes_on(shop: Shop) -> None:
    gate = Gate(shop)
    await shop.deploy("gate", "add")
    first = await shop.start()
    async with shop.working(lease_ms=600_000) as worker:
        await until(lambda: gate.inside == 1)
        worker.stop()
        assert worker.is_stopping
        second = await shop.start()
        gate.open.set()
    assert worker.has_stopped
    assert (await first.get()).state == "queued"  # its step has ended, the next one is for others
    assert len(gate.entered) == 1
    assert (await second.get()).state == "queued"
    async with shop.working():
        assert (await shop.ended(first)).output == {"n": 1}
        assert (await shop.ended(second)).output == {"n": 1}


@pytest.mark.parametrize("how", ["grace", "twice", "cancelled"])
async def test_what_has_not_ended_is_handed_back_at_once(shop: Shop, how: str) -> None:
    gate = Gate(shop)
    await shop.deploy(Function("gate", retry=Retry(limit=1)), "add")
    handles = [await shop.start() for _ in range(3)]
    worker = shop.worker(lease_ms=600_000, grace_ms=20 if how == "grace" else 600_000)
    running = asyncio.create_task(worker.run())
    await until(lambda: gate.inside == 3)
    if how == "cancelled":
        running.cancel()
    else:
        worker.stop()
    if how == "twice":
        worker.stop()
    async with asyncio.timeout(10):
        await asyncio.gather(running, return_exceptions=True)
    assert gate.inside == 0
    assert [(await handle.get()).state for handle in handles] == ["queued"] * 3
    gate.open.set()
    began_s = time.perf_counter()
    async with shop.working():
        for handle in handles:
            ended = await shop.ended(handle)
            assert (ended.output, ended.trail[0].attempt) == ({"n": 1}, 1)
            assert "lost" not in {entry.kind for entry in ended.trail}
    assert time.perf_counter() - began_s < 10  # no lease was waited for


@only_on("embedded", "server")
async def test_leaving_the_block_after_a_stop_keeps_the_grace(shop: Shop) -> None:
    gate = Gate(shop)
    await shop.deploy("gate")
    handle = await shop.start()
    async with shop.working() as worker:
        await until(lambda: gate.inside == 1)
        worker.stop()
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
    assert (await handle.get()).is_success


@only_on("embedded")
async def test_a_stop_in_the_middle_of_writing(shop: Shop) -> None:
    """A step that writes all the time is interrupted between its writes, and what it wrote is there."""
    written: list[int] = []

    @shop.step("busy")
    async def busy(tx: Any) -> None:
        for number in range(100_000):
            await tx.once(f"n{number}", lambda number=number: written.append(number))

    await shop.deploy("busy")
    handles = [await shop.start() for _ in range(4)]
    async with shop.working(grace_ms=0, lease_ms=600_000):
        await until(lambda: len(written) > 20)
    for handle in handles:
        assert (await handle.get()).state == "queued"
    records = [(await shop.transactions.store.get(handle.id))[0] for handle in handles]
    kept = sum(len(record.with_prefix(b"o:")) for record in records)
    assert len(written) - 4 <= kept <= len(written)


# ------------------------------------------------------------------------------------------------- leases


async def test_a_lease_that_is_lost_interrupts_the_step_and_its_result_counts_for_nothing(shop: Shop) -> None:
    interrupted, stubborn = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    @shop.step("slow")
    async def slow(tx: Any) -> Any:
        calls.append(len(calls))
        tx.write_stream("orders", {"by": len(calls)})
        if len(calls) > 1:
            return "second"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.set()
            await stubborn.wait()
        return "first"

    await shop.deploy("slow")
    handle = await shop.start()
    async with shop.working(lease_ms=200, concurrency=1) as first:
        await until(lambda: calls == [0])
        # It is taken for dead, as if it had been silent for as long as its lease.
        place = int(handle.id.split("-")[1])
        await _expire(shop, place, handle.id)
        async with shop.worker(name="second"):
            ended = await shop.ended(handle)
            assert (ended.output, ended.worker) == ("second", "second")
            await asyncio.wait_for(interrupted.wait(), 10)
            stubborn.set()
            await until(lambda: first.statistics().lost == 1)
        after = await handle.get(trail=True)
    assert after.output == "second"
    assert [entry.kind for entry in after.trail] == ["lost", "step"]
    messages = [message async for message in shop.ps.stream("orders").read()]
    assert [bytes(message.entry) for message in messages] == [b'{"by":2}']


async def _expire(shop: Shop, place: int, tx: str) -> None:
    """End a lease now, between two renewals of it."""
    script = """
    redis.call('ZADD', KEYS[1] .. 'leasesZ', 1, ARGV[1])
    redis.call('HINCRBY', KEYS[1] .. 'stateH:' .. ARGV[1], 'token', 1)
    redis.call('PUBLISH', 'tx.agenda', KEYS[1])
    """
    await shop.ps.execute("EVAL", script, 1, prefix_of(place), tx)


@only_on("embedded")
async def test_a_step_that_blocks_the_loop_is_found_out(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The docstring of ``worker`` warns of it: others take over, nobody finishes twice, and it is logged."""
    calls: list[str] = []

    @shop.step("block")
    async def block(tx: Any) -> Any:
        calls.append(tx.id)
        if len(calls) == 1:
            time.sleep(0.5)  # the fault that is tested
        return len(calls)

    gate = Gate(shop)
    await shop.deploy("gate", name="other")
    await shop.deploy("block")
    async with shop.working(lease_ms=150) as worker:
        other = await shop.start("other")
        await until(lambda: gate.inside == 1)
        ended = await shop.ended(await shop.start())
        gate.open.set()
        assert (await shop.ended(other)).is_success
        lost = worker.statistics().lost
    # Its own worker finds the leases run out, or renews them first; either way each ends once.
    assert ended.is_success
    assert len([entry for entry in ended.trail if entry.kind == "step"]) == 1
    assert (lost > 0) == ("lost" in caplog.text)


@only_on("embedded", "server")
async def test_one_that_comes_back_before_it_was_let_go_of(shop: Shop) -> None:
    """Steps that go from group to group and back are taken again by the worker that writes them."""

    @shop.step("there")
    async def there(tx: Any) -> None:
        await asyncio.sleep(0)

    await shop.deploy(*[Function("there", node_group=f"g{number % 2}") for number in range(12)])
    groups = ["shop", "g0", "g1"]
    async with shop.transactions.worker(shop.app, node_groups=groups, concurrency=4) as worker:
        handles = [await shop.start() for _ in range(20)]
        for handle in handles:
            assert (await shop.ended(handle)).is_success
        await until(lambda: worker.statistics().running == 0)
        assert worker._places.leaving == 0
        assert worker._places.active == 0


# ------------------------------------------------------------------------------------------------ registry


async def test_workers_say_that_they_are_there(shop: Shop) -> None:
    gate = Gate(shop)
    await shop.deploy("gate")
    async with shop.working(name="bob", concurrency=7) as worker:
        await shop.start()
        await until(lambda: gate.inside == 1)
        worker._beat_now.set()
        await until(lambda: _running(shop, 1))
        (info,) = await shop.transactions.workers.list()
        assert (info.id, info.node_groups, info.concurrency, info.state) == ("bob", ["shop"], 7, "working")
        assert info.steps == shop.app.step_names
        assert repr(worker) == "<Worker bob of shop, 1 held, running>"
        gate.open.set()
    assert await shop.transactions.workers.list() == []
    assert repr(worker) == "<Worker bob of shop, 0 held, stopping>"


async def _running(shop: Shop, count: int) -> bool:
    return [info.running for info in await shop.transactions.workers.list()] == [count]


@only_on("embedded")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"concurrency": 0}, "concurrency must be 1 to 1000, not 0"),
        ({"concurrency": 1_001}, "concurrency must be 1 to 1000, not 1001"),
        ({"lease_ms": 99}, "lease_ms must be at least 100, not 99"),
        ({"name": "no spaces"}, "name must be 1 to 128 letters"),
        ({"node_groups": ["no spaces"]}, "node_groups must be 1 to 128 letters"),
    ],
)
async def test_refusals(shop: Shop, options: dict[str, Any], why: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=why):
        shop.transactions.worker(App(), **options)


@only_on("embedded")
async def test_a_worker_without_a_group(shop: Shop) -> None:
    assert shop.transactions.worker(App()).node_groups == ("default",)
    with pytest.raises(ConfigError, match="node_groups must name at least one group"):
        Worker(shop.transactions.store, shop.transactions.registry, App(), node_groups=[])


@only_on("embedded", "server")
async def test_garbage_on_its_topics(shop: Shop) -> None:
    await shop.deploy("noop")
    async with shop.working() as worker:
        await shop.ended(await shop.start())
        garbage = (b"\xff\xfe", b"", b"{p99}.", b"{p" + b"9" * 5_000 + b"}.", b"tx-0-1")
        topics = ("tx.agenda", "tx.work.shop", "tx.pipelines", f"tx.worker.{worker.id}", "tx.wishes")
        for topic in topics:
            for word in garbage:
                await shop.ps.execute("PUBLISH", topic, word)
        assert (await shop.ended(await shop.start())).is_success
