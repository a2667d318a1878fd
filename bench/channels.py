"""Channels over HTTP: how fast messages are taken, how soon they arrive, and what waiting costs.

Aims, for publishes a second at 64 connections: 8,000 on Redis, 13,700 embedded with ``relaxed`` and 8,000
with ``always``; a delay of less than 10 ms (p50) at 400 channels; no failed check.

Gateways are started as their users start them, each on a store of its own. In the first two sections all of
them are up and take turns, in each round; figures are medians, ± is half the distance between the
best and the worst round. ``best`` is the best round: neighbours on a machine only ever make one worse.
``CPU`` is processor time of all processes of a gateway: it says what a request costs also where the load
program, the store and the gateway want more cores than there are.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.channels_gateway import ALWAYS, BARE, REDIS, RELAXED, Gateway, Setup, cpu_s
from bench.channels_load import generator_name, publish
from bench.channels_polls import ENVIRONMENT, Held, hold
from bench.channels_traffic import Traffic, traffic
from bench.machine import versions_of
from bench.running import Measure, Run
from bench.tables import Table, within
from penstock.testing.servers import RealServer

AIMS: Final = {REDIS: 8_000, RELAXED: 13_700, ALWAYS: 8_000}
AIM_CONNECTIONS: Final = 64
AIM_DELAY_MS: Final = 10
AIM_CHANNELS: Final = 400
#: As many as the machine of the aims has cores.
AIM_WORKERS: Final = 2

_STORES: Final = (REDIS, RELAXED, ALWAYS)
_WORKERS: Final = (1, 2)


# ------------------------------------------------------------------------- publish


def publishes(run: Run) -> None:
    binary = run.real_server()
    run.results.versions.update(versions_of("httptools", "uvicorn"))
    run.results.note(
        "channels.publish",
        f"Load: {generator_name()}. The bare callable is the same HTTP server with nothing behind it.",
    )
    seconds, connections = run.sizes.publish_s, run.sizes.connections
    setups = [Setup(store, workers) for store in (BARE, *_STORES) for workers in _WORKERS]
    found: dict[tuple[Setup, int], list[tuple[float, ...]]] = {}
    with RealServer(binary) as redis, ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(setup, redis.url)) for setup in setups]
        for gateway in gateways:
            publish(gateway.port, connections[0], 1.0, _salt())
        for _ in range(run.sizes.rounds):
            for count in connections:
                for gateway in gateways:
                    key = (gateway.setup, count)
                    found.setdefault(key, []).append(_publish_once(gateway, redis, count, seconds))
    for count in connections:
        mine = {setup: found[setup, count] for setup in setups}
        _print_publish(run, count, mine)
        _record_publish(run, count, mine)


def _record_publish(run: Run, connections: int, found: dict[Setup, list[tuple[float, ...]]]) -> None:
    for setup, rounds in found.items():
        has_aim = connections == AIM_CONNECTIONS and setup.workers == AIM_WORKERS
        run.results.add(
            "channels.publish", f"publishes, {connections} connections", setup.name, "publishes/s",
            [one[0] for one in rounds], role="beside" if setup.store == BARE else "ours",
            aim=AIMS.get(setup.store) if has_aim else None,
        )  # fmt: skip
    failed = sum(one[5] for rounds in found.values() for one in rounds)
    if failed:
        run.results.note("channels.publish", f"{failed:.0f} publishes failed at {connections} connections.")


def _publish_once(gateway: Gateway, redis: RealServer, connections: int, seconds: float) -> tuple[float, ...]:
    ours_s, store_s = gateway.cpu_s(), cpu_s(redis.pid)
    done = publish(gateway.port, connections, seconds, _salt())
    spent_us = (gateway.cpu_s() - ours_s) * 1e6 / done.requests
    store_us = (cpu_s(redis.pid) - store_s) * 1e6 / done.requests
    return done.rate, spent_us, store_us, done.p50_ms, done.p99_ms, done.failed


def _print_publish(run: Run, connections: int, found: dict[Setup, list[tuple[float, ...]]]) -> None:
    title = f"Publish, {connections} connections (median of {run.sizes.rounds} × {run.sizes.publish_s:g} s)"
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
        aim = f"≥ {AIMS[setup.store]:,}" if connections == AIM_CONNECTIONS and setup.store in AIMS else ""
        store_us = within(store) if setup.store == REDIS else ""
        cells = (
            within(rates),
            f"{max(rates):,.0f}",
            within(ours),
            store_us,
            within(p50s, 1),
            within(p99s, 1),
        )
        table.row(setup.name, *cells, f"{sum(failed):.0f}", aim)
    table.print()


# ------------------------------------------------------------------------- traffic


def talk(run: Run) -> None:
    binary = run.real_server()
    seconds = run.sizes.traffic_s
    setups = [Setup(store, workers) for store in _STORES for workers in run.sizes.traffic_workers]
    found: dict[tuple[Setup, int], list[tuple[Traffic, float]]] = {}
    with RealServer(binary) as redis, ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(setup, redis.url)) for setup in setups]
        for gateway in gateways:
            traffic(gateway.port, run.sizes.channels[0], 1.0, _salt())
        for _ in range(run.sizes.rounds):
            for channels in run.sizes.channels:
                for gateway in gateways:
                    spent_s = gateway.cpu_s()
                    result = traffic(gateway.port, channels, seconds, _salt())
                    spent_s = gateway.cpu_s() - spent_s
                    found.setdefault((gateway.setup, channels), []).append((result, spent_s / seconds))
    for setup in setups:
        mine = {channels: found[setup, channels] for channels in run.sizes.channels}
        _print_traffic(run, setup, mine)
        _record_traffic(run, setup, mine)


def _record_traffic(run: Run, setup: Setup, found: dict[int, list[tuple[Traffic, float]]]) -> None:
    for channels, rounds in found.items():
        runs = [one for one, _ in rounds]
        has_aim = channels == AIM_CHANNELS and setup.workers == AIM_WORKERS
        run.results.add(
            "channels.traffic", f"delay p50, {channels} channels", setup.name, "ms",
            [one.delay_p50_ms for one in runs], role="ours", better="lower",
            aim=AIM_DELAY_MS if has_aim else None,
        )  # fmt: skip
        run.results.add(
            "channels.traffic", f"deliveries, {channels} channels", setup.name, "deliveries/s",
            [one.deliveries_a_second for one in runs], role="ours",
        )  # fmt: skip
        run.results.add(
            "channels.traffic", f"failed checks, {channels} channels", setup.name, "checks",
            [one.failed_checks for one in runs], role="ours", better="lower", aim=0,
        )  # fmt: skip


def _print_traffic(run: Run, setup: Setup, found: dict[int, list[tuple[Traffic, float]]]) -> None:
    title = (
        f"One publisher and three subscribers a channel: {setup.name} "
        f"(median of {run.sizes.rounds} × {run.sizes.traffic_s:g} s)"
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
            within([run.publishes_a_second for run in runs]),
            within([run.deliveries_a_second for run in runs]),
            within([run.delay_p50_ms for run in runs], 1),
            f"{min(run.delay_p50_ms for run in runs):,.1f}",
            within([run.delay_p95_ms for run in runs], 1),
            within([run.delay_p99_ms for run in runs], 1),
            _pair([run.publish_p50_ms for run in runs], [run.publish_p99_ms for run in runs]),
            _pair([run.ack_p50_ms for run in runs], [run.ack_p99_ms for run in runs]),
            f"{sum(run.failed_checks for run in runs)}",
            _pair([cores for _, cores in rounds], [run.load_cpu for run in runs], 2),
        )
    table.print()


# ------------------------------------------------------------------------- polls


def polls(run: Run) -> None:
    binary = run.real_server()
    count = min(run.sizes.polls, 10_000)
    setups = [Setup(REDIS, 1), Setup(RELAXED, 1), Setup(RELAXED, 2)]
    found: dict[Setup, list[Held]] = {setup: [] for setup in setups}
    with RealServer(binary) as redis:
        for _ in range(run.sizes.rounds):
            for setup in setups:
                # A fresh one each time: memory that a process had once it does not give back.
                with Gateway(setup, redis.url, ENVIRONMENT) as gateway:
                    found[setup].append(hold(gateway, count, _salt()))
                    print(f"  {setup.name}: {found[setup][-1]}", file=sys.stderr)
    _print_polls(run, count, found)
    for setup, held in found.items():
        for name, unit, figures in (
            (
                "held by a connection that polls",
                "bytes",
                [one.connected_bytes + one.polling_bytes for one in held],
            ),
            ("one message for all, p50", "ms", [one.tell_p50_ms for one in held]),
            ("not answered", "polls", [one.failed for one in held]),
        ):
            aim = 0 if unit == "polls" else None
            line = f"{name}, {count:,} polls"
            run.results.add(
                "channels.polls", line, setup.name, unit, figures, role="ours", better="lower", aim=aim
            )


def _print_polls(run: Run, count: int, found: dict[Setup, list[Held]]) -> None:
    title = f"{count:,} long polls (median of {run.sizes.rounds}); bytes are anonymous memory of the gateway"
    columns = (
        "gateway", "bytes a connection", "bytes a poll", "resident, MB", "polls held after, s",
        "a message each: s", "messages/s", "one for all: p50, ms", "last, ms", "failed",
    )  # fmt: skip
    table = Table(title, columns)
    for setup, runs in found.items():
        names = (("connected_bytes", 0), ("polling_bytes", 0), ("resident_mb", 0), ("open_s", 2),
                 ("publish_s", 2), ("publish_rate", 0), ("tell_p50_ms", 0), ("tell_last_ms", 0))  # fmt: skip
        cells = [within([getattr(run, name) for run in runs], digits) for name, digits in names]
        table.row(setup.name, *cells, f"{sum(run.failed for run in runs)}")
    table.print()


# ------------------------------------------------------------------------- common


def _salt() -> str:
    """Makes ids of messages and names of channels differ from those of every other run."""
    return f"{time.time_ns():x}"


def _pair(first: Sequence[float], second: Sequence[float], digits: int = 1) -> str:
    return f"{statistics.median(first):,.{digits}f} / {statistics.median(second):,.{digits}f}"


SECTIONS: Final[dict[str, Measure]] = {"publish": publishes, "traffic": talk, "polls": polls}
