"""Our server beside a real one, over RESP, at 50 connections; and durable writes.

Aims: at least 0.8 of the real server unpipelined and 0.3 at pipeline 16 (``relaxed``).
Three interleaved rounds, medians; the real server runs without persistence in the first
two tables and with ``appendfsync always`` in the third.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.load import COMMANDS, Load, generator_name, run
from bench.tables import Table
from penstock.testing.own_server import PenstockServer
from penstock.testing.servers import RealServer, ServerBinary, find_servers

ROUNDS = 3
AIMS = {1: 0.8, 16: 0.3}


def main(scale: float = 1.0) -> None:
    binary = next((b for b in find_servers() if b.kind == "redis"), None) or find_servers()[0]
    print(f"Load: {generator_name()}; real server: {binary.kind} {binary.version}\n")
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServer(binary) as real,
        PenstockServer(Path(directory) / "relaxed.pen", durability="relaxed") as ours,
    ):
        for pipeline, requests in ((1, 60_000), (16, 400_000)):
            _compare(pipeline, real.port, ours.port, int(requests * scale))
    _durable(binary, scale)


def _compare(pipeline: int, real_port: int, our_port: int, requests: int) -> None:
    title = f"50 connections, pipeline {pipeline}, durability relaxed (requests/s, median of {ROUNDS})"
    table = Table(title, ("command", "real server", "penstock", "ratio", "aim"))
    for command in COMMANDS:
        real, ours = _interleaved(Load(command, 50, pipeline, requests), real_port, our_port)
        table.row(command, f"{real:,.0f}", f"{ours:,.0f}", f"{ours / real:.2f}", f"≥ {AIMS[pipeline]}")
    table.print()


def _interleaved(load: Load, real_port: int, our_port: int) -> tuple[float, float]:
    rounds = [(run(real_port, load), run(our_port, load)) for _ in range(ROUNDS)]
    return statistics.median(real for real, _ in rounds), statistics.median(ours for _, ours in rounds)


def _durable(binary: ServerBinary, scale: float) -> None:
    table = Table(
        f"SET, every reply on disk (requests/s, median of {ROUNDS})",
        ("connections", "real server, appendfsync always", "penstock, always", "ratio"),
    )
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServer(binary, options={"appendonly": "yes", "appendfsync": "always"}) as real,
        PenstockServer(Path(directory) / "always.pen", durability="always") as ours,
    ):
        for connections, requests in ((1, 2_000), (50, 30_000), (500, 60_000)):
            load = Load("SET", connections, 1, max(int(requests * scale), connections))
            theirs, mine = _interleaved(load, real.port, ours.port)
            table.row(str(connections), f"{theirs:,.0f}", f"{mine:,.0f}", f"{mine / theirs:.2f}")
    table.print()
