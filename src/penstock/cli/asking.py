"""What commands on transactions and pipelines have in common: which store, which archive, words that mean
numbers, times and JSON.

Rules: a word that cannot be understood ends with status 2 and the usage of the command, everything else that
goes wrong with status 1 and one sentence. What was asked for goes to stdout; with ``--json`` that is one JSON
value a line.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

import penstock
from penstock.cli.opening import Intermixed, opened
from penstock.cli.teaching import add_json, taught
from penstock.errors import UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from penstock.transactions import Transactions

T = TypeVar("T")

#: Names the store for commands that are given none.
STORE_VARIABLE: Final = "PENSTOCK_STORE"
WHERE_HELP: Final = f"directory of a store, or a URL (default: ${STORE_VARIABLE})"

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Actions(Intermixed):
    """A parser whose options may stand anywhere, or one that leads to others."""

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._subparsers is not None:  # words behind an action belong to it
            return argparse.ArgumentParser.parse_known_args(self, args, namespace)
        return super().parse_known_args(args, namespace)


@dataclass(frozen=True)
class Bench:
    """What an action works with."""

    arguments: argparse.Namespace
    runner: asyncio.Runner
    ps: penstock.Penstock

    @property
    def transactions(self) -> Transactions:
        return self.ps.transactions

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def show(self, facts: Any, text: str) -> None:
        """Facts for programs, or the text for people."""
        if self.arguments.json:
            sys.stdout.write(json_line(facts))
        elif text:
            print(text)


Action = Callable[[Bench], None]


def add_action(
    actions: _SubParsersAction[Actions],
    name: str,
    action: Action,
    summary: str,
    *examples: str,
    may_create: bool = False,
    has_archive: bool = False,
) -> Actions:
    """A command of a group, with the options that all of them have; examples are without ``penstock``."""
    parser = actions.add_parser(name, **taught(summary, *(f"penstock {example}" for example in examples)))
    parser.add_argument("--store", metavar="WHERE", default=os.environ.get(STORE_VARIABLE), help=WHERE_HELP)
    add_json(parser)
    if has_archive:
        parser.add_argument("--archive", metavar="DIR", help="look there as well, for what left the store")
    parser.set_defaults(run=lambda arguments: _run(action, arguments, may_create), refuse=parser.error)
    return parser


def _run(action: Action, arguments: argparse.Namespace, may_create: bool) -> None:
    if not arguments.store:
        arguments.refuse(f"say which store: --store WHERE, or the variable {STORE_VARIABLE}")
    with opened(arguments.store, may_create=may_create) as (runner, ps):
        if getattr(arguments, "archive", None):
            from penstock.lake import archives

            ps.with_archive(archives.open(arguments.archive))
        action(Bench(arguments, runner, ps))


def who() -> str:
    """Whose hands these are, for trails."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in containers
        return "somebody"


# ---------------------------------------------------------------------------------------- words


def whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text}")
    return int(text)


def positive(text: str) -> int:
    if not whole(text):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return int(text)


def duration_ms(text: str) -> int:
    """Of ``30`` (seconds), ``1.5s``, ``500ms``, ``5m``, ``2h``, ``3d``."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be seconds, or a number with ms, s, m, h or d, not {text}")
    return round(float(found[1]) * _UNIT_MS[found[2] or "s"])


def moment_ms(text: str) -> int:
    """Of a time with its zone: ``2026-01-31T09:00:00+01:00``."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"must be a time with its zone, as 2026-01-31T09:00:00Z, not {text}")
    return round(moment.timestamp() * 1_000)


def json_word(what: str, word: str | None) -> Any:
    """A value that is given as JSON, as ``@FILE``, or as ``-`` for stdin; none is null."""
    if word is None:
        return None
    source = f" in {word.removeprefix('@')}" if word.startswith("@") else " on stdin" if word == "-" else ""
    text = read_word(word[1:]) if word.startswith("@") else read_word(word) if word == "-" else word.encode()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{what} must be JSON{source} ({error}): quote texts twice, or give @FILE") from None


def read_word(name: str) -> bytes:
    """What is in a file, or on stdin (``-``)."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from None


def json_line(facts: Any) -> str:
    return msgspec.json.encode(facts).decode() + "\n"
