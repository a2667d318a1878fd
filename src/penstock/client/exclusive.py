"""A connection of one's own: to watch keys, or to change what others must not share.

    async with ps.exclusive("stock") as own:       # connected, and "stock" is watched
        left = int(await own.get("stock"))
        tx = own.transaction()
        tx.set("stock", left - 1)
        await tx.all()                             # WatchError if "stock" has changed

Rules: commands of one exclusive connection run in the order they were issued. A connection
that was left clean (nothing in flight, nothing changed but watched keys) is used again,
any other is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.commands import Commands
from penstock.client.commands.base import converted
from penstock.client.facts import Kind, blocking_timeout_ms, exclusive_hint, kind_of, to_bytes
from penstock.client.pipelines import Transaction
from penstock.client.policies import classify_error
from penstock.client.private import PrivateLink
from penstock.client.refusals import Refusals
from penstock.client.router.base import Place
from penstock.client.routes import Route, place_of
from penstock.client.transports.base import Argument, Arguments
from penstock.errors import CommandError, PenstockError, UsageError, WatchError
from penstock.protocol.replies import Reply

if TYPE_CHECKING:
    from penstock.client.core import Core

T = TypeVar("T")

#: They do not change the connection, or we change it back.
_TRACELESS: Final = frozenset({b"WATCH", b"UNWATCH", b"WAIT", b"WAITAOF"})


class ExclusiveConnection(Commands):
    """Commands on a connection that nobody else uses."""

    def __init__(self, core: Callable[[], Core], link: PrivateLink) -> None:
        self._core = core
        self._link = link
        self.is_changed = False
        self.is_watching = False

    async def execute(self, *arguments: Argument) -> Reply:
        """Run any command but SUBSCRIBE and MONITOR, those that change the connection included."""
        if not arguments:
            raise TypeError("execute() needs at least the name of a command")
        return await self._run(arguments)

    async def _call(self, arguments: Arguments, convert: Callable[[Any], T] | None = None) -> T:
        reply = await self._run(arguments)
        return reply if convert is None else converted(arguments, convert, reply)

    async def _run(self, arguments: Arguments) -> Reply:
        core = self._core()
        core.touch(arguments)
        try:
            return await self._issue(arguments)
        except CommandError as error:
            if classify_error(str(error)).redirect is not None:
                error.add_note(
                    f"this connection leads to {self._link.name} alone: give exclusive() keys of one slot"
                )
            raise
        finally:
            core.touch(arguments)

    def _issue(self, arguments: Arguments) -> Awaitable[Reply]:
        name = to_bytes(arguments[0]).upper()
        kind = kind_of(arguments[0])
        if kind is Kind.SUBSCRIBE or name == b"MONITOR":
            raise UsageError(f"{name.decode(errors='replace')} has its own way: use pubsub() or monitor()")
        self.is_watching |= name == b"WATCH"
        if exclusive_hint(arguments) is not None and name not in _TRACELESS:
            self.is_changed = True
        own_timeout_ms = blocking_timeout_ms(arguments) if kind is Kind.BLOCKING else None
        if own_timeout_ms is None:
            return self._link.call(arguments)
        return self._core().call_blocking_on(self._link, arguments, own_timeout_ms)

    async def watch(self, *keys: Argument) -> None:
        """Let transactions of this connection fail if one of the keys changes before."""
        await self.execute("WATCH", *keys)

    async def unwatch(self) -> None:
        """Forget every watched key."""
        await self.execute("UNWATCH")

    def transaction(self) -> Transaction:
        """MULTI … EXEC on this connection; raises WatchError if a watched key has changed."""
        return Transaction(self._core, self._link)

    def __repr__(self) -> str:
        return f"<ExclusiveConnection {self._link!r}>"


class Exclusive:
    """Lends an exclusive connection: ``async with``."""

    def __init__(self, core: Callable[[], Core], keys: tuple[Argument, ...], route: Route | None) -> None:
        self._core = core
        self._keys = keys
        self._route = route
        self._own: ExclusiveConnection | None = None
        self._link: PrivateLink | None = None

    async def __aenter__(self) -> ExclusiveConnection:
        if self._own is not None:
            raise UsageError("this exclusive connection is in use: make another with exclusive()")
        core = self._core()
        refusals = Refusals(core.router, core.settings)
        place = await self._place(core)
        while True:
            self._link = await core.links.take_in_time(place)
            self._own = ExclusiveConnection(self._core, self._link)
            try:
                if self._keys:
                    await self._own.watch(*self._keys)
                return self._own
            except CommandError as error:
                self._let_go()
                redirection = await refusals.survive(error)
                place = await self._place(core) if redirection is None else redirection.place
            except BaseException:
                self._let_go()
                raise

    async def _place(self, core: Core) -> Place:
        if self._route is None:
            return core.router.place_for(("WATCH", *self._keys) if self._keys else ("PING",))
        await core.ready()
        return place_of(self._route, core.router)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        own, link = self._own, self._link
        assert own is not None
        assert link is not None
        is_clean = error is None or isinstance(error, CommandError | WatchError)
        if own.is_changed or not is_clean or link.statistics()["in_flight"]:
            self._let_go()
            return
        self._own = self._link = None
        try:
            if own.is_watching:
                await link.call(("UNWATCH",))
        except PenstockError:  # what it watched is forgotten with it
            self._core().links.let_go(link)
        except BaseException:
            self._core().links.let_go(link)
            raise
        else:
            self._core().links.give_back(link)

    def _let_go(self) -> None:
        assert self._link is not None
        self._core().links.let_go(self._link)
        self._own = self._link = None

    async def transact(
        self, function: Callable[[ExclusiveConnection], Awaitable[Transaction]], attempts: int
    ) -> list[Any]:
        """Run the function and the transaction that it returns until nobody has interfered, and while
        the keys move to another server."""
        core = self._core()
        refusals = Refusals(core.router, core.settings)
        while True:
            try:
                return await self._transact_here(function, attempts)
            except CommandError as error:
                await refusals.survive(error)

    async def _transact_here(
        self, function: Callable[[ExclusiveConnection], Awaitable[Transaction]], attempts: int
    ) -> list[Any]:
        async with self as own:
            for attempt in range(1, attempts + 1):
                try:
                    return await (await function(own)).all()
                except WatchError:
                    if attempt == attempts:
                        raise
                    await own.watch(*self._keys)
        raise WatchError(f"attempts must be at least 1, not {attempts}")
