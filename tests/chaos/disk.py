"""A disk of a scene's own that can be full: a tmpfs, where this process may mount one.

    with Disk(directory / "disk") as disk:
        if disk.is_small:
            disk.fill()
            disk.free()

A full disk is one that was made as small as what is on it: that takes no time, and no memory. Where nothing
can be mounted it is a plain directory, ``is_small`` is False and ``why_not`` says why. Rules: what was
mounted is unmounted when the block ends, and at the latest when the interpreter does. Knows nothing of
stores.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, Self

SIZE_BYTES: Final = 256 << 20
#: Others may write while it shrinks; then it is tried again.
_TRIES: Final = 1_000


class Disk:
    def __init__(self, path: Path, size_bytes: int = SIZE_BYTES) -> None:
        self.path = path
        self._size_bytes = size_bytes
        #: Why it cannot be filled; empty if it can.
        self.why_not = ""
        self._is_mounted = False

    def __repr__(self) -> str:
        return f"<Disk {self.path} {'mounted' if self._is_mounted else 'a plain directory'}>"

    @property
    def is_small(self) -> bool:
        return self._is_mounted

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        self.why_not = self._mount()
        self._is_mounted = not self.why_not
        if self._is_mounted:
            atexit.register(self._unmount)
        return self

    def __exit__(self, *_: object) -> None:
        self._unmount()
        atexit.unregister(self._unmount)

    def fill(self) -> None:
        """From now on there is no room for another block."""
        for _ in range(_TRIES):
            found = os.statvfs(self.path)
            used_bytes = (found.f_blocks - found.f_bfree) * found.f_frsize
            if not self._resize(max(used_bytes, found.f_frsize)):  # 0 would mean that there is no limit
                return
        raise OSError(f"{self.path} could not be made as small as what is on it")

    def free(self) -> None:
        """There is room again. Harmless when there was."""
        if self._is_mounted and (problem := self._resize(self._size_bytes)):
            raise OSError(f"{self.path} could not be made larger again: {problem}")

    def _mount(self) -> str:
        """Why it could not be mounted; empty if it was."""
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return "only root can mount a small disk"
        size = f"size={self._size_bytes},mode=700"
        return _run("mount", "-t", "tmpfs", "-o", size, "penstock-chaos", str(self.path))

    def _resize(self, size_bytes: int) -> str:
        return _run("mount", "-o", f"remount,size={size_bytes}", str(self.path))

    def _unmount(self) -> None:
        if not self._is_mounted:
            return
        self._is_mounted = False
        if _run("umount", str(self.path)):
            _run("umount", "--lazy", str(self.path))  # somebody still holds a file of it


def _run(*command: str) -> str:
    """What went wrong, if something did."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} failed"
