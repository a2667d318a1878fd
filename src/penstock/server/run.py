"""Runs a server in this process until a signal or SHUTDOWN ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from penstock.engine import Engine
from penstock.engine.storage.environment import DEFAULT_MAX_BYTES, Durability
from penstock.loops import loop_factory, settle_memory
from penstock.server.listener import Server
from penstock.server.settings import ServerSettings
from penstock.server.sockets import clients_that_fit

#: What runs on the same loop while the server does; entered when the server listens.
Companion: TypeAlias = Callable[[Server], AbstractAsyncContextManager[Any]]


def run(
    directory: Path,
    settings: ServerSettings,
    *,
    durability: Durability = "always",
    max_size_bytes: int = DEFAULT_MAX_BYTES,
    companion: Companion | None = None,
    on_ready: Callable[[Server], None] | None = None,
) -> None:
    """Open the store, serve it, close it. Blocks until SIGINT, SIGTERM or SHUTDOWN."""
    settings.check()
    settings = replace(settings, max_clients=clients_that_fit(settings.max_clients))
    with (
        Engine.open(directory, durability=durability, max_size_bytes=max_size_bytes) as engine,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_serve(engine, settings, companion, on_ready))


async def _serve(
    engine: Engine,
    settings: ServerSettings,
    companion: Companion | None,
    on_ready: Callable[[Server], None] | None,
) -> None:
    server = Server(engine, settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.request_stop)
    await server.start()
    try:
        async with AsyncExitStack() as beside:
            if companion is not None:
                await beside.enter_async_context(companion(server))
            settle_memory()
            if on_ready is not None:
                on_ready(server)
            await server.wait_until_asked_to_stop()
    finally:
        await server.stop()
