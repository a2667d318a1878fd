"""The port behind which commands find their server.

A router takes shared commands (those that any number of tasks may pipeline on one
connection) and says where commands that need a connection of their own must go. It does
not know how a command was spelled or what the caller wants of the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.client.connection import ReplyFuture
from penstock.client.link import Dial
from penstock.client.transports.base import Arguments


class Router(Protocol):
    """Where commands go."""

    async def open(self) -> None:
        """Until the first connection stands; raises why it cannot."""

    async def close(self) -> None:
        """End every connection; no caller is left waiting. Idempotent."""

    def call(self, arguments: Arguments) -> ReplyFuture:
        """Send a shared command."""

    def dial_for(self, arguments: Arguments) -> tuple[str, Dial]:
        """Name of, and way to, the server that a command must go to on a connection of its own."""

    def statistics(self) -> Mapping[str, Any]:
        """What is in flight, waiting, discarded; by server."""


#: Takes pushes that belong to no subscription of the caller (invalidations).
PushHandler = Callable[[list[Any]], None]
