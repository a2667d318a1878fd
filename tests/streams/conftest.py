"""One suite for the Python API of streams: embedded and served by us (native), a server, a cluster (scripts).

A test asks for ``ps`` (or ``orders``, a stream of it) and runs once on each place. What
the API sends can be watched, and cut off, through ``Wire``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import penstock
from penstock.client.transports.base import Argument
from penstock.errors import OutcomeUnknownError
from penstock.streams import Stream, StreamCommands
from tests import places

#: Each kind of place once, and both protocols over sockets.
PLACES = ("embedded-3", "served-3", "server-2", "cluster-3")
#: For files that read all kinds of replies: their fixture ``url`` goes to each of these.
EVERY_PROTOCOL = (*PLACES, "embedded-2", "server-3")


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
def orders(ps: penstock.Penstock) -> Stream:
    return ps.stream("orders")


class Wire:
    """The stream commands of a client; ``sent`` tells which, ``fault`` may cut any of them off.

    A fault is asked with each command: "before" loses the command, "after" its reply.
    """

    def __init__(self, client: penstock.Penstock) -> None:
        self._commands = StreamCommands(client)
        self.sent: list[tuple[Any, ...]] = []
        self.fault: Callable[[tuple[Any, ...]], str] = lambda _: ""

    async def execute(self, name: Argument, /, *arguments: Argument) -> Any:
        words = (name, *arguments)
        self.sent.append(words)
        fault = self.fault(words)
        if fault == "before":
            raise OutcomeUnknownError("the connection was cut")
        reply = await self._commands.execute(*words)
        if fault == "after":
            raise OutcomeUnknownError("the connection was cut")
        return reply

    def names(self) -> list[Any]:
        return [words[0] for words in self.sent]


@pytest.fixture
def wire(ps: penstock.Penstock) -> Wire:
    return Wire(ps)


@pytest.fixture
def wired(ps: penstock.Penstock, wire: Wire) -> Stream:
    """The same stream, over a wire that is watched."""
    return Stream(ps, wire, "orders")
