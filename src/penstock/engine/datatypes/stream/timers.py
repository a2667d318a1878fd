"""When somebody has to look at a group although nobody calls: retries, expiries, groups out of use.

Table ``due``:

===============================================  ========================================================
``due_ms(8) db(1) group(4) physical key``        the name of the group
``0(8) db(1) 0(4) physical key``                 empty: a stream with groups came to this key by another
                                                 way than its commands (RENAME, COPY, RESTORE …)
===============================================  ========================================================

Rules
-----
T1  A group with something to come has a row in the table, at ``Group.timer_ms``, not later than the
    first thing to come. It may be earlier: whoever looks then, sets it anew.
T2  A row that no group points to is stale (the stream was deleted, or moved), and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.storage.layout import U32, U64, physical

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.groups import Group
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.storage.transaction import Unit


class Timer(NamedTuple):
    """A row of the table."""

    row: bytes
    due_ms: int
    database: int
    #: 0: all groups of the stream
    number: int
    physical_key: bytes
    group: bytes


def expired_timers(unit: Unit, limit: int) -> list[Timer]:
    """Up to ``limit`` timers whose time has come, the longest due first."""
    found: list[Timer] = []
    for timer in _timers(unit):
        if timer.due_ms > unit.now_ms or len(found) >= limit:
            break
        found.append(timer)
    return found


def _timers(unit: Unit) -> Iterator[Timer]:
    for row, group in unit.rows(unit.tables["due"], b""):
        due_ms, number = int.from_bytes(row[:8], "big"), int.from_bytes(row[9:13], "big")
        yield Timer(row, due_ms, row[8], number, row[13:], group)


def remove_timer(unit: Unit, timer: Timer) -> None:
    unit.delete(timer.row, db=unit.tables["due"])


def be_due_by(stream: Stream, group: Group, due_ms: int) -> None:
    """Have somebody look at the group at this time at the latest; the group has to be saved."""
    if group.timer_ms and group.timer_ms <= due_ms:
        return
    cancel(stream, group)
    row = _row(stream, group.number, due_ms)
    stream.unit.put(row, group.name, db=stream.unit.tables["due"])
    group.timer_ms = due_ms


def look_soon(unit: Unit, database: int, physical_key: bytes) -> None:
    """A stream with groups came to a key: their timers stand under another one, or nowhere."""
    unit.put(bytes(8) + bytes((database,)) + bytes(4) + physical_key, b"", db=unit.tables["due"])


def cancel(stream: Stream, group: Group) -> None:
    if group.timer_ms:
        stream.unit.delete(_row(stream, group.number, group.timer_ms), db=stream.unit.tables["due"])
        group.timer_ms = 0


def has_timer(stream: Stream, number: int, due_ms: int) -> bool:
    """Whether there is a row for a group (0: for all groups) at a time."""
    row = _row(stream, number, due_ms)
    return stream.unit.get(row, None, stream.unit.tables["due"]) is not None


def set_next(stream: Stream, group: Group) -> None:
    """After looking: have somebody look again when the next thing comes. What is due already is done with."""
    group.timer_ms = 0
    now_ms = stream.unit.now_ms
    upcoming = [group.runs.next_due_ms(now_ms), group.runs.next_expiry_ms()]
    if group.options.ttl_ms:
        upcoming.append(max(group.active_ms + group.options.ttl_ms, now_ms + 1))
    known = [due_ms for due_ms in upcoming if due_ms is not None]
    if known:
        be_due_by(stream, group, min(known))


def _row(stream: Stream, number: int, due_ms: int) -> bytes:
    return U64.pack(due_ms) + bytes((stream.database,)) + U32.pack(number) + physical(stream.key)


def swap_databases(unit: Unit, one: int, other: int) -> None:
    """All keys of two databases are exchanged: so are the rows by which the engine finds their streams."""
    partners = {one: other, other: one}
    for name, place in (("due", 8), ("tended", 0)):
        table = unit.tables[name]
        moved = [(row, value) for row, value in unit.rows(table, b"") if row[place] in partners]
        for row, _ in moved:
            unit.delete(row, db=table)
        for row, value in moved:
            unit.put(row[:place] + bytes((partners[row[place]],)) + row[place + 1 :], value, db=table)
