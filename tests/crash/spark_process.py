"""A Spark driver as a process that is killed, with its JVM.

    driver = Driver(["tests.crash.spark_driver", url, lake, master], log)
    driver.kill()

It leads a session of its own, so that a signal to its group reaches its JVM. Must not import pytest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: By then who was killed is gone, and who lost its JVM has noticed.
_GONE_WITHIN_S: Final = 60.0


class Driver:
    """One process and its JVM. What it says is appended to its log."""

    def __init__(self, module_and_arguments: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *module_and_arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )
        self._begin = log.stat().st_size

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._log.read_bytes()[self._begin :].decode("utf-8", "replace")

    def kill(self, *, whole: bool = True) -> None:
        """With everything that it has started, or its children alone: then it has to notice by itself."""
        family = _descendants(self.pid)
        if not whole:
            _kill(family)
            _wait(lambda: not self.is_alive())
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        # Python workers of Spark lead groups of their own.
        _kill(family)
        _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait(is_over: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _GONE_WITHIN_S
    while not is_over() and time.monotonic() < end_s:
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        with suppress(OSError):
            children = Path(f"/proc/{waiting[-1]}/task/{waiting[-1]}/children").read_text().split()
            waiting[:0] = map(int, children)
            found += map(int, children)
        waiting.pop()
    return found
