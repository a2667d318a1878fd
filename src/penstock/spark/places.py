"""Directories for what can be made again: the user's cache, and scratch space of a session.

Rules: a directory is the user's own. A name in a shared temporary directory may have been taken by somebody
else, who could put a program there that we run: such a directory is not used.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """The user's cache, or a private temporary directory where there is none that can be written."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        path = root / "penstock"
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only; or a user without a home
        return temporary_directory("penstock")
    return path if os.access(path, os.W_OK) else temporary_directory("penstock")


@functools.cache
def temporary_directory(name: str) -> Path:
    """The same one for all processes of the user, if nobody else has taken its name."""
    path = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        is_ours = path.is_dir() and not path.is_symlink() and found.st_uid == os.getuid()
    except OSError:
        is_ours = False
    return path if is_ours else Path(tempfile.mkdtemp(prefix=f"{name}-"))
