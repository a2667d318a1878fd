"""Our server beside a real one, over RESP; and what a command costs in a store that grows.

Aims: at least 0.8 of the real server unpipelined and 0.3 at pipeline 16 (``relaxed``), at 50 connections.
The real server runs without persistence there, and with ``appendfsync always`` in the section ``durable``.
All take part in each round, one after the other.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.growing import Flat, Progress, embedded, micros_each
from bench.load import COMMANDS, Load, generator_name
from bench.load import run as put_load
from bench.results import OURS
from bench.running import Measure, Run, server_name
from bench.tables import Table, spread
from penstock.engine import LocalSession
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import RealServer

CONNECTIONS: Final = 50
AIMS: Final = {1: 0.8, 16: 0.3}

_BATCH: Final = 1_000
_CALLS: Final = 2_000
#: A store that fits into memory no more may need hours.
_FILL_LIMIT_S: Final = 1_500.0


# ----------------------------------------------------------------------- commands


def commands(run: Run) -> None:
    binary = run.real_server()
    run.results.note("server.commands", f"Load: {generator_name()}.")
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServer(binary) as real,
        PenstockServer(Path(directory) / "relaxed.pen", durability="relaxed") as ours,
    ):
        for pipeline, requests in ((1, run.sizes.requests), (16, run.sizes.pipelined_requests)):
            title = f"{CONNECTIONS} connections, pipeline {pipeline}, durability relaxed (requests/s)"
            table = Table(title, ("command", server_name(binary), OURS, "ratio", "aim"))
            for command in COMMANDS:
                load = Load(command, CONNECTIONS, pipeline, requests)
                line = f"{command}, pipeline {pipeline}"
                figures = _interleaved(run, load, real.port, ours.port)
                _record(run, "server.commands", line, server_name(binary), figures, AIMS[pipeline])
                table.row(command, *_cells(*figures), f"≥ {AIMS[pipeline]}")
            table.print()


def durable(run: Run) -> None:
    binary = run.real_server()
    theirs = f"{server_name(binary)}, appendfsync always"
    table = Table(
        "SET, every reply on disk (requests/s)", ("connections", theirs, "Penstock, always", "ratio")
    )
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServer(binary, options={"appendonly": "yes", "appendfsync": "always"}) as real,
        PenstockServer(Path(directory) / "always.pen", durability="always") as ours,
    ):
        for connections, requests in run.sizes.durable_requests:
            figures = _interleaved(run, Load("SET", connections, 1, requests), real.port, ours.port)
            line = f"SET on disk, {connections} {'connections' if connections > 1 else 'connection'}"
            _record(run, "server.durable", line, theirs, figures, None)
            table.row(str(connections), *_cells(*figures))
    table.print()


def _interleaved(run: Run, load: Load, real_port: int, our_port: int) -> tuple[list[float], list[float]]:
    rounds = [(put_load(real_port, load), put_load(our_port, load)) for _ in range(run.sizes.rounds)]
    return [real for real, _ in rounds], [ours for _, ours in rounds]


def _record(
    run: Run, section: str, line: str, peer: str, figures: tuple[list[float], list[float]], aim: float | None
) -> None:
    run.results.add(section, line, peer, "requests/s", figures[0], aim=aim)
    run.results.add(section, line, OURS, "requests/s", figures[1], role="ours")


def _cells(real: list[float], ours: list[float]) -> tuple[str, ...]:
    return spread(real), spread(ours), f"{statistics.median(ours) / statistics.median(real):.2f}"


# --------------------------------------------------------------------------- keys


def keys(run: Run) -> None:
    """In process, so that a command is all that is measured; ids of keys are spread over the whole store."""
    table = Table(
        "A command in a store that grows (µs, in process, relaxed)", ("keys", "GET", "SET", "new SET")
    )
    with tempfile.TemporaryDirectory() as directory, embedded(Path(directory) / "keys.pen") as session:
        done, flat = 0, Flat()
        for size in run.sizes.key_sizes:
            if (filled := _fill(session, done, size)) < size:
                reason = f"only {filled:,} keys were written in {_FILL_LIMIT_S:g} s"
                run.results.note("server.keys", f"{size:,} keys are left out: {reason}.")
                break
            works = _works(session, size)
            taken = {name: micros_each(work, _CALLS, run.sizes.rounds) for name, work in works.items()}
            for name, rounds in taken.items():
                run.results.add(
                    "server.keys", name, f"among {size:,} keys", "µs", rounds,
                    role="ours", better="lower", aim=flat.aim(name, rounds),
                )  # fmt: skip
            table.row(f"{size:,}", *(spread(rounds, ".1f") for rounds in taken.values()))
            done = size + _CALLS * run.sizes.rounds
    run.results.note("server.keys", f"The aim: {Flat.TIMES:g} times the cost with the fewest.")
    table.print()


def _fill(session: LocalSession, first: int, size: int) -> int:
    """Keys by number, from the first; how many there are when it was done, or took too long."""
    progress = Progress("keys", size, _FILL_LIMIT_S)
    for start in range(first, size, _BATCH):
        end = min(start + _BATCH, size)
        session.execute_many([[b"SET", _key(number), b"value-%d" % number] for number in range(start, end)])
        if not progress.reached(end):
            return end
    return max(first, size)


def _works(session: LocalSession, size: int) -> dict[str, Callable[[int], object]]:
    def somewhere(number: int) -> bytes:
        return _key(number * 7_919_993 % size)

    fresh = iter(range(size, size + 1_000_000))
    return {
        "GET": lambda number: session.execute(b"GET", somewhere(number)),
        "SET": lambda number: session.execute(b"SET", somewhere(number), b"value"),
        "new SET": lambda number: session.execute(b"SET", _key(next(fresh)), b"value"),
    }


def _key(number: int) -> bytes:
    return b"key:%d" % number


SECTIONS: Final[dict[str, Measure]] = {"commands": commands, "durable": durable, "keys": keys}
