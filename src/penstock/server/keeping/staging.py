"""A place beside the final one, in which something is made that is moved there when it is whole.

    with staged(final) as place:
        …                     # fill the directory
        place.publish()       # now, at once, under its name

The place of ``backup`` is ``.backup.partial``, and whoever makes it holds a lock on it. What a process left
there that was killed is removed by the next one. Leaving without ``publish`` removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from penstock.clock import SystemClock
from penstock.engine.storage.copying import sync_file
from penstock.errors import StoreError, StoreFullError, UsageError

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PATIENCE_S: Final = 1.0
_POLL_S: Final = 0.02


class Staged:
    """A directory on its way to its name."""

    def __init__(self, path: Path, final: Path, lock: int) -> None:
        self.path = path
        self.final = final
        #: for a process that writes here, too: as long as it lives nobody else does
        self.lock = lock

    def publish(self) -> None:
        """Sync it and give it its name; a directory of that name, if there is one, goes."""
        for file in self.path.iterdir():
            sync_file(file)
        sync_file(self.path)
        old = partial_of(self.final).with_suffix(".replaced")
        shutil.rmtree(old, ignore_errors=True)
        if self.final.exists():
            self.final.rename(old)
        self.path.rename(self.final)
        sync_file(self.final.parent)
        shutil.rmtree(old, ignore_errors=True)


def partial_of(final: Path) -> Path:
    return final.parent / f".{final.name}.partial"


@contextmanager
def staged(final: Path) -> Iterator[Staged]:
    """An empty directory beside ``final``, ours alone. Errors of the disk become ours."""
    final = final.absolute()
    path = partial_of(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"cannot write to {final.parent}: {error.strerror}") from error
    if not _take(lock):
        os.close(lock)
        raise UsageError(f"another process is making {final} at the moment: wait until it is done")
    try:
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(lock)):
            raise UsageError(f"another process has made {final} just now: look at it, and try again")
        for left in path.iterdir():  # of a process that was killed
            left.unlink()
        yield Staged(path, final, lock)
    except OSError as error:
        raise disk_error(error, final.parent) from error
    finally:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(lock)):
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _take(lock: int) -> bool:
    """Lock it. What a process that was killed has started needs a moment to notice."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if clock.monotonic_s() > end_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def create(file: Path) -> BinaryIO:
    """A new file that only its owner may read, as those of a store."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def disk_error(error: OSError, where: Path) -> StoreError:
    if error.errno in _NO_SPACE:
        return StoreFullError(f"no space left on the disk of {where}")
    return StoreError(f"cannot write to {where}: {error.strerror or error}")
