"""Reading EX, PX, EXAT, PXAT: from an argument to a deadline, with Redis's range checks."""

from __future__ import annotations

from typing import Final

from penstock.engine.commands.arguments import MAX_INT64, NOT_INTEGER
from penstock.engine.datatypes.numbers import parse_int
from penstock.errors import CommandError

#: option → (milliseconds a unit, whether counted from now)
EXPIRE_OPTIONS: Final = {
    b"EX": (1000, True),
    b"PX": (1, True),
    b"EXAT": (1000, False),
    b"PXAT": (1, False),
}


def deadline(value: bytes, unit_ms: int, is_relative: bool, now_ms: int, name: str) -> int:
    """The deadline an option sets; must be positive and fit, else Redis's error for command ``name``."""
    amount = parse_int(value)
    if amount is None:
        raise CommandError(NOT_INTEGER)
    result = amount * unit_ms + (now_ms if is_relative else 0)
    if amount <= 0 or result > MAX_INT64:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return result
