"""A timer that is moved as seldom as possible: whoever it calls decides whether it was time already.

Rules: at most one handle at the loop. Moving it to a later time costs nothing, because nobody does: it goes
off, its owner finds that there is nothing to do, and sets it anew.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Timer:
    """Calls back at or after a time of the loop's clock."""

    __slots__ = ("_at_s", "_call", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._handle: asyncio.TimerHandle | None = None
        self._at_s = math.inf

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def set_before(self, at_s: float) -> None:
        """It goes off at this time, or was going to earlier; infinity changes nothing."""
        if at_s < self._at_s:
            self.cancel()
            self._handle = self._loop.call_at(at_s, self._go_off)
            self._at_s = at_s

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._at_s = math.inf

    def _go_off(self) -> None:
        self._handle = None
        self._at_s = math.inf
        self._call()
