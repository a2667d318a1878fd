"""The clock of a channel: it counts messages, and after the largest exact number of Lua comes the smallest.

A cursor above the clock means that the clock went round: unread is then what lies above the cursor
and what lies up to the clock. The scripts do the same arithmetic (``lua/common.lua``).
"""

from __future__ import annotations

from typing import Final

MAX: Final = 2**53 - 1
MIN: Final = -MAX
_SPAN: Final = MAX - MIN + 1


def following(clock: int) -> int:
    return MIN if clock == MAX else clock + 1


def distance(cursor: int, clock: int) -> int:
    """How many messages lie above ``cursor``, up to ``clock``."""
    return (clock - cursor) % _SPAN


def is_unread(clock: int, cursor: int, last: int) -> bool:
    """Whether ``clock`` lies above ``cursor`` and not above ``last``."""
    return 0 < distance(cursor, clock) <= distance(cursor, last)
