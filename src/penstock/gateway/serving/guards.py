"""What a connection may do, and the answers to one that does more.

Rules: an answer of a guard is JSON, ``{"error":…}``, and the last one of its connection. A reason is a word
for metrics; the sentence is for people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from uvicorn.server import ServerState

from penstock.gateway.config.surroundings import HttpConfig

#: Requests that may wait on one connection behind the one that is served.
PIPELINED_REQUESTS: Final = 100
#: How long, and for how much, a connection is still read after its last answer: closing it while bytes arrive
#: would make the client's system throw the answer away.
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 4 * 1024 * 1024
#: Connections that linger only to hear that there are too many; others beyond them hear nothing.
LINGERING_REFUSED: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Limits of one server. Times in seconds."""

    header_timeout_s: float = 10.0
    #: without any byte of a body
    body_timeout_s: float = 10.0
    #: for a whole request, from its first byte to its last
    read_timeout_s: float = 10.0
    #: while a client takes nothing of its answer
    write_timeout_s: float = 90.0
    idle_timeout_s: float = 90 * 60.0
    linger_s: float = LINGER_S
    headers_bytes: int = 64 * 1024
    connections: int = 10_000
    pipelined_requests: int = PIPELINED_REQUESTS

    @classmethod
    def of(cls, config: HttpConfig) -> Guards:
        return cls(
            header_timeout_s=config.effective_header_timeout_ms / 1000,
            body_timeout_s=config.effective_body_timeout_ms / 1000,
            # The parts may have been given more time than the whole.
            read_timeout_s=max(
                config.read_timeout_ms, config.effective_header_timeout_ms, config.effective_body_timeout_ms
            )
            / 1000,
            write_timeout_s=(config.write_timeout_ms + config.long_polling_max_timeout_ms) / 1000,
            idle_timeout_s=config.idle_timeout_ms / 1000,
            headers_bytes=config.limits.headers_bytes,
            connections=config.limits.connections,
        )


class GuardedState(ServerState):
    """What all connections of one server share."""

    def __init__(self, guards: Guards, on_guard: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.guards = guards
        #: hears the reason whenever a guard ends a connection
        self.on_guard: Callable[[str], None] = on_guard or _ignore
        #: connections that were too many and are being told so
        self.surplus: set[Any] = set()
        self.is_stopping = False
        #: the same for all answers of a second
        self.date_line = b""


def _ignore(reason: str) -> None:
    pass


def refusal(status: int, sentence: str, retry_after_s: int | None = None) -> bytes:
    """A whole answer that ends its connection."""
    body = msgspec.json.encode({"error": sentence}) + b"\n"
    retry = b"" if retry_after_s is None else b"retry-after: %d\r\n" % retry_after_s
    return (
        b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
        + b"content-type: application/json\r\n"
        + b"content-length: %d\r\n" % len(body)
        + retry
        + b"connection: close\r\n\r\n"
        + body
    )
