"""The port behind which commands find their server.

A router takes shared commands (those that any number of tasks may pipeline on one
connection), and says where commands that need a connection of their own must go. It does
not know how a command was spelled or what the caller wants of the reply.

===================  ==========================================================
``call``             the hot path: a shared command, redirected and retried by
                     the router itself
``link_for``         the shared link that such a command would take now, for
                     those who need more of it (bursts, commands that block)
``place_for``        how to reach the same server on a connection of one's own
``follow``           where a refusal that came back on such a connection, or
                     within a burst, points to
``primaries``        every server that holds data, for what concerns them all
===================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.client.connection import ReplyFuture
from penstock.client.events import Event
from penstock.client.link import Dial, Link
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError


class Place(NamedTuple):
    """A server, and the way to it."""

    name: str
    dial: Dial


class Redirection(NamedTuple):
    """Where a refused command must go instead."""

    place: Place
    link: Link
    #: ASK: only this once, and with ASKING before it. Otherwise MOVED: from now on.
    is_ask: bool


class Observer(Protocol):
    """Whoever wants to know what happens on the shared links."""

    def on_push(self, link: Link, push: list[Any]) -> None:
        """A push on a shared link: an invalidation, as shared links have no subscriptions."""

    def on_event(self, event: Event) -> None: ...


class Router(Protocol):
    """Where commands go."""

    #: Send a shared command.
    call: Callable[[Arguments], ReplyFuture]

    async def open(self) -> None:
        """Until the first connection stands; raises why it cannot."""

    async def close(self) -> None:
        """End every connection; no caller is left waiting. Idempotent."""

    def link_for(self, arguments: Arguments) -> Link:
        """The shared link to the server that holds the keys of a command; any, if it has none."""

    def place_for(self, arguments: Arguments) -> Place:
        """The same server, for a connection of one's own."""

    def follow(self, error: CommandError) -> Redirection | None:
        """Where MOVED and ASK point to; what is learned serves all later commands. None: no redirection."""

    def primaries(self) -> list[Link]:
        """A link to every server that holds data."""

    def link_named(self, name: str) -> Link:
        """The link to one server, by ``host:port``; raises ConfigError with the names that there are."""

    def statistics(self) -> Mapping[str, Any]:
        """What is in flight, waiting, discarded; by server."""
