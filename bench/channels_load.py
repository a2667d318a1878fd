"""Publishes as fast as a gateway takes them: ``wrk`` where it is installed, else a program of our own.

    python -m bench.channels_load PORT CONNECTIONS SECONDS SALT

Both keep every connection busy with one request at a time, over many channels, with ids that nobody used
before (``salt`` makes them differ between runs) and a JSON body of 32 bytes, from one thread.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from bench.channels_http import Connection, make_request, open_connections, quantile

CHANNELS: Final = 1_000
BODY: Final = b'{"n":1,"text":"abcdefghijklmno"}'

_SCRIPT: Final = """\
local count, salt = 0, "%(salt)s"
local headers = {["content-type"] = "application/json"}
function request()
  count = count + 1
  local path = "/channel/channel-" .. count %% %(channels)d .. "/message/" .. salt .. "-" .. count
  return wrk.format("PUT", path, headers, '%(body)s')
end
function done(summary, latency, requests)
  local errors = summary.errors
  local form = '{"requests": %%d, "seconds": %%.6f, "failed": %%d, "p50_ms": %%.3f, "p99_ms": %%.3f}'
  io.write('\\n', string.format(form, summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3), '\\n')
end
"""


@dataclass(frozen=True, slots=True)
class Published:
    """What came of one run."""

    requests: int
    seconds: float
    failed: int
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def generator_name() -> str:
    return "wrk" if shutil.which("wrk") else "the load program in bench/channels_load.py"


def publish(port: int, connections: int, seconds: float, salt: str) -> Published:
    """Run the load in a process of its own."""
    command = _wrk if shutil.which("wrk") else _own
    with tempfile.TemporaryDirectory() as folder:
        arguments = command(Path(folder), port, connections, seconds, salt)
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return Published(**json.loads(done.stdout.strip().splitlines()[-1]))


def _wrk(folder: Path, port: int, connections: int, seconds: float, salt: str) -> list[str]:
    script = folder / "publish.lua"
    script.write_text(_SCRIPT % {"salt": salt, "channels": CHANNELS, "body": BODY.decode()})
    # wrk counts whole seconds only.
    length = f"-d{max(round(seconds), 1)}s"
    return ["wrk", "-t1", f"-c{connections}", length, "-s", str(script), f"http://127.0.0.1:{port}"]


def _own(folder: Path, port: int, connections: int, seconds: float, salt: str) -> list[str]:
    words = (port, connections, seconds, salt)
    return [sys.executable, "-m", "bench.channels_load", *map(str, words)]


# ------------------------------------------------------------------------- our own


class _Load:
    def __init__(self, salt: str, end_s: float, on_end: Callable[[], None]) -> None:
        self._salt = salt
        self._end_s = end_s
        self._on_end = on_end
        self._count = 0
        self.failed = 0
        self.latencies_ms: list[float] = []

    def send(self, connection: Connection) -> None:
        self._count += 1
        target = f"/channel/channel-{self._count % CHANNELS}/message/{self._salt}-{self._count}"
        request = make_request("PUT", target, BODY)
        connection.ask(request, partial(self._answered, connection, time.perf_counter()))

    def _answered(self, connection: Connection, started_s: float, status: int, _: bytes) -> None:
        now_s = time.perf_counter()
        self.failed += status != 200
        self.latencies_ms.append((now_s - started_s) * 1e3)
        if now_s < self._end_s and not connection.lost:
            self.send(connection)
        else:
            self._on_end()


async def _run(port: int, connections: int, seconds: float, salt: str) -> Published:
    opened = await open_connections(port, connections)
    left, ended = len(opened), asyncio.Event()

    def on_end() -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set()

    started_s = time.perf_counter()
    load = _Load(salt, started_s + seconds, on_end)
    for connection in opened:
        load.send(connection)
    await ended.wait()
    took_s = time.perf_counter() - started_s
    for connection in opened:
        connection.abort()
    found = load.latencies_ms
    return Published(len(found), took_s, load.failed, quantile(found, 0.5), quantile(found, 0.99))


if __name__ == "__main__":
    _result = uvloop.run(_run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
    print(json.dumps({name: getattr(_result, name) for name in Published.__slots__}))
