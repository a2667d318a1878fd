"""What an archive asks of a disk: to be alone with a file, and that what was written stays after a power cut.

    with locked(path, wait_ms=10_000) as descriptor: …
    sync(path)

Rules: a lock is on a file, which is made and stays; the kernel frees it when its holder dies. Threads of
one process exclude each other as well, since each opens the file for itself. Errors of the operating system
are the caller's to translate.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.clock import Clock, SystemClock
from penstock.errors import StoreBusyError

_PAUSE_S: Final = 0.02


@contextmanager
def locked(path: Path, *, wait_ms: int, clock: Clock | None = None) -> Iterator[int]:
    """Alone with a file; its descriptor. ``StoreBusyError`` if somebody else keeps it for ``wait_ms``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait(descriptor, path, wait_ms, clock or SystemClock())
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, wait_ms: int, clock: Clock) -> None:
    end_s = clock.monotonic_s() + wait_ms / 1_000
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.monotonic_s() >= end_s:
                raise StoreBusyError(
                    f"another process has held {path} for {wait_ms} ms:"
                    " look whether it is stopped, it is tried again"
                ) from None
        time.sleep(_PAUSE_S)


def sync(path: Path) -> None:
    """Of a file its content, of a directory the names in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
