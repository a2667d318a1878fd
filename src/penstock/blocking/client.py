"""``penstock.blocking.open(url)``: the client for code without ``await``.

    with penstock.blocking.open("./shop.pen") as ps:
        ps.set("k", "v")
        for message in ps.pubsub(): …

Every name of :class:`penstock.Penstock` is here. Any number of threads may share one client;
what they send at the same time is pipelined on one connection.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import penstock.front as asynchronous
from penstock.blocking._commands import BlockingCommands
from penstock.blocking._twins import (
    Channel,
    Exclusive,
    ExclusiveConnection,
    Monitor,
    Pipeline,
    Script,
    ScriptLibrary,
    Stream,
    Subscriber,
    Transaction,
    Transactions,
    Using,
)
from penstock.blocking.portal import PORTAL
from penstock.blocking.twins import call
from penstock.channels.model import EXPIRE_MS
from penstock.client.config import Settings
from penstock.client.events import Event
from penstock.client.routes import Route
from penstock.client.transports.base import Argument, Arguments
from penstock.errors import CommandError, WatchError
from penstock.protocol.replies import Reply
from penstock.streams.arguments import Name
from penstock.transactions.archive.sink import ArchiveSink

T = TypeVar("T")


class Client(BlockingCommands):
    """A store, a server, or a cluster. Make one with :func:`penstock.blocking.open`."""

    def __init__(self, client: asynchronous.Penstock) -> None:
        self._client = client
        PORTAL.add(client)

    # ------------------------------------------------------------------ lifecycle

    def connect(self) -> Self:
        """Until the first connection stands; raises why it cannot. Repeating it is harmless."""
        PORTAL.run(self._client.connect())
        return self

    def close(self) -> None:
        """Let replies that are on their way arrive, then end every connection. Idempotent."""
        PORTAL.close(self._client)

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------------- calls

    def execute(
        self, *arguments: Argument, timeout_ms: int | None = None, route: Route | None = None
    ) -> Reply:
        """Run any command and return its reply as the server gave it."""
        return PORTAL.run(self._client.execute(*arguments, timeout_ms=timeout_ms, route=route))

    def using(self, *, timeout_ms: int | None = None, route: Route | None = None) -> Using:
        """The helpers with another timeout or route: ``ps.using(timeout_ms=200).hgetall("h")``."""
        return Using(self._client.using(timeout_ms=timeout_ms, route=route))

    def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> Any:
        return PORTAL.run(self._client._call(arguments, convert))

    # ----------------------------------------------------- more than one command

    def pipeline(self) -> Pipeline:
        """Commands that are sent together when you say so; not atomic."""
        return Pipeline(self._client.pipeline())

    def transaction(self) -> Transaction:
        """Commands that run together or not at all (MULTI … EXEC), in one round trip."""
        return Transaction(self._client.transaction())

    def exclusive(self, *keys: Argument, route: Route | None = None) -> Exclusive:
        """A connection of your own, with these keys watched: ``with ps.exclusive("k") as own:``."""
        return Exclusive(self._client.exclusive(*keys, route=route))

    def transact(
        self, function: Callable[[ExclusiveConnection], Transaction], *keys: Argument, attempts: int = 100
    ) -> list[Any]:
        """Read, decide, write: run a function that reads through the connection it is given and
        returns a transaction of it, and run it again while others change the keys."""
        refusals = call(self._client._new_refusals, None)
        while True:
            try:
                return self._transact_here(function, keys, attempts)
            except CommandError as error:
                PORTAL.run(refusals.survive(error))

    def _transact_here(
        self,
        function: Callable[[ExclusiveConnection], Transaction],
        keys: tuple[Argument, ...],
        attempts: int,
    ) -> list[Any]:
        with self.exclusive(*keys) as own:
            for attempt in range(1, attempts + 1):
                try:
                    return function(own).all()
                except WatchError:
                    if attempt == attempts:
                        raise
                    own.watch(*keys)
        raise WatchError(f"attempts must be at least 1, not {attempts}")

    def script(self, source: str | Path) -> Script:
        """A Lua script, from its text or its file: ``script(keys=[…], args=[…])``."""
        return Script(self._client.script(source))

    def scripts(self, place: str | Path) -> ScriptLibrary:
        """The ``.lua`` files of a directory, or of a package's ``lua`` folder, by name."""
        return ScriptLibrary(self._client.scripts(place))

    # ----------------------------------------------------------------- facilities

    def stream(self, name: Name) -> Stream:
        """A log under this key; asking for it sends nothing."""
        return Stream(self._client.stream(name))

    def channel(self, name: str, *, expire_ms: int = EXPIRE_MS) -> Channel:
        """Durable pub/sub under this name; asking for it sends nothing. Messages live for ``expire_ms``."""
        return Channel(self._client.channel(name, expire_ms=expire_ms))

    @property
    def transactions(self) -> Transactions:
        """Pipelines of steps: start them and look at them; workers are run by ``penstock worker``."""
        return Transactions(self._client.transactions)

    def with_archive(self, archive: ArchiveSink) -> Self:
        """Transactions that left the store are found there; to be said before they are first used."""
        self._client.with_archive(archive)
        return self

    def channel_names(self) -> list[str]:
        """All channels that somebody used lately. Reads the whole keyspace: for people, not for programs."""
        return PORTAL.run(self._client.channel_names())

    # ------------------------------------------------------------------ listening

    def pubsub(self) -> Subscriber:
        """A subscriber with a queue of its own: ``with ps.pubsub() as subscriber:``."""
        subscriber: Subscriber = call(self._client.pubsub, None)
        return subscriber

    def monitor(self, route: Route | None = None) -> Monitor:
        """Every command that a server runs: ``with ps.monitor() as lines:``."""
        return Monitor(self._client.monitor(route))

    def events(self) -> Iterator[Event]:
        """What happens to the connections, from now on until the client is closed."""
        return self._iterate(self._client.events)

    def on_event(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back for every event, on the loop's thread; call the answer to stop that."""
        return self._client.on_event(callback)

    # ------------------------------------------------------------------- scanning

    def scan_iter(
        self, match: Argument | None = None, count: int | None = None, type: str | None = None
    ) -> Iterator[bytes]:
        """All keys, of every server; a key may come twice while others change the keyspace."""
        return self._iterate(self._client.scan_iter, match, count, type)

    def scan_pages(
        self, match: Argument | None = None, count: int | None = None, type: str | None = None
    ) -> Iterator[list[bytes]]:
        """The same page by page, as servers answer them; a page may be empty."""
        return self._iterate(self._client.scan_pages, match, count, type)

    def hscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All fields of a hash with their values."""
        return self._iterate(self._client.hscan_iter, key, match, count)

    def sscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> Iterator[bytes]:
        """All members of a set."""
        return self._iterate(self._client.sscan_iter, key, match, count)

    def zscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> Iterator[tuple[bytes, float]]:
        """All members of a sorted set with their scores."""
        return self._iterate(self._client.zscan_iter, key, match, count)

    def _iterate(self, make: Callable[..., AsyncIterator[T]], *arguments: Any) -> Iterator[T]:
        items: Iterator[T] = call(make, None, *arguments)
        return items

    @property
    def settings(self) -> Settings:
        """How it behaves; fixed since it was opened."""
        return self._client.settings

    def statistics(self) -> dict[str, Any]:
        """What is in flight, waiting, discarded, by server; private connections; the cache."""
        figures: dict[str, Any] = call(self._client.statistics, None)  # the loop changes what it counts
        return figures

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"


def open(url: str | os.PathLike[str], **settings: Any) -> Client:
    """A blocking client of a directory, a server, Sentinel or a cluster; connects when entered or used."""
    return Client(asynchronous.open(url, **settings))
