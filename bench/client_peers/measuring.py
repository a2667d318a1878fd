"""What every client does in the same way: GET and INCR of one key, from few and from many tasks.

A measurement finds out first how long a call takes, and then makes as many as fill its time. ``bytes a call``
is what a call in flight holds, its task included: the peak of tracemalloc over 1,000 of them.

Only the standard library is imported here, and uvloop, on which all of them run: this module is used in the
environments of all contenders.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

TASKS: Final = (1, 10, 100, 1_000)
KEY: Final = "key"
COUNTER: Final = "counter"
_WARM: Final = 3
_TRIAL: Final = 200
_HELD: Final = 1_000

Call = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Peer:
    """One client, connected."""

    get: Call
    incr: Call


Opening = Callable[[int], AbstractAsyncContextManager[Peer]]


def report(opened: dict[str, Opening], packages: tuple[str, ...], description: str | None) -> None:
    """The command line of a script; ``opened`` has its ways of connecting, by name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("port", type=int, help="of the server, on this machine")
    parser.add_argument("seconds", type=float, help="of one measurement")
    parser.add_argument("--way", choices=list(opened), default=next(iter(opened)), help="of connecting")
    given = parser.parse_args()
    figures = run(_measure(opened[given.way](given.port), given.seconds))
    versions = {package: version(package) for package in packages} | {"Python": platform.python_version()}
    print(json.dumps({**figures, "versions": versions}), flush=True)


def run(main: Any) -> Any:
    """On uvloop, for everybody."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _measure(connecting: AbstractAsyncContextManager[Peer], seconds: float) -> dict[str, Any]:
    async with connecting as peer:
        calls = {"GET": peer.get, "INCR": peer.incr}
        rates = {
            name: {tasks: await rate(call, tasks, seconds) for tasks in TASKS} for name, call in calls.items()
        }
        return {"rates": rates, "bytes_a_call": await _bytes_a_call(peer.get)}


async def rate(call: Call, tasks: int, seconds: float) -> float:
    """Calls a second, all tasks together."""
    await _all(call, tasks, _WARM)
    trial = max(_TRIAL // tasks, 2)
    started = time.perf_counter()
    await _all(call, tasks, trial)
    per_call_s = (time.perf_counter() - started) / (trial * tasks)
    count = max(int(seconds / per_call_s / tasks), 2)
    gc.collect()
    started = time.perf_counter()
    await _all(call, tasks, count)
    return count * tasks / (time.perf_counter() - started)


async def _all(call: Call, tasks: int, count: int) -> None:
    async def work() -> None:
        for _ in range(count):
            await call()

    await asyncio.gather(*(work() for _ in range(tasks)))


async def _bytes_a_call(call: Call) -> float:
    await _all(call, _HELD, 2)
    gc.collect()
    tracemalloc.start()
    try:
        await _all(call, _HELD, 1)
        return tracemalloc.get_traced_memory()[1] / _HELD
    finally:
        tracemalloc.stop()
