"""Names on disk of an endpoint, and descriptors that no forked child keeps.

    <store>/signals/            0700
        <40 hex digits>.lock    0600, empty; flock EX held while its owner lives
        <40 hex digits>.fifo    0600; one byte or more in it means "look again"

``Descriptor`` owns a file descriptor under three rules:

1. It is close-on-exec, so programs that we start never inherit it.
2. A forked child closes its copy at once (I9). Otherwise the child would keep the lock
   of a parent that died. Opening and closing pass a gate that ``fork`` takes too, so
   that no other thread can fork between the system call and the bookkeeping.
3. One that is garbage closes itself; a forgotten lock must not feign life.

This module must not know what the files are for.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

ID_BYTES = 20
LOCK = "lock"
FIFO = "fifo"

_NAME = re.compile(rf"([0-9a-f]{{{2 * ID_BYTES}}})\.({LOCK}|{FIFO})")


def lock_path(directory: Path, endpoint_id: bytes) -> str:
    return f"{directory}/{endpoint_id.hex()}.{LOCK}"


def fifo_path(directory: Path, endpoint_id: bytes) -> str:
    return f"{directory}/{endpoint_id.hex()}.{FIFO}"


def parse_name(name: str) -> tuple[bytes, str] | None:
    """The id and the suffix, or None for a file that is not ours."""
    match = _NAME.fullmatch(name)
    return (bytes.fromhex(match[1]), match[2]) if match else None


def unlink_endpoint(directory: Path, endpoint_id: bytes) -> None:
    """Remove both files, FIFO first (I3). What cannot be removed is left to the next sweep."""
    for path in (fifo_path(directory, endpoint_id), lock_path(directory, endpoint_id)):
        with suppress(OSError):
            Path(path).unlink()


class Descriptor:
    """A file descriptor owned by this process and by none of its children."""

    __slots__ = ("_born", "_fd")

    def __init__(self, path: str, flags: int, mode: int = 0o600) -> None:
        self._fd = -1  # before anything can fail: __del__ reads it
        self._born = _generation
        with _gate:
            self._fd = os.open(path, flags | os.O_CLOEXEC, mode)
            _held.add(self._fd)

    @property
    def fd(self) -> int:
        assert self._fd >= 0, "descriptor used after close"
        assert self._born == _generation, "descriptor used after fork"
        return self._fd

    def close(self) -> None:
        """Idempotent; does nothing in a forked child, where the number may name another file."""
        if self._born != _generation:
            return
        with _gate:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                _held.discard(fd)
                os.close(fd)

    def __del__(self) -> None:
        self.close()


def generation() -> int:
    """A number that differs between a process and its forked children."""
    return _generation


# Re-entrant: a destructor may run, and close, inside the gate of its own thread.
_gate = threading.RLock()
_held: set[int] = set()
_generation = 0


def _drop_in_child() -> None:
    global _generation
    _generation += 1
    for fd in _held:
        with suppress(OSError):
            os.close(fd)
    _held.clear()
    _gate.release()


os.register_at_fork(before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_drop_in_child)
