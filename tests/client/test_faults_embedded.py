"""A client on a store that other processes use, and are killed on: while they write, wait, hold the lock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.client.quiet import LIMIT_S, closing, nothing_pending, peace
from tests.client.workload import EVERY_WAY, Workload
from tests.client.workload_peers import BusyPeer, element_of, list_of

pytestmark = [pytest.mark.slow, pytest.mark.crash]

WORKERS = 10
N_PEERS = 4


@pytest.fixture(autouse=True)
async def in_peace(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    async with peace(caplog):
        yield


async def kill_peers(path: Path, count: int, chance: random.Random) -> None:
    """Start so many processes, one after the other, and kill each after a moment of work."""
    for number in range(count):
        async with asyncio.timeout(LIMIT_S):
            peer = await asyncio.to_thread(BusyPeer, path, number, WORKERS)
            await asyncio.sleep(chance.random() * 0.2)
            await asyncio.to_thread(peer.kill)


async def note_elements(workload: Workload, client: penstock.Client, n_peers: int) -> None:
    """Put into the books what the peers have pushed, and taken."""
    for peer in range(n_peers):
        counted = int(await client.execute("GET", f"peers:{peer}:count") or 0)  # type: ignore[arg-type]
        for number in range(counted + 1):
            pushed = workload.lists[list_of(number, WORKERS)].pushed
            pushed[element_of(peer, number)] = "ok" if number < counted else "unknown"
    taken: Any = await client.execute("LRANGE", "peers:taken", 0, -1)
    for element in taken:
        elements = next(each for each in workload.lists.values() if element in each.pushed)
        elements.received[element] += 1


@pytest.mark.parametrize(("protocol", "policy"), [(3, "dedicated"), (2, "interrupt")])
async def test_others_are_killed_while_we_work(tmp_path: Path, protocol: int, policy: str) -> None:
    """Nothing that was pushed is lost, and nobody waits for the dead."""
    path = tmp_path / "store.pen"
    client = penstock.open(
        path,
        protocol=protocol,
        durability="relaxed",
        blocking_policy=policy,
        client_cache_entries=100 * (protocol == 3),
    )
    async with closing(client):
        await client
        async with Workload(client, seed=protocol, ways=EVERY_WAY, workers=WORKERS) as workload:
            await kill_peers(path, N_PEERS, random.Random(protocol))
        async with asyncio.timeout(LIMIT_S):
            await workload.hear_out()
        await workload.stop_listening()
        await nothing_pending(client)
        await workload.settle(client)
        await note_elements(workload, client, N_PEERS)
        with contextlib.suppress(TimeoutError):
            # What was handed to a process that died before it took it comes back when that is noticed.
            async with asyncio.timeout(10):
                while any(each.lost for each in workload.lists.values()):
                    await asyncio.sleep(0.05)
                    await workload.count_left(client)
        workload.check()
        assert any(
            element.startswith(b"peer") for each in workload.lists.values() for element in each.received
        )
        assert workload.count("unknown") == workload.count("not_sent") == 0
