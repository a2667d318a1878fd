"""A virtual environment for every peer, made when it is first needed and kept in a cache directory.

    python = python_with("saq", ("saq[redis]==0.26.4",), default_cache())
    figures = figures_of(python, "bench.transaction_peers.saq_worker", "6379", "1000")

Peers disagree about the versions of what they need, so they cannot share one, and none may come near
Penstock's own. An environment is made anew when what it must hold changes; its stamp is written last, so
that one that was interrupted is never used. A peer's script is a module of ``bench`` that knows its own
library and the standard library, and prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

#: What asynchronous peers get beside themselves, as we have it: the parser and the event loop.
ASYNCHRONOUS: Final = ("hiredis==3.5.0", "uvloop==0.23.0")

_ROOT: Final = Path(__file__).resolve().parent.parent
#: Without a network it shall end soon.
_PIP: Final = ("--disable-pip-version-check", "--retries", "1")
_STAMP: Final = "penstock-bench.txt"
#: A run that takes longer is stuck: the slowest take a minute or two, a fill of a million some ten.
_LIMIT_S: Final = 3_600.0
#: By folder: contenders that share an environment wait for a network that is not there only once.
_failures: Final[dict[Path, str]] = {}


class NotMeasuredError(Exception):
    """Something cannot be measured on this machine; the message says why."""


def default_cache() -> Path:
    """Where caches of this user go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-bench"


def python_with(name: str, requirements: tuple[str, ...], cache: Path) -> Path:
    """The interpreter of an environment that holds the requirements; ours if there are none."""
    if not requirements:
        return Path(sys.executable)
    folder = cache / name
    python = folder / "bin" / "python"
    contents = "\n".join((f"Python {platform.python_version()}", *requirements))
    stamp = folder / _STAMP
    if python.exists() and stamp.exists() and stamp.read_text() == contents:
        return python
    if folder in _failures:
        raise NotMeasuredError(_failures[folder])
    print(f"Installing {', '.join(requirements)} into {folder} …", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", *_PIP, *requirements)
        stamp.write_text(contents)
    except NotMeasuredError as error:
        _failures[folder] = str(error)
        raise
    except OSError as error:
        raise NotMeasuredError(f"{folder} cannot be written ({error}); name another with --cache") from error
    return python


def figures_of(python: Path, module: str, *words: str) -> dict[str, Any]:
    """The last line that a script printed."""
    lines = run_script(python, module, *words).splitlines()
    if not lines:
        raise NotMeasuredError("its script printed no figures")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


def run_script(python: Path, module: str, *words: str, told: str = "") -> str:
    """What a script printed; ``NotMeasuredError`` with its last words if it failed."""
    try:
        done = subprocess.run(
            [str(python), "-m", module, *words],
            cwd=_ROOT, input=told, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NotMeasuredError(f"it took longer than {_LIMIT_S:g} s") from error
    if done.returncode != 0:
        raise NotMeasuredError(f"its script failed: {_last_words(done.stderr, done.returncode)}")
    return done.stdout.strip()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = _last_words(done.stderr or done.stdout, done.returncode)
        raise NotMeasuredError(f"its environment cannot be made: {words}")


def _last_words(text: str, status: int) -> str:
    words = text.strip().splitlines()
    return words[-1] if words else f"status {status}"
