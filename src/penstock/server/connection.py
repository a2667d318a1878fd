"""One client: bytes to commands, replies to bytes. Executes nothing itself.

Commands go to the executor's batch; what the engine answers comes back through
:meth:`Connection.receive` after the commit and leaves with one write a tick.

When a client is read on, and when its next commands are handed over:

=============================  =======  =====================================
state                          read on  next commands
=============================  =======  =====================================
usual                          yes      at once
more arrived than a slice      no       slice by slice, each answered first
it does not read its replies   no       when it has read (``resume_writing``)
blocked (BLPOP, CLIENT PAUSE)  yes      when it is unblocked (``batch_done``)
a slow script keeps us busy    no       when that has ended (``hold``)
bytes wait for an AUTH         no       when that is answered (``batch_done``)
malformed request              no       none: error after the replies, close
=============================  =======  =====================================

A blocked client is read on since only reading tells that it is gone; what it may send
ahead is limited. A slice grows while its replies are small and the client reads them, else
it shrinks, so that the memory for replies stays small however much somebody asks for.

``receive`` is called by whichever thread runs the engine, everything else by the loop.
While the engine runs in its own thread the loop neither touches ``_out`` nor flushes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from penstock.engine import Session
from penstock.engine.control import Close, Control, Overflow, ReplyMode, SwitchProtocol
from penstock.errors import CommandError
from penstock.protocol.encoder import ENCODERS, encode2
from penstock.protocol.replies import Push, Reply
from penstock.protocol.requests import RequestReader

if TYPE_CHECKING:
    from penstock.server.listener import Server

log = logging.getLogger("penstock.server")

#: Commands of one client that may be handed over at once: at first, and at most.
_FIRST_SLICE: Final = 32
_LARGEST_SLICE: Final = 1024
#: A slice whose replies exceed this is followed by a smaller one.
_SLICE_REPLY_BYTES: Final = 4 * 1024 * 1024

#: What a parsed command costs in memory beside the bytes of its arguments.
_COMMAND_BYTES: Final = 128

#: Find out about a peer that vanished: first probe after, then every, and how many.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 300, "TCP_KEEPINTVL": 100, "TCP_KEEPCNT": 3}


class Connection(asyncio.Protocol):
    """State of one socket. The session behind it belongs to the engine."""

    __slots__ = (
        "_ahead_bytes",
        "_answered_bytes",
        "_backlog",
        "_encode",
        "_executor",
        "_guarded",
        "_held",
        "_out",
        "_pending",
        "_reader",
        "_reply_mode",
        "_server",
        "_slice",
        "_write_full",
        "closing",
        "is_blocked",
        "session",
        "transport",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._executor = server.executor
        self._reader = RequestReader(max_bulk_bytes=server.settings.max_bulk_bytes)
        self._encode: Callable[[Reply], bytes] = encode2
        self._reply_mode = ReplyMode.ON
        self._out: list[bytes] = []
        #: commands that were read and not handed over yet
        self._backlog: list[list[bytes]] = []
        self._ahead_bytes = 0
        self._slice = _FIRST_SLICE
        #: what the last slice was answered
        self._answered_bytes = 0
        #: commands that were handed over must be answered before anything else happens
        self._pending = False
        #: tighter limits hold until the client has authenticated
        self._guarded = False
        self._write_full = False
        self._held = False
        #: set by the executor; a session may change in the thread before anything of it is sent
        self.is_blocked = False
        #: nothing more is accepted from the client; the next flush closes
        self.closing = False
        self.session: Session | None = None
        self.transport: asyncio.Transport | None = None

    # ---------------------------------------------------------------- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        refusal = self._server.refusal(peer)
        if refusal is not None:
            self._close_with(b"-%b\r\n" % refusal.encode())
            return
        _keep_alive(transport.get_extra_info("socket"))
        engine = self._executor.engine
        session = engine.session(self.receive)
        # A client of a unix socket has no name; Redis shows the path of the socket for both ends.
        session.address = _address(peer or own)
        session.local_address = _address(own)
        session.kill = self._kill
        session.on_block_change = self._executor.block_changed
        session.is_remote = True
        if engine.config.requirepass:
            session.authenticated = False
            session.refresh_gate()
            self._guarded = True
        self.session = session
        self._executor.guests[session.number] = self

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is None or self.closing:
            return
        reader = self._reader
        if self._guarded:
            reader.authenticated = session.authenticated
            self._guarded = not session.authenticated
        commands = reader.feed(data)
        if commands:
            if session.gated or len(commands) > self._slice or self._backlog:
                self._submit_carefully(session, commands)
            else:
                self._executor.submit(session, commands)
        if reader.held or reader.error is not None:
            self.wait_for_batch()

    def eof_received(self) -> bool:
        """The client will send nothing more: answer what it sent, then let the transport close."""
        if self.session is not None and self._executor.has_commands_of(self.session):
            self._executor.run_now()
        self.closing = True
        return False

    def pause_writing(self) -> None:
        self._write_full = True
        self._steer_reading()

    def resume_writing(self) -> None:
        self._write_full = False
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        session, self.transport = self.session, None
        if session is not None:
            session.sink = _discard
            if self._backlog and not self.closing and not self.is_blocked:
                # It sent all of these and went away in good faith; they count.
                self._executor.submit(session, self._backlog)
            self._executor.leave(session)
        self.closing = True
        self._backlog = []
        self._out = []

    # ------------------------------------------------------------------- input

    def _submit_carefully(self, session: Session, commands: list[list[bytes]]) -> None:
        """Hand over no more than a slice, and nothing for a blocked session."""
        self._backlog += commands
        if self.is_blocked:
            self._ahead_bytes += sum(sum(map(len, argv)) + _COMMAND_BYTES for argv in commands)
            if self._ahead_bytes > self._server.settings.ahead_limit_bytes:
                log.warning("closing %r: it is blocked and has sent too much ahead", session)
                self.abort()
        elif not self._pending:
            self._submit_slice(session)

    def _submit_slice(self, session: Session) -> None:
        part, self._backlog = self._backlog[: self._slice], self._backlog[self._slice :]
        self._executor.submit(session, part)
        if self._has_enough:
            self.wait_for_batch()

    def wait_for_batch(self) -> None:
        """Do nothing more before the commands that were handed over are answered."""
        if not self._pending:
            self._pending = True
            self._executor.after_batch(self)
        self._steer_reading()

    def batch_done(self) -> None:
        """What ``wait_for_batch`` waited for: everything handed over is answered, or blocked."""
        self._pending = False
        if self._backlog:
            if self._write_full or self._answered_bytes > _SLICE_REPLY_BYTES:
                self._slice = max(self._slice // 4, 1)
            elif self._answered_bytes < _SLICE_REPLY_BYTES // 2:
                self._slice = min(self._slice * 2, _LARGEST_SLICE)
        self._answered_bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        """Continue with what was read, if the table above allows it now."""
        session, reader = self.session, self._reader
        if session is None or self.closing or self._pending or self._write_full or self.is_blocked:
            pass
        elif self._backlog:
            self._ahead_bytes = 0
            self._submit_slice(session)
        elif reader.held:
            self.data_received(b"")
        elif reader.error is not None:
            self._close_with(reader.error_reply)
        self._steer_reading()

    def hold(self, on: bool) -> None:
        """Read no further, while the engine is busy or for good, or read on."""
        self._held = on
        self._steer_reading()

    @property
    def _has_enough(self) -> bool:
        """Whether something was read that could not be handed over yet."""
        return bool(self._backlog) or self._reader.held or self._reader.error is not None

    def _steer_reading(self) -> None:
        transport = self.transport
        if transport is None or self.session is None or self.closing:
            return
        if self._write_full or self._held or (self._has_enough and not self.is_blocked):
            transport.pause_reading()
        else:
            transport.resume_reading()

    # ------------------------------------------------------------------ output

    def receive(self, reply: Reply) -> None:
        """The session's sink: keep an item until the tick's write."""
        out = self._out
        if not out:
            self._executor.dirty.append(self)
        try:
            out.append(self._encode(reply))
        except TypeError:
            out.append(self._obey(reply))

    def _obey(self, control: Control | Reply) -> bytes:
        """Do what an item that is not a reply says; answers the bytes to send for it."""
        if isinstance(control, SwitchProtocol):
            self._encode = ENCODERS[control.version]
        elif isinstance(control, ReplyMode):
            self._set_reply_mode(control)
        elif isinstance(control, Close):
            self.closing = True
        elif isinstance(control, Overflow):
            log.warning("closing %r: %d messages for it were dropped", self.session, control.dropped)
            self.closing = True
        else:
            log.error("a command answered %s, which is not a reply", type(control).__name__)
            return self._encode(CommandError("ERR internal error: the reply cannot be sent"))
        return b""

    def _set_reply_mode(self, mode: ReplyMode) -> None:
        """Exchange the sink, so that the usual one need not ask for the mode."""
        self._reply_mode = mode
        if self.session is not None:
            self.session.sink = self.receive if mode is ReplyMode.ON else self._receive_muted

    def _receive_muted(self, reply: Reply) -> None:
        """The sink while replies are off, or for one reply: pushes and controls pass."""
        if isinstance(reply, Control):
            self.receive(reply)
            return
        is_push = isinstance(reply, Push)
        # A push that confirms SUBSCRIBE is that command's reply, too; a message is nobody's.
        answers = not is_push or reply[0].endswith(b"subscribe")
        if answers and self._reply_mode is ReplyMode.SKIP:
            self._set_reply_mode(ReplyMode.ON)
        if is_push:
            self.receive(reply)

    def flush(self) -> None:
        """Write what was kept; close if that was all; disconnect a client that does not read."""
        out, self._out = self._out, []
        transport = self.transport
        if transport is None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        transport.write(data)
        if self._pending:
            self._answered_bytes = len(data)
        if self._write_full:
            self._check_output(transport)
        if self.closing:
            transport.close()

    def _check_output(self, transport: asyncio.Transport) -> None:
        session, settings = self.session, self._server.settings
        unstoppable = session is not None and (session.is_subscribed or session.monitoring)
        limit = settings.pubsub_output_limit_bytes if unstoppable else settings.output_limit_bytes
        if transport.get_write_buffer_size() > limit:
            log.warning("closing %r: it does not read its replies", session)
            self.abort()

    def write_aside(self, items: list[Reply]) -> None:
        """Write these while the engine runs elsewhere and ``_out`` belongs to its thread."""
        data = b"".join(map(self._encode_aside, items))
        if self.transport is not None:
            self.transport.write(data)
            if self.closing:
                self.transport.close()

    def _encode_aside(self, reply: Reply) -> bytes:
        try:
            encoded = self._encode(reply)
        except TypeError:
            encoded = self._obey(reply)
        return encoded if self._reply_mode is ReplyMode.ON else b""

    def _close_with(self, last_words: bytes) -> None:
        """Write this after what was answered before, and close."""
        self.closing = True
        if self.transport is not None:
            self.transport.write(last_words)
            self.transport.close()

    def close(self) -> None:
        """Close once the client has read what was written."""
        self._close_with(b"")

    def abort(self) -> None:
        """Drop the connection now, unread replies included."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def _kill(self) -> None:
        self._executor.on_loop(self.abort)

    def __repr__(self) -> str:
        state = "closing" if self.closing else "full" if self._write_full else "open"
        return f"<Connection {state} {len(self._backlog)} waiting {self.session!r}>"


def _address(name: object) -> bytes:
    if isinstance(name, tuple):
        host, port = name[:2]
        return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()
    return f"{name}:0".encode(errors="surrogateescape")


def _keep_alive(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS spells the first one differently; its default serves
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _discard(_: object) -> None:
    """The sink of a session whose client is gone."""
