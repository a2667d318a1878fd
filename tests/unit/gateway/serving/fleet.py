"""Workers for tests, and a parent to run them: ``python fleet.py TARGET COUNT BALANCE``.

The parent prints its port; a worker answers every request with its number and its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError
from penstock.gateway.config.surroundings import HttpConfig
from penstock.gateway.observing.metrics import Metrics
from penstock.gateway.serving.listening import adopt_listener
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.serving.workers import SHARED_DIRECTORY_VARIABLE, Supervisor


def serve(payload: bytes, socket_fd: int, index: int, count: int) -> int:
    asyncio.run(_serve(payload, socket_fd, index, count))
    return 0


async def _serve(payload: bytes, socket_fd: int, index: int, count: int) -> None:
    metrics = Metrics(directory=Path(os.environ[SHARED_DIRECTORY_VARIABLE]), worker=index)
    metrics.ready(True)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        metrics.request(scope["method"], "/", 200, 0.001)
        if scope["path"] == "/metrics":
            body = metrics.render()
        else:
            told = {"index": index, "count": count, "process": os.getpid(), "payload": payload.decode()}
            body = json.dumps(told).encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(application, HttpConfig())
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await server.start(adopt_listener(socket_fd))
    await stopped.wait()
    await server.stop(1)


def stubborn(payload: bytes, socket_fd: int, index: int, count: int) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return serve_deaf(payload, socket_fd, index, count)


def serve_deaf(payload: bytes, socket_fd: int, index: int, count: int) -> int:
    async def run() -> None:
        server = HttpServer(_busy, HttpConfig())
        await server.start(adopt_listener(socket_fd))
        await asyncio.Event().wait()

    asyncio.run(run())
    return 0


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    body = json.dumps({"process": os.getpid()}).encode()
    headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def misconfigured(payload: bytes, socket_fd: int, index: int, count: int) -> int:
    raise ConfigError("http.nothing makes no sense")


if __name__ == "__main__":
    target, workers, balance, stop_timeout_s = sys.argv[1:]
    supervisor = Supervisor(
        f"tests.unit.gateway.serving.fleet:{target}",
        b"what workers must know",
        int(workers),
        host="127.0.0.1",
        balance=balance,  # type: ignore[arg-type]
        stop_timeout_s=float(stop_timeout_s),
    )
    sys.stdout.write(f"{supervisor.port}\n")
    sys.stdout.flush()
    sys.exit(supervisor.run())
