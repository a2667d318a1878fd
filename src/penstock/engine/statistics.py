"""Counters that INFO shows, and the lines that MONITOR clients get.

Counters belong to this process and start at zero with it, or with CONFIG RESETSTAT.
"""

from __future__ import annotations

import secrets
from typing import Final

from penstock.clock import Clock
from penstock.engine.session import Session
from penstock.engine.slowlog import redact
from penstock.errors import CommandError

#: Distinct error codes that are counted; scripts can make up any number of them.
_MAX_ERROR_CODES: Final = 128


class Statistics:
    def __init__(self, clock: Clock) -> None:
        self.started_ms = clock.now_ms()
        self.last_save_ms = self.started_ms
        #: tells one run of a process from the next
        self.run_id = secrets.token_hex(20)
        self.reset()

    def reset(self) -> None:
        self.sessions_opened = 0
        self.sessions_rejected = 0
        self.commands_processed = 0
        self.keys_expired = 0
        self.errors_by_code: dict[str, int] = {}

    def count_error(self, error: CommandError) -> None:
        errors = self.errors_by_code
        code = error.code
        if code in errors or len(errors) < _MAX_ERROR_CODES:
            errors[code] = errors.get(code, 0) + 1

    def discount_error(self, error: CommandError) -> None:
        """Take back one that was counted: what it answered never left."""
        left = self.errors_by_code.get(error.code, 0) - 1
        if left > 0:
            self.errors_by_code[error.code] = left
        else:
            self.errors_by_code.pop(error.code, None)


def monitor_line(now_us: int, session: Session, argv: list[bytes], name: bytes) -> bytes:
    """A command as MONITOR shows it; ``name`` is its full name in capitals."""
    words = b" ".join(_quote(argument) for argument in redact(name, argv))
    address = b"lua" if session.in_script else session.address or b"embedded"
    return b"%d.%06d [%d %b] %b" % (*divmod(now_us, 1_000_000), session.ks.index, address, words)


_ESCAPES: Final = {
    **{byte: b"\\x%02x" % byte for byte in range(256) if not 32 <= byte < 127},
    **{ord(char): b"\\" + char.encode() for char in '\\"'},
    **dict(zip(b"\n\r\t\a\b", (b"\\n", b"\\r", b"\\t", b"\\a", b"\\b"), strict=True)),
}


def _quote(argument: bytes) -> bytes:
    return b'"%b"' % b"".join([_ESCAPES.get(byte) or b"%c" % byte for byte in argument])
