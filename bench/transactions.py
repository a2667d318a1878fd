"""Transactions of one step beside the job queues of others, and what one costs while many are kept.

Aims: at least 4 times the best of them on Redis; at least 20 times DBOS on an embedded store with
``always``; from start to the first step a median below 5 ms; the cost of a transaction the same while 1,000
or 1,000,000 are kept.

Every contender runs a job that does nothing, in one worker process that also enqueues, with the same
concurrency; ``transaction_peers/measuring.py`` says what is timed. All take part in each round, one after
the other; medians of the rounds, and the least and the most. Those that poll do so every 10 ms, which is
much more often than they do by default.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Final

from bench.tables import Table
from bench.transaction_peers.contenders import (
    CONTENDERS,
    OURS_ALWAYS,
    OURS_ON_REDIS,
    OURS_RELAXED,
    Contender,
    interpreter,
    place,
    run,
)
from bench.transaction_peers.environments import ContenderError, default_cache
from penstock.testing.servers import ServerBinary, find_servers

JOBS: Final = 20_000
ROUNDS: Final = 3
CONCURRENCY: Final = 32
POLL_MS: Final = 10
KEPT: Final = (1_000, 10_000, 100_000, 1_000_000)
SECTIONS: Final = ("peers", "kept")
_FEWEST_JOBS: Final = 100
#: Measured in a round, as many at every size: a process that has just started is slower for a moment, and
#: that must weigh the same everywhere. They are kept as well, so a size is the least of what is kept.
_KEPT_JOBS: Final = 2_000
_KEPT_LATENCY_JOBS: Final = 50

Runs = dict[str, list[dict[str, Any]]]


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("transactions")
    group.add_argument(
        "--contender", choices=[c.name for c in CONTENDERS], action="append", help="all if not given"
    )
    group.add_argument("--rounds", type=int, default=ROUNDS, help="of all contenders")
    group.add_argument("--fsync", choices=("everysec", "always"), default="everysec", help="of Redis")
    group.add_argument(
        "--kept", type=int, nargs="+", metavar="N", help="how many are kept, instead of to 1,000,000"
    )
    group.add_argument("--cache", type=Path, default=default_cache(), help="where contenders are installed")


def main(arguments: argparse.Namespace) -> None:
    binary = next((b for b in find_servers() if b.kind == "redis"), None) or find_servers()[0]
    print(
        f"Server: {binary.kind} {binary.version}, appendonly yes, appendfsync {arguments.fsync}; "
        "SQLite and the embedded store on the same disk\n"
    )
    chosen = [c for c in CONTENDERS if not arguments.contender or c.name in arguments.contender]
    if arguments.only != "kept":
        _compare(chosen, binary, arguments)
    if arguments.only != "peers":
        sizes = arguments.kept or [max(int(size * arguments.scale), 1) for size in KEPT]
        _measure_kept(
            sorted(set(sizes)), [c for c in chosen if c in (OURS_ON_REDIS, OURS_RELAXED)], binary, arguments
        )


# ------------------------------------------------------------------------- peers


def _compare(chosen: list[Contender], binary: ServerBinary, arguments: argparse.Namespace) -> None:
    ready = _install(chosen, arguments.cache)
    runs: Runs = {contender.name: [] for contender in ready}
    for number in range(1, arguments.rounds + 1):
        for contender in list(ready):
            print(f"Round {number} of {arguments.rounds}: {contender.name} …", file=sys.stderr, flush=True)
            try:
                with place(contender.store, binary, arguments.fsync) as where:
                    count = _count(contender, arguments.scale)
                    options = ("--concurrency", str(CONCURRENCY), "--poll-ms", str(POLL_MS))
                    runs[contender.name].append(run(contender, ready[contender], where, count, *options))
            except ContenderError as error:
                _leave_out(contender, error)
                del ready[contender], runs[contender.name]
    if ready:
        _print_comparison(list(ready), runs, arguments)


def _install(chosen: list[Contender], cache: Path) -> dict[Contender, Path]:
    ready = {}
    for contender in chosen:
        try:
            ready[contender] = interpreter(contender, cache)
        except ContenderError as error:
            _leave_out(contender, error)
    return ready


def _leave_out(contender: Contender, error: ContenderError) -> None:
    print(f"{contender.name} is left out: {error}\n", flush=True)


def _count(contender: Contender, scale: float) -> int:
    return max(int(JOBS * scale * contender.share), _FEWEST_JOBS)


def _print_comparison(ready: list[Contender], runs: Runs, arguments: argparse.Namespace) -> None:
    table = Table(
        f"Jobs of one step that does nothing; one worker process, concurrency {CONCURRENCY} unless "
        f"stated, polls every {POLL_MS} ms (median of {arguments.rounds}, least–most)",
        ("contender", "on disk", "jobs", "enqueue/s", "process/s", "enqueue to start, p50 ms", "penstock is"),
    )
    for contender in ready:
        taken = runs[contender.name]
        table.row(
            contender.name,
            contender.on_disk(arguments.fsync),
            f"{_count(contender, arguments.scale):,}",
            _spread(taken, "enqueue_per_s", ",.0f"),
            _spread(taken, "process_per_s", ",.0f"),
            _spread(taken, "latency_p50_ms", ".2f"),
            _ratio(contender, runs),
        )
    table.print()
    for contender in ready:
        versions = runs[contender.name][0]["versions"]
        print(f"- {contender.name}: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    print(flush=True)


def _spread(runs: list[dict[str, Any]], figure: str, layout: str) -> str:
    values = [run[figure] for run in runs]
    if None in values:
        return "–"
    median = format(statistics.median(values), layout)
    return f"{median} ({min(values):{layout}}–{max(values):{layout}})" if len(values) > 1 else median


def _ratio(contender: Contender, runs: Runs) -> str:
    """Jobs processed a second: ours by theirs, on Redis or with every commit synced, as they are."""
    ours = OURS_ON_REDIS if contender.store == "redis" else OURS_ALWAYS
    if contender.is_ours or ours.name not in runs:
        return ""
    return (
        f"{_median(runs[ours.name], 'process_per_s') / _median(runs[contender.name], 'process_per_s'):.1f}×"
    )


def _median(runs: list[dict[str, Any]], figure: str) -> float:
    return float(statistics.median(run[figure] for run in runs))


# -------------------------------------------------------------------------- kept


def _measure_kept(
    sizes: list[int], stores: list[Contender], binary: ServerBinary, arguments: argparse.Namespace
) -> None:
    table = Table(
        f"Cost of a transaction while so many ended ones, or more, are kept (median of {arguments.rounds})",
        ("store", "kept", "start, µs", "run, µs", "to the first", "start to step, p50 ms", "bytes kept each"),
    )
    if not stores:
        return
    for contender in stores:
        try:
            _measure_kept_on(contender, sizes, binary, arguments, table)
        except ContenderError as error:
            _leave_out(contender, error)
    table.print()


def _measure_kept_on(
    contender: Contender, sizes: list[int], binary: ServerBinary, arguments: argparse.Namespace, table: Table
) -> None:
    """One store that grows: what each size needs beyond the last is run through it first."""
    python = interpreter(contender, arguments.cache)
    with place(contender.store, binary, arguments.fsync) as where:
        kept, first = 0, 0.0
        for size in sizes:
            print(f"{contender.name}: {size:,} kept …", file=sys.stderr, flush=True)
            taken = []
            for _ in range(arguments.rounds):
                fill = max(size - kept, 0)
                taken.append(run(contender, python, where, _KEPT_JOBS, *_kept_options(fill)))
                kept += fill + _KEPT_JOBS + _KEPT_LATENCY_JOBS
            cost = 1 / _median(taken, "enqueue_per_s") + 1 / _median(taken, "process_per_s")
            first = first or cost
            table.row(
                contender.name,
                f"{size:,}",
                _spread(_in_us(taken), "start_us", ".0f"),
                _spread(_in_us(taken), "run_us", ".0f"),
                f"{cost / first:.2f}×",
                _spread(taken, "latency_p50_ms", ".2f"),
                f"{where.used_bytes() / kept:,.0f}",
            )


def _kept_options(fill: int) -> tuple[str, ...]:
    options = {"concurrency": CONCURRENCY, "fill": fill, "latency-jobs": _KEPT_LATENCY_JOBS}
    return tuple(word for name, value in options.items() for word in (f"--{name}", str(value)))


def _in_us(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"start_us": 1_000_000 / run["enqueue_per_s"], "run_us": 1_000_000 / run["process_per_s"]}
        for run in runs
    ]
