"""How long keys live: EXPIRE and relatives, TTL and relatives, PERSIST.

A deadline in the past deletes the key at once, as DEL would. What expires later is removed
by whoever touches it first, or by the sweeper (see ``keyspace`` and ``duties``).
"""

from __future__ import annotations

from typing import Final

from penstock.engine.changes import EVENT_GENERIC
from penstock.engine.commands.arguments import MAX_INT64, MIN_INT64, integer
from penstock.engine.commands.registry import Argv, command
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import deadline_in
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

_NX: Final = b"NX"
_XX: Final = b"XX"
_GT: Final = b"GT"
_LT: Final = b"LT"
_CONDITIONS: Final = frozenset((_NX, _XX, _GT, _LT))

# What TTL and its relatives answer instead of a time.
_NO_KEY: Final = -2
_NO_DEADLINE: Final = -1


@command("EXPIRE")
def expire(s: Session, argv: Argv) -> Reply:
    return _expire(s.ks, argv, "expire", 1000, s.ks.unit.now_ms)


@command("PEXPIRE")
def pexpire(s: Session, argv: Argv) -> Reply:
    return _expire(s.ks, argv, "pexpire", 1, s.ks.unit.now_ms)


@command("EXPIREAT")
def expireat(s: Session, argv: Argv) -> Reply:
    return _expire(s.ks, argv, "expireat", 1000, 0)


@command("PEXPIREAT")
def pexpireat(s: Session, argv: Argv) -> Reply:
    return _expire(s.ks, argv, "pexpireat", 1, 0)


def _expire(ks: Keyspace, argv: Argv, name: str, unit_ms: int, base_ms: int) -> int:
    key = argv[1]
    conditions = _parse_conditions(argv[3:]) if len(argv) > 3 else None
    deadline_ms = _deadline(argv[2], name, unit_ms, base_ms)
    if conditions is not None:
        record = ks.find(key)
        if record is None or not _holds(conditions, deadline_ms, deadline_in(record)):
            return 0
    if deadline_ms <= ks.unit.now_ms:
        if not ks.delete(key):
            return 0
        ks.changed(key, EVENT_GENERIC, b"del")
    else:
        if not ks.set_deadline(key, deadline_ms):
            return 0
        ks.changed(key, EVENT_GENERIC, b"expire")
    return 1


def _parse_conditions(words: list[bytes]) -> frozenset[bytes]:
    conditions = set()
    for word in words:
        condition = word.upper()
        if condition not in _CONDITIONS:
            # As C sees the string: up to its first NUL.
            text = word.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Unsupported option {text}")
        conditions.add(condition)
    if _NX in conditions and len(conditions) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if _GT in conditions and _LT in conditions:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return frozenset(conditions)


def _deadline(value: bytes, name: str, unit_ms: int, base_ms: int) -> int:
    """Milliseconds since 1970; may lie in the past, even before 1970."""
    amount_ms = integer(value) * unit_ms
    if not MIN_INT64 <= amount_ms <= MAX_INT64 - base_ms:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return amount_ms + base_ms


def _holds(conditions: frozenset[bytes], deadline_ms: int, current_ms: int | None) -> bool:
    """Whether the new deadline may replace the current one; none at all counts as infinitely late."""
    if current_ms is None:
        return _XX not in conditions and _GT not in conditions
    return (
        _NX not in conditions
        and (_GT not in conditions or deadline_ms > current_ms)
        and (_LT not in conditions or deadline_ms < current_ms)
    )


@command("PERSIST")
def persist(s: Session, argv: Argv) -> Reply:
    if s.ks.deadline_of(argv[1]) is None:
        return 0
    s.ks.set_deadline(argv[1], None)
    s.ks.changed(argv[1], EVENT_GENERIC, b"persist")
    return 1


@command("TTL")
def ttl(s: Session, argv: Argv) -> Reply:
    left_ms = _left_ms(s, argv[1])
    return left_ms if left_ms < 0 else (left_ms + 500) // 1000


@command("PTTL")
def pttl(s: Session, argv: Argv) -> Reply:
    return _left_ms(s, argv[1])


@command("EXPIRETIME")
def expiretime(s: Session, argv: Argv) -> Reply:
    deadline_ms = _deadline_ms(s, argv[1])
    return deadline_ms if deadline_ms < 0 else (deadline_ms + 500) // 1000


@command("PEXPIRETIME")
def pexpiretime(s: Session, argv: Argv) -> Reply:
    return _deadline_ms(s, argv[1])


def _deadline_ms(s: Session, key: bytes) -> int:
    record = s.ks.find(key)
    if record is None:
        return _NO_KEY
    deadline_ms = deadline_in(record)
    return _NO_DEADLINE if deadline_ms is None else deadline_ms


def _left_ms(s: Session, key: bytes) -> int:
    deadline_ms = _deadline_ms(s, key)
    return deadline_ms if deadline_ms < 0 else deadline_ms - s.ks.unit.now_ms
