"""``penstock tx cancel|retry|replay|wake|switch|priority|pause|resume|limit``: what is done to transactions.

Rules: whoever does it is written into the trail, with the reason. Each command answers in one line what came
of it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli import showing
from penstock.cli.asking import Actions, Bench, add_action, who, whole
from penstock.errors import UsageError
from penstock.transactions import Limit
from penstock.transactions.pipelines import steps_at

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_KINDS = {"p": "pipeline", "o": "owner", "g": "node_group"}
_NUMBERS = ("concurrency", "rate", "burst", "max_queued")


def add_actions(actions: _SubParsersAction[Actions]) -> None:
    cancel = add_action(
        actions,
        "cancel",
        _cancel,
        "end a transaction, and its children",
        "tx cancel tx-0-1 --reason 'ordered twice'",
    )
    retry = add_action(
        actions,
        "retry",
        _retry,
        "let one that failed go on at the step that failed",
        "tx retry tx-0-1",
        has_archive=True,
    )
    replay = add_action(
        actions,
        "replay",
        _replay,
        "run one again from a step",
        "tx replay tx-0-1 --from charge",
        has_archive=True,
    )
    replay.add_argument("--from", dest="step", metavar="STEP", default="0",
                        help="number of the step, the first is 0, or its id (default: 0)")  # fmt: skip
    wake = add_action(actions, "wake", _wake, "let one that sleeps go on now", "tx wake tx-0-1")
    for parser in (cancel, retry, replay, wake):
        parser.add_argument("id", metavar="ID")
        parser.add_argument("--reason", metavar="TEXT", default="", help="for the trail")
    switch = add_action(
        actions,
        "switch",
        _switch,
        "show, set or delete switches of a transaction",
        "tx switch tx-0-1",
        "tx switch tx-0-1 approved=yes",
        "tx switch tx-0-1 approved --delete",
    )
    switch.add_argument("id", metavar="ID")
    switch.add_argument("switch", metavar="NAME[=VALUE]", nargs="?",
                        help="which, or what it shall be (default: show all)")  # fmt: skip
    switch.add_argument("--delete", action="store_true", help="delete it")
    priority = add_action(
        actions, "priority", _priority, "let one go before others, or behind them", "tx priority tx-0-1 9"
    )
    priority.add_argument("id", metavar="ID")
    priority.add_argument("priority", type=whole, metavar="N", help="0 to 9, the most urgent")
    pause = add_action(
        actions,
        "pause",
        _pause,
        "let nothing of it begin; steps that run go on",
        "tx pause --pipeline checkout",
    )
    _add_scope(pause, True)
    _add_scope(add_action(actions, "resume", _resume, "let it go on", "tx resume --pipeline checkout"), True)
    limit = add_action(
        actions,
        "limit",
        _limit,
        "show limits, or set one; what is not named stays",
        "tx limit",
        "tx limit --owner acme --rate 50 --concurrency 20",
    )
    _add_limit(limit)


def _add_scope(parser: argparse.ArgumentParser, is_required: bool) -> None:
    scope = parser.add_mutually_exclusive_group(required=is_required)
    scope.add_argument("--pipeline", metavar="NAME")
    scope.add_argument("--owner", metavar="NAME")
    scope.add_argument("--node-group", metavar="NAME")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    _add_scope(parser, False)
    parser.add_argument("--concurrency", type=whole, metavar="N", help="steps at a time (0: any number)")
    parser.add_argument("--rate", type=_rate, metavar="N", help="begun in a second (0: any number)")
    parser.add_argument("--burst", type=whole, metavar="N", help="of them at once after a quiet time")
    parser.add_argument("--max-queued", type=whole, metavar="N",
                        help="refuse starts while so many wait (of a node group; 0: any number)")  # fmt: skip
    parser.add_argument("--none", action="store_true", help="no limit, and no pause")


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number from 0, not {text}")
    return value


# ----------------------------------------------------------------------------- one transaction


def _cancel(bench: Bench) -> None:
    arguments = bench.arguments
    has_ended = bench.run(bench.transactions.cancel(arguments.id, arguments.reason, by=who()))
    text = "cancelled" if has_ended else "it ends when its step lets go and what it did is undone"
    bench.show({"id": arguments.id, "has_ended": has_ended}, text)


def _retry(bench: Bench) -> None:
    arguments = bench.arguments
    bench.run(bench.transactions.retry(arguments.id, arguments.reason, by=who()))
    bench.show({"id": arguments.id}, "it goes on")


def _replay(bench: Bench) -> None:
    arguments = bench.arguments
    step = bench.run(_step_number(bench, arguments.id, arguments.step))
    bench.run(bench.transactions.replay(arguments.id, step, arguments.reason, by=who()))
    bench.show({"id": arguments.id, "step": step}, f"it goes on at step {step}")


async def _step_number(bench: Bench, tx: str, word: str) -> int:
    if word.isascii() and word.isdigit():
        return int(word)
    found = await bench.transactions.get(tx)
    pipeline = await bench.transactions.registry.load(found.pipeline, found.version)
    ids = [step.id for step in steps_at(pipeline, found.path)]
    if word not in ids:
        raise UsageError(f"--from must be a number, or one of {', '.join(ids)}, not {word!r}")
    return ids.index(word)


def _wake(bench: Bench) -> None:
    arguments = bench.arguments
    bench.run(bench.transactions.wake(arguments.id, arguments.reason, by=who()))
    bench.show({"id": arguments.id}, "it goes on")


def _priority(bench: Bench) -> None:
    arguments = bench.arguments
    bench.run(bench.transactions.set_priority(arguments.id, arguments.priority, by=who()))
    bench.show({"id": arguments.id, "priority": arguments.priority}, f"{arguments.priority}")


def _switch(bench: Bench) -> None:
    arguments, transactions = bench.arguments, bench.transactions
    if arguments.switch is None:
        if arguments.delete:
            arguments.refuse("--delete needs NAME")
        switches = bench.run(transactions.get(arguments.id)).switches
        bench.show(switches, "\n".join(f"{name}={value}" for name, value in switches.items()))
        return
    name, sign, value = arguments.switch.partition("=")
    if arguments.delete and sign:
        arguments.refuse("--delete needs NAME without a value")
    if not sign and not arguments.delete:
        known = bench.run(transactions.get_switch(arguments.id, name))
        if known is None and not arguments.json:
            raise UsageError(f"switch {name!r} is not set")
        bench.show({name: known}, f"{known}")
        return
    answer = bench.run(transactions.set_switch(arguments.id, name, value if sign else None, by=who()))
    bench.show({"id": arguments.id, "switch": name, "answer": answer}, answer)


# --------------------------------------------------------------------------------------- limits


def _scope(arguments: argparse.Namespace) -> dict[str, str]:
    return {kind: name for kind in _KINDS.values() if (name := getattr(arguments, kind)) is not None}


def _pause(bench: Bench) -> None:
    scope = _scope(bench.arguments)
    bench.run(bench.transactions.pause(**scope))
    bench.show({**scope, "is_paused": True}, "paused")


def _resume(bench: Bench) -> None:
    scope = _scope(bench.arguments)
    bench.run(bench.transactions.resume(**scope))
    bench.show({**scope, "is_paused": False}, "resumed")


def _limit(bench: Bench) -> None:
    arguments = bench.arguments
    scope = _scope(arguments)
    changes = {name: value for name in _NUMBERS if (value := getattr(arguments, name)) is not None}
    if (changes or arguments.none) and not scope:
        arguments.refuse("say what to limit: --pipeline, --owner or --node-group")
    if changes and arguments.none:
        arguments.refuse("--none takes every limit away: give no numbers")
    if changes:
        known = _chosen(bench, scope)
        limit = msgspec.structs.replace(next(iter(known.values()), Limit()), **changes)
        bench.run(bench.transactions.limit(None if limit == Limit() else limit, **scope))
    elif arguments.none:
        bench.run(bench.transactions.limit(None, **scope))
    _show_limits(bench, _chosen(bench, scope))


def _chosen(bench: Bench, scope: dict[str, str]) -> dict[str, Limit]:
    """All limits, or the one of a scope."""
    limits = bench.run(bench.transactions.looking.limits())
    wanted = {f"{mark}:{scope[kind]}" for mark, kind in _KINDS.items() if kind in scope}
    return {name: limit for name, limit in limits.items() if not scope or name in wanted}


def _show_limits(bench: Bench, limits: dict[str, Limit]) -> None:
    rows: list[dict[str, Any]] = []
    for name, limit in limits.items():
        mark, _, value = name.partition(":")
        rows.append({"of": _KINDS.get(mark, mark), "name": value, **msgspec.structs.asdict(limit)})
    columns = ("of", "name", "is_paused", *_NUMBERS)
    if bench.arguments.json:
        for row in rows:
            bench.show(row, "")
        return
    cells = (["yes" if row[name] is True else row[name] or "-" for name in columns] for row in rows)
    print(showing.table([name.replace("_", " ").removeprefix("is ") for name in columns], cells))
