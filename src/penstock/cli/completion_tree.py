"""The command line as data: what may follow which words, read from the parsers themselves.

Rules: reads argparse's tree and nothing else; hidden options are left out. Values of an option or an argument
are choices, files (what it is called says so), or nobody knows. Used by completion and by the reference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

#: How the names of arguments begin whose values are files or directories.
_PATHS: Final = ("BACKUP", "CONFIG", "DEST", "DIR", "FILE", "FROM", "PATH", "STORE", "WHERE")

Values = Literal["none", "files", "any"]


@dataclass(frozen=True)
class Option:
    """``--json``, or ``--store WHERE``."""

    names: tuple[str, ...]
    metavar: str
    summary: str
    #: ``none``: it takes no value
    values: Values
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argument:
    """What is given by its place."""

    metavar: str
    summary: str
    values: Values
    choices: tuple[str, ...]
    is_optional: bool
    is_repeated: bool


@dataclass(frozen=True)
class Command:
    """``penstock tx start``, and what belongs to it."""

    words: tuple[str, ...]
    summary: str
    description: str
    epilog: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    commands: tuple[Command, ...] = field(default=())

    def walk(self) -> Iterator[Command]:
        """This one, and all below it."""
        yield self
        for command in self.commands:
            yield from command.walk()


def read_tree(parser: argparse.ArgumentParser, words: tuple[str, ...], summary: str = "") -> Command:
    """A parser and all below it."""
    options: list[Option] = []
    arguments: list[Argument] = []
    commands: list[Command] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            summaries = {each.dest: each.help or "" for each in action._choices_actions}
            commands += [
                read_tree(inner, (*words, name), summaries.get(name, ""))
                for name, inner in action.choices.items()
            ]
        elif action.option_strings:
            options.append(_option(action))
        else:
            arguments.append(_argument(action))
    return Command(
        words,
        summary,
        parser.description or "",
        parser.epilog or "",
        tuple(options),
        tuple(arguments),
        tuple(commands),
    )


def _option(action: argparse.Action) -> Option:
    takes_none = action.nargs == 0
    return Option(
        tuple(action.option_strings),
        "" if takes_none else _metavar(action),
        (action.help or "").replace("%%", "%"),
        "none" if takes_none else _values(action),
        _choices(action),
    )


def _argument(action: argparse.Action) -> Argument:
    return Argument(
        _metavar(action),
        (action.help or "").replace("%%", "%"),
        _values(action),
        _choices(action),
        action.nargs in ("?", "*"),
        action.nargs in ("*", "+"),
    )


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(_choices(action)) or action.dest.upper()


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def _values(action: argparse.Action) -> Values:
    return "files" if _metavar(action).startswith(_PATHS) else "any"
