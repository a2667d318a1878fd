"""The slow log: commands that took longer than a threshold, newest first, bounded.

Passwords never reach it: :func:`redact` blots them out, here and for MONITOR.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.engine.session import Session

if TYPE_CHECKING:
    from penstock.engine.table import Entry

_MAX_ARGUMENTS: Final = 32
_MAX_ARGUMENT_BYTES: Final = 128
_BLOT: Final = b"(redacted)"


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

    def record(self, session: Session, argv: list[bytes], entry: Entry, duration_us: int) -> SlowEntry | None:
        """Remember a command; answers what can be taken back with :meth:`discard`."""
        if entry.name == b"EXEC":
            return None  # its commands are recorded one by one
        slow = SlowEntry(
            next(self._numbers),
            self._clock.now_ms() // 1000,
            duration_us,
            _shorten(redact(entry.name, argv)),
            session.address,
            session.name,
        )
        self.entries.appendleft(slow)
        return slow

    def discard(self, slow: SlowEntry) -> None:
        """Take back the newest entry: what it tells of never happened."""
        if self.entries and self.entries[0] is slow:
            self.entries.popleft()

    def resize(self, length: int) -> None:
        self.entries = deque(itertools.islice(self.entries, length), maxlen=length)


def redact(name: bytes, argv: list[bytes]) -> list[bytes]:
    """The arguments with every password blotted out; ``name`` is the command's full name in capitals."""
    if name == b"AUTH":
        return [argv[0], *[_BLOT] * (len(argv) - 1)]
    if name == b"HELLO":
        return _blot_after(argv, 2, b"AUTH", 2)
    if name == b"CONFIG|SET":
        return _blot_after(argv, 2, b"REQUIREPASS", 1)
    return argv


def _blot_after(argv: list[bytes], start: int, word: bytes, count: int) -> list[bytes]:
    shown = list(argv)
    for index in range(start, len(argv)):
        if argv[index].upper() == word:
            stop = min(index + 1 + count, len(argv))
            shown[index + 1 : stop] = [_BLOT] * (stop - index - 1)
    return shown


def _shorten(argv: list[bytes]) -> list[bytes]:
    shown = [_shorten_argument(argument) for argument in argv[:_MAX_ARGUMENTS]]
    if len(argv) > _MAX_ARGUMENTS:
        shown[-1] = b"... (%d more arguments)" % (len(argv) - _MAX_ARGUMENTS + 1)
    return shown


def _shorten_argument(argument: bytes) -> bytes:
    if len(argument) <= _MAX_ARGUMENT_BYTES:
        return argument
    return argument[:_MAX_ARGUMENT_BYTES] + b"... (%d more bytes)" % (len(argument) - _MAX_ARGUMENT_BYTES)
