"""Waiting for results: any number of waiters in any process, whenever they come, and no wake-up is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

import penstock
from penstock.errors import TransactionNotFoundError
from penstock.transactions import Progress, Transaction, Wait
from tests.places import until
from tests.transactions.conftest import only_on
from tests.transactions.running import Shop, undone

#: Waiters look again by themselves after 15 seconds; one who is told earlier was woken.
WOKEN_MS = 12_000

_OTHER_PROCESS = """
import asyncio, json, sys, penstock

async def main(url, ids, each):
    async with penstock.open(url) as ps:
        waits = [ps.transactions.wait(tx, timeout_ms=12_000) for tx in ids for _ in range(each)]
        tasks = [asyncio.create_task(wait) for wait in waits]
        while ps.transactions.waiting < len(tasks):
            await asyncio.sleep(0.005)
        print("waiting", flush=True)
        found = await asyncio.gather(*tasks)
        print(json.dumps([[one.id, one.status, one.output] for one in found]), flush=True)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.fixture
async def shop(ps: penstock.Penstock) -> Shop:
    return Shop(ps)


@only_on("embedded", "server", "cluster")
async def test_two_hundred_waiters_in_two_processes(shop: Shop, url: str) -> None:
    await shop.deploy(Wait("go", into="said"))
    async with shop.working():
        handles = [await shop.start() for _ in range(20)]
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OTHER_PROCESS, url, json.dumps([handle.id for handle in handles]), "5",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert other.stdout is not None
        waits = [asyncio.create_task(handle.wait(WOKEN_MS)) for handle in handles for _ in range(5)]
        assert await asyncio.wait_for(other.stdout.readline(), 20) == b"waiting\n"
        await until(lambda: shop.transactions.waiting == 100)
        for handle in handles:
            await handle.set_switch("go", handle.id)
        here = await asyncio.gather(*waits)
        there = json.loads(await asyncio.wait_for(other.stdout.readline(), 20))
        assert await other.wait() == 0
    wanted = [[handle.id, "success", {"said": handle.id}] for handle in handles for _ in range(5)]
    assert [[one.id, one.status, one.output] for one in here] == wanted
    assert there == wanted
    assert shop.transactions.waiting == 0


async def test_a_wait_that_begins_before_at_and_after_the_end(shop: Shop, url: str) -> None:
    await shop.deploy("noop")
    async with penstock.open(url) as other, shop.working():

        async def start_and_wait(rounds_before: int) -> Transaction:
            handle = await shop.start()
            for _ in range(rounds_before):
                await asyncio.sleep(0)
            return await other.transactions.wait(handle.id, timeout_ms=WOKEN_MS)

        await start_and_wait(0)
        for _ in range(3):
            found = await asyncio.gather(*(start_and_wait(rounds) for rounds in range(60)))
            assert all(one.is_success for one in found)
        ended = await shop.ended(await shop.start())
        assert (await other.transactions.wait(ended.id, timeout_ms=0)).is_success


async def test_a_wait_whose_time_is_over(shop: Shop) -> None:
    await shop.deploy("noop", group="nobody")
    handle = await shop.start()
    for timeout_ms in (0, 30):
        found = await handle.wait(timeout_ms)
        assert (found.state, found.status, found.has_ended) == ("queued", "running", False)
    with pytest.raises(TransactionNotFoundError):
        await shop.transactions.wait("tx-0-" + "0" * 31, timeout_ms=30)
    assert shop.transactions.waiting == 0


@only_on("embedded", "server")
async def test_a_release_ends_every_wait(shop: Shop) -> None:
    await shop.deploy("noop", group="nobody")
    handle = await shop.start()
    waits = [asyncio.create_task(handle.wait(600_000)) for _ in range(10)]
    watch = asyncio.create_task(_all(handle.changes()))
    await until(lambda: shop.transactions.waiting == 11)
    assert repr(shop.transactions).endswith("11 waiting>")
    shop.transactions.release()
    async with asyncio.timeout(5):
        assert [one.state for one in await asyncio.gather(*waits)] == ["queued"] * 10
        assert [one.state for one in await watch] == ["queued"]


async def _all(changes: Any) -> list[Transaction]:
    return [one async for one in changes]


async def test_changes_are_told_until_the_end(shop: Shop) -> None:
    await shop.deploy("add", Progress({"half": True}), Wait("go"), "add")
    handle = await shop.start()
    states: list[str] = []
    seen: list[Transaction] = []
    async with shop.working(), asyncio.timeout(15):
        async for one in shop.transactions.changes(handle.id, trail=True):
            seen.append(one)
            states.append(one.state)
            if one.state == "waiting" and "go" not in one.switches:
                await handle.set_switch("go", 1)
    assert states[-2:] != ["ended", "ended"]
    assert states.count("ended") == 1
    assert seen[-1].output == {"n": 2}
    assert any(one.progress == {"half": True} and not one.has_ended for one in seen)
    assert [len(one.trail) for one in seen] == sorted(len(one.trail) for one in seen)
    assert undone(seen[-1]) == []
    # Of one that has ended there is one thing to tell.
    assert [one.state async for one in handle.changes()] == ["ended"]
