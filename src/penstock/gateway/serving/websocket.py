"""A WebSocket connection as uvicorn serves it, with what a client sends too early kept until it may count.

A client has to wait for the answer to its handshake (RFC 6455, 4.1). Frames that come before it would meet a
parser that cannot refuse them yet, and end in an exception. Here they wait, up to a limit, and are read
once the application has accepted; who sends more is cut off.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: What may come before the handshake is answered.
EARLY_BYTES: Final = 64 * 1024


class GuardedSocket(WebSocketsSansIOProtocol):
    """The handshake itself is the first piece that it receives."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_asked = False
        self._early = b""

    def data_received(self, data: bytes) -> None:
        if self._is_asked and not self.handshake_complete:
            self._early += data
            if len(self._early) > EARLY_BYTES:
                self._early = b""
                self.transport.abort()
            return
        self._is_asked = True
        super().data_received(data)

    async def send(self, message: Any) -> None:
        await super().send(message)
        early, self._early = self._early, b""
        if self.transport.is_closing():
            self.handshake_complete = True  # the client has gone: that it has no answer is nobody's fault
        elif early and message["type"] == "websocket.accept":
            super().data_received(early)
