"""One worker of a gateway as a process of its own, to be killed: the product's server around its application.

    python -m tests.crash.gateway_worker CONFIG-FILE LISTENER-FD

Listens on the socket that it inherits, as all workers of one port do, and stops at SIGTERM. Must not import
pytest.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config import load
from penstock.gateway.serving.server import HttpServer

ROOT = Path(__file__).parents[2]


def listener() -> socket.socket:
    """A free port of the loopback that workers can share."""
    shared = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    shared.set_inheritable(True)
    return shared


def spawn(config: Path, shared: socket.socket, log: Path) -> subprocess.Popen[bytes]:
    """A worker that serves this socket, as soon as it can."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.gateway_worker", str(config), str(shared.fileno())],
            cwd=ROOT,
            pass_fds=[shared.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


async def serve(config_file: str, descriptor: int) -> None:
    config = load(Path(config_file), environment={})
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_services(config) as services:
        server = HttpServer(make_application(services), config.http, release=services.channels.release)
        await server.start(socket.socket(fileno=descriptor))
        services.life.is_ready = True
        await stop.wait()
        await server.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
