"""One client: bytes to commands, replies to bytes. Executes nothing itself.

Commands go to the listener's batch; what the engine answers comes back through
:meth:`Connection.receive` after the commit and leaves with one write a tick.

Slow readers: while the transport's buffer is full we stop reading from the client, so
that it cannot ask for more; beyond the output limit it is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from penstock.engine import Session
from penstock.engine.control import Close, Control, ReplyMode, SwitchProtocol
from penstock.protocol.encoder import ENCODERS, encode2
from penstock.protocol.replies import Push, Reply
from penstock.protocol.requests import RequestReader

if TYPE_CHECKING:
    from penstock.server.listener import Server


class Connection(asyncio.Protocol):
    """State of one socket. The session behind it belongs to the engine."""

    __slots__ = (
        "_encode",
        "_guarded",
        "_out",
        "_reader",
        "_reply_mode",
        "_server",
        "closing",
        "session",
        "transport",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader = RequestReader(max_bulk_bytes=server.settings.max_bulk_bytes)
        self._encode: Callable[[Reply], bytes] = encode2
        self._out: list[bytes] = []
        self._reply_mode = ReplyMode.ON
        #: tighter limits hold until the client has authenticated
        self._guarded = False
        self.closing = False
        self.session: Session | None = None
        self.transport: asyncio.Transport | None = None

    # ---------------------------------------------------------------- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self._server.admit(self):
            self.transport.write(b"-ERR max number of clients reached\r\n")
            self.transport.close()
            return
        session = self._server.engine.session(self.receive)
        session.address = _address(self.transport.get_extra_info("peername"), "unix")
        session.local_address = _address(self.transport.get_extra_info("sockname"), "unix")
        session.kill = self.abort
        session.on_block_change = self._server.block_changed
        session.is_remote = True
        if self._server.engine.config.requirepass:
            session.authenticated = False
            session.refresh_gate()
            self._guarded = True
        self.session = session

    def data_received(self, data: bytes) -> None:
        if self.closing or self.session is None:
            return
        reader = self._reader
        if self._guarded:
            reader.authenticated = self.session.authenticated
            self._guarded = not reader.authenticated
        commands = reader.feed(data)
        if commands:
            self._server.submit(self.session, commands)
        if reader.held:
            # Limits are tighter before AUTH: what follows it is read once the AUTH was answered.
            self._server.run_now()
            self.data_received(b"")
        elif reader.error is not None:
            self._server.run_now()
            self.close_with(reader.error_reply)

    def pause_writing(self) -> None:
        if self.transport is not None and not self.closing:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.transport is not None and not self.closing:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._out.clear()
        self._server.forget(self)

    # ------------------------------------------------------------------ output

    def receive(self, reply: Reply) -> None:
        """The session's sink: keep an item until the tick's write."""
        if not self._out:
            self._server.dirty.append(self)
        if isinstance(reply, Control):
            self._obey(reply)
        else:
            self._out.append(self._encode(reply))

    def _obey(self, control: Control) -> None:
        if isinstance(control, SwitchProtocol):
            self._encode = ENCODERS[control.version]
        elif isinstance(control, ReplyMode):
            self._set_reply_mode(control)
        elif isinstance(control, Close):
            self.closing = True

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
        """Write what was kept; disconnect a client that does not read."""
        transport = self.transport
        out, self._out = self._out, []
        if transport is None or transport.is_closing():
            return
        if out:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self.closing:
            transport.close()
        elif (waiting := transport.get_write_buffer_size()) and waiting > self._output_limit():
            self.abort()

    def _output_limit(self) -> int:
        settings = self._server.settings
        if self.session is not None and self.session.is_subscribed:
            return settings.pubsub_output_limit_bytes
        return settings.output_limit_bytes

    def close_with(self, last_words: bytes) -> None:
        """Write this after what was answered before, and close."""
        self._out.append(last_words)
        self.closing = True
        self.flush()

    def abort(self) -> None:
        """Drop the connection now, unread replies included."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()


def _address(name: object, otherwise: str) -> bytes:
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[0], name[1]
        return (f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}").encode()
    return f"{name or otherwise}:0".encode()
