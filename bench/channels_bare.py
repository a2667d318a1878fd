"""The ceiling of the stack: the gateway's HTTP server in front of a callable that takes a body and answers.

    python -m bench.channels_bare WORKERS

Nothing is stored, checked or counted; the answer is as long as that of a publish, headers included.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import sys
from typing import Any, Final

from penstock.gateway.config import load
from penstock.gateway.serving.listening import open_listener
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.serving.workers import Supervisor
from penstock.loops import loop_factory

_BODY: Final = b'{"channelID":"channel-000","messageID":"0-000000"}\n'
_HEADERS: Final = [
    (b"content-type", b"application/json"),
    (b"x-frame-options", b"deny"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache, no-store, max-age=0, must-revalidate"),
    (b"pragma", b"no-cache"),
    (b"expires", b"0"),
    (b"content-length", b"%d" % len(_BODY)),
]


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


def run_worker(payload: bytes, descriptor: int, index: int, count: int) -> int:
    """What each process of the supervisor runs."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(pickle.loads(payload), socket.socket(fileno=descriptor)))
    return 0


async def _serve(config: Any, listener: socket.socket) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = HttpServer(answer, config)
    await server.start(listener)
    await stopped.wait()
    await server.stop()


def main(workers: int) -> int:
    config = load(None, environment={}, overrides={"http.listen": "127.0.0.1:0"}).http
    listener = open_listener("127.0.0.1", 0)
    print(f"Serving HTTP on port {listener.getsockname()[1]}.", flush=True)
    if workers == 1:
        return run_worker(pickle.dumps(config), listener.detach(), 0, 1)
    return Supervisor(
        "bench.channels_bare:run_worker", pickle.dumps(config), workers, listener=listener
    ).run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
