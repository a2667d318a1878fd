"""Moments as RFC 3339 text, in UTC with milliseconds. The text of a second is made once."""

from __future__ import annotations

import time
from typing import Final

_MILLISECONDS: Final = tuple(f"{number:03d}Z" for number in range(1000))


class Timestamps:
    """For one caller, whose moments are mostly close together."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, now_ms: int) -> str:
        second, milliseconds = divmod(now_ms, 1000)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._second = second
        return self._text + _MILLISECONDS[milliseconds]
