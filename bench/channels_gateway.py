"""The gateways that are measured, started as anybody would start them, and what they take of the machine.

Rules: every gateway is a process (with workers: several) of its own and ends with its ``with`` block. The
access log is off in all of them; everything else is the default. Processor time and memory are those of all
processes of a gateway together, as the kernel counts them (Linux only).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.request import urlopen

BARE: Final = "bare ASGI callable"
REDIS: Final = "Redis"
RELAXED: Final = "embedded, relaxed"
ALWAYS: Final = "embedded, always"

_PORT: Final = re.compile(rb"HTTP on (?:port |http://[^ ]+:)(\d+)")
_QUIET: Final = {"PENSTOCK__LOGGING__CATEGORY": '{"*": INFO, "http": WARN}'}
_START_S: Final = 60.0
_STOP_S: Final = 20.0
#: A gateway that takes less than this share of a core does nothing but tick.
_IDLE_SHARE: Final = 0.05
_LOOK_S: Final = 0.1
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Setup:
    """What is in front of which store."""

    store: str
    workers: int

    @property
    def name(self) -> str:
        return f"{self.store}, {self.workers} worker{'s' if self.workers > 1 else ''}"


class Gateway:
    """A gateway that serves while the block is open."""

    def __init__(
        self, setup: Setup, redis_url: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        self.setup = setup
        self.port = 0
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-bench-")
        self._command = self._make_command(redis_url)
        self._environment = {**os.environ, **_QUIET, **(environment or {}), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    def _make_command(self, redis_url: str) -> list[str]:
        workers = str(self.setup.workers)
        ours = [sys.executable, "-m", "penstock.cli.main"]
        match self.setup.store:
            case "bare ASGI callable":
                return [sys.executable, "-m", "bench.channels_bare", workers]
            case "Redis":
                return [
                    *ours,
                    "gateway",
                    "--store",
                    redis_url,
                    "--listen",
                    "127.0.0.1:0",
                    "--workers",
                    workers,
                ]
        directory, durability = Path(self._folder.name) / "store.pen", self.setup.store.rpartition(" ")[2]
        options = ["--port", "0", "--http-port", "0", "--http-workers", workers, "--durability", durability]
        return [*ours, "serve", str(directory), *options]

    # ------------------------------------------------------------------------- life

    def __enter__(self) -> Self:
        log = Path(self._folder.name) / "log"
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=stderr, env=self._environment
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _PORT.search(line):
                self.port = int(found[1])
                break
        else:
            said = log.read_text(errors="replace")
            self._stop()
            raise SystemExit(f"{self.setup.name} did not start: {said}")
        self._wait_until_ready()
        return self

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + _START_S
        path = "/" if self.setup.store == BARE else "/probe/readiness"
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5.0) as answer:
                    answer.read()
                break
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise SystemExit(f"{self.setup.name} is not ready: {error}") from error
                time.sleep(_LOOK_S)
        # One worker may answer while the other still imports.
        self.wait_until_idle()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()

    # ------------------------------------------------------------------------- what it takes

    @property
    def process_ids(self) -> list[int]:
        assert self._process is not None
        return family_of(self._process.pid)

    def cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self.process_ids)

    def memory_bytes(self) -> tuple[int, int]:
        """Resident, and the part of it that is not pages of files (a store is a file that is mapped)."""
        states = [_status(pid) for pid in self.process_ids]
        return sum(s.get("VmRSS", 0) for s in states), sum(s.get("RssAnon", 0) for s in states)

    def wait_until_idle(self, timeout_s: float = 120.0) -> float:
        """Until it has nothing to do; the time (monotonic) when it had done its last work."""
        deadline_s = time.monotonic() + timeout_s
        before_s, busy_s, quiet = self.cpu_s(), time.monotonic(), 0
        while quiet < _LOOKS and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            now_s = self.cpu_s()
            if now_s - before_s > _LOOK_S * _IDLE_SHARE * len(self.process_ids):
                busy_s, quiet = time.monotonic(), 0
            else:
                quiet += 1
            before_s = now_s
        return busy_s


def family_of(ancestor: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    family = [ancestor]
    for member in family:
        family.extend(pid for pid, parent in parents.items() if parent == member)
    return family


def cpu_s(pid: int) -> float:
    """Processor time of all threads, to the nanosecond where /proc/PID/stat has ticks of 10 ms."""
    spent_ns = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent_ns += int((task / "schedstat").read_text().split()[0])
    except OSError:
        pass  # a thread or the process ended meanwhile
    return spent_ns / 1e9


def _status(pid: int) -> dict[str, int]:
    """The sizes in /proc/PID/status, in bytes."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}
