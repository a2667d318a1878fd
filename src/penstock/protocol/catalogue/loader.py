"""Reads the tables into ``CATALOGUE``; runs once, at import.

Rules: whatever follows from flags, keys and group is derived here and nowhere else.
A row that does not parse is a mistake in the table and fails the import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.protocol.catalogue.spec import CommandSpec, KeySpec
from penstock.protocol.catalogue.table import (
    ACCESS,
    CATEGORIES,
    CATEGORY_EXCEPTIONS,
    DEPRECATED,
    FLAGS,
    GROUPS,
    SYSTEM_COMMANDS,
    TIPS,
)

_PLACE: Final = re.compile(
    r"(?P<start>\d+) (?: (?P<counted>\#) | \.\.(?P<last>-?\d+) (?:/(?P<step>\d+))? )?"
    r"| (?P<keyword>[A-Z]+)@(?P<search>\d+)"
    r"| \?",
    re.VERBOSE,
)


class _Row(NamedTuple):
    group: str
    name: str
    arity: int
    flags: str
    keys: str
    since: str
    summary: str


def _lines(table: str) -> Iterator[list[str]]:
    """The rows of a table as lists of cells."""
    for line in table.strip().splitlines():
        yield ["" if cell == "-" else cell for cell in re.split(r" {2,}", line)]


def _rows() -> Iterator[_Row]:
    for group, (_, table) in GROUPS.items():
        for name, arity, flags, keys, since, summary in _lines(table):
            yield _Row(group, name, int(arity), flags, keys, since, summary)


def _key_spec(text: str) -> KeySpec:
    access, _, place = text.partition(":")
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ValueError(f"{text!r} is not a place of keys")
    if match["keyword"]:
        return KeySpec(ACCESS[access], int(match["search"]), keyword=match["keyword"].encode())
    start = int(match["start"] or 0)
    return KeySpec(
        ACCESS[access],
        start,
        last=int(match["last"] or start),
        step=int(match["step"] or 1),
        counted=match["counted"] is not None,
    )


def _legacy_triple(specs: tuple[KeySpec, ...]) -> tuple[int, int, int]:
    """First key, last key and step: the run of fixed keys that starts with the first of them."""
    first = last = step = 0
    for keys in specs:
        if not keys.is_fixed:
            continue
        if not first:
            first, last, step = keys.start, keys.last, keys.step
        elif keys.start == last + 1:
            last = keys.last
    return first, last, step


def _categories(row: _Row, flags: frozenset[str], own: str) -> tuple[str, ...]:
    """ACL categories: those of the group (or of the exception) and those the flags imply."""
    found = set(own.split())
    found |= flags & {"write", "pubsub", "blocking"}
    found.add("fast" if "fast" in flags else "slow")
    if "readonly" in flags and row.group != "scripting":
        found.add("read")
    if "admin" in flags:
        found |= {"admin", "dangerous"}
    return tuple(category for category in CATEGORIES if category in found)


class _Loader:
    """Holds the side tables while the rows are turned into specs."""

    def __init__(self) -> None:
        self._tips = {name: tuple(tips.split()) for tips, names in _lines(TIPS) for name in names.split(", ")}
        self._deprecated = {name: (since, instead) for name, since, instead in _lines(DEPRECATED)}

    def load(self) -> dict[bytes, CommandSpec]:
        rows = list(_rows())
        subcommands: dict[str, dict[bytes, CommandSpec]] = {}
        for row in rows:
            container, _, name = row.name.partition(" ")
            if name:
                subcommands.setdefault(container, {})[name.encode()] = self._spec(row, {})
        return {
            row.name.encode(): self._spec(row, subcommands.get(row.name, {}))
            for row in rows
            if " " not in row.name
        }

    def _spec(self, row: _Row, subcommands: dict[bytes, CommandSpec]) -> CommandSpec:
        key_specs = tuple(_key_spec(text) for text in row.keys.split())
        flags = frozenset(FLAGS[letter] for letter in row.flags)
        if not all(keys.is_fixed for keys in key_specs):
            flags |= {"movablekeys"}
        # A container that does nothing by itself belongs to no group's category.
        category = "" if subcommands and not flags else GROUPS[row.group][0]
        container, _, subcommand = row.name.partition(" ")
        first, last, step = _legacy_triple(key_specs)
        deprecated_since, replaced_by = self._deprecated.get(row.name, ("", ""))
        return CommandSpec(
            name=(subcommand or container).encode(),
            full_name=row.name.lower().replace(" ", "|").encode(),
            arity=row.arity,
            flags=flags,
            group=row.group,
            since=row.since,
            summary=row.summary,
            key_specs=key_specs,
            first_key=first,
            last_key=last,
            key_step=step,
            categories=_categories(row, flags, CATEGORY_EXCEPTIONS.get(container, category)),
            tips=self._tips.get(row.name, ()),
            subcommands=MappingProxyType(subcommands),
            deprecated_since=deprecated_since,
            replaced_by=replaced_by,
            is_system=row.name in SYSTEM_COMMANDS,
        )


#: Every command by its name in capitals; subcommands are inside their containers.
CATALOGUE: Final[Mapping[bytes, CommandSpec]] = MappingProxyType(_Loader().load())
