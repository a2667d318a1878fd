"""What goes wrong around a worker: a store that is away, records that are broken, a killed process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from typing import Any

import pytest

import penstock
import penstock.blocking
from penstock.blocking.portal import PORTAL
from penstock.errors import CommandError, UnavailableError
from penstock.testing.servers import RealServer, find_server
from penstock.transactions import Delay, Function, Retry, Wait
from penstock.transactions.keys import partition_of
from penstock.transactions.model import Settlement
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import LIMIT_MS, Shop


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


def kill_me(tx: Any) -> Any:
    if tx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return tx.attempt


# ------------------------------------------------------------------------------------- the store is away


@pytest.mark.parametrize("death", ["killed", "frozen"])
async def test_a_store_that_goes_away_for_a_while(death: str) -> None:
    """Steps end, sleep, wait, ask and start while nobody answers; all goes on, and each step counts once."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RealServer(find_server("valkey"), options=options) as server:
        async with penstock.open(server.url) as ps:
            shop = Shop(ps)
            is_away, is_back = asyncio.Event(), asyncio.Event()
            begun: Counter[str] = Counter()
            calls: Counter[str] = Counter()

            @shop.step("across")
            async def across(tx: Any) -> Any:
                begun[tx.id] += 1
                await is_away.wait()
                calls[await tx.once("call", lambda: tx.id)] += 1
                await tx.progress({"away": True})
                await tx.sleep(5)
                value = await tx.wait_for_switch("go", timeout_ms=5)
                return {**tx.input, "go": value}

            await shop.deploy("across", "add", Wait("done", timeout_ms=30, on_timeout="continue"), "add")
            async with shop.working(lease_ms=20_000) as worker:
                handles = [await shop.start(input={"n": place}) for place in range(10)]
                await until(lambda: len(begun) == 10)
                await _take_away(server, death)
                is_away.set()
                starting = asyncio.create_task(shop.start(input={"n": 100}))
                asyncio.get_running_loop().call_later(1.5, is_back.set)
                await is_back.wait()
                await _bring_back(server, death)
                try:
                    handles.append(await starting)
                except penstock.errors.PenstockError:
                    handles.append(await shop.start(input={"n": 100}))  # as a caller would
                ended = [await shop.ended(handle) for handle in handles]
                assert [one.output for one in ended] == [
                    {"n": place + 2, "go": None} for place in (*range(10), 100)
                ], [one.note for one in ended]
                assert worker.statistics().lost == 0
                assert {entry.attempt for one in ended for entry in one.trail} == {1}


async def _take_away(server: RealServer, death: str) -> None:
    if death == "killed":
        await asyncio.to_thread(server.kill)
    else:
        os.kill(server.pid, signal.SIGSTOP)


async def _bring_back(server: RealServer, death: str) -> None:
    if death == "killed":
        await asyncio.to_thread(server.restart)
    else:
        os.kill(server.pid, signal.SIGCONT)


# ---------------------------------------------------------------------------------------- broken records


@pytest.mark.parametrize(
    "change",
    [
        ("step", "many"),
        ("step", "-1"),
        ("data", "no number"),
        ("d:0", "{"),
        ("fate", "{"),
        ("fate", '{"status":"failed","note":"x"}'),
        ("undo", "7 8"),
        ("path", "0.x"),
        ("attempt", "\xff"),
        ("depth", "deep"),
        ("deadline_ms", "soon"),
        ("cancel", "\xff"),
        ("version", "\xff"),
        ("metadata", "{"),
        ("priority", "high"),
    ],
    ids=lambda change: f"{change[0]}={change[1]}",
)
@only_on("embedded", "server")
async def test_one_broken_record_stops_no_other(shop: Shop, change: tuple[str, str]) -> None:
    name, value = change
    await shop.deploy("add", "add")
    broken, sound = await shop.start(), await shop.start()
    words = [name, value.encode("latin-1")]
    if name == "undo":
        words += ["fate", '{"status":"failed","note":"x"}']
    await shop.ps.execute("HSET", f"{{p0}}.stateH:{broken.id}", *words)
    async with shop.working():
        assert (await shop.ended(sound)).output == {"n": 2}
        found = await broken.wait(LIMIT_MS)
        assert found.has_ended, found
        assert (await shop.ended(await shop.start())).is_success


@only_on("embedded", "server")
@pytest.mark.parametrize(
    "name",
    [
        "garbage",
        "tx-0-1",
        "\xff\xfe",
    ],
)
async def test_a_name_that_is_no_transaction_stops_no_other(shop: Shop, name: str) -> None:
    await shop.deploy("add")
    first = await shop.start()
    record = await shop.ps.execute(
        "EVAL", "return redis.call('HGETALL', KEYS[1])", 1, f"{{p0}}.stateH:{first.id}"
    )
    raw = name.encode("latin-1")
    await shop.ps.execute("HSET", b"{p0}.stateH:" + raw, *record)
    await shop.ps.execute("ZADD", "{p0}.qInZ:shop", 0, raw)
    async with shop.working(lease_ms=300):
        assert (await shop.ended(first)).is_success
        assert (await shop.ended(await shop.start())).is_success


# ------------------------------------------------------------------------------------ what cannot be kept


@only_on("embedded", "server")
async def test_a_settlement_that_the_store_refuses_ends_its_transaction_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.deploy("noop", name="bad")
    await shop.deploy("noop")
    settle = shop.transactions.store.settle
    sizes: list[int] = []

    async def picky(partition: int, settlements: Any) -> list[str]:
        given: list[Settlement] = list(settlements)
        sizes.append(len(given))
        if any(one.tx == bad.id and one.arguments[0] == "success" for one in given):
            raise CommandError("ERR no")
        return await settle(partition, given)

    monkeypatch.setattr(shop.transactions.store, "settle", picky)
    bad = await shop.start("bad")
    others = [await shop.start() for _ in range(5)]
    async with shop.working():
        for other in others:
            assert (await shop.ended(other)).is_success
        ended = await shop.ended(bad)
    assert (ended.status, ended.note) == (
        "internal-error",
        f"NotWrittenError: {bad.id}: error CommandError: ERR no",
    )
    assert max(sizes) > 1


@only_on("embedded")
async def test_a_process_that_is_killed_costs_an_attempt(shop: Shop) -> None:
    shop.step("kill", runs_in="process")(kill_me)
    await shop.deploy(Function("kill", retry=Retry(limit=2, backoff_ms=1, on=("ProcessDied",))))
    async with shop.working(processes=1):
        ended = await shop.ended(await shop.start())
    assert ended.output == 2, ended
    assert ended.trail[0].note.startswith("the process of step 'kill' died")


@only_on("embedded", "server")
async def test_duties_that_fail_begin_again(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []
    done = asyncio.Event()

    async def duty() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise UnavailableError("not yet")
        done.set()

    async with shop.working(duties=[duty]):
        await asyncio.wait_for(done.wait(), 10)
        await shop.deploy(Delay(1))
        assert (await shop.ended(await shop.start())).is_success
    assert calls == [0, 1]
    assert "a duty of the worker failed; it begins again" in caplog.text


# ------------------------------------------------------------------------------------- a worker stands still


@only_on("embedded", "server")
async def test_whoever_stood_still_does_not_what_is_another_ones(shop: Shop, url: str) -> None:
    """A step that holds the loop up for longer than its lease finds out before its next effect."""
    runs: list[str] = []
    effects: list[int] = []

    @shop.step("pay")
    async def pay(tx: Any) -> Any:
        runs.append(tx.id)
        run = len(runs)
        if run == 1:
            _take_elsewhere(url, tx.id)  # blocks, as bad code or a stopped process would
        return await tx.once("pay", lambda: effects.append(run) or run)

    await shop.deploy("pay")
    async with shop.working(lease_ms=1_500) as worker:
        ended = await shop.ended(await shop.start())
    assert (ended.output, effects, len(runs)) == (2, [2], 2)
    assert worker.statistics().lost == 1


def _take_elsewhere(url: str, tx: str) -> None:
    """As another worker does when the lease is over; it dies at once, and leaves it to its own lease."""
    end_s = time.monotonic() + 20
    with penstock.blocking.open(url) as other:
        store = other.transactions.store
        place = partition_of(tx)
        while True:
            taken = PORTAL.run(store.dequeue(place, "other", ["shop"], limit=10, lease_ms=200))
            if tx in [record.id for record in taken.records]:
                return
            assert time.monotonic() < end_s
            time.sleep(0.02)
