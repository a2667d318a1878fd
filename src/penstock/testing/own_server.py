"""Our own server as a process of its own, for tests that need a real socket or a real kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from penstock.errors import PenstockError

_READY = re.compile(rb" on [^ ]+:(\d+) ")


class PenstockServer:
    """``penstock serve`` on a free port. A context manager; leaves the directory alone.

    ``options`` go to the command line, ``environment`` adds to ours. A stopped or killed
    server can be started again.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        durability: str = "always",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = 0
        self._command = [
            sys.executable, "-m", "penstock.cli.main", "serve", str(directory),
            "--port", "0", "--durability", durability, *options,
        ]  # fmt: skip
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: BinaryIO | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise PenstockError("the server was not started; use it as a context manager or call start()")
        return self._process

    @property
    def log(self) -> str:
        """What the server has written to stderr so far; of its last run, if it was started again."""
        if self._log is None:
            return ""
        # By position: the process writes through the same open file.
        return os.pread(self._log.fileno(), 1 << 24, 0).decode(errors="replace")

    def start(self) -> PenstockServer:
        """Start and wait until it listens."""
        self._close_files()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, env=self._environment
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _READY.search(line)
        if found is None:
            self.kill()
            said = (line.decode(errors="replace") + self.log).strip() or "it said nothing"
            self._close_files()
            raise PenstockError(f"the server did not start: {said}")
        self.port = int(found[1])
        return self

    def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, wait; answers the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._close_pipe()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _close_files(self) -> None:
        self._close_pipe()
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> PenstockServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        self._close_files()

    def __repr__(self) -> str:
        state = "new" if self._process is None else "running" if self._process.poll() is None else "ended"
        return f"<PenstockServer {self.directory} port={self.port} {state}>"
