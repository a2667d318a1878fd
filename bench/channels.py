"""Channels over HTTP: how fast messages are taken, how soon they arrive, and what waiting costs.

Aims, for publishes a second at 64 connections: 8,000 on Redis, 13,700 embedded with ``relaxed`` and 8,000
with ``always``; a delay of less than 10 ms (p50) at 400 channels; no failed check.

Gateways are started as their users start them, each on a store of its own. In the first two parts all of
them are up and take turns, in each of three rounds; figures are medians, ± is half the distance between the
best and the worst round. ``best`` is the best round: neighbours on a machine only ever make one worse.
``CPU`` is processor time of all processes of a gateway: it says what a request costs also where the load
program, the store and the gateway want more cores than there are.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from typing import Final

from bench.channels_gateway import ALWAYS, BARE, REDIS, RELAXED, Gateway, Setup, cpu_s
from bench.channels_load import generator_name, publish
from bench.channels_polls import ENVIRONMENT, Held, hold
from bench.channels_traffic import Traffic, traffic
from bench.tables import Table
from penstock.testing.servers import RealServer, find_servers

ROUNDS: Final = 3
CONNECTIONS: Final = (32, 64)
CHANNELS: Final = (50, 100, 200, 400)
POLLS: Final = 10_000
PARTS: Final = ("publish", "traffic", "polls")
AIMS: Final = {REDIS: 8_000, RELAXED: 13_700, ALWAYS: 8_000}
AIM_DELAY_MS: Final = 10

_PUBLISH_SECONDS: Final = 4.0
_TRAFFIC_SECONDS: Final = 10.0
_STORES: Final = (REDIS, RELAXED, ALWAYS)


def main(scale: float = 1.0, parts: Iterable[str] = PARTS) -> None:
    binary = next((b for b in find_servers() if b.kind == "redis"), None) or find_servers()[0]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("httptools", "uvicorn", "msgspec"))
    print(f"Load of publishes: {generator_name()}; store: {binary.kind} {binary.version}; {libraries}\n")
    measures: dict[str, Callable[[RealServer, float], None]] = {
        "publish": _publish,
        "traffic": _traffic,
        "polls": _polls,
    }
    for part in parts:
        with RealServer(binary) as redis:
            measures[part](redis, scale)


# ------------------------------------------------------------------------- publish


def _publish(redis: RealServer, scale: float) -> None:
    seconds = max(_PUBLISH_SECONDS * scale, 1.0)
    setups = [Setup(store, workers) for store in (BARE, *_STORES) for workers in (1, 2)]
    found: dict[tuple[Setup, int], list[tuple[float, ...]]] = {}
    with ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(setup, redis.url)) for setup in setups]
        for gateway in gateways:
            publish(gateway.port, CONNECTIONS[0], 1.0, _salt())
        for _ in range(ROUNDS):
            for connections in CONNECTIONS:
                for gateway in gateways:
                    key = (gateway.setup, connections)
                    found.setdefault(key, []).append(_publish_once(gateway, redis, connections, seconds))
    for connections in CONNECTIONS:
        _print_publish(connections, seconds, {s: found[s, connections] for s in setups})


def _publish_once(gateway: Gateway, redis: RealServer, connections: int, seconds: float) -> tuple[float, ...]:
    ours_s, store_s = gateway.cpu_s(), cpu_s(redis.pid)
    done = publish(gateway.port, connections, seconds, _salt())
    spent_us = (gateway.cpu_s() - ours_s) * 1e6 / done.requests
    store_us = (cpu_s(redis.pid) - store_s) * 1e6 / done.requests
    return done.rate, spent_us, store_us, done.p50_ms, done.p99_ms, done.failed


def _print_publish(connections: int, seconds: float, found: dict[Setup, list[tuple[float, ...]]]) -> None:
    title = f"Publish, {connections} connections (median of {ROUNDS} × {seconds:g} s)"
    columns = (
        "gateway",
        "publishes/s",
        "best",
        "CPU, µs",
        "of Redis, µs",
        "p50, ms",
        "p99, ms",
        "failed",
        "aim",
    )
    table = Table(title, columns)
    for setup, rounds in found.items():
        rates, ours, store, p50s, p99s, failed = zip(*rounds, strict=True)
        aim = f"≥ {AIMS[setup.store]:,}" if connections == 64 and setup.store in AIMS else ""
        store_us = _figure(store) if setup.store == REDIS else ""
        cells = (
            _figure(rates),
            f"{max(rates):,.0f}",
            _figure(ours),
            store_us,
            _figure(p50s, 1),
            _figure(p99s, 1),
        )
        table.row(setup.name, *cells, f"{sum(failed):.0f}", aim)
    table.print()


# ------------------------------------------------------------------------- traffic


def _traffic(redis: RealServer, scale: float) -> None:
    seconds = max(_TRAFFIC_SECONDS * scale, 2.0)
    setups = [Setup(store, workers) for store in _STORES for workers in (1, 2)]
    found: dict[tuple[Setup, int], list[tuple[Traffic, float]]] = {}
    with ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(setup, redis.url)) for setup in setups]
        for gateway in gateways:
            traffic(gateway.port, CHANNELS[0], 1.0, _salt())
        for _ in range(ROUNDS):
            for channels in CHANNELS:
                for gateway in gateways:
                    spent_s = gateway.cpu_s()
                    result = traffic(gateway.port, channels, seconds, _salt())
                    spent_s = gateway.cpu_s() - spent_s
                    found.setdefault((gateway.setup, channels), []).append((result, spent_s / seconds))
    for setup in setups:
        _print_traffic(setup, seconds, {channels: found[setup, channels] for channels in CHANNELS})


def _print_traffic(setup: Setup, seconds: float, found: dict[int, list[tuple[Traffic, float]]]) -> None:
    title = (
        f"One publisher and three subscribers a channel: {setup.name} (median of {ROUNDS} × {seconds:g} s)"
    )
    columns = (
        "channels", "publishes/s", "deliveries/s", "delay p50, ms", "best", "p95", "p99", "publish p50 / p99",
        "ack p50 / p99", "failed checks", "cores: gateway / load",
    )  # fmt: skip
    table = Table(title, columns)
    for channels, rounds in found.items():
        runs = [run for run, _ in rounds]
        table.row(
            f"{channels}",
            _figure([run.publishes_a_second for run in runs]),
            _figure([run.deliveries_a_second for run in runs]),
            _figure([run.delay_p50_ms for run in runs], 1),
            f"{min(run.delay_p50_ms for run in runs):,.1f}",
            _figure([run.delay_p95_ms for run in runs], 1),
            _figure([run.delay_p99_ms for run in runs], 1),
            _pair([run.publish_p50_ms for run in runs], [run.publish_p99_ms for run in runs]),
            _pair([run.ack_p50_ms for run in runs], [run.ack_p99_ms for run in runs]),
            f"{sum(run.failed_checks for run in runs)}",
            _pair([cores for _, cores in rounds], [run.load_cpu for run in runs], 2),
        )
    table.print()
    if setup.workers == 1:
        print(f"Aim: delay p50 < {AIM_DELAY_MS} ms at {CHANNELS[-1]} channels, no failed check.\n")


# ------------------------------------------------------------------------- polls


def _polls(redis: RealServer, scale: float) -> None:
    count = max(int(POLLS * min(scale, 1.0)), 100)
    setups = [Setup(REDIS, 1), Setup(RELAXED, 1), Setup(RELAXED, 2)]
    found: dict[Setup, list[Held]] = {setup: [] for setup in setups}
    for _ in range(ROUNDS):
        for setup in setups:
            # A fresh one each time: memory that a process had once it does not give back.
            with Gateway(setup, redis.url, ENVIRONMENT) as gateway:
                found[setup].append(hold(gateway, count, _salt()))
                print(f"{setup.name}: {found[setup][-1]}", file=sys.stderr)
    title = f"{count:,} long polls (median of {ROUNDS}); bytes are anonymous memory of the gateway"
    columns = (
        "gateway", "bytes a connection", "bytes a poll", "resident, MB", "polls held after, s",
        "a message each: s", "messages/s", "one for all: p50, ms", "last, ms", "failed",
    )  # fmt: skip
    table = Table(title, columns)
    for setup, runs in found.items():
        names = (("connected_bytes", 0), ("polling_bytes", 0), ("resident_mb", 0), ("open_s", 2),
                 ("publish_s", 2), ("publish_rate", 0), ("tell_p50_ms", 0), ("tell_last_ms", 0))  # fmt: skip
        cells = [_figure([getattr(run, name) for run in runs], digits) for name, digits in names]
        table.row(setup.name, *cells, f"{sum(run.failed for run in runs)}")
    table.print()


# ------------------------------------------------------------------------- common


def _salt() -> str:
    """Makes ids of messages and names of channels differ from those of every other run."""
    return f"{time.time_ns():x}"


def _figure(values: Sequence[float], digits: int = 0) -> str:
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / 2 / middle if middle else 0.0
    return f"{middle:,.{digits}f} ±{spread:.0%}"


def _pair(first: Sequence[float], second: Sequence[float], digits: int = 1) -> str:
    return f"{statistics.median(first):,.{digits}f} / {statistics.median(second):,.{digits}f}"
