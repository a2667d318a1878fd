"""Where the time of a publish or a delivery goes, on an embedded store with ``relaxed``, in microseconds.

A delivery is a poll and its acknowledgement, with its share of the publish.

``py-spy`` samples the gateway from outside where it is installed; each sample counts for the innermost of our
modules on its stack, so what C code does (LMDB, Lua, system calls) counts for whoever called it. Shares
become microseconds through the processor time of a request. Without py-spy it is cProfile, whose own cost is
charged to those who call most: its shares are rough.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.channels_gateway import RELAXED, Gateway, Setup
from bench.channels_load import publish
from bench.channels_traffic import traffic
from bench.tables import Table
from penstock.cli.main import main as penstock

_SECONDS: Final = 8.0
_CONNECTIONS: Final = 64
_CHANNELS: Final = 100
_SAMPLES_A_SECOND: Final = 500

#: part → where its code is; the first that fits.
_PARTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("HTTP: receive, parse, answer", ("penstock/gateway/serving/", "uvicorn/")),
    ("metrics, access log", ("penstock/gateway/observing/", "penstock/gateway/measuring")),
    ("polls: tasks that wait, wake-ups", ("penstock/gateway/polls", "penstock/channels/waking")),
    ("application: route, admit, headers", ("penstock/gateway/",)),
    ("channels: check the JSON, call the script", ("penstock/channels/",)),
    ("client: script, future, embedded transport", ("penstock/client/", "penstock/front")),
    ("host: a batch a tick, replies", ("penstock/host/",)),
    ("engine: Lua, and calls out of it", ("penstock/engine/scripting/", "penstock/engine/scripts")),
    ("engine: commands of the script", ("penstock/engine/commands/", "penstock/engine/keyspace",
                                        "penstock/engine/datatypes/", "penstock/engine/expiry")),
    ("engine: LMDB (puts, gets, commit)", ("penstock/engine/storage/",)),
    ("engine: publish and its listeners", ("penstock/engine/pubsub", "penstock/engine/bus/")),
    ("engine: dispatch, clocks, the rest", ("penstock/engine/", "penstock/clock", "penstock/protocol/")),
)  # fmt: skip
_LOOP: Final = "event loop: sockets, tasks, timers"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A load, and what its cost is divided by."""

    unit: str
    run: Callable[[int, float], float]


def _publishes(port: int, seconds: float) -> float:
    return publish(port, _CONNECTIONS, seconds, f"{time.time_ns():x}").requests


def _deliveries(port: int, seconds: float) -> float:
    """Below what a worker can do: a queue would be measured otherwise."""
    return traffic(port, _CHANNELS, seconds, f"{time.time_ns():x}").deliveries_a_second * seconds


KINDS: Final = {"publish": _Kind("publish", _publishes), "traffic": _Kind("delivery", _deliveries)}


def main(kind: str) -> None:
    if shutil.which("py-spy"):
        _sample(KINDS[kind])
    else:
        _trace(KINDS[kind])


def part_of(files: Iterable[str]) -> str:
    """The part to which a stack belongs; ``files`` from the innermost frame outwards."""
    for file in files:
        for part, places in _PARTS:
            if any(place in file for place in places):
                return part
    return _LOOP


# ------------------------------------------------------------------------- py-spy


def _sample(kind: _Kind) -> None:
    with tempfile.TemporaryDirectory() as folder, Gateway(Setup(RELAXED, 1)) as gateway:
        kind.run(gateway.port, 2.0)
        spent_s = gateway.cpu_s()
        count = kind.run(gateway.port, _SECONDS)
        cost_us = (gateway.cpu_s() - spent_s) * 1e6 / count
        raw = Path(folder) / "stacks"
        spy = subprocess.Popen(
            ["py-spy", "record", "--pid", str(gateway.process_ids[0]), "--rate", str(_SAMPLES_A_SECOND),
             "--duration", f"{_SECONDS:.0f}", "--format", "raw", "--output", str(raw)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        kind.run(gateway.port, _SECONDS + 2.0)
        if spy.wait() != 0:
            raise SystemExit("py-spy could not look into the gateway (ptrace must be allowed)")
        stacks = [line.rpartition(" ") for line in raw.read_text().splitlines()]
    parts: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for stack, _, samples in stacks:
        frames = stack.split(";")[::-1]
        # The serve command's own frames are on every stack.
        inner = [
            frame for frame in frames if "penstock/cli/" not in frame and "penstock/server/" not in frame
        ]
        parts[part_of(inner)] += int(samples)
        lines[frames[0].rpartition(":")[0] + ")"] += int(samples)
    print(f"{count:,.0f} times in {_SECONDS:g} s, {cost_us:.1f} µs of processor time each\n")
    _print(f"Where a {kind.unit} goes (py-spy)", "part", parts, cost_us)
    _print("Innermost functions", "function", Counter(dict(lines.most_common(25))), cost_us, lines.total())


def _print(title: str, what: str, counts: Counter[str], cost_us: float, total: int = 0) -> None:
    total = total or counts.total()
    table = Table(title, (what, "share", "µs"))
    for name, count in counts.most_common():
        table.row(name, f"{count / total:.1%}", f"{count / total * cost_us:.1f}")
    table.print()


# ------------------------------------------------------------------------- cProfile


def _trace(kind: _Kind) -> None:
    """The same server inside this process; only the thread of its loop is profiled."""
    counts: list[float] = []
    port = free_port()

    def work() -> None:
        wait_until_open(port)
        counts.append(kind.run(port, _SECONDS))
        os.kill(os.getpid(), signal.SIGTERM)

    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=work, daemon=True).start()
        profile.enable()
        penstock(["serve", f"{folder}/profile.pen", "--durability", "relaxed", "--port", "0",
                  "--http-port", str(port)])  # fmt: skip
        profile.disable()
    stats = pstats.Stats(profile)
    spent_us = _parts_of_trace(stats)
    cost_us = spent_us.total() / counts[0]
    _print(f"Where a {kind.unit} goes (cProfile, whose own cost is in it)", "part", spent_us, cost_us)
    stats.strip_dirs().sort_stats("tottime").print_stats(25)


def _parts_of_trace(stats: pstats.Stats) -> Counter[str]:
    """Microseconds by part; what has no file of its own (C code) counts for its callers."""
    spent_us: Counter[str] = Counter()
    entries: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, total_s, _, callers) in entries.items():
        if "poll" in name and file == "~":
            continue  # waiting is no work
        shares = [(caller[0], cost[2]) for caller, cost in callers.items()] if file == "~" else []
        for place, share_s in shares or [(file, total_s)]:
            spent_us[part_of([place])] += round(share_s * 1e6)
    return spent_us


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_open(port: int, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
