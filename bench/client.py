"""The client beside its peers on one server, and on an embedded store.

Aims: at 100 tasks at least 15 times redis-py and 6 times valkey-glide; at least 0.7 of the
bare loop; at 1 task not slower than any of the others. All run in this process, on the same
event loop, one after the other in each round; medians of the rounds.

``bytes a call`` is what a call in flight holds, its task included: the peak of tracemalloc over
1,000 of them.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import uvloop

import penstock
from bench.peers import PEERS, Peer
from bench.tables import Table
from penstock.testing.servers import RealServer, find_servers

ROUNDS: Final = 3
TASKS: Final = (1, 10, 100, 1_000)
#: How long one measurement takes, about.
_SECONDS: Final = 0.7
_OURS: Final = "penstock"

Call = Callable[[], Awaitable[Any]]


def main(scale: float = 1.0) -> None:
    binary = next((b for b in find_servers() if b.kind == "redis"), None) or find_servers()[0]
    names = ("redis", "coredis", "valkey-glide")
    print(f"Server: {binary.kind} {binary.version}; " + ", ".join(f"{n} {version(n)}" for n in names) + "\n")
    with RealServer(binary) as server:
        uvloop.run(_compare(server.port, scale))
    uvloop.run(_embedded(scale))


async def _compare(port: int, scale: float) -> None:
    async with AsyncExitStack() as stack:
        peers = {name: await stack.enter_async_context(opened(port)) for name, opened in PEERS.items()}
        held = {name: await _bytes_a_call(peer.get) for name, peer in peers.items()}
        for command in ("GET", "INCR"):
            await _compare_command(command, peers, held, scale)


async def _compare_command(
    command: str, peers: dict[str, Peer], held: dict[str, float], scale: float
) -> None:
    rates: dict[str, dict[int, float]] = {name: {} for name in peers}
    for tasks in TASKS:
        rounds: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(ROUNDS):
            for name, peer in peers.items():
                call = peer.get if command == "GET" else peer.incr
                rounds[name].append(await _rate(call, tasks, _SECONDS * scale))
        for name in peers:
            rates[name][tasks] = statistics.median(rounds[name])
    columns = [f"{tasks:,} tasks" for tasks in TASKS]
    table = Table(f"{command}, calls/s (penstock: times as fast)", ("client", *columns, "bytes a call"))
    for name, by_tasks in rates.items():
        cells = (_cell(by_tasks[tasks], rates[_OURS][tasks], name == _OURS) for tasks in TASKS)
        table.row(name, *cells, f"{held[name]:,.0f}")
    table.print()


def _cell(rate: float, ours: float, is_ours: bool) -> str:
    return f"{rate:,.0f}" if is_ours else f"{rate:,.0f} ({ours / rate:.2f}×)"


async def _rate(call: Call, tasks: int, seconds: float) -> float:
    """Calls a second, all tasks together."""
    await asyncio.gather(*(_work(call, 3) for _ in range(tasks)))
    trial = max(200 // tasks, 2)
    started = time.perf_counter()
    await asyncio.gather(*(_work(call, trial) for _ in range(tasks)))
    per_call_s = (time.perf_counter() - started) / (trial * tasks)
    count = max(int(seconds / per_call_s / tasks), 2)
    gc.collect()
    started = time.perf_counter()
    await asyncio.gather(*(_work(call, count) for _ in range(tasks)))
    return count * tasks / (time.perf_counter() - started)


async def _work(call: Call, count: int) -> None:
    for _ in range(count):
        await call()


async def _bytes_a_call(call: Call) -> float:
    calls = 1_000
    await asyncio.gather(*(_work(call, 2) for _ in range(calls)))
    gc.collect()
    tracemalloc.start()
    try:
        await asyncio.gather(*(_work(call, 1) for _ in range(calls)))
        return tracemalloc.get_traced_memory()[1] / calls
    finally:
        tracemalloc.stop()


async def _embedded(scale: float) -> None:
    table = Table("Embedded store, calls/s", ("command", "tasks", "always", "relaxed"))
    with tempfile.TemporaryDirectory() as directory:
        async with (
            penstock.open(Path(directory) / "always.pen", durability="always") as always,
            penstock.open(Path(directory) / "relaxed.pen", durability="relaxed") as relaxed,
        ):
            for command in ("GET", "SET"):
                for tasks in (1, 100, 1_000):
                    rates = [await _embedded_rate(s, command, tasks, scale) for s in (always, relaxed)]
                    table.row(command, f"{tasks:,}", *(f"{rate:,.0f}" for rate in rates))
    table.print()


async def _embedded_rate(store: penstock.Client, command: str, tasks: int, scale: float) -> float:
    await store.set("key", "value")
    calls: dict[str, Call] = {"GET": lambda: store.get("key"), "SET": lambda: store.set("key", "value")}
    return statistics.median([await _rate(calls[command], tasks, _SECONDS * scale) for _ in range(ROUNDS)])
