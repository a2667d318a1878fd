"""A virtual environment for every contender, made when it is first needed and kept in a cache directory.

Contenders disagree about the version of redis-py, so they cannot share one, and none may come near
Penstock's own. An environment is made anew when what it must hold changes; its stamp is written last, so
that one that was interrupted is never used.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

_STAMP: Final = "penstock-bench.txt"


class ContenderError(Exception):
    """A contender cannot be measured; the message says why."""


def default_cache() -> Path:
    """Where caches of this user go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-bench"


def python_with(name: str, requirements: tuple[str, ...], cache: Path) -> Path:
    """The interpreter of an environment that holds the requirements; ``ContenderError`` if there is none."""
    folder = cache / name
    python = folder / "bin" / "python"
    contents = "\n".join((f"Python {platform.python_version()}", *requirements))
    stamp = folder / _STAMP
    if python.exists() and stamp.exists() and stamp.read_text() == contents:
        return python
    print(f"Installing {', '.join(requirements)} into {folder} …", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        stamp.write_text(contents)
    except OSError as error:
        raise ContenderError(f"{folder} cannot be written ({error}); name another with --cache") from error
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ContenderError(f"its environment cannot be made: {words[-1] if words else done.returncode}")
