"""Runs a gateway: in an event loop that exists, in this process, or as one of several workers.

==================  =======================================================================
``open_gateway``    beside something else, on the loop that runs (``penstock serve``)
``run``             alone, until a signal ends it; with several workers their supervisor
``start_beside``    as processes of their own, for whoever has a loop to run
``run_worker``      one of those workers; ``run_supervised`` their supervisor, as a process
==================  =======================================================================

A worker is ready when its port answers and its storages can be asked; a stop takes readiness away first, then
answers whoever waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from penstock.gateway.assembly import make_application, open_services
from penstock.gateway.config.model import GatewayConfig
from penstock.gateway.observing.access_log import AccessLog
from penstock.gateway.observing.logs import Logs
from penstock.gateway.observing.outlet import Outlet
from penstock.gateway.services import Services
from penstock.gateway.serving.listening import adopt_listener, open_listener
from penstock.gateway.serving.server import HttpServer
from penstock.gateway.serving.workers import SHARED_DIRECTORY_VARIABLE, Supervisor
from penstock.gateway.v1.staying import release
from penstock.loops import loop_factory, settle_memory

_WORKER: Final = "penstock.gateway.running:run_worker"
_SUPERVISED: Final = "penstock.gateway.running:run_supervised"
_STDERR: Final = 2


@asynccontextmanager
async def open_gateway(
    config: GatewayConfig, *, sock: socket.socket | None = None, worker: int = 0
) -> AsyncGenerator[HttpServer, None]:
    """A gateway that serves while the context is open."""
    outlet = Outlet(_STDERR)
    logs = Logs(config.logging, outlet)
    access_log = AccessLog(outlet, format=config.logging.format, attributes=config.logging.attributes)
    try:
        directory = os.environ.get(SHARED_DIRECTORY_VARIABLE)
        async with open_services(
            config, directory=Path(directory) if directory else None, worker=worker
        ) as services:
            application = make_application(services)
            outlet.on_drop = services.metrics.log_lines_dropped

            def choose_access_log() -> None:
                is_wanted = logging.getLogger("penstock.gateway.http").isEnabledFor(logging.INFO)
                application.access_log = access_log if is_wanted else None

            def set_level(news: dict[str, Any]) -> None:
                logs.set_level(news["category"], news["level"])
                choose_access_log()

            choose_access_log()
            services.control.on("log-level", set_level)
            server = HttpServer(
                application,
                config.http,
                on_guard=services.metrics.guarded,
                on_draining=lambda: _drain(services),
                release=lambda: release(services),
            )
            await server.start(sock)
            services.life.is_ready = True
            services.metrics.ready(True)
            try:
                yield server
            finally:
                await server.stop()
    finally:
        outlet.on_drop = None  # the metrics are closed
        logs.close()  # and with it the outlet, which both write to


def _drain(services: Services) -> None:
    services.life.is_stopping = True
    services.metrics.ready(False)


def run(config: GatewayConfig, on_ready: Callable[[int], None] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. ``on_ready`` is told the port."""
    if config.http.workers == 1:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, None, 0, on_ready))
        return 0
    listener = open_listener(*config.http.address)
    if on_ready is not None:
        on_ready(listener.getsockname()[1])
    return _supervisor(config, listener).run()


def _supervisor(config: GatewayConfig, listener: socket.socket) -> Supervisor:
    return Supervisor(
        _WORKER,
        pickle.dumps(config),
        config.http.workers,
        listener=listener,
        stop_timeout_s=config.http.graceful_shutdown_timeout_ms / 1_000,
    )


class Beside:
    """A gateway in processes of its own. They stop when asked to, and when this process dies."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.port = port

    def stop(self) -> None:
        """Gracefully; the supervisor kills what does not stop in time."""
        self._process.terminate()
        self._process.wait()
        os.close(self._pipe)


def start_beside(config: GatewayConfig) -> Beside:
    """Start the workers and their supervisor; it listens when this returns."""
    listener = open_listener(*config.http.address)
    receiving, sending = os.pipe()
    # The supervisor's own patience comes on top of that of its workers.
    grace_s = config.http.graceful_shutdown_timeout_ms / 1_000 + 10.0
    numbers = (0, 1, listener.fileno(), receiving, grace_s)
    with listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.gateway.serving.worker", _SUPERVISED, *map(str, numbers)],
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(), receiving),
            # Ctrl-C reaches every process of a terminal; whether we stop is for our parent to say.
            start_new_session=True,
        )
        port = int(listener.getsockname()[1])
    os.close(receiving)
    assert process.stdin is not None
    with process.stdin as payload:
        payload.write(pickle.dumps(config))
    return Beside(process, port, sending)


def run_supervised(payload: bytes, descriptor: int, index: int, count: int) -> int:
    """What the supervisor of :func:`start_beside` runs."""
    config: GatewayConfig = pickle.loads(payload)
    return _supervisor(config, adopt_listener(descriptor)).run()


def run_worker(payload: bytes, descriptor: int, index: int, count: int) -> int:
    """What each process of a supervisor runs. The payload came from our parent, through a pipe."""
    config: GatewayConfig = pickle.loads(payload)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, adopt_listener(descriptor), index, None))
    return 0


async def _serve(
    config: GatewayConfig,
    sock: socket.socket | None,
    worker: int,
    on_ready: Callable[[int], None] | None,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    if on_ready is not None:
        loop.add_signal_handler(signal.SIGINT, stopped.set)
    async with open_gateway(config, sock=sock, worker=worker) as server:
        settle_memory()
        if on_ready is not None:
            on_ready(server.port)
        await stopped.wait()
