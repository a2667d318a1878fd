"""``penstock.open(url)``: one object that any number of tasks share.

    async with penstock.open("./shop.pen") as ps:
        await ps.set("k", "v")
        await ps.execute("GET", "k")

Every command is one coroutine. What tasks issue in one tick of the loop leaves with one
write (one transaction, on an embedded store). Which connection a command takes is decided
here by its kind:

=============  =====================================================================
plain          the shared one, pipelined with everybody's
blocking       as ``blocking_policy`` says; a private one by default
subscribing    refused: :meth:`Client.pubsub`
exclusive      refused, with what to use instead: :meth:`Client.transaction`,
               :meth:`Client.exclusive`, a setting
=============  =====================================================================

The client connects when it is entered, awaited, or first used. It belongs to the loop that
it was first used on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client.commands import Commands, scanning
from penstock.client.commands.base import converted
from penstock.client.config import Settings, open_settings
from penstock.client.connection import ReplyFuture
from penstock.client.core import Core
from penstock.client.dialing import Dialer
from penstock.client.events import Event
from penstock.client.exclusive import Exclusive, ExclusiveConnection
from penstock.client.facts import (
    PLAIN_NAMES,
    Kind,
    blocking_timeout_ms,
    exclusive_hint,
    kind_of,
    overtakes,
    to_bytes,
)
from penstock.client.listening import Listeners
from penstock.client.monitoring import Monitor
from penstock.client.pipelines import Pipeline, Transaction
from penstock.client.pubsub import Subscriber
from penstock.client.refusals import Refusals
from penstock.client.routes import Route, ToAll, links_of, place_of
from penstock.client.scripts import Script, ScriptLibrary
from penstock.client.targets import Target
from penstock.client.transports.base import Argument, Arguments
from penstock.errors import ClosedError, CommandTimeoutError, UsageError
from penstock.protocol.replies import Reply

T = TypeVar("T")


class Client(Commands):
    """A store, a server, or a cluster. Make one with :func:`penstock.open`."""

    def __init__(self, target: Target, settings: Settings, dialer: Dialer | None = None) -> None:
        self._target = target
        self._settings = settings
        self._dialer = dialer or Dialer(target, settings)
        self._listeners = Listeners()
        self._core: Core | None = None
        self._is_closed = False

    # ------------------------------------------------------------------ lifecycle

    async def connect(self) -> Self:
        """Until the first connection stands; raises why it cannot. Repeating it is harmless."""
        core = self._core or self._start()
        core.check_usable()
        try:
            await core.router.open()
        except BaseException:
            await self.close()
            raise
        return self

    def _start(self) -> Core:
        if self._is_closed:
            raise ClosedError("the client is closed")
        self._core = Core(self._target, self._settings, self._dialer, self._listeners)
        return self._core

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let replies that are on their way arrive, then end every connection. Idempotent."""
        self._is_closed = True
        if self._core is not None:
            await self._core.close()

    # ---------------------------------------------------------------------- calls

    async def execute(
        self, *arguments: Argument, timeout_ms: int | None = None, route: Route | None = None
    ) -> Reply:
        """Run any command and return its reply as the server gave it.

        ``timeout_ms`` replaces the setting ``command_timeout_ms`` for this call; ``route``
        chooses the server where the keys do not. A refused command raises ``CommandError``.
        """
        if timeout_ms is None and route is None and arguments and arguments[0] in PLAIN_NAMES:
            return await (self._core or self._start()).call(arguments)
        return await self._execute_specially(arguments, timeout_ms, route)

    async def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> T:
        """What the helpers come to: run a command, and make its reply what they promise."""
        if arguments[0] in PLAIN_NAMES:
            reply = await (self._core or self._start()).call(arguments)
        else:
            reply = await self._execute_specially(arguments, None, None)
        return reply if convert is None else converted(arguments, convert, reply)

    def using(self, *, timeout_ms: int | None = None, route: Route | None = None) -> Using:
        """The helpers with another timeout or route: ``await ps.using(timeout_ms=200).hgetall("h")``."""
        return Using(self, timeout_ms, route)

    async def _execute_specially(
        self, arguments: Arguments, timeout_ms: int | None, route: Route | None
    ) -> Reply:
        """Everything but a plain command with the usual timeout."""
        if not arguments:
            raise TypeError("execute() needs at least the name of a command")
        core = self._core or self._start()
        core.check_usable()
        refusal = _why_not_shared(arguments)
        if refusal is not None:
            raise UsageError(refusal)
        if overtakes(arguments) and route is None:
            return await core.aside(arguments, core.call_overtaking(arguments))
        if route is not None:
            return await self._execute_at(core, arguments, timeout_ms, route)
        if kind_of(arguments[0]) is Kind.BLOCKING:
            own_timeout_ms = blocking_timeout_ms(arguments)
            if own_timeout_ms is not None:
                return await core.call_blocking(arguments, own_timeout_ms, timeout_ms)
        if timeout_ms is None:
            return await core.call(arguments)
        if timeout_ms <= core.settings.command_timeout_ms or not core.settings.command_timeout_ms:
            return await _within(core.call(arguments), timeout_ms, arguments)
        timeout_ms = await core.ready(timeout_ms) or timeout_ms
        future = core.call_longer(arguments, (timeout_ms - core.settings.command_timeout_ms) / 1000)
        return await core.aside(arguments, _within(future, timeout_ms, arguments))

    async def _execute_at(
        self, core: Core, arguments: Arguments, timeout_ms: int | None, route: Route
    ) -> Reply:
        timeout_ms = await core.ready(timeout_ms)
        own_timeout_ms = blocking_timeout_ms(arguments)
        if own_timeout_ms is not None:
            return await core.call_blocking(
                arguments, own_timeout_ms, timeout_ms, place_of(route, core.router)
            )
        links = links_of(route, core.router)
        work: asyncio.Future[list[Reply]]
        if timeout_ms is None:
            work = asyncio.gather(*(link.call(arguments) for link in links))
        else:
            extra_s = max(0, timeout_ms - core.settings.command_timeout_ms) / 1000
            work = asyncio.gather(
                *(_within(link.call_blocking(arguments, extra_s), timeout_ms, arguments) for link in links)
            )
        replies = await core.aside(arguments, work)
        if not isinstance(route, ToAll):
            return replies[0]
        return {link.name: reply for link, reply in zip(links, replies, strict=True)}

    # ----------------------------------------------------- more than one command

    def pipeline(self) -> Pipeline:
        """Commands that are sent together when you say so; not atomic."""
        return Pipeline(self._usable)

    def transaction(self) -> Transaction:
        """Commands that run together or not at all (MULTI … EXEC), in one round trip."""
        return Transaction(self._usable)

    def exclusive(self, *keys: Argument, route: Route | None = None) -> Exclusive:
        """A connection of your own, with these keys watched: ``async with ps.exclusive("k") as own:``."""
        return Exclusive(self._usable, keys, route)

    def _usable(self) -> Core:
        core = self._core or self._start()
        core.check_usable()
        return core

    async def transact(
        self, function: Callable[[ExclusiveConnection], Any], *keys: Argument, attempts: int = 100
    ) -> list[Any]:
        """Read, decide, write: run an async function that reads through the connection it is given and
        returns a :class:`Transaction` of it, and run it again while others change the keys."""
        return await Exclusive(self._usable, keys, None).transact(function, attempts)

    def _new_refusals(self) -> Refusals:
        """What a caller who repeats refused commands himself keeps count with."""
        core = self._usable()
        return Refusals(core.router, core.settings)

    def script(self, source: str | Path) -> Script:
        """A Lua script, from its text or its file: ``await script(keys=[…], args=[…])``."""
        return Script(self, source.read_text() if isinstance(source, Path) else source)

    def scripts(self, place: str | Path) -> ScriptLibrary:
        """The ``.lua`` files of a directory, or of a package's ``lua`` folder, by name."""
        return ScriptLibrary(self, place)

    # ------------------------------------------------------------------ listening

    def pubsub(self) -> Subscriber:
        """A subscriber with a queue of its own: ``async with ps.pubsub() as subscriber:``."""
        return self._usable().pubsub.subscriber()

    def monitor(self, route: Route | None = None) -> Monitor:
        """Every command that a server runs: ``async with ps.monitor() as lines:``."""
        return Monitor(self._usable, route)

    def events(self) -> AsyncIterator[Event]:
        """What happens to the connections, from now on until the client is closed."""
        return self._listeners.stream()

    def on_event(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back for every event; call the answer to stop that."""
        return self._listeners.add(callback)

    # ------------------------------------------------------------------- scanning

    async def scan_iter(
        self, match: Argument | None = None, count: int | None = None, type: str | None = None
    ) -> AsyncIterator[bytes]:
        """All keys, of every server; a key may come twice while others change the keyspace."""
        async with aclosing(self.scan_pages(match, count, type)) as pages:
            async for page in pages:
                for key in page:
                    yield key

    async def scan_pages(
        self, match: Argument | None = None, count: int | None = None, type: str | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        """The same page by page, as servers answer them; a page may be empty."""
        core = self._usable()
        await core.ready()
        calls = [link.call for link in core.router.primaries()]
        async with aclosing(scanning.scan_pages(calls, match=match, count=count, type=type)) as pages:
            async for page in pages:
                yield page

    def hscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """All fields of a hash with their values."""
        return scanning.hscan_iter(self._call_primary, key, match=match, count=count)

    def sscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> AsyncIterator[bytes]:
        """All members of a set."""
        return scanning.sscan_iter(self._call_primary, key, match=match, count=count)

    def zscan_iter(
        self, key: Argument, match: Argument | None = None, count: int | None = None
    ) -> AsyncIterator[tuple[bytes, float]]:
        """All members of a sorted set with their scores."""
        return scanning.zscan_iter(self._call_primary, key, match=match, count=count)

    def _call_primary(self, arguments: Arguments) -> ReplyFuture:
        """A cursor means something to the server alone that gave it, so replicas do not take turns."""
        return self._usable().router.link_for(arguments).call(arguments)

    # ---------------------------------------------------------------- observation

    @property
    def settings(self) -> Settings:
        """How it behaves; fixed since it was opened."""
        return self._settings

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return self._target.kind == "cluster"

    @property
    def is_embedded(self) -> bool:
        """Whether the store is opened by this process itself."""
        return self._target.kind == "embedded"

    def statistics(self) -> dict[str, Any]:
        """What is in flight, waiting, discarded, by server; private connections; the cache."""
        return {} if self._core is None else self._core.statistics()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "new" if self._core is None else "open"
        return f"<Client {self._target.redacted} {state}>"


class Using(Commands):
    """The helpers of a client, each call with these options. Routes to all servers need ``execute``."""

    def __init__(self, client: Client, timeout_ms: int | None, route: Route | None) -> None:
        if isinstance(route, ToAll):
            raise UsageError("a helper has one answer: use execute(…, route=ToAll()) for those of all")
        self._client = client
        self._timeout_ms = timeout_ms
        self._route = route

    async def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> T:
        reply = await self._client.execute(*arguments, timeout_ms=self._timeout_ms, route=self._route)
        return reply if convert is None else converted(arguments, convert, reply)


def open(url: str | os.PathLike[str], **settings: Any) -> Client:
    """A client of a directory, a server, Sentinel or a cluster; connects when entered or awaited.

    ``url`` is a path (``./shop.pen``) or one of ``redis://``, ``rediss://``, ``unix://``,
    ``redis-cluster://``, ``redis-sentinel://`` and their ``valkey`` names; the settings are
    those of :class:`penstock.client.config.Settings`.
    """
    return Client(*open_settings(url, **settings))


def _why_not_shared(arguments: Arguments) -> str | None:
    """Why a command must not be sent over a connection that others use, and what to do instead."""
    name = to_bytes(arguments[0]).decode(errors="replace").upper()
    if kind_of(arguments[0]) is Kind.SUBSCRIBE:
        return f"{name} cannot share a connection: use pubsub()"
    hint = exclusive_hint(arguments)
    return None if hint is None else f"{name} cannot share a connection: {hint}"


async def _within(future: ReplyFuture, timeout_ms: int, arguments: Arguments) -> Reply:
    """The reply, or the error that says it took too long."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(timeout_ms / 1000, _expire, future, timeout_ms, arguments[0])
    try:
        return await future
    finally:
        timer.cancel()


def _expire(future: ReplyFuture, timeout_ms: int, name: Argument) -> None:
    if not future.done():
        word = to_bytes(name).decode(errors="replace").upper()
        future.set_exception(
            CommandTimeoutError(f"no reply to {word} within {timeout_ms} ms; it may still run")
        )
