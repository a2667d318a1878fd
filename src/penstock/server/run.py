"""Runs a server in this process until a signal or SHUTDOWN ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.engine import Engine
from penstock.engine.storage.environment import DEFAULT_MAX_BYTES, Durability
from penstock.errors import ConfigError
from penstock.server.listener import Server
from penstock.server.settings import ServerSettings
from penstock.server.sockets import clients_that_fit

#: Names the event loop: ``uvloop`` (the default where it is installed) or ``asyncio``.
LOOP_VARIABLE = "PENSTOCK_LOOP"


def run(
    directory: Path,
    settings: ServerSettings,
    *,
    durability: Durability = "always",
    max_size_bytes: int = DEFAULT_MAX_BYTES,
    on_ready: Callable[[Server], None] | None = None,
) -> None:
    """Open the store, serve it, close it. Blocks until SIGINT, SIGTERM or SHUTDOWN."""
    settings.check()
    settings = replace(settings, max_clients=clients_that_fit(settings.max_clients))
    with (
        Engine.open(directory, durability=durability, max_size_bytes=max_size_bytes) as engine,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        runner.run(_serve(engine, settings, on_ready))


async def _serve(engine: Engine, settings: ServerSettings, on_ready: Callable[[Server], None] | None) -> None:
    server = Server(engine, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.request_stop)
    await server.start()
    if on_ready is not None:
        on_ready(server)
    await server.serve_until_stopped()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it installs; asyncio's own loop elsewhere, or if the environment asks for it."""
    wanted = os.environ.get(LOOP_VARIABLE, "")
    if wanted not in ("", "uvloop", "asyncio"):
        raise ConfigError(f"{LOOP_VARIABLE} must be uvloop or asyncio, not {wanted!r}")
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
