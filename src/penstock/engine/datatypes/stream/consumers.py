"""The consumers of a group: names that readers give themselves, and when they were last there.

Rows (``G`` stands for the rows of the group):

====================  =====================================================================
``G c fit(name)``     number(4) last_ms(8) delivered(8), wrapped with the name if that is long
``G k number(4)``     the name
====================  =====================================================================

Numbers begin at 1. Who has no name is number 0 and has no rows. A name that was not used for
``LIFE_MS`` and has nothing pending is forgotten when ``CROWD`` others have come: names are often made
up anew at each start of a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.engine.storage import layout
from penstock.engine.storage.layout import FIT_BYTES, U32, fit

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.groups import Group

LIFE_MS: Final = 24 * 3_600_000
CROWD: Final = 1_000

#: number, last_ms, delivered
_CONSUMER: Final = Struct(">IQQ")


class Consumer(NamedTuple):
    name: bytes
    number: int
    last_ms: int
    #: messages it was given so far, those that were given again included
    delivered: int


NAMELESS: Final = Consumer(b"", 0, 0, 0)


def enter(group: Group, name: bytes) -> Consumer:
    """The consumer of a name, made if it is new; ``leave`` makes it official."""
    if not name:
        return NAMELESS
    value = group.unit.get(_row(group, name), None, group.table)
    if value is not None:
        return _decode(name, value)
    if group.consumers and group.consumers % CROWD == 0:
        _forget_absent(group)
    group.consumers += 1
    group.unit.put(group.row(b"k", U32.pack(group.consumers)), name, db=group.table)
    return Consumer(name, group.consumers, 0, 0)


def leave(group: Group, consumer: Consumer, delivered: int) -> None:
    """It was here now, and got so many messages."""
    if consumer.number:
        _put(group, consumer._replace(last_ms=group.unit.now_ms, delivered=consumer.delivered + delivered))


def bring(group: Group, name: bytes, last_ms: int, delivered: int) -> int:
    """Add a consumer that was somewhere else before (``copying``); answers its number."""
    group.consumers += 1
    group.unit.put(group.row(b"k", U32.pack(group.consumers)), name, db=group.table)
    _put(group, Consumer(name, group.consumers, last_ms, delivered))
    return group.consumers


def _put(group: Group, consumer: Consumer) -> None:
    value = _CONSUMER.pack(consumer.number, consumer.last_ms, consumer.delivered)
    if len(consumer.name) >= FIT_BYTES:
        value = layout.wrap_long(consumer.name, value)
    group.unit.put(_row(group, consumer.name), value, db=group.table)


def all_consumers(group: Group) -> Iterator[Consumer]:
    """By name. Do not write meanwhile."""
    prefix = group.row(b"c")
    for row, value in group.unit.rows(group.table, prefix):
        rest = row[len(prefix) :]
        yield _decode(layout.unwrap_long(value)[0] if len(rest) == FIT_BYTES else rest, value)


def name_of(group: Group, number: int) -> bytes:
    return group.unit.get(group.row(b"k", U32.pack(number)), b"", group.table) or b""


def _forget_absent(group: Group) -> None:
    busy = {run.consumer for run in group.runs.all()}
    horizon_ms = group.unit.now_ms - LIFE_MS
    for consumer in list(all_consumers(group)):
        if consumer.number not in busy and consumer.last_ms < horizon_ms:
            group.unit.delete(_row(group, consumer.name), db=group.table)
            group.unit.delete(group.row(b"k", U32.pack(consumer.number)), db=group.table)


def _row(group: Group, name: bytes) -> bytes:
    return group.row(b"c", fit(name))


def _decode(name: bytes, value: bytes) -> Consumer:
    return Consumer(name, *_CONSUMER.unpack_from(value, len(value) - _CONSUMER.size))
