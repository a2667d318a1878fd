"""A server: listens, decides who may come in, stops gracefully.

What clients send is the business of ``connection`` and of the host's executor.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.engine import Engine
from penstock.errors import ConfigError
from penstock.host import Executor
from penstock.server import sockets
from penstock.server.connection import Connection
from penstock.server.settings import ServerSettings, is_loopback

_TOO_MANY: Final = "ERR max number of clients reached"
_PROTECTED: Final = (
    "DENIED this server is in protected mode and has no password, so it serves its own machine only;"
    " set requirepass, or start it with --protected-mode no if the network is trusted"
)
_POLL_S: Final = 0.005


class Server:
    """A listener over one engine. ``start``, ``wait_until_asked_to_stop``, ``stop``."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        settings.check()
        self.settings = settings
        self.executor: Executor[Connection] = Executor(
            engine, settings.script_inline_limit_s, self.request_stop
        )
        self._engine = engine
        self._listeners: list[asyncio.Server] = []
        self._unix_identity: tuple[int, int] | None = None
        self._stopped = asyncio.Event()
        self._stopping = False
        engine.config.requirepass = settings.password or ""
        engine.config.max_clients = settings.max_clients
        engine.config.max_bulk_bytes = settings.max_bulk_bytes

    # --------------------------------------------------------------- lifecycle

    async def start(self) -> None:
        """Listen. Raises :class:`ConfigError` if that is not possible; nothing stays open then."""
        try:
            if self.settings.port is not None:
                await self._listen_tcp(self.settings.host, self.settings.port)
                self._engine.config.port = self.port
            if self.settings.unix_socket is not None:
                await self._listen_unix(self.settings.unix_socket)
        except BaseException:
            await self.stop()
            raise

    async def _listen_tcp(self, host: str, port: int) -> None:
        context = self.settings.ssl_context()
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self), host, port, ssl=context, backlog=sockets.BACKLOG
            )
        except OSError as error:
            raise sockets.explain_tcp(host, port, error) from error
        self._listeners.append(server)

    async def _listen_unix(self, path: Path) -> None:
        unix = sockets.open_unix_socket(path)
        self._unix_identity = sockets.identity(path)
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: Connection(self), sock=unix, backlog=sockets.BACKLOG
        )
        self._listeners.append(server)

    @property
    def port(self) -> int:
        """The TCP port in use (the settings may have said 0: any)."""
        for server in self._listeners:
            for sock in server.sockets:
                name = sock.getsockname()
                if isinstance(name, tuple):
                    return int(name[1])
        raise ConfigError("the server has no TCP port")

    def request_stop(self) -> None:
        """Ask for a graceful stop. For the event loop's thread."""
        self._stopped.set()

    async def wait_until_asked_to_stop(self) -> None:
        await self._stopped.wait()

    async def stop(self) -> None:
        """Refuse newcomers, read no further, answer what has arrived, close. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        self._stopped.set()
        for server in self._listeners:
            server.close()
        self._remove_unix_socket()
        deadline_s = asyncio.get_running_loop().time() + self.settings.shutdown_timeout_s
        # One round to read what lies in the sockets already; whoever sends on would never end it.
        await asyncio.sleep(_POLL_S)
        for connection in self.executor.guests.values():
            connection.hold(True)
        await self._wait_until_idle(deadline_s)
        await self._close_connections(deadline_s)
        self.executor.close()

    async def _wait_until_idle(self, deadline_s: float) -> None:
        executor = self.executor
        await _poll(lambda: executor.is_idle or executor.is_busy, deadline_s)
        while executor.is_away:
            # Again and again: it may be between two scripts, or just about to start one.
            self._engine.scripts.kill()
            await asyncio.sleep(_POLL_S)
        await _poll(lambda: executor.is_idle, deadline_s)

    async def _close_connections(self, deadline_s: float) -> None:
        connections = self.executor.guests
        for connection in list(connections.values()):
            connection.close()
        await _poll(lambda: not connections, deadline_s)
        for connection in list(connections.values()):
            connection.abort()
        await _poll(lambda: not connections, math.inf)

    def _remove_unix_socket(self) -> None:
        path = self.settings.unix_socket
        # Not one by which another server replaced ours.
        if (
            path is not None
            and self._unix_identity is not None
            and sockets.identity(path) == self._unix_identity
        ):
            path.unlink(missing_ok=True)

    # ------------------------------------------------------------------- doors

    def refusal(self, peer: object) -> str | None:
        """Why a newcomer is sent away, as an error line; None if it may stay."""
        config = self._engine.config
        is_stranger = isinstance(peer, tuple) and not is_loopback(peer[0])
        if is_stranger and self.settings.protected and not config.requirepass:
            return _PROTECTED
        if len(self.executor.guests) >= config.max_clients:
            self._engine.statistics.sessions_rejected += 1
            return _TOO_MANY
        return None

    def __repr__(self) -> str:
        state = "stopping" if self._stopping else "serving"
        return f"<Server {self.settings.host}:{self.settings.port} {state} {self.executor!r}>"


async def _poll(is_done: Callable[[], bool], deadline_s: float) -> None:
    """Polling, since it is done twice in the life of a server and spares the usual path an event."""
    loop = asyncio.get_running_loop()
    while not is_done() and loop.time() < deadline_s:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
