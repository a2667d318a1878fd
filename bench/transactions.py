"""Transactions of one step beside the job queues of others, and what one costs while many are kept.

Aims: at least 4 times the best of them on Redis; at least 20 times DBOS on an embedded store with
``always``; from start to the first step a median below 5 ms; the cost of a transaction the same while 1,000
or 1,000,000 are kept.

Every contender runs a job that does nothing, in one worker process that also enqueues, with the same
concurrency; ``transaction_peers/measuring.py`` says what is timed. All take part in each round, one after
the other. Those that poll do so every 10 ms, which is much more often than they do by default.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any, Final

from bench.environments import NotMeasuredError
from bench.growing import Flat
from bench.results import Role
from bench.running import Measure, Run, server_name
from bench.tables import Table, spread
from bench.transaction_peers.contenders import (
    CONTENDERS,
    OURS_ALWAYS,
    OURS_ON_REDIS,
    OURS_RELAXED,
    Contender,
    interpreter,
    place,
)
from bench.transaction_peers.contenders import run as run_contender
from penstock.testing.servers import ServerBinary

CONCURRENCY: Final = 32
POLL_MS: Final = 10
LATENCY_AIM_MS: Final = 5.0
FSYNC: Final = "everysec"
_FEWEST_JOBS: Final = 100
#: Measured in a round, as many at every size: a process that has just started is slower for a moment, and
#: that must weigh the same everywhere. They are kept as well, so a size is the least of what is kept.
_KEPT_JOBS: Final = 2_000
_KEPT_LATENCY_JOBS: Final = 50
_PEERS: Final = "transactions.peers"
_KEPT: Final = "transactions.kept"

Runs = dict[str, list[dict[str, Any]]]


# ------------------------------------------------------------------------- peers


def peers(run: Run) -> None:
    binary = run.real_server()
    run.results.note(_PEERS, _conditions(binary))
    ready = _install(run)
    taken: Runs = {contender.name: [] for contender in ready}
    for number in range(1, run.sizes.rounds + 1):
        for contender in list(ready):
            print(f"  round {number}: {contender.name} …", file=sys.stderr, flush=True)
            try:
                taken[contender.name].append(_run_once(run, contender, ready[contender], binary))
            except NotMeasuredError as error:
                run.leave_out(_PEERS, contender.name, error)
                del ready[contender], taken[contender.name]
    if ready:
        _print_comparison(run, list(ready), taken)
        for contender in ready:
            _record(run, contender, taken[contender.name])


def _conditions(binary: ServerBinary) -> str:
    return (
        f"One worker process, concurrency {CONCURRENCY} unless stated, polls every {POLL_MS} ms. "
        f"{server_name(binary)} with appendonly and appendfsync {FSYNC}; SQLite and the embedded store "
        "on the same disk."
    )


def _install(run: Run) -> dict[Contender, Path]:
    ready = {}
    for contender in CONTENDERS:
        if run.wants(contender.name):
            try:
                ready[contender] = interpreter(contender, run.cache)
            except NotMeasuredError as error:
                run.leave_out(_PEERS, contender.name, error)
    return ready


def _run_once(run: Run, contender: Contender, python: Path, binary: ServerBinary) -> dict[str, Any]:
    options = {"concurrency": CONCURRENCY, "poll-ms": POLL_MS, "latency-jobs": run.sizes.latency_jobs}
    with place(contender.store, binary, FSYNC) as where:
        figures = run_contender(contender, python, where, _count(run, contender), *_words(options))
    run.took_part(contender.name, figures["versions"])
    return figures


def _words(options: dict[str, int]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _count(run: Run, contender: Contender) -> int:
    return max(int(run.sizes.jobs * contender.share), _FEWEST_JOBS)


def _record(run: Run, contender: Contender, runs: list[dict[str, Any]]) -> None:
    """On Redis beside those on Redis, on files beside those on files."""
    store = "Redis" if contender.store == "redis" else "files"
    role: Role = "ours" if contender in (OURS_ON_REDIS, OURS_ALWAYS) else "peer"
    if contender is OURS_RELAXED:
        role = "beside"
    for line, unit, key in (
        ("jobs processed", "jobs/s", "process_per_s"),
        ("jobs enqueued", "jobs/s", "enqueue_per_s"),
        ("enqueue to start, p50", "ms", "latency_p50_ms"),
    ):
        values = [figures[key] for figures in runs]
        if None in values:
            continue
        aim = contender.aim if key == "process_per_s" else None
        if key == "latency_p50_ms" and role == "ours":
            aim = LATENCY_AIM_MS
        run.results.add(
            _PEERS, f"{line}, on {store}", contender.name, unit, values,
            role=role, better="lower" if unit == "ms" else "higher", aim=aim,
        )  # fmt: skip


def _print_comparison(run: Run, ready: list[Contender], runs: Runs) -> None:
    table = Table(
        "Jobs of one step that does nothing (median, least–most)",
        ("contender", "on disk", "jobs", "enqueue/s", "process/s", "enqueue to start, p50 ms", "penstock is"),
    )
    for contender in ready:
        taken = runs[contender.name]
        table.row(
            contender.name,
            contender.on_disk(FSYNC),
            f"{_count(run, contender):,}",
            spread([one["enqueue_per_s"] for one in taken]),
            spread([one["process_per_s"] for one in taken]),
            spread([one["latency_p50_ms"] for one in taken], ".2f"),
            _ratio(contender, runs),
        )
    table.print()


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


def kept(run: Run) -> None:
    binary = run.real_server()
    run.results.note(
        _KEPT, f"{_conditions(binary)} The aim is {Flat.TIMES:g} times the cost with the fewest kept."
    )
    table = Table(
        "Cost of a transaction while so many ended ones, or more, are kept",
        ("store", "kept", "start, µs", "run, µs", "to the first", "start to step, p50 ms", "bytes kept each"),
    )
    for contender in (OURS_ON_REDIS, OURS_RELAXED):
        if run.wants(contender.name):
            try:
                _measure_kept(run, contender, binary, table)
            except NotMeasuredError as error:
                run.leave_out(_KEPT, contender.name, error)
    table.print()


def _measure_kept(run: Run, contender: Contender, binary: ServerBinary, table: Table) -> None:
    """One store that grows: what each size needs beyond the last is run through it first."""
    python = interpreter(contender, run.cache)
    with place(contender.store, binary, FSYNC) as where:
        have, first, flat = 0, 0.0, Flat()
        for size in run.sizes.kept:
            print(f"  {contender.name}: {size:,} kept …", file=sys.stderr, flush=True)
            taken = []
            for _ in range(run.sizes.rounds):
                fill = max(size - have, 0)
                options = {"concurrency": CONCURRENCY, "fill": fill, "latency-jobs": _KEPT_LATENCY_JOBS}
                taken.append(run_contender(contender, python, where, _KEPT_JOBS, *_words(options)))
                have += fill + _KEPT_JOBS + _KEPT_LATENCY_JOBS
            costs_us = [1e6 / one["enqueue_per_s"] + 1e6 / one["process_per_s"] for one in taken]
            run.results.add(
                _KEPT, f"start and run, {contender.name}", f"{size:,} kept", "µs", costs_us,
                role="ours", better="lower", aim=flat.aim("", costs_us),
            )  # fmt: skip
            first = first or statistics.median(costs_us)
            table.row(
                contender.name,
                f"{size:,}",
                spread([1e6 / one["enqueue_per_s"] for one in taken]),
                spread([1e6 / one["process_per_s"] for one in taken]),
                f"{statistics.median(costs_us) / first:.2f}×",
                spread([one["latency_p50_ms"] for one in taken], ".2f"),
                f"{where.used_bytes() / have:,.0f}",
            )


SECTIONS: Final[dict[str, Measure]] = {"peers": peers, "kept": kept}
