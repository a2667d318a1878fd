"""Very many long polls that wait for nothing, and what happens when a message comes for each of them.

    python -m bench.channels_polls PORT COUNT SALT

The client's side is a process of its own that goes step by step: whoever started it (``hold``) says when to
go on, because only he can see how much memory the gateway has at that moment and whether it still works.

========  ===========================================================================================
step      what happens
========  ===========================================================================================
connect   ``COUNT`` connections are opened; each subscribes to a channel of its own and to a common one
poll      each sends a poll of its own channel, which is not answered
publish   one message to each channel, from 32 connections; every poll is answered
gather    each polls the common channel
tell      one message to that channel; every poll is answered
========  ===========================================================================================
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from bench.channels_gateway import Gateway
from bench.channels_http import Connection, make_request, open_connections, quantile, raise_file_limit

#: Longer than all of this takes; the gateway must allow it (``ENVIRONMENT``).
_POLL: Final = "10m"
_PUBLISHERS: Final = 32
#: A poll that was not answered by then counts as failed.
_PATIENCE_S: Final = 60.0
_BODY: Final = b'{"n":1,"text":"abcdefghijklmno"}'

#: What a gateway has to be started with.
ENVIRONMENT: Final = {
    "PENSTOCK__HTTP__LONGPOLLINGMAXTIMEOUT": _POLL,
    "PENSTOCK__HTTP__LIMITS__CONNECTIONS": "16000",
    "PENSTOCK__HTTP__LIMITS__IDLEPOLLS": "16000",
}


@dataclass(frozen=True, slots=True)
class Held:
    """What came of one run. Memory is that of the gateway, beyond what it had at the start."""

    connected_bytes: float
    polling_bytes: float
    resident_mb: float
    open_s: float
    publish_s: float
    publish_rate: float
    tell_p50_ms: float
    tell_last_ms: float
    failed: int


def hold(gateway: Gateway, count: int, salt: str) -> Held:
    """Hold so many polls on the gateway, and let them go."""
    command = [sys.executable, "-m", "bench.channels_polls", str(gateway.port), str(count), salt]
    start_bytes = gateway.memory_bytes()[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        _step(client, "connect")
        gateway.wait_until_idle()
        connected_bytes = gateway.memory_bytes()[1]
        started_s = time.monotonic()
        _step(client, "poll")
        open_s = gateway.wait_until_idle() - started_s
        resident_bytes, polling_bytes = gateway.memory_bytes()
        published = _step(client, "publish")
        gateway.wait_until_idle()
        _step(client, "gather")
        gateway.wait_until_idle()
        told = _step(client, "tell")
    return Held(
        connected_bytes=(connected_bytes - start_bytes) / count,
        polling_bytes=(polling_bytes - connected_bytes) / count,
        resident_mb=resident_bytes / (1 << 20),
        open_s=open_s,
        publish_s=published["seconds"],
        publish_rate=count / published["seconds"],
        tell_p50_ms=told["p50_ms"],
        tell_last_ms=told["last_ms"],
        failed=told["failed"],
    )


def _step(client: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(name + "\n")
    client.stdin.flush()
    line = client.stdout.readline()
    if not line:
        raise SystemExit(f"the client's side ended at {name!r}; the lines above say why")
    answer: dict[str, Any] = json.loads(line)
    return answer


# ------------------------------------------------------------------------- the client's side


class _Holder:
    def __init__(self, port: int, count: int, salt: str) -> None:
        self._port = port
        self._count = count
        self._salt = salt
        self._connections: list[Connection] = []
        self._publishers: list[Connection] = []
        self._failed = 0
        self._answered_s: list[float] = []
        self._all_answered = asyncio.Event()

    async def connect(self) -> dict[str, Any]:
        self._connections = await open_connections(self._port, self._count)
        self._publishers = await open_connections(self._port, _PUBLISHERS)
        await asyncio.gather(*map(self._subscribe, self._connections, range(self._count)))
        return {}

    async def _subscribe(self, connection: Connection, number: int) -> None:
        for channel in (self._own(number), self._common):
            status, _ = await connection.call(make_request("PUT", _path(channel, number)))
            self._failed += status != 200

    def _own(self, number: int) -> str:
        return f"{self._salt}-{number}"

    @property
    def _common(self) -> str:
        return f"{self._salt}-all"

    async def poll(self) -> dict[str, Any]:
        self._send_polls([self._own(number) for number in range(self._count)])
        return {}

    async def gather(self) -> dict[str, Any]:
        self._send_polls([self._common] * self._count)
        return {}

    def _send_polls(self, channels: list[str]) -> None:
        self._answered_s.clear()
        self._all_answered.clear()
        for number, channel in enumerate(channels):
            request = make_request("GET", f"{_path(channel, number)}?timeout={_POLL}")
            self._connections[number].ask(request, self._on_answer)

    def _on_answer(self, status: int, body: bytes) -> None:
        self._failed += status != 200 or b'"messageID":"m"' not in body
        self._answered_s.append(time.perf_counter())
        if len(self._answered_s) == self._count:
            self._all_answered.set()

    async def publish(self) -> dict[str, Any]:
        numbers = iter(range(self._count))
        started_s = time.perf_counter()
        await asyncio.gather(*(self._publish_some(each, numbers) for each in self._publishers))
        await self._wait_for_all()
        return {"seconds": self._answered_s[-1] - started_s}

    async def _wait_for_all(self) -> None:
        try:
            await asyncio.wait_for(self._all_answered.wait(), _PATIENCE_S)
        except TimeoutError:
            missing = self._count - len(self._answered_s)
            self._failed += missing
            print(f"{missing} polls were not answered within {_PATIENCE_S:g} s", file=sys.stderr)

    async def _publish_some(self, connection: Connection, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._publish(connection, self._own(number))

    async def _publish(self, connection: Connection, channel: str) -> None:
        status, _ = await connection.call(make_request("PUT", f"/channel/{channel}/message/m", _BODY))
        self._failed += status != 200

    async def tell(self) -> dict[str, Any]:
        started_s = time.perf_counter()
        await self._publish(self._publishers[0], self._common)
        await self._wait_for_all()
        took_ms = [(at_s - started_s) * 1e3 for at_s in self._answered_s]
        for connection in (*self._connections, *self._publishers):
            connection.abort()
        return {"p50_ms": quantile(took_ms, 0.5), "last_ms": took_ms[-1], "failed": self._failed}


def _path(channel: str, number: int) -> str:
    return f"/channel/{channel}/subscription/polling/s{number}"


async def _obey(port: int, count: int, salt: str) -> None:
    raise_file_limit(count + _PUBLISHERS + 100)
    holder = _Holder(port, count, salt)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await getattr(holder, line.strip())()), flush=True)


if __name__ == "__main__":
    uvloop.run(_obey(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
