"""Which pieces of a table are merged: a rule that bounds how many there are and how often rows are rewritten.

    while pieces := chosen(pieces, layout_of("steps"), MergeRule()): …      # rewrite these as one, look again

A piece is what one write has left in a table: the files below one directory. Its level is the logarithm of
its rows to the base ``fan_in``: with 8, level 0 has 1 to 7 rows, level 1 has 8 to 63, level 4 has 4,096 to
32,767.

The rule: a level with ``fan_in`` pieces or more is merged to one piece. That one has more rows than its level
may have, so it belongs to a higher one; if that is full with it, its pieces are merged along, in the same
rewrite. What follows from it:

1. A table has fewer than ``fan_in`` pieces a level: with 8, at most 7 × 8 below 16 million rows.
2. A rewrite lifts a row by a level at least, so it is rewritten at most once a level: 5,000 rows that were
   archived together are rewritten 4 times until they lie among 16 million.

Rows, not bytes, tell the level: files have a fixed part and compress differently, so that bytes do not add
up, and 2 would not hold. Pieces whose files have reached ``file_bytes`` are left as they are.

A table of partial sums is also merged whole as soon as the rows outside its largest piece are a fourth of
those in it: afterwards each key has one row. So its rows are rewritten five times on average, however large
it grows.

Nothing here reads or writes files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from penstock.lake.files import LakeFile

#: data/<name of a write>/…: how much of a path names the write
_WRITE_PARTS: Final = 2
#: A table of partial sums is merged whole when the largest piece is so many times what lies outside of it.
_OUTSIDE: Final = 4


@dataclass(frozen=True, slots=True)
class MergeRule:
    """``maintain``'s options tell what they mean."""

    fan_in: int = 8
    file_bytes: int = 134_217_728


@dataclass(frozen=True, slots=True)
class Layout:
    """How a piece of a table is arranged."""

    sorted_by: tuple[str, ...]
    #: into how many directories its rows are divided, by a digit
    digits: int = 1
    #: rows are partial sums
    is_additive: bool = False


_LAYOUTS: Final = {
    "transactions": Layout(("id", "run"), digits=16),
    "steps": Layout(("tx", "run", "position")),
    "webhooks": Layout(("tx", "run")),
    "messages": Layout(("offset",)),
    "stats": Layout(("window", "kind", "name"), is_additive=True),
    "stream_stats": Layout(("window", "stream", "tag")),
}


def layout_of(table: str) -> Layout:
    """Tables of statistics have one layout at all granularities."""
    return _LAYOUTS.get(table) or _LAYOUTS[table.rpartition("_")[0]]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one write has left in a table, of one partition of it."""

    files: tuple[LakeFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


def pieces_of(files: Iterable[LakeFile]) -> list[list[Piece]]:
    """Of each partition of a table (all of it, if it has none) its pieces."""
    found: dict[tuple[object, ...], dict[tuple[str, ...], list[LakeFile]]] = {}
    for file in files:
        write = PurePosixPath(file.path).parts[:_WRITE_PARTS]
        found.setdefault(tuple(file.partition.items()), {}).setdefault(write, []).append(file)
    return [[Piece(tuple(group)) for group in writes.values()] for writes in found.values()]


def chosen(pieces: Sequence[Piece], layout: Layout, rule: MergeRule) -> list[Piece]:
    """Those that are to become one; [] if there is nothing to do."""
    if layout.is_additive and _is_scattered(pieces):
        return list(pieces)
    max_bytes = rule.file_bytes * layout.digits
    levels: dict[int, list[Piece]] = {}
    for piece in pieces:
        if piece.size_bytes < max_bytes:
            levels.setdefault(level_of(piece.rows, rule.fan_in), []).append(piece)
    merging: list[Piece] = []
    for level in range(max(levels, default=-1) + 1):
        here = levels.get(level, [])
        # What is merged already comes to this level as one more.
        comes = bool(merging) and level_of(sum(piece.rows for piece in merging), rule.fan_in) == level
        if (comes or not merging) and len(here) + comes >= rule.fan_in:
            merging += here
    return merging


def level_of(rows: int, fan_in: int) -> int:
    level = 0
    while rows >= fan_in:
        rows //= fan_in
        level += 1
    return level


def _is_scattered(pieces: Sequence[Piece]) -> bool:
    rows = [piece.rows for piece in pieces]
    return len(rows) > 1 and (sum(rows) - max(rows)) * _OUTSIDE >= max(rows)
