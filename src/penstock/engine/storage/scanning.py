"""Stateless scans in hash order: what SCAN, HSCAN, SSCAN and ZSCAN stand on.

The cursor is the 64-bit hash at which the next call begins, so that it needs no memory
on our side, survives restarts and works in another process. Rows of one hash are never
split over two calls; that is what makes the guarantee hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.engine.storage.environment import Table
from penstock.engine.storage.layout import U64
from penstock.engine.storage.transaction import Unit

T = TypeVar("T")
_END = 1 << 64


def scan_rows(
    unit: Unit,
    table: Table,
    prefix: bytes,
    start: int,
    count: int,
    item: Callable[[bytes, bytes], T | None],
) -> tuple[int, list[T]]:
    """Visit about ``count`` rows ``prefix + hash(8) + …`` from hash ``start`` on.

    ``item`` gets the row without its prefix and its value, and answers what to
    collect, or None. Answers the cursor of the next call, 0 at the end.
    """
    found: list[T] = []
    width = len(prefix)
    last: bytes | None = None
    cursor = unit.cursor(table)
    if start >= _END or not cursor.set_range(prefix + U64.pack(start)):
        return 0, found
    for visited, (row, value) in enumerate(cursor.iternext()):
        if not row.startswith(prefix):
            return 0, found
        place = row[width : width + 8]
        if visited >= count and place != last:
            return int.from_bytes(place, "big"), found
        last = place
        got = item(row[width:], value)
        if got is not None:
            found.append(got)
    return 0, found
