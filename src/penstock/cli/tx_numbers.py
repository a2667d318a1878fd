"""``penstock tx dead|stats|groups|workers``: what operators look at. Nothing is changed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.cli import showing
from penstock.cli.asking import Actions, Bench, add_action, positive
from penstock.transactions.statistics import Series, Slot

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_LEVELS: Final = ("5s", "60s", "600s")
_BY: Final = ("pipeline", "node_group", "owner")
_KEPT: Final = {"5s": "5 minutes", "60s": "2 hours", "600s": "24 hours"}


def add_actions(actions: _SubParsersAction[Actions]) -> None:
    dead = add_action(
        actions,
        "dead",
        _dead,
        "show who was given up, and why: somebody has to look at them",
        "tx dead --json | jq -r .reason",
    )
    dead.add_argument("--limit", type=positive, default=50, metavar="N", help="at most (default: 50)")
    stats = add_action(
        actions,
        "stats",
        _stats,
        "show how much there is, and what has happened lately",
        "tx stats --level 600s --by owner",
    )
    stats.add_argument("--level", choices=_LEVELS, default="60s",
                       help="5s: of 5 minutes; 60s: of 2 hours (default); 600s: of a day")  # fmt: skip
    stats.add_argument("--by", choices=[name.replace("_", "-") for name in _BY], default="pipeline",
                       help="a line for each (default: pipeline)")  # fmt: skip
    for name in _BY:
        stats.add_argument(f"--{name.replace('_', '-')}", metavar="NAME", help="of this one alone")
    add_action(actions, "groups", _groups, "show node groups: who waits and who runs", "tx groups")
    add_action(actions, "workers", _workers, "show the workers that live", "tx workers --json")


def _dead(bench: Bench) -> None:
    found = bench.run(bench.transactions.looking.dead(bench.arguments.limit))
    if bench.arguments.json:
        for one in found:
            row = None if one.transaction is None else showing.as_facts(one.transaction, is_row=True)
            bench.show({"id": one.id, "dead_ms": one.dead_ms, "reason": one.reason, "transaction": row}, "")
        return
    rows = (
        (one.id, showing.moment(one.dead_ms), one.transaction and one.transaction.pipeline, one.reason)
        for one in found
    )
    print(showing.table(("id", "given up", "pipeline", "reason"), rows))


# -------------------------------------------------------------------------------------- numbers


def _stats(bench: Bench) -> None:
    arguments, transactions = bench.arguments, bench.transactions
    overview = bench.run(transactions.looking.overview())
    series: Series = bench.run(
        transactions.statistics.read(
            arguments.level,
            pipeline=arguments.pipeline,
            node_group=arguments.node_group,
            owner=arguments.owner,
            by=arguments.by.replace("-", "_"),
        )
    )
    parts = sorted(series.parts.items())
    if arguments.json:
        bench.show(
            {
                "now": overview._asdict(),
                "level": series.level,
                "seconds": series.seconds,
                "total": _slot_facts(series.total),
                arguments.by.replace("-", "_"): {name: _slot_facts(part.total) for name, part in parts},
            },
            "",
        )
        return
    print(showing.facts((name.replace("_", " "), value) for name, value in overview._asdict().items()))
    print(f"\nThe last {_KEPT[series.level]}, times in ms:")
    columns = (
        arguments.by.replace("-", " "), "queued", "started", "ended", "succeeded", "retried", "lost",
        "wait p50", "p99", "latency p50", "p99",
    )  # fmt: skip
    rows = [_slot_row(name, part.total) for name, part in parts]
    print(showing.table(columns, [*rows, _slot_row("(all)", series.total)]))


def _slot_facts(slot: Slot) -> dict[str, Any]:
    return {
        "queued": slot.queued,
        "started": slot.started,
        "retried": slot.retried,
        "lost": slot.lost,
        "ended": dict(slot.ended),
        "wait_ms": {"p50": slot.wait.quantile(0.5), "p99": slot.wait.quantile(0.99)},
        "latency_ms": {"p50": slot.latency.quantile(0.5), "p99": slot.latency.quantile(0.99)},
    }


def _slot_row(name: str, slot: Slot) -> tuple[Any, ...]:
    times = [
        None if (value := histogram.quantile(q)) is None else f"{value:.3g}"
        for histogram in (slot.wait, slot.latency)
        for q in (0.5, 0.99)
    ]
    return (
        name, slot.queued, slot.started, slot.of("ended"), slot.ended["success"], slot.retried, slot.lost,
        *times,
    )  # fmt: skip


def _groups(bench: Bench) -> None:
    found = bench.run(bench.transactions.looking.groups())
    if bench.arguments.json:
        for group in found:
            bench.show(msgspec.structs.asdict(group), "")
        return
    rows = (
        (
            group.name, group.admin, group.out, group.in_, group.held, group.running,
            "yes" if group.is_paused else None, showing.moment(group.oldest_ms),
        )
        for group in found
    )  # fmt: skip
    columns = ("group", "admin", "out", "in", "held", "running", "paused", "oldest waits since")
    print(showing.table(columns, rows))


def _workers(bench: Bench) -> None:
    found = bench.run(bench.transactions.workers.list())
    if bench.arguments.json:
        for worker in found:
            bench.show(msgspec.structs.asdict(worker), "")
        return
    rows = (
        (
            worker.id, worker.state, " ".join(worker.node_groups), f"{worker.running}/{worker.concurrency}",
            worker.ended, showing.moment(worker.started_ms), worker.host, worker.pid,
            worker.labels.get("kind"),
        )
        for worker in found
    )  # fmt: skip
    columns = ("worker", "state", "groups", "running", "ended", "started", "host", "pid", "kind")
    print(showing.table(columns, rows))
