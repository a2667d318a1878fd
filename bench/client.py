"""The client beside its peers on one server, and on an embedded store.

Aims: at 100 tasks at least 15 times redis-py and 6 times valkey-glide; at least 0.7 of the bare loop; at 1
task not slower than any other client. Each contender is a process of its own, in an environment of its own
(``client_peers``), which makes all of its calls and ends; all take part in each round, one after the
other.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import penstock
from bench.client_peers.measuring import TASKS, Call, rate
from bench.client_peers.measuring import run as run_loop
from bench.environments import ASYNCHRONOUS, NotMeasuredError, figures_of, python_with
from bench.results import OURS, Role
from bench.running import Measure, Run, server_name
from bench.tables import Table, spread
from penstock.testing.servers import RealServer

_COMMANDS: Final = ("GET", "INCR")
_EMBEDDED_TASKS: Final = (1, 100, 1_000)
_SECTION: Final = "client.calls"


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    script: str
    environment: str = ""
    requirements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    role: Role = "peer"
    #: by tasks: how many times as fast ours shall be
    aims: dict[int, float] = field(default_factory=dict, hash=False)


_REDIS_PY: Final = ("redis==8.1.0", *ASYNCHRONOUS)
CONTENDERS: Final = (
    Contender("bare loop", "bare_loop", role="limit", aims={100: 0.7}),
    Contender(OURS, "penstock_client", role="ours"),
    Contender(
        "valkey-glide", "glide_client", "valkey-glide", ("valkey-glide==2.5.3", *ASYNCHRONOUS),
        aims={1: 1.0, 100: 6.0},
    ),
    Contender("coredis", "coredis_client", "coredis", ("coredis==6.9.0", *ASYNCHRONOUS), aims={1: 1.0}),
    Contender("redis-py", "redis_py_client", "redis-py", _REDIS_PY, aims={1: 1.0, 100: 15.0}),
    Contender("redis-py, 100 connections", "redis_py_client", "redis-py", _REDIS_PY, ("--way", "pool"),
              aims={1: 1.0}),
)  # fmt: skip

Figures = dict[str, list[dict[str, Any]]]


# -------------------------------------------------------------------------- calls


def calls(run: Run) -> None:
    binary = run.real_server()
    print(f"Server: {binary.kind} {binary.version}\n")
    ready = _install(run)
    taken: Figures = {contender.name: [] for contender in ready}
    with RealServer(binary) as server:
        for number in range(1, run.sizes.rounds + 1):
            for contender in list(ready):
                print(f"  round {number}: {contender.name} …", file=sys.stderr, flush=True)
                try:
                    taken[contender.name].append(_run_once(run, contender, ready[contender], server.port))
                except NotMeasuredError as error:
                    run.leave_out(_SECTION, contender.name, error)
                    del ready[contender], taken[contender.name]
    run.results.note(_SECTION, f"On {server_name(binary)}; every client in a process of its own, on uvloop.")
    for contender in ready:
        _record(run, contender, taken[contender.name])
    for command in _COMMANDS:
        _print(command, taken)


def _install(run: Run) -> dict[Contender, Path]:
    ready = {}
    for contender in CONTENDERS:
        if run.wants(contender.name):
            try:
                ready[contender] = python_with(contender.environment, contender.requirements, run.cache)
            except NotMeasuredError as error:
                run.leave_out(_SECTION, contender.name, error)
    return ready


def _run_once(run: Run, contender: Contender, python: Path, port: int) -> dict[str, Any]:
    words = (str(port), str(run.sizes.call_s), *contender.options)
    figures = figures_of(python, f"bench.client_peers.{contender.script}", *words)
    run.took_part(contender.name, figures["versions"])
    return figures


def _rates(runs: list[dict[str, Any]], command: str, tasks: int) -> list[float]:
    # Keys of JSON are words.
    return [figures["rates"][command][str(tasks)] for figures in runs]


def _record(run: Run, contender: Contender, runs: list[dict[str, Any]]) -> None:
    for command in _COMMANDS:
        for tasks in TASKS:
            run.results.add(
                _SECTION, f"{command}, {tasks:,} task{'s' if tasks > 1 else ''}", contender.name, "calls/s",
                _rates(runs, command, tasks), role=contender.role, aim=contender.aims.get(tasks),
            )  # fmt: skip
    held = [figures["bytes_a_call"] for figures in runs]
    run.results.add(
        _SECTION,
        "held by a call in flight",
        contender.name,
        "bytes",
        held,
        role=contender.role,
        better="lower",
    )


def _print(command: str, taken: Figures) -> None:
    columns = [f"{tasks:,} tasks" for tasks in TASKS]
    table = Table(f"{command}, calls/s (Penstock: times as fast)", ("client", *columns, "bytes a call"))
    for name, runs in taken.items():
        cells = [_cell(name, taken, command, tasks) for tasks in TASKS]
        held = statistics.median(figures["bytes_a_call"] for figures in runs)
        table.row(name, *cells, f"{held:,.0f}")
    table.print()


def _cell(name: str, taken: Figures, command: str, tasks: int) -> str:
    mine = statistics.median(_rates(taken[name], command, tasks))
    if name == OURS or OURS not in taken:
        return f"{mine:,.0f}"
    return f"{mine:,.0f} ({statistics.median(_rates(taken[OURS], command, tasks)) / mine:.2f}×)"


# ----------------------------------------------------------------------- embedded


def embedded(run: Run) -> None:
    run_loop(_embedded(run))


async def _embedded(run: Run) -> None:
    table = Table("Embedded store, calls/s", ("command", "tasks", "always", "relaxed"))
    with tempfile.TemporaryDirectory() as directory:
        async with (
            penstock.open(Path(directory) / "always.pen", durability="always") as always,
            penstock.open(Path(directory) / "relaxed.pen", durability="relaxed") as relaxed,
        ):
            stores = {"always": always, "relaxed": relaxed}
            for command in ("GET", "SET"):
                for tasks in _EMBEDDED_TASKS:
                    taken: dict[str, list[float]] = {name: [] for name in stores}
                    for _ in range(run.sizes.rounds):
                        for name, store in stores.items():
                            call = await _call(store, command)
                            taken[name].append(await rate(call, tasks, run.sizes.embedded_s))
                    line = f"{command}, {tasks:,} task{'s' if tasks > 1 else ''}"
                    for name, rounds in taken.items():
                        run.results.add("client.embedded", line, name, "calls/s", rounds, role="beside")
                    table.row(command, f"{tasks:,}", *map(spread, taken.values()))
    table.print()


async def _call(store: penstock.Client, command: str) -> Call:
    await store.set("key", "value")
    if command == "GET":
        return lambda: store.get("key")
    return lambda: store.set("key", "value")


SECTIONS: Final[dict[str, Measure]] = {"calls": calls, "embedded": embedded}
