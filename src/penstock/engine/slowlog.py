"""The slow log: commands that took longer than a threshold, newest first, bounded."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.clock import Clock
from penstock.engine.session import Session

_MAX_ARGUMENTS: Final = 32
_MAX_ARGUMENT_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class SlowEntry:
    number: int
    unix_time_s: int
    duration_us: int
    argv: list[bytes]
    address: bytes
    name: bytes


class SlowLog:
    def __init__(self, clock: Clock, length: int = 128) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self.entries: deque[SlowEntry] = deque(maxlen=length)

    def record(self, session: Session, argv: list[bytes], duration_us: int) -> None:
        entry = SlowEntry(
            next(self._numbers),
            self._clock.now_ms() // 1000,
            duration_us,
            _shorten(argv),
            session.address,
            session.name,
        )
        self.entries.appendleft(entry)

    def resize(self, length: int) -> None:
        self.entries = deque(itertools.islice(self.entries, length), maxlen=length)


def _shorten(argv: list[bytes]) -> list[bytes]:
    shown = [_shorten_argument(argument) for argument in argv[:_MAX_ARGUMENTS]]
    if len(argv) > _MAX_ARGUMENTS:
        shown[-1] = b"... (%d more arguments)" % (len(argv) - _MAX_ARGUMENTS + 1)
    return shown


def _shorten_argument(argument: bytes) -> bytes:
    if len(argument) <= _MAX_ARGUMENT_BYTES:
        return argument
    return argument[:_MAX_ARGUMENT_BYTES] + b"... (%d more bytes)" % (len(argument) - _MAX_ARGUMENT_BYTES)
