"""Counters that INFO shows, and the lines that MONITOR clients get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engine.session import Session
from penstock.protocol.replies import Status

if TYPE_CHECKING:
    from penstock.engine.dispatch import Entry

_HIDDEN = frozenset({b"AUTH", b"HELLO", b"MONITOR", b""})


class Statistics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started_ms = clock.now_ms()
        self.sessions_opened = 0
        self.sessions_rejected = 0
        self.commands_processed = 0
        self.keys_expired = 0

    def reset(self) -> None:
        self.sessions_opened = 0
        self.sessions_rejected = 0
        self.commands_processed = 0
        self.keys_expired = 0

    def feed_monitors(
        self, monitors: Iterable[Session], plan: list[tuple[Session, list[bytes], Entry]]
    ) -> None:
        """Send each monitor one line a command, as Redis formats it."""
        seconds = self._clock.now_us() / 1_000_000
        for session, argv, entry in plan:
            if entry.name in _HIDDEN:
                continue
            words = b" ".join(_quote(argument) for argument in argv)
            address = session.address or b"embedded"
            line = Status(b"%.6f [%d %b] %b" % (seconds, session.ks.index, address, words))
            for monitor in monitors:
                monitor.sink(line)


def _quote(argument: bytes) -> bytes:
    out = bytearray(b'"')
    for byte in argument:
        if byte in b'\\"':
            out += b"\\%c" % byte
        elif 32 <= byte < 127:
            out.append(byte)
        else:
            out += {10: b"\\n", 13: b"\\r", 9: b"\\t", 7: b"\\a", 8: b"\\b"}.get(byte, b"\\x%02x" % byte)
    return bytes(out + b'"')
