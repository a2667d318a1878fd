"""One connection: bytes become requests, which are answered one after the other, in time and within limits.

Invariants:

1. Answers leave in the order of requests; what a guard has to say comes after them.
2. After a guard has spoken nothing more is parsed.
3. A request's headers are those before its body: trailers are dropped.

How long everything may take is the business of ``lifetime``. Nothing here knows what requests are about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from penstock.gateway.http.requests import CONNECTION
from penstock.gateway.serving.cycle import Cycle
from penstock.gateway.serving.guards import GuardedState, refusal
from penstock.gateway.serving.heads import (
    Fault,
    fault_of,
    fault_of_size,
    make_scope,
    plain_address,
    size_bytes,
    without_offer,
)
from penstock.gateway.serving.lifetime import BODY, HEAD, NOTHING, Lifetime

#: Headers that the connection itself has to know.
_NOTED: Final = frozenset((b"host", b"expect", b"transfer-encoding"))
#: Bytes around each byte of a body, at worst: chunks of one byte.
_CHUNK_OVERHEAD: Final = 8

_MALFORMED: Final = Fault(400, "malformed", "this is not a request that HTTP/1.1 allows")
_PIPELINE: Final = Fault(503, "pipeline", "too many requests wait on this connection")
_OVERHEAD: Final = Fault(400, "overhead", "the chunks of the body hold too much that is not the body")
_CONNECT: Final = Fault(405, "connect", "this server is not a proxy")
_EARLY: Final = Fault(400, "pipeline", "a WebSocket cannot begin before earlier requests are answered")


class _StopParsing(Exception):  # noqa: N818 - it ends the parser's work, and means nothing else
    """Raised in a callback of the parser, after a refusal."""


class GuardedProtocol(Lifetime):
    """A connection of :class:`penstock.gateway.serving.server.HttpServer`."""

    def __init__(
        self,
        config: Config,
        server_state: GuardedState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # The request that is being received.
        self._hosts = 0
        self._transfer_encoding = b""
        self._fed_bytes = 0
        self._head_bytes = 0
        self._overhead_bytes = 0

    # ------------------------------------------------------------------------- beginning and end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = get_local_addr(transport)
        self.client = plain_address(get_remote_addr(transport))
        self.scheme = "https" if is_ssl(transport) else "http"
        self._idle_since_s = self.loop.time()
        if len(self.connections) >= self._guards.connections:
            self._send_away()
            return
        self.connections.add(self)
        self._timer.set_before(self._idle_since_s + self._guards.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.state.surplus.discard(self)
        self._timer.cancel()
        # All of them: those that wait behind another one will never be started.
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if isinstance(cycle, Cycle) and not cycle.response_complete:
                cycle.disconnect()
        self.flow.resume_writing()
        self.parser = None  # type: ignore[assignment]

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client will send nothing more. It may still listen, unless TLS is spoken."""
        self._is_eof = True
        running = self._running
        if running is None or self._is_deaf or self.scheme == "https":
            return None
        if self._phase == BODY:
            # Half a request: it will never be whole.
            if not self.pipeline:
                return None
            self.pipeline.popleft()
        self._phase = NOTHING
        self._is_deaf = True
        running.end()
        for cycle, _ in self.pipeline:
            cycle.end()  # type: ignore[attr-defined]
        return True

    def shutdown(self) -> None:
        """The server stops: nothing new begins here, what runs is finished."""
        self.pipeline.clear()
        if self._running is None:
            self._close()
        else:
            self._running.keep_alive = False

    @property
    def running(self) -> Cycle | None:
        """The request that is being served."""
        return self._running

    def on_gone(self, tell: Callable[[], None]) -> Callable[[], object] | None:
        """For the application (``http.requests``): who waits for the request that is being served."""
        return None if self._running is None else self._running.on_gone(tell)

    # ------------------------------------------------------------------------- receiving

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._discard(len(data))
            return
        self._fed_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            if not self._is_deaf:
                self._refuse(_MALFORMED)
        if self._phase != NOTHING:
            self._note_piece(len(data))

    def on_message_begin(self) -> None:
        self._phase = HEAD
        self._is_fresh = False
        self._hosts = 0
        self._transfer_encoding = b""
        self._head_since_s = 0.0
        self._head_bytes = 0
        self._discarded_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != HEAD:
            return
        name = name.lower()
        self.headers.append((name, value))
        if name in _NOTED:
            if name == b"host":
                self._hosts += 1
            elif name == b"expect":
                self.expect_100_continue = value.lower() == b"100-continue"
            else:
                # Several are one list (RFC 9110, 5.3): not the last one alone decides.
                self._transfer_encoding += b", " + value if self._transfer_encoding else value

    def on_headers_complete(self) -> None:
        method = self.parser.get_method().decode("ascii")
        version = self.parser.get_http_version()
        self._check_head(version)
        self.scope = make_scope(  # type: ignore[assignment]
            method, version, self.url, self.headers, self.scheme, self.client, self.server
        )
        if self.parser.should_upgrade():
            return
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._phase = BODY
        self._overhead_bytes = 0
        cycle = Cycle(
            self,
            self.scope,
            version == "1.1" and self.parser.should_keep_alive(),
            self.expect_100_continue,
        )
        self.cycle = cycle
        if self._running is None:
            self._start(cycle)
        elif len(self.pipeline) < self._guards.pipelined_requests:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
        else:
            self._phase = HEAD  # it has no cycle: what is said to it comes after all others
            self._refuse(_PIPELINE)
            raise _StopParsing

    def _check_head(self, version: str) -> None:
        fault = fault_of(version, self._hosts, self._transfer_encoding, len(self.headers))
        limit_bytes = self._guards.headers_bytes
        # Measured only where it can be too long; what follows the head in the same piece must not count.
        is_suspect = self._fed_bytes + self._head_bytes > limit_bytes
        if is_suspect and size_bytes(self.url, self.headers) > limit_bytes:
            fault = fault_of_size(self.url, limit_bytes)
        if fault is not None:
            self._refuse(fault)
            raise _StopParsing

    def _start(self, cycle: Cycle) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(self.app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes -= len(body) * (_CHUNK_OVERHEAD + 1)
        cycle = self.cycle
        if cycle.response_complete or cycle.disconnected:
            self._discard(len(body))
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.wake()  # type: ignore[attr-defined]

    def on_message_complete(self) -> None:
        if self._phase == BODY:
            self.cycle.more_body = False
            self.cycle.wake()  # type: ignore[attr-defined]
        self._phase = NOTHING

    def _note_piece(self, size_bytes: int) -> None:
        """A request has arrived in part: from here on it has a deadline, and a size."""
        now_s = self.loop.time()
        if not self._head_since_s:
            self._head_since_s = now_s
        if self._phase == HEAD:
            self._head_bytes += size_bytes
            if self._head_bytes > self._guards.headers_bytes:
                self._refuse(fault_of_size(self.url, self._guards.headers_bytes))
                return
        else:
            self._progress_s = now_s
            # Whatever is not the body itself: sizes of chunks, their extensions, trailers.
            self._overhead_bytes += size_bytes
            if self._overhead_bytes > self._guards.headers_bytes:
                self._refuse(_OVERHEAD)
                return
        self._timer.set_before(self._deadline_s(now_s))

    # ------------------------------------------------------------------------- upgrades

    def _upgrade(self, rest: bytes) -> None:
        """Somebody would like to speak something else from here on."""
        method = self.scope["method"]
        if self._should_upgrade() and method == "GET":
            self._begin_websocket(rest)
            return
        if method == "CONNECT":
            self._refuse(_CONNECT)
            return
        # An offer may be ignored (RFC 9110, 7.8). The parser has stopped before the body, so the request is
        # given to another one, without the offer.
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(without_offer(method, self.url, self.headers) + rest)

    def _begin_websocket(self, rest: bytes) -> None:
        if self._running is not None:
            self._refuse(_EARLY)
            return
        self._timer.cancel()
        self.handle_websocket_upgrade()
        if rest:
            self.transport.get_protocol().data_received(rest)  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------- answers

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        done, self._running = self._running, None
        if self.transport.is_closing():
            return
        if done is not None and not done.keep_alive:
            self._farewell = b""
            self._end()
        elif self.pipeline:
            self.flow.resume_reading()
            cycle, _ = self.pipeline.pop()
            self._start(cycle)  # type: ignore[arg-type]
        elif self._farewell or self._is_deaf:
            self._end()
        else:
            self.flow.resume_reading()
            self._idle_since_s = self.loop.time()
            if not self._timer.is_set:
                self._timer.set_before(self._deadline_s(self._idle_since_s))

    # ------------------------------------------------------------------------- guards

    def _refuse(self, fault: Fault) -> None:
        """Say so when everything before is answered, and end the connection."""
        self.state.on_guard(fault.reason)
        self._is_deaf = True
        self._farewell = refusal(fault.status, fault.sentence)
        is_begun, self._phase = self._phase == BODY, NOTHING
        if is_begun and self.cycle.response_complete:
            # It was answered before it was whole: there is nothing more to say.
            self._farewell = b""
            self._linger()
            return
        if is_begun:
            # It is the latest request that is refused; the application may have it already.
            if self.pipeline:
                self.pipeline.popleft()
            elif self._running is not None:
                self._break_off(self._running)
        if self._running is None and not self.transport.is_closing():
            self._end()

    def _break_off(self, cycle: Cycle) -> None:
        """The application has a request that will not come whole."""
        self._running = None
        if cycle.is_streaming:
            self.transport.abort()
        cycle.disconnect()

    def __repr__(self) -> str:
        phase = ("between requests", "in a head", "in a body")[self._phase]
        state = "deaf, " if self._is_deaf else ""
        return f"<GuardedProtocol {self.client} {state}{phase}, {len(self.pipeline)} wait>"
