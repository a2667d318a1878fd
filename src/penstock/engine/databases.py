"""Databases as a whole: FLUSHDB empties one, SWAPDB exchanges two.

Whoever watches a key, tracks keys, or is blocked on one learns of it, as of any change.
"""

from __future__ import annotations

from penstock.engine.datatypes.stream import timers
from penstock.engine.keyspace import Keyspace
from penstock.engine.storage import layout
from penstock.engine.storage.environment import Table
from penstock.engine.storage.transaction import Unit


def clear(keyspace: Keyspace) -> None:
    """Remove every key, at the cost of the pages."""
    if keyspace.changes.watching:
        keyspace.touch_watched_in(keyspace)
    keyspace.changes.touch_all()
    _tell_all_gone(keyspace)
    for table in keyspace.all_tables():
        keyspace.unit.empty(table)
    _drop_garbage(keyspace)


def swap(one: Keyspace, other: Keyspace) -> None:
    """Exchange all keys.

    Tables belong to a database for ever, so that nobody has to ask which one is whose:
    the rows move, O(n) in both. The smaller of two tables is held in memory meanwhile.
    """
    if one.changes.watching:
        one.touch_watched_in(one, other)
        other.touch_watched_in(one, other)
    one.changes.touch_all()
    for keyspace in (one, other):
        _tell_all_gone(keyspace)
    timers.swap_databases(one.unit, one.index, other.index)
    for mine, theirs in zip(one.all_tables(), other.all_tables(), strict=True):
        _exchange_rows(one.unit, mine, theirs)
    garbage, other_garbage = _drop_garbage(one), _drop_garbage(other)
    for keyspace, versions in ((one, other_garbage), (other, garbage)):
        for version in versions:
            keyspace.add_garbage(version)
    for keyspace in (one, other):
        _ready_all_awaited(keyspace)


def _exchange_rows(unit: Unit, one: Table, other: Table) -> None:
    small, large = sorted((one, other), key=unit.entries)
    kept = list(unit.cursor(small).iternext())
    unit.empty(small)
    unit.cursor(small).putmulti(unit.cursor(large).iternext(), append=True)
    unit.empty(large)
    unit.cursor(large).putmulti(kept, append=True)


def _drop_garbage(keyspace: Keyspace) -> list[bytes]:
    """Forget the versions to be removed; answers which they were."""
    unit = keyspace.unit
    garbage = unit.tables["garbage"]
    rows = [row for row, _ in unit.rows(garbage, bytes((keyspace.index,)))]
    for row in rows:
        unit.delete(row, db=garbage)
    return [row[1:] for row in rows]


def _ready_all_awaited(keyspace: Keyspace) -> None:
    """Tell those who wait about keys that are there now."""
    for name, record in keyspace.awaited_records():
        keyspace.ready(layout.name_of(name, record))


def _tell_all_gone(keyspace: Keyspace) -> None:
    """Before all keys go: tell those who wait in a stream."""
    for name, record in keyspace.awaited_records():
        keyspace.tell_gone(name, record)
