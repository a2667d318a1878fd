"""Writes the tables of commands in docs/cli.md from the parsers themselves.

python scripts/make_cli_reference.py            write them
python scripts/make_cli_reference.py --check    fail if they are not up to date
"""

from __future__ import annotations

import os
import sys

from generating import DOCS, table, write_part_or_check

from penstock.cli.completion_tree import Command, Option, read_tree
from penstock.cli.main import GROUPS, whole_parser

HEAD = ("command", "what it does", "options")
#: Every command has them.
COMMON = ("--help", "--json")


def main(arguments: list[str]) -> int:
    return write_part_or_check(DOCS / "cli.md", "commands", reference(), "make_cli_reference.py", arguments)


def reference() -> str:
    """The commands by purpose, as Markdown that the formatter leaves alone."""
    # Defaults that come from the environment must not show up here.
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]
    by_name = {command.words[1]: command for command in read_tree(whole_parser(), ("penstock",)).commands}

    def rows_of(command: Command) -> list[tuple[str, ...]]:
        leaves = [each for each in command.walk() if not each.commands]
        return [(usage(leaf), sentence(leaf), options(leaf)) for leaf in leaves]

    parts = []
    for purpose, groups in GROUPS.items():
        rows = [row for group in groups for row in rows_of(by_name[group.name])]
        parts.append(f"### {purpose[0].upper()}{purpose[1:]}\n\n{table(HEAD, rows)}")
    return "\n".join(parts)


def usage(command: Command) -> str:
    words = list(command.words)
    for argument in command.arguments:
        word = f"{argument.metavar}{' …' if argument.is_repeated else ''}"
        words.append(f"[{word}]" if argument.is_optional else word)
    return f"`{' '.join(words)}`"


def sentence(command: Command) -> str:
    return " ".join(command.description.split())


def options(command: Command) -> str:
    known = ((long_name(option), option.metavar) for option in command.options)
    return " ".join(f"`{f'{name} {value}'.rstrip()}`" for name, value in known if name not in COMMON)


def long_name(option: Option) -> str:
    return next((name for name in option.names if name.startswith("--")), option.names[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
