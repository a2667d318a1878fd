"""An HTTP server inside an event loop that runs already, beside whatever else runs there.

    server = HttpServer(app, config.http, on_draining=..., release=...)
    await server.start()
    ...
    await server.stop()

How it stops: readiness goes first (``on_draining``), then nobody new is let in, then whoever waits is
released (``release``), then requests are finished, then streams and WebSockets are ended as their protocols
end them, and what is still there when the time is up is cut off.

Rules: no signal handlers, no logging set-up, no event loop of its own. Nothing here knows what the
application does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from inspect import isawaitable
from typing import Any, Final

from uvicorn.config import Config

from penstock.errors import ClosedError
from penstock.gateway.config.surroundings import HttpConfig
from penstock.gateway.serving.cycle import App
from penstock.gateway.serving.guards import GuardedState, Guards
from penstock.gateway.serving.listening import BACKLOG, make_room_for, open_listener, tls_context
from penstock.gateway.serving.protocol import GuardedProtocol
from penstock.gateway.serving.websocket import GuardedSocket

_LOG = logging.getLogger("penstock.gateway.server")

_POLL_S: Final = 0.01
#: The part of the time to stop that requests have; the rest is for streams to end.
_SHARE_OF_REQUESTS: Final = 0.8
_CUT_OFF_S: Final = 1.0
#: Messages that wait for the application on one WebSocket.
_WEBSOCKET_QUEUE: Final = 32
_WEBSOCKET_PING_S: Final = 20.0


class HttpServer:
    """Serves an ASGI application."""

    def __init__(
        self,
        app: App,
        config: HttpConfig,
        *,
        guards: Guards | None = None,
        on_guard: Callable[[str], None] | None = None,
        on_draining: Callable[[], None] | None = None,
        release: Callable[[], Awaitable[None] | None] | None = None,
    ) -> None:
        """``on_guard`` hears the reason whenever a connection is ended for breaking a limit."""
        self._config = config
        self._guards = guards or Guards.of(config)
        self._state = GuardedState(self._guards, on_guard)
        self._on_draining = on_draining
        self._release = release
        self._uvicorn = _uvicorn_config(app, config)
        self._listener: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._port = 0
        self._stopped: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------------- beginning

    async def start(self, sock: socket.socket | None = None) -> None:
        """Listen on the configured address, or on a socket that listens already and is ours from now on."""
        if self._listener is not None or self._stopped is not None:
            raise ClosedError("a server can be started once; make another one")
        context = tls_context(self._config.tls) if self._config.tls else None
        make_room_for(self._guards.connections)
        listener = sock or open_listener(*self._config.address)
        self._uvicorn.load()
        self._refresh_date()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: GuardedProtocol(self._uvicorn, self._state, {}, loop),
            sock=listener,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=self._guards.header_timeout_s if context else None,
        )
        name = listener.getsockname()
        self._port = name[1] if isinstance(name, tuple) else 0

    @property
    def port(self) -> int:
        """The port in use; the configuration may have said 0: any."""
        return self._port

    def statistics(self) -> dict[str, int]:
        return {
            "connections": len(self._state.connections),
            "requests": len(self._state.tasks),
            "answered": self._state.total_requests,
        }

    def _refresh_date(self) -> None:
        self._state.date_line = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        self._state.default_headers = [(b"date", self._state.date_line[6:-2])]
        self._tick = asyncio.get_running_loop().call_later(1.0, self._refresh_date)

    # ------------------------------------------------------------------------- end

    async def stop(self, timeout_s: float | None = None) -> None:
        """Stop gracefully. Whoever calls it again waits for the same end."""
        if self._stopped is not None:
            await asyncio.shield(self._stopped)
            return
        self._stopped = asyncio.get_running_loop().create_future()
        if timeout_s is None:
            timeout_s = self._config.graceful_shutdown_timeout_ms / 1000
        try:
            await self._stop(timeout_s)
        finally:
            if self._tick is not None:
                self._tick.cancel()
            self._stopped.set_result(None)

    async def _stop(self, timeout_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        self._state.is_stopping = True
        if self._on_draining is not None:
            self._on_draining()
        if self._listener is not None:
            self._listener.close()
        await self._release_waiters(timeout_s)
        for connection in list(self._state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.shutdown()
        await _until(lambda: not self._has_requests(), now_s + timeout_s * _SHARE_OF_REQUESTS)
        self._end_streams()
        await _until(self._is_empty, now_s + timeout_s)
        await self._cut_off()

    async def _release_waiters(self, timeout_s: float) -> None:
        if self._release is None:
            return
        try:
            released = self._release()
            if isawaitable(released):
                await asyncio.wait_for(released, timeout_s * _SHARE_OF_REQUESTS)
        except Exception:  # noqa: BLE001 - the server stops all the same
            _LOG.exception("those who wait could not be released")

    def _has_requests(self) -> bool:
        """Whether somebody waits for an answer that has an end."""
        return any(
            connection.running is not None and not connection.running.is_streaming
            for connection in self._state.connections
            if isinstance(connection, GuardedProtocol)
        )

    def _end_streams(self) -> None:
        for connection in list(self._state.connections):
            if not isinstance(connection, GuardedProtocol):
                connection.shutdown()
            elif connection.running is not None:
                connection.running.end()

    def _is_empty(self) -> bool:
        return not self._state.connections and not self._state.tasks

    async def _cut_off(self) -> None:
        for surplus in list(self._state.surplus):
            surplus.transport.abort()
        if self._is_empty():
            return
        _LOG.warning(
            "%d connections and %d requests are cut off: the time to stop is over",
            len(self._state.connections),
            len(self._state.tasks),
        )
        tasks = list(self._state.tasks)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT_OFF_S)
        await _until(self._is_empty, asyncio.get_running_loop().time() + _CUT_OFF_S)

    def __repr__(self) -> str:
        state = "stopping" if self._state.is_stopping else "serving" if self._listener else "new"
        return f"<HttpServer :{self._port} {state}, {len(self._state.connections)} connections>"


def _uvicorn_config(app: Any, config: HttpConfig) -> Config:
    return Config(
        app,
        http=GuardedProtocol,
        ws=GuardedSocket,
        ws_max_size=config.limits.body_bytes,
        ws_max_queue=_WEBSOCKET_QUEUE,
        ws_ping_interval=_WEBSOCKET_PING_S,
        ws_ping_timeout=_WEBSOCKET_PING_S,
        ws_per_message_deflate=False,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        workers=1,
    )


async def _until(is_done: Callable[[], bool], deadline_s: float) -> None:
    """Polling: it is done at the end of a server's life only, and spares every request a notice."""
    loop = asyncio.get_running_loop()
    while not is_done() and loop.time() < deadline_s:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
