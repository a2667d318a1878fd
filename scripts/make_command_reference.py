"""Writes docs/reference/commands.md from the catalogue of commands, and from what the engine can do.

python scripts/make_command_reference.py            write it
python scripts/make_command_reference.py --check    fail if it is not up to date

Rules: facts and arguments come from ``penstock.protocol.catalogue``, and whether a directory has a command
from the engine's own table. Only the words around are written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from generating import DOCS, table, write_or_check

from penstock.engine.table import CommandTable
from penstock.protocol.catalogue import CATALOGUE, CommandSpec
from penstock.protocol.catalogue.table import GROUPS
from penstock.protocol.catalogue.usage import USAGE

PAGE: Final = DOCS / "reference" / "commands.md"

HEAD: Final = """\
# Commands

<!-- Written by scripts/make_command_reference.py; do not edit. -->

Every command that Penstock knows, from the catalogue that dispatch, the cluster router and `COMMAND` read. A
directory and `penstock serve` have all of them; on Redis and Valkey the server decides. The client has a
[helper](../client.md#commands) for each, and `execute` for any other. `penstock shell` completes
them.

[What differs from Redis](../compatibility.md) tells where behaviour is not Redis's.

| mark | means |
| --- | --- |
| writes | may change what is stored |
| waits | may wait for somebody; takes a connection of its own |
| admin | for operators |
| old | kept for old programs; the line says what to use |
"""

#: How the groups of the catalogue are called on the page, and what else tells of them.
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("Strings", ""),
    "hash": ("Hashes", ""),
    "list": ("Lists", ""),
    "set": ("Sets", ""),
    "sorted-set": ("Sorted sets", ""),
    "generic": ("Keys", ""),
    "bitmap": ("Bitmaps", ""),
    "hyperloglog": ("HyperLogLog", ""),
    "geo": ("Geo", ""),
    "pubsub": ("Publish and subscribe", "[Messages](../client.md#messages) tells how the client does it."),
    "scripting": ("Scripts", ""),
    "transactions": (
        "MULTI, EXEC, WATCH",
        "[Several commands at once](../client.md#several-commands-at-once) tells how the client does it.",
    ),
    "connection": ("Connection", ""),
    "server": ("Server", ""),
    "cluster": ("Cluster", ""),
    "stream": (
        "Streams",
        "Those that begin with T are Penstock's own; [streams](../streams.md) is their specification.",
    ),
    "channel": ("Channels", "What [channels](../channels.md#keys) are made of on a directory."),
}


def main(arguments: list[str]) -> int:
    _need_handlers()
    parts = [HEAD, *(_section(group) for group in GROUPS)]
    return write_or_check(PAGE, "\n".join(parts), "make_command_reference.py", arguments)


def _need_handlers() -> None:
    """The page says that a directory has every command: so it must."""
    engine = CommandTable()
    every = [spec for container in CATALOGUE.values() for spec in _with_subcommands(container)]
    missing = [title(spec) for spec in every if not engine.is_known(title(spec).encode().split())]
    if missing:
        raise SystemExit(f"the engine has no handler for {', '.join(missing)}")


def _section(group: str) -> str:
    name, words = NAMES[group]
    specs = [spec for spec in CATALOGUE.values() if spec.group == group]
    rows = [_row(spec) for container in specs for spec in _with_subcommands(container)]
    told = f"{words}\n\n" if words else ""
    return f"## {name}\n\n{told}{table(('command', 'does', 'marks', 'since'), rows)}"


def _with_subcommands(spec: CommandSpec) -> Iterator[CommandSpec]:
    if not spec.subcommands:
        yield spec
    yield from spec.subcommands.values()


def title(spec: CommandSpec) -> str:
    """As people write it: ``CLIENT LIST``."""
    return spec.full_name.decode().replace("|", " ").upper()


def _row(spec: CommandSpec) -> tuple[str, str, str, str]:
    name = title(spec)
    usage = " ".join(filter(None, (name, USAGE.get(name))))
    since = (
        f"Penstock {spec.since}"
        if spec.group in ("stream", "channel") and spec.since == "0.1.0"
        else spec.since
    )
    does = f"{spec.summary}; use {spec.replaced_by}" if spec.deprecated_since else spec.summary
    return f"`{usage}`", does, ", ".join(_marks(spec)), since


def _marks(spec: CommandSpec) -> Iterator[str]:
    if spec.is_write or spec.may_replicate:
        yield "writes"
    if spec.is_blocking:
        yield "waits"
    if spec.is_admin:
        yield "admin"
    if spec.deprecated_since:
        yield "old"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
