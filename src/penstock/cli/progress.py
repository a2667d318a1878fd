"""A line that shows how far long work is: on a terminal only, and gone when the work is over.

    with Progress("writing", total=size_bytes) as progress:
        progress.advance(bytes_read, messages)

Rules: everything goes to stderr, so that stdout can be piped. Drawn at most ten times a second.
Nothing at all is drawn where stderr is no terminal.
"""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Final, Self, TextIO

from penstock.clock import Clock, SystemClock

_BETWEEN_S: Final = 0.1
_BAR_WIDTH: Final = 24
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Steps done of ``total`` (None: nobody knows), and how many things that were."""

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        out: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._what = what
        self._total = total
        self._out = out or sys.stderr
        self._clock = clock or SystemClock()
        self._is_shown = self._out.isatty()
        self._began_s = self._clock.monotonic_s()
        self._drawn_s = self._began_s - _BETWEEN_S
        self._done = 0
        self.count = 0

    def advance(self, steps: int, count: int = 1) -> None:
        """So many more steps, which were so many more things."""
        self._done += steps
        self.count += count
        now_s = self._clock.monotonic_s()
        if self._is_shown and now_s - self._drawn_s >= _BETWEEN_S:
            self._drawn_s = now_s
            width = shutil.get_terminal_size().columns - 1
            self._out.write(_CLEAR + self.line(now_s)[:width])
            self._out.flush()

    def line(self, now_s: float) -> str:
        """What is drawn."""
        elapsed_s = max(now_s - self._began_s, 1e-9)
        words = [self._what]
        if self._total:
            share = min(1.0, self._done / self._total)
            filled = round(share * _BAR_WIDTH)
            words.append(f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%}")
        words.append(f"{self.count:,}")
        words.append(f"({self.count / elapsed_s:,.0f}/s)")
        return " ".join(words)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._out.write(_CLEAR)
            self._out.flush()
