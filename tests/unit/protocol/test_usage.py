"""Every command tells how it is typed, with as many arguments as its arity wants."""

from __future__ import annotations

import re

from penstock.protocol.catalogue import CommandSpec, every_command
from penstock.protocol.catalogue.usage import USAGE


def _title(spec: CommandSpec) -> str:
    return spec.full_name.decode().replace("|", " ").upper()


SPECS = {_title(spec): spec for spec in every_command() if not spec.subcommands}


def _needed(usage: str) -> int:
    """Words that cannot be left out."""
    while usage != (usage := re.sub(r"\[[^\[\]]*\]", "", usage)):
        pass
    return len(usage.split())


def _fits(name: str) -> bool:
    arity, usage = SPECS[name].arity, USAGE.get(name, "")
    words = len(name.split()) + _needed(usage)
    if arity > 0:
        return words == arity and "[" not in usage
    return words > -arity or (words == -arity and "[" in usage)


def test_arity() -> None:
    assert [name for name in SPECS if not _fits(name)] == []


def test_nothing_else_is_told() -> None:
    assert set(USAGE) <= set(SPECS)
