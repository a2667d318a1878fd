"""One request and its answer, as the application sees them: ``receive`` and ``send`` of ASGI.

What it does beyond uvicorn's: the head of a whole answer leaves together with its body; header lines that
were sent before are not checked and put together again; a client that has finished sending (and may still
listen) is told apart from one that is gone; a stream that the server ends is ended properly.

Rules: whatever the application does, the client gets a whole answer or a connection that breaks off, never an
answer that looks whole and is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from penstock.gateway.serving.guards import refusal

if TYPE_CHECKING:
    from penstock.gateway.serving.protocol import GuardedProtocol

_LOG = logging.getLogger("penstock.gateway.http")

Message: TypeAlias = Any
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_DISCONNECT: Final = {"type": "http.disconnect"}
#: Longer answers are not copied to be sent with their heads.
_JOINED_BYTES: Final = 64 * 1024
#: Header lines that are sent again and again. Those that differ each time find no place, and that is fine.
_LINES: Final[dict[tuple[bytes, bytes], bytes]] = {}
_MOST_LINES: Final = 1024
_LONGEST_LINE: Final = 256
_SPECIAL: Final = frozenset((b"content-length", b"transfer-encoding", b"connection"))

_FAILED: Final = refusal(500, "something went wrong here; it was logged")
_STOPPING: Final = refusal(503, "this server is stopping; try again", retry_after_s=1)


class Cycle(RequestResponseCycle):
    """Made by the connection when the head of a request is complete."""

    # The parent's constructor makes an event for each request, which most never need.
    def __init__(  # pylint: disable=super-init-not-called
        self, protocol: GuardedProtocol, scope: Any, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._protocol = protocol
        self.scope = scope
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        #: nobody will see an answer
        self.disconnected = False
        #: the client closed its side, or the server stops: whoever only waits should end
        self.is_over = False
        self.body = bytearray()
        self.more_body = True
        self._is_body_taken = False
        self._event: asyncio.Event | None = None
        self._tell_gone: Callable[[], None] | None = None
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding: bool | None = None
        #: what is still missing of the answer; None: it ends with the connection
        self._missing_bytes: int | None = 0
        self._held_head = b""

    @property
    def is_streaming(self) -> bool:
        """Whether an answer is under way that may never end by itself."""
        return self.response_started and not self.response_complete and not self._held_head

    # ------------------------------------------------------------------------- for the connection

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()

    def disconnect(self) -> None:
        self.disconnected = True
        self._tell_and_wake()

    def end(self) -> None:
        """Whoever waits on behalf of this request should stop; an answer can still be sent."""
        self.is_over = True
        self._tell_and_wake()

    def _tell_and_wake(self) -> None:
        tell, self._tell_gone = self._tell_gone, None
        if tell is not None:
            tell()
        self.wake()

    async def run_asgi(self, app: App) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Exception as error:  # noqa: BLE001 - one request's failure must not end the others
            _LOG.error("%s failed", self.scope["method"], exc_info=error)
            self._finish(_FAILED)
            return
        if not self.response_complete and not self.disconnected:
            self._finish(_STOPPING if self._protocol.state.is_stopping else _FAILED)

    def _finish(self, instead: bytes) -> None:
        """The application is done with this request, and the answer is not complete."""
        if self.disconnected or self.response_complete or self.transport.is_closing():
            return
        self.keep_alive = False
        if not self.response_started or self._held_head:
            self._held_head = b""
            self.response_started = True
            # Somebody who closed his side while he waited was told nothing by the application: he is gone.
            if not self.is_over or self._protocol.state.is_stopping:
                self.transport.write(instead)
        elif self.is_over and self.chunked_encoding:
            self.transport.write(b"0\r\n\r\n")
        else:
            self.disconnected = True
            self.transport.abort()
            return
        self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.wake()
        self._protocol.on_response_complete()

    # ------------------------------------------------------------------------- for the application

    async def receive(self) -> Message:
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        while True:
            if self.disconnected or self.response_complete:
                return _DISCONNECT
            if not self._is_body_taken:
                if self.body or not self.more_body:
                    return self._take_body()
            elif self.is_over:
                return _DISCONNECT
            self.flow.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
            self._event.clear()

    def on_gone(self, tell: Callable[[], None]) -> Callable[[], object] | None:
        """What ``receive`` tells once the body was taken, by a call instead of a task that waits for it."""
        if self.disconnected or self.is_over:
            return None
        self.flow.resume_reading()
        self._tell_gone = tell
        return self._forget_gone

    def _forget_gone(self) -> None:
        self._tell_gone = None

    def _take_body(self) -> Message:
        self._is_body_taken = not self.more_body
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            if message["type"] != "http.response.start":
                raise RuntimeError(f"an answer starts with http.response.start, not {message['type']}")
            head = self._head(message["status"], message.get("headers", ()))
            self.response_started = True
            if self.chunked_encoding or self._missing_bytes is None:
                self.transport.write(head)
            else:
                self._held_head = head
        elif self.response_complete:
            raise RuntimeError(f"{message['type']} was sent after the whole answer")
        else:
            self._send_body(message.get("body", b""), message.get("more_body", False))

    def _send_body(self, body: bytes, more_body: bool) -> None:
        head, self._held_head = self._held_head, b""
        if self.scope["method"] == "HEAD":
            body, self._missing_bytes = b"", 0
        elif self.chunked_encoding:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more_body:
                body += b"0\r\n\r\n"
        elif self._missing_bytes is not None:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0 or (self._missing_bytes and not more_body):
                self._held_head = head
                raise RuntimeError("the answer's body is not as long as its content-length says")
        if head and len(body) <= _JOINED_BYTES:
            self.transport.write(head + body)
        else:
            if head:
                self.transport.write(head)
            if body:
                self.transport.write(body)
        if not more_body:
            self._complete()

    # ------------------------------------------------------------------------- head

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        lines = [STATUS_LINE[status], self._protocol.state.date_line]
        says_close = False
        for pair in headers:
            line = _LINES.get(pair)
            if line is None and pair[0] == b"content-length" and pair[1].isdigit():
                # Digits need no check, and nearly every answer has it.
                line = b"content-length: %b\r\n" % pair[1]
                self._note(*pair)
            elif line is None:
                line = _line(pair)
                name = pair[0].lower()
                if name in _SPECIAL:
                    says_close |= self._note(name, pair[1])
            lines.append(line)
        # A body that was announced and not asked for may come or not: what follows could not be told from it.
        if self.waiting_for_100_continue:
            self.keep_alive = False
            self.waiting_for_100_continue = False
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self._stream(lines)
        lines.append(b"\r\n")
        return b"".join(lines)

    def _note(self, name: bytes, value: bytes) -> bool:
        """What the server must know of a header; whether it says that the connection will be closed."""
        if name == b"content-length" and self.chunked_encoding is None:
            self._missing_bytes = int(value)
            self.chunked_encoding = False
        elif name == b"transfer-encoding" and value.lower() == b"chunked":
            self._missing_bytes = 0
            self.chunked_encoding = True
        elif name == b"connection" and b"close" in value.lower():
            self.keep_alive = False
            return True
        return False

    def _stream(self, lines: list[bytes]) -> None:
        """An answer without a length: in chunks, or, for clients that do not know them, until the end."""
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
            self._missing_bytes = None
        else:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")


def _line(pair: tuple[bytes, bytes]) -> bytes:
    """A header as bytes, checked: a value with a line feed would be a header of somebody else's."""
    name, value = pair
    known = _LINES.get(pair)
    if known is not None:
        return known
    if not name or HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError(f"the header {name!r} has a name or a value that HTTP does not allow")
    name = name.lower()
    line = b"%b: %b\r\n" % (name, value)
    if name not in _SPECIAL and len(line) <= _LONGEST_LINE and len(_LINES) < _MOST_LINES:
        _LINES[pair] = line
    return line
