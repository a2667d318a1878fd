"""Reading EX, PX, EXAT, PXAT: from an argument to a deadline, with Redis's range checks."""

from __future__ import annotations

from typing import Final

from penstock.engine.commands.arguments import MAX_INT64, MIN_INT64, integer
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
    amount = integer(value)
    message = f"ERR invalid expire time in '{name}' command"
    if amount <= 0 or amount > MAX_INT64 // unit_ms:
        raise CommandError(message)
    result = amount * unit_ms + (now_ms if is_relative else 0)
    if not MIN_INT64 <= result <= MAX_INT64:
        raise CommandError(message)
    return result
