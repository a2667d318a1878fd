"""HyperLogLog commands. Values are strings in Redis's own form; see ``datatypes.hyperloglog``."""

from __future__ import annotations

from penstock.engine.changes import EVENT_STRING
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes import hyperloglog
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply


def _load(s: Session, key: bytes) -> bytes | None:
    value = s.ks.get_string(key)
    if value is not None and not hyperloglog.is_valid(value):
        raise CommandError(hyperloglog.NOT_A_HYPERLOGLOG)
    return value


def _load_all(s: Session, keys: list[bytes]) -> list[bytes]:
    """The values of the keys that exist; the first that is no HyperLogLog, or a corrupt one, is refused."""
    values: list[bytes] = []
    for key in keys:
        try:
            value = _load(s, key)
        except CommandError:
            hyperloglog.check(values)
            raise
        if value is not None:
            values.append(value)
    return values


@command("PFADD")
def pfadd(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    old = _load(s, key)
    value, changed = hyperloglog.add(hyperloglog.create() if old is None else old, argv[2:])
    if old is not None and not changed:
        return 0
    s.ks.update_string(key, value)
    s.ks.changed(key, EVENT_STRING, b"pfadd")
    return 1


@command("PFCOUNT")
def pfcount(s: Session, argv: Argv) -> Reply:
    values = _load_all(s, argv[1:])
    if not values:
        return 0
    # Of several keys the registers are looked at, even if only one exists.
    count = hyperloglog.count(values, may_use_cache=len(argv) == 2)
    # The count is kept in the value of a key asked alone, if that costs no transaction:
    # a read need not wait for writers to save us a millisecond next time.
    if len(argv) == 2 and s.ks.unit.writable and hyperloglog.cached_count(values[0]) is None:
        s.ks.update_string(argv[1], hyperloglog.with_cached_count(values[0], count))
    return count


@command("PFMERGE")
def pfmerge(s: Session, argv: Argv) -> Reply:
    values = _load_all(s, argv[1:])
    if not s.ks.exists(argv[1]):
        values.insert(0, hyperloglog.create())
    s.ks.update_string(argv[1], hyperloglog.merge(values))
    s.ks.changed(argv[1], EVENT_STRING, b"pfadd")
    return OK
