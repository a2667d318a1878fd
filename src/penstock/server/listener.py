"""Accepts clients and runs what they send, all commands of a tick as one batch.

The event loop reads every ready socket, then one callback executes what arrived in one
transaction and writes every reply: the group commit of the engine, and the least
number of system calls.

A script that takes long is moved to a thread (its batch is undone and done again
there), so that the loop stays responsive: other commands wait, and after
``busy_reply_after_s`` they are told BUSY. SCRIPT KILL and SHUTDOWN NOSAVE still work.

States of the executor::

    idle ──submit──▶ scheduled ──tick──▶ idle          the batch ran on the loop
                         └──SlowScript──▶ away ──done──▶ idle or scheduled
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.engine import Engine, Session
from penstock.engine.duties import TICK_S
from penstock.engine.control import SlowScriptError
from penstock.errors import CommandError, ConfigError, PenstockError
from penstock.server.connection import Connection
from penstock.server.settings import ServerSettings

log = logging.getLogger("penstock.server")

Call = tuple[Session, list[bytes]]

_BUSY: Final = CommandError(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
)
_MAX_BATCH: Final = 10_000


class Server:
    """A listener over one engine. ``start``, then ``serve_until_stopped`` or ``stop``."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        settings.check()
        self.engine = engine
        self.settings = settings
        #: connections with replies to write this tick
        self.dirty: list[Connection] = []
        self._connections: set[Connection] = set()
        self._batch: list[Call] = []
        self._scheduled = False
        self._away: set[Session] | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._signal_fd: int | None = None
        self._listeners: list[asyncio.Server] = []
        self._stopped = asyncio.Event()
        self._stopping = False
        self._duty: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "penstock-script")
        self._loop = asyncio.get_running_loop()
        engine.config.requirepass = settings.password or ""
        engine.config.max_clients = settings.max_clients
        engine.on_shutdown = self.request_stop

    # --------------------------------------------------------------- lifecycle

    async def start(self) -> None:
        settings = self.settings
        if settings.port is not None:
            try:
                server = await self._loop.create_server(
                    lambda: Connection(self),
                    settings.host,
                    settings.port,
                    ssl=settings.ssl_context(),
                    backlog=1024,
                )
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error};"
                    " choose another port or stop what uses it"
                ) from error
            self._listeners.append(server)
            self.engine.config.port = self.port
        if settings.unix_socket is not None:
            self._listeners.append(await self._listen_unix(settings.unix_socket))
        self._duty = self._loop.call_later(TICK_S, self._do_duties)

    async def _listen_unix(self, path: Path) -> asyncio.Server:
        try:
            server = await self._loop.create_unix_server(lambda: Connection(self), str(path), backlog=1024)
        except OSError as error:
            raise ConfigError(f"cannot listen on unix socket {path}: {error.strerror or error}") from error
        path.chmod(0o700)
        return server

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
        """Ask for a graceful stop; safe to call from a signal handler."""
        self._stopped.set()

    async def serve_until_stopped(self) -> None:
        await self._stopped.wait()
        await self.stop()

    async def stop(self) -> None:
        """Refuse newcomers, answer what has arrived, close every connection. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        self._stopped.set()
        for server in self._listeners:
            server.close()
        if self._duty is not None:
            self._duty.cancel()
        deadline = self._loop.time() + self.settings.shutdown_timeout_s
        while (self._batch or self._away is not None) and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        if self._away is not None:
            self.engine.scripts.kill()
        for connection in list(self._connections):
            connection.closing = True
            connection.flush()
        while self._connections and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.abort()
        for timer in self._timers.values():
            timer.cancel()
        if self._signal_fd is not None:
            self._loop.remove_reader(self._signal_fd)
        self._thread.shutdown(wait=True)
        if self.settings.unix_socket is not None:
            self.settings.unix_socket.unlink(missing_ok=True)

    # ------------------------------------------------------------- connections

    def admit(self, connection: Connection) -> bool:
        if len(self._connections) >= self.engine.config.max_clients or self._stopping:
            self.engine.statistics.sessions_rejected += 1
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        session = connection.session
        if session is None:
            return
        self._cancel_timer(session)
        if self._away is None:
            self._end_session(session)
        else:
            # The engine is busy in another thread; its rows go with the next batch.
            self._loop.call_later(TICK_S, self.forget, connection)

    def _end_session(self, session: Session) -> None:
        try:
            self.engine.end_session(session)
        except PenstockError:
            log.exception("could not clean up after %r; the next sweep will", session)
        self._flush_dirty()

    def run_now(self) -> None:
        """Answer what has arrived before the end of the tick; a connection needs it to go on or to close."""
        if self._away is None:
            self._run_batch()

    # ----------------------------------------------------------------- batches

    def submit(self, session: Session, commands: list[list[bytes]]) -> None:
        """Add a client's commands to the batch of this tick."""
        if self._away is not None and self._is_busy and session not in self._away:
            self._answer_busy(session, commands)
            return
        batch = self._batch
        for argv in commands:
            batch.append((session, argv))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._scheduled = False
        if self._away is None:
            self._run_batch()

    def _run_batch(self) -> None:
        batch = self._batch
        if not batch:
            return
        if len(batch) > _MAX_BATCH:
            self._batch = batch[_MAX_BATCH:]
            batch = batch[:_MAX_BATCH]
            self._schedule()
        else:
            self._batch = []
        try:
            self.engine.execute(batch, self.settings.script_inline_limit_s)
        except SlowScriptError:
            self._run_elsewhere(batch)
            return
        except PenstockError as error:
            log.exception("a batch of %d commands failed", len(batch))
            for session, _ in batch:
                session.sink(CommandError(f"ERR {error}"))
        self._flush_dirty()
        if self._signal_fd is None and self.engine.mailboxes.endpoint is not None:
            self._signal_fd = self.engine.mailboxes.endpoint.fileno()
            self._loop.add_reader(self._signal_fd, self._on_signal)

    def _schedule(self) -> None:
        if self._batch and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._tick)

    def _flush_dirty(self) -> None:
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.flush()

    # ------------------------------------------------------------ slow scripts

    def _run_elsewhere(self, batch: list[Call]) -> None:
        self._away = {session for session, _ in batch}
        self._is_busy = False
        self._busy_timer = self._loop.call_later(self.settings.busy_reply_after_s, self._turn_busy)
        future = self._loop.run_in_executor(self._thread, self.engine.execute, batch)
        future.add_done_callback(lambda done: self._come_back(done, batch))

    def _come_back(self, done: asyncio.Future[None], batch: list[Call]) -> None:
        self._busy_timer.cancel()
        self._away = None
        error = done.exception()
        if error is not None:
            log.error("a batch of %d commands failed: %s", len(batch), error)
            for session, _ in batch:
                session.sink(CommandError(f"ERR {error}"))
        self._flush_dirty()
        self._schedule()

    _is_busy = False
    _busy_timer: asyncio.TimerHandle

    def _turn_busy(self) -> None:
        """Those who wait behind the script are told so, from now on."""
        self._is_busy = True
        waiting, self._batch = self._batch, []
        assert self._away is not None
        for session, argv in waiting:
            if session in self._away:
                self._batch.append((session, argv))
            else:
                self._answer_busy(session, [argv])

    def _answer_busy(self, session: Session, commands: list[list[bytes]]) -> None:
        for argv in commands:
            words = [word.upper() for word in argv[:2]]
            if words == [b"SCRIPT", b"KILL"]:
                reply = self.engine.scripts.kill_running()
            elif words == [b"SHUTDOWN", b"NOSAVE"]:
                self.engine.scripts.kill()
                self.request_stop()
                continue
            else:
                reply = _BUSY
            session.sink(reply)
        self._flush_dirty()

    # --------------------------------------------------------- blocked clients

    def block_changed(self, session: Session) -> None:
        """A session blocked or was unblocked: set its timer, or go on with what it sent meanwhile."""
        self._loop.call_soon_threadsafe(self._after_block_change, session)

    def _after_block_change(self, session: Session) -> None:
        waiter = session.blocked
        self._cancel_timer(session)
        if waiter is not None:
            if waiter.deadline_ms is not None:
                left_s = (waiter.deadline_ms - self.engine.clock.now_ms()) / 1000
                self._timers[session.number] = self._loop.call_later(max(left_s, 0), self._time_out, session)
        elif session.deferred and not session.closed:
            commands = list(session.deferred)
            session.deferred.clear()
            self.submit(session, commands)

    def _time_out(self, session: Session) -> None:
        self._timers.pop(session.number, None)
        if self._away is not None:
            self._timers[session.number] = self._loop.call_later(TICK_S, self._time_out, session)
            return
        if not session.closed:
            self.engine.time_out(session)
            self._flush_dirty()

    def _cancel_timer(self, session: Session) -> None:
        timer = self._timers.pop(session.number, None)
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------------ duties

    def _on_signal(self) -> None:
        if self._away is None:
            self.engine.collect()
            self._flush_dirty()
        else:
            # The engine is busy; the byte stays in the FIFO, so look away for a moment.
            assert self._signal_fd is not None
            self._loop.remove_reader(self._signal_fd)
            self._loop.call_later(TICK_S, self._loop.add_reader, self._signal_fd, self._on_signal)

    def _do_duties(self) -> None:
        more = False
        if self._away is None:
            try:
                more = self.engine.duties.tick()
            except PenstockError:
                log.exception("background duties failed; they will be tried again")
            self._flush_dirty()
        self._duty = self._loop.call_later(TICK_S / 10 if more else TICK_S, self._do_duties)

    def __repr__(self) -> str:
        state = "stopping" if self._stopping else "away" if self._away is not None else "serving"
        return f"<Server {self.settings.host}:{self.settings.port} {state} {len(self._connections)} clients>"
