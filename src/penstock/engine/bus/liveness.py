"""Who is dead, and the burial: for publishers and for sweepers.

    flock EX|NB on the lock file      verdict
    --------------------------------  --------------------------------------------------
    refused                           alive (another open file description has it, be it
                                      of this very process)
    granted                           dead; the lock stays with the ``DeadEndpoint``
    no such file                      dead
    any other error                   alive (I10)

The burial is the last act: first the rows are deleted and committed, then files go (I4).
A ``DeadEndpoint`` ends in one of two ways:

    held ──bury()──▶ buried      rows are gone for good: unlink FIFO and lock, let go
    held ─release()▶ released    the transaction aborted: let go, touch nothing

This module must not know where rows are kept nor why somebody asks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from penstock.engine.bus.files import LOCK, Descriptor, lock_path, parse_name, unlink_endpoint

#: How many dead one sweep holds; each costs a descriptor.
SWEEP_LIMIT = 256


class DeadEndpoint:
    """The remains of an endpoint, locked against everybody else."""

    __slots__ = ("_directory", "_lock", "_state", "id")

    def __init__(self, directory: Path, endpoint_id: bytes, lock: Descriptor | None) -> None:
        self.id = endpoint_id
        self._directory = directory
        self._lock = lock  # None: there was no lock file
        self._state = "held"

    def bury(self) -> None:
        """Remove the files. Only after its rows are gone and committed. Idempotent."""
        if self._state == "buried":
            return
        assert self._state == "held", "I5: a released endpoint may have come to life"
        unlink_endpoint(self._directory, self.id)
        self._end("buried")

    def release(self) -> None:
        """Leave everything as it was found. Idempotent; does nothing after ``bury``."""
        if self._state == "held":
            self._end("released")

    def _end(self, state: str) -> None:
        self._state = state
        if self._lock is not None:
            self._lock.close()

    def __repr__(self) -> str:
        return f"<DeadEndpoint {self.id.hex()[:12]} {self._state}>"


#: The verdict of a probe: None is alive.
Life: TypeAlias = DeadEndpoint | None


def probe(directory: Path, endpoint_id: bytes) -> Life:
    """Ask the lock file. Of a dead endpoint the lock is held until ``bury`` or ``release``.

    Ask once a transaction: our own hold on a dead one's lock would make a second answer
    "alive".
    """
    try:
        lock = Descriptor(lock_path(directory, endpoint_id), os.O_RDWR)
    except FileNotFoundError:
        return DeadEndpoint(directory, endpoint_id, None)
    except OSError:
        return None
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # refused, or in doubt
        lock.close()
        return None
    return DeadEndpoint(directory, endpoint_id, lock)


def sweep(
    directory: Path, *, now_s: float, older_than_s: float = 60.0, limit: int = SWEEP_LIMIT
) -> list[DeadEndpoint]:
    """Find and hold dead endpoints whose files are older than ``older_than_s``.

    ``now_s`` is wall time in seconds. The caller deletes their rows, commits, and buries
    each; a result as long as ``limit`` means that there may be more. The age limit spares
    creators a retry; safety does not rest on it (I5), so an absurd date counts as old.
    """
    found: list[DeadEndpoint] = []
    for endpoint_id in _old_ids(directory, now_s, older_than_s):
        if len(found) >= limit:
            break
        dead = probe(directory, endpoint_id)
        if dead is not None:
            found.append(dead)
    return found


def _old_ids(directory: Path, now_s: float, older_than_s: float) -> Iterator[bytes]:
    """Ids of old lock files, and of old FIFOs that have no lock file (I3)."""
    try:
        entries = os.scandir(directory)
    except OSError:  # not there yet, or another user's: nothing that we could bury
        return
    with entries:
        for entry in entries:
            parsed = parse_name(entry.name)
            if parsed is None:
                continue
            endpoint_id, suffix = parsed
            with suppress(OSError):  # its owner closed it meanwhile
                age_s = now_s - entry.stat(follow_symlinks=False).st_mtime
                if abs(age_s) < older_than_s:
                    continue
                if suffix == LOCK or not os.path.lexists(lock_path(directory, endpoint_id)):
                    yield endpoint_id
