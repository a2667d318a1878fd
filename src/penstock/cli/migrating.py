"""``penstock migrate FROM TO``: everything of one place in another one, in any direction
(``penstock.moving``).

Rules: what was done goes to stdout (with ``--json`` as one object), what could not be done beside it, a
sentence a key. The status is 1 if anything is not in the destination as it is in the source. Ctrl-C and
SIGKILL lose nothing: the same command goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import penstock
from penstock.cli.progress import Progress
from penstock.cli.teaching import add_json, taught
from penstock.client.targets import Target, parse_url
from penstock.errors import (
    CommandTimeoutError,
    ConnectionLostError,
    DifferenceError,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.moving import Migration, Report

_DESCRIPTION: Final = """\
Copy everything from one place to another: directories, Redis, Valkey, clusters, in any direction. Streams
keep their offsets, times, groups and what is pending; channels, transactions and webhooks come along; keys
keep their deadlines.

Stop whoever writes to the source first, and start it on the destination afterwards. A run that was
interrupted goes on when the same command is given again."""


def add_migrate(groups: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = groups.add_parser(
        "migrate",
        **taught(
            "copy everything from one store to another",
            "penstock migrate ./shop.pen redis://localhost --dry-run",
            "penstock migrate ./shop.pen redis://localhost --verify",
            "penstock migrate redis://localhost redis-cluster://node-1,node-2 --verify",
            "penstock migrate redis://localhost ./shop.pen --match 'shop:*'",
            description=_DESCRIPTION,
        ),
    )
    parser.add_argument("source", metavar="FROM", help="directory of a store, or a URL; it is only read")
    parser.add_argument("destination", metavar="TO", help="directory (made if it is not there), or a URL")
    parser.add_argument(
        "--dry-run", action="store_true", help="write nothing: count, and tell what cannot be copied"
    )
    parser.add_argument("--match", metavar="PATTERN", help="only keys like this, as for KEYS: 'shop:*'")
    parser.add_argument("--verify", action="store_true", help="compare all values afterwards")
    parser.add_argument("--merge", action="store_true",
                        help="TO may have keys: those that both have are replaced")  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=_migrate)


def _migrate(arguments: argparse.Namespace) -> None:
    source, target = parse_url(arguments.source), parse_url(arguments.destination)
    _check(source, target)
    destination = arguments.destination
    with ExitStack() as stack:
        if arguments.dry_run and target.kind == "embedded" and not _is_store(target):
            # Opening a store makes it, which would be a trace of a rehearsal.
            destination = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        runner = stack.enter_context(asyncio.Runner())
        try:
            report = runner.run(_work(arguments, destination))
        except (KeyboardInterrupt, ConnectionLostError, CommandTimeoutError):
            if not arguments.dry_run:
                print("penstock: interrupted; the same command goes on from here", file=sys.stderr)
            raise
    _tell(arguments, report)


def _check(source: Target, target: Target) -> None:
    if source.kind == "embedded" and not _is_store(source):
        raise StoreError(f"there is no store at {source.path}")
    if (
        target.kind == "embedded"
        and target.path is not None
        and target.path.exists()
        and not target.path.is_dir()
    ):
        raise UsageError(f"{target.path} is no directory: name one, or a URL")
    is_same_path = source.kind == target.kind == "embedded" and _real(source) == _real(target)
    if is_same_path or source.redacted == target.redacted:
        raise UsageError("FROM and TO are the same place")


def _is_store(target: Target) -> bool:
    from penstock.server.keeping import has_store

    return target.path is not None and has_store(target.path)


def _real(target: Target) -> Path:
    assert target.path is not None
    return target.path.resolve()


async def _work(arguments: argparse.Namespace, destination: str) -> Report:
    from penstock.moving import Migration

    async with (
        penstock.open(arguments.source, fail_fast=True, decode_responses=False) as source,
        penstock.open(destination, fail_fast=True, decode_responses=False) as target,
    ):
        bars = _Bars()
        migration = Migration(
            source,
            target,
            source_url=arguments.source,
            match=arguments.match,
            merges=arguments.merge,
            on_progress=bars.advance,
        )
        total = await migration.prepare()
        if migration.goes_on and not arguments.json:
            print("going on with a run that was interrupted", file=sys.stderr)
        return await _act(migration, arguments, bars, total)


async def _act(migration: Migration, arguments: argparse.Namespace, bars: _Bars, total: int) -> Report:
    with bars.begin("looking" if arguments.dry_run else "copying", total):
        report = await (migration.rehearse() if arguments.dry_run else migration.run())
    if arguments.verify and not arguments.dry_run:
        with bars.begin("comparing", report.copied + report.done_before):
            await migration.verify()
    return report


class _Bars:
    """One bar after the other."""

    def __init__(self) -> None:
        self._bar = Progress("migrating")

    def begin(self, what: str, total: int) -> Progress:
        self._bar = Progress(what, total)
        return self._bar

    def advance(self, keys: int, elements: int) -> None:
        self._bar.advance(keys, keys + elements)


# ------------------------------------------------------------------------- telling


def _tell(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.json:
        print(json.dumps(_facts(report)))
    else:
        for line in _lines(arguments, report):
            print(line)
    sentence = _complaint(arguments, report)
    if sentence:
        raise DifferenceError(sentence, tuple(map(str, [*report.problems, *report.differences])))


def _lines(arguments: argparse.Namespace, report: Report) -> Iterable[str]:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.keys.items()))
    verb = "would copy" if arguments.dry_run else "copied"
    yield f"{verb} {report.copied:,} keys" + (f" ({kinds})" if kinds else "")
    if report.done_before:
        yield f"{report.done_before:,} keys were there already"
    if report.replaced:
        verb = "would be" if arguments.dry_run else "were"
        yield f"{report.replaced:,} keys of the destination {verb} replaced"
    if report.compared:
        yield f"compared {report.compared:,} keys: {len(report.differences):,} differ"
    if report.other_databases:
        numbers = ", ".join(map(str, report.other_databases))
        yield f"not copied: keys in database {numbers}; migrate each by its own URL"
    for problem in report.problems:
        yield f"not carried over: {problem}"
    for difference in report.differences:
        yield f"differs: {difference}"


def _complaint(arguments: argparse.Namespace, report: Report) -> str:
    parts = []
    if report.problems:
        count = len({problem.key for problem in report.problems})
        verb = "would not be" if arguments.dry_run else "are not"
        parts.append(f"{count:,} keys {verb} there as they were")
    if report.differences:
        parts.append(f"{len(report.differences):,} keys differ")
    parts += [f"the source has changed: {change}" for change in report.changes]
    if report.differences and not report.changes:
        parts.append(
            "did somebody write to one of them? Stop who does, and run it again into an empty destination"
        )
    return "; ".join(parts)


def _facts(report: Report) -> dict[str, Any]:
    def shown(problems: Iterable[Any]) -> list[dict[str, str]]:
        return [
            {"key": problem.key.decode("utf-8", "backslashreplace"), "reason": problem.reason}
            for problem in problems
        ]

    return {
        "copied": report.copied,
        "keys": report.keys,
        "elements": report.elements,
        "done_before": report.done_before,
        "replaced": report.replaced,
        "compared": report.compared,
        "problems": shown(report.problems),
        "differences": shown(report.differences),
        "changes": report.changes,
        "other_databases": report.other_databases,
    }
