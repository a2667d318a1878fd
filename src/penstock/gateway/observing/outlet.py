"""Lines on their way to a file descriptor: handed over at once, written by a thread of their own.

Whoever has a line appends it and goes on; a thread collects for a while and writes everything with one call.
If nobody takes what is written (a full pipe, a slow disk), the event loop does not feel it: lines are kept up
to a limit, then dropped and counted.

Rules: ``put`` never waits, ``close`` waits a limited time. Lines of one caller stay in order. A descriptor
that fails is not tried again for the lines it failed on; they count as dropped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

#: How long lines are collected before they are written.
FLUSH_INTERVAL_S: Final = 0.2
#: What may wait; about 30,000 lines of an access log.
LIMIT_BYTES: Final = 8 * 1024 * 1024


class Outlet:
    """A bounded way to one file descriptor, which stays the caller's."""

    def __init__(
        self,
        descriptor: int,
        *,
        flush_interval_s: float = FLUSH_INTERVAL_S,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self._descriptor = descriptor
        self._flush_interval_s = flush_interval_s
        self._limit_bytes = limit_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._is_awake = False
        self._starting = threading.Lock()
        self._arrived = threading.Event()
        self._closing = threading.Event()
        # The thread starts with the first line: a process may still fork before.
        self._thread: threading.Thread | None = None
        #: lines that were never written
        self.dropped = 0
        #: told how many, in whatever thread noticed it
        self.on_drop: Callable[[int], None] | None = None

    def put(self, line: bytes) -> None:
        """Take a line, with its line feed. Threads may call this."""
        # Without a lock: appending is one step for the interpreter, and where two threads add at once the
        # number of waiting bytes is off by a line at worst, until the next flush.
        waiting_bytes = self._waiting_bytes + len(line)
        if waiting_bytes > self._limit_bytes:
            self._drop(1)
            return
        self._waiting_bytes = waiting_bytes
        self._lines.append(line)
        if not self._is_awake:
            self._wake()

    def _wake(self) -> None:
        self._is_awake = True
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-outlet", daemon=True)
                self._thread.start()
        self._arrived.set()

    def _run(self) -> None:
        while True:
            self._arrived.wait()
            self._closing.wait(self._flush_interval_s)
            self._arrived.clear()
            # Whoever adds from here on wakes this thread again; it may find that there is nothing left to do.
            self._is_awake = False
            self._flush()
            if self._closing.is_set() and not self._lines:
                return

    def _flush(self) -> None:
        # The list stays the same one: somebody may be about to append to it.
        count = len(self._lines)
        text = memoryview(b"".join(self._lines[:count]))
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:
            self._drop(max(bytes(text).count(b"\n"), 1))
        # Only now: what is being written takes memory, too.
        del self._lines[:count]
        self._waiting_bytes = sum(map(len, self._lines))

    def _drop(self, count: int) -> None:
        self.dropped += count
        if self.on_drop is not None:
            self.on_drop(count)

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is there; what nobody takes within the time is lost."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread is None:
            return
        self._arrived.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._drop(len(self._lines))

    def __repr__(self) -> str:
        return f"<Outlet to {self._descriptor}, {self._waiting_bytes} bytes wait, {self.dropped} dropped>"
