"""A store as a file of its own: a copy of one moment, while others go on writing; and who has one open.

LMDB copies under one read transaction, page by page of the tree, without what is free in between
(compaction): the copy has exactly what was committed when it began, and nobody waits for it. What it costs
writers is that pages which they free meanwhile cannot be used again until the copy is done.

Who has a store open holds a shared lock on the first byte of ``lock.mdb``, which the kernel takes back when
he dies.

Rules: nothing is ever written into a store here, and none is made. Foreign errors end here, with sentences
that name the path they are about.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from penstock.engine.storage.environment import ENGINE_FAULTS, is_open_here, open_environment, translate
from penstock.errors import StoreError, StoreFullError

DATA_FILE: Final = "data.mdb"
LOCK_FILE: Final = "lock.mdb"


def has_store(path: Path) -> bool:
    """Whether a directory holds a store."""
    return (path / DATA_FILE).is_file()


def is_open(path: Path) -> bool:
    """Whether some process, this one included, has the store of a directory open."""
    if is_open_here(path):
        return True  # asking the kernel would take our own lock from us
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"cannot look at {path / LOCK_FILE}: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise StoreError(f"cannot look at {path / LOCK_FILE}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return False


def copy_store(path: Path, target: Path) -> None:
    """Write the store of a directory into another directory, which exists and is empty, and sync it.

    For a process of its own, which has no engine on it: this takes its time, and nothing ends it but the end
    of the process.
    """
    env = open_environment(path, "always")
    try:
        env.copy_to(target, compact=True)
        (target / DATA_FILE).chmod(0o600)  # as that of a store
        sync_file(target / DATA_FILE)
    except ENGINE_FAULTS as fault:
        error = translate(fault)
        if isinstance(error, StoreFullError):
            raise StoreFullError(f"no space left on the disk of {target.parent}") from fault
        raise error from fault
    finally:
        env.close()


def used_bytes(path: Path) -> int:
    """How large a copy becomes at most."""
    return (path / DATA_FILE).stat().st_size


def sync_file(path: Path) -> None:
    """Have the disk keep a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
