"""The data pipeline of the shop: ``penstock spark run`` as a process of its own.

    job = SparkJob(store, lake, log=…)
    await job.start()
    status = await job.wait()        # it has ended by itself, which it should not
    await job.stop()                 # gracefully, and after some seconds in any case

It archives what has ended, exports the streams, counts, and merges small files: in seconds where a real one
would take its time, so that the lake has something to show soon.

Rules: the child lives as long as its standard input is open. So it ends when it is told to, and also when
this process is killed. Ctrl-C does not reach it: whether it ends is for its parent to say. Killing it loses
nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: How long passes have to come to their next batch, and then Spark to end.
_GRACE_S: Final = 4.0
_PATIENCE_S: Final = 7.0

_OPTIONS: Final = {
    "archive.every": "15s",
    # Who comes back after a kill waits for this long until the role is free.
    "archive.lock1": "10s",
    "archive.lock2": "15s",
    "export.every": "15s",
    "rollup.every": "20s",
    "maintain.every": "3m",
}


def is_installed() -> bool:
    """Whether ``penstock[spark]`` is."""
    return all(find_spec(name) is not None for name in ("pyspark", "deltalake", "pandas", "yaml"))


class SparkJob:
    """One run of the data pipeline."""

    def __init__(self, store: Path, lake: Path, streams: Sequence[str], *, log: Path) -> None:
        """``log`` gets what the jobs say; what the JVM says goes to a file beside it."""
        self._log = log
        self._command = [sys.executable, "-m", __name__, *_words(store, lake, streams, log)]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def wait(self) -> int:
        """The exit status, when it has ended."""
        assert self._process is not None, "start it first"
        return await self._process.wait()

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            # With the JVM, which takes its own workers along.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def last_words(self) -> str:
        """The last line of the log: why it has ended, most likely."""
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else "it said nothing"


def _words(store: Path, lake: Path, streams: Sequence[str], log: Path) -> list[str]:
    words = ["spark", "run", "--store", str(store.absolute()), "--lake", str(lake.absolute())]
    words += ["--streams", ",".join(streams)]
    words += ["--master", "local[2]", "--conf", "spark.driver.memory=512m"]
    words += ["--log", str(log.absolute().with_name("spark-jvm.log"))]
    return words + [word for name, value in _OPTIONS.items() for word in ("--set", f"{name}={value}")]


# ---------------------------------------------------------------------------------- the child


def _run(words: Sequence[str]) -> int:
    from penstock.cli.main import main

    threading.Thread(target=_end_with_parent, name="penstock parent", daemon=True).start()
    return main(words)


def _end_with_parent() -> None:
    """Standard input ends when the parent wants us to stop, and when it is gone."""
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    # This process leads its group, in which the JVM is, too.
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
