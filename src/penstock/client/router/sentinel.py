"""One primary that sentinels know of; when they promote another, the client follows.

How the primary is reached, for the shared link and for connections of one's own, each time:

    ask the sentinels ──> connect, handshake ──> ROLE must be master

How it is noticed that there is another one, soonest first:

====================  ====================================================================
``+switch-master``    heard from a sentinel: every connection to another server ends now
READONLY, MASTERDOWN  the server is asked for its role while commands are held back. No
                      primary any more: its connection ends. Still the primary: the next
                      such error within a second is the caller's, whatever made it
connection lost       as with any server
====================  ====================================================================

Rules
-----
S1  A command that was refused with READONLY, MASTERDOWN or LOADING did not run. It is sent
    again, to whoever is the primary then, until its timeout.
S2  A sentinel that named the wrong server is asked last the next time; when to try again is the
    reconnect policy's decision.
S3  ``call`` alone reads from replicas (``read_from``); bursts, blocking commands and everything
    with a connection of its own go to the primary.

How sentinels are asked is in ``sentinel_asking``, how they are listened to in
``sentinel_watching``; replicas are in ``sentinel_replicas``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from penstock.client.config import Settings
from penstock.client.connection import Connection, ReplyFuture, Slot
from penstock.client.dialing import Dialer
from penstock.client.events import TopologyChanged
from penstock.client.facts import suits_replicas
from penstock.client.handshake import ServerFacts
from penstock.client.link import Link, LinkState
from penstock.client.policies import ErrorClass, classify_error
from penstock.client.router.base import Observer, Place, Redirection
from penstock.client.router.reporting import report_state
from penstock.client.router.sentinel_asking import Sentinels, Word
from penstock.client.router.sentinel_replicas import Replicas
from penstock.client.router.sentinel_replies import PrimaryRole, parse_role
from penstock.client.router.sentinel_watching import FailoverWatch
from penstock.client.targets import Address
from penstock.client.transports.base import Arguments
from penstock.errors import (
    AuthenticationError,
    CommandError,
    ConfigError,
    ConnectionLostError,
    NotSentError,
    PenstockError,
)

#: What only a server that is not the primary answers.
_NO_PRIMARY: Final = (ErrorClass.READONLY, ErrorClass.MASTERDOWN)
#: How long a server that has just said it is the primary is not asked again.
_TRUST_S: Final = 1.0
#: Between two attempts of a command while the primary loads its data.
_LOADING_DELAY_S: Final = 0.1


class SentinelRouter:
    """A router whose one link leads to the primary of the moment."""

    def __init__(
        self,
        dialer: Dialer,
        sentinels: Sequence[Address],
        service: str,
        settings: Settings,
        observer: Observer,
    ) -> None:
        self._dialer = dialer
        self._service = service
        self._settings = settings
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        # Once for the sentinels, once for the primary.
        self._open_within_s = 2 * (settings.connect_timeout_ms + settings.handshake_timeout_ms) / 1000
        self._sentinels = Sentinels(dialer, sentinels, service, settings)
        self._link = Link(service, self, self._dial_shared, settings)
        #: connections to primaries, past and present, as long as somebody has them
        self._connections: weakref.WeakKeyDictionary[Connection, Address] = weakref.WeakKeyDictionary()
        #: of dials under way: where to, and what ends them
        self._dials: dict[asyncio.Timeout, Address] = {}
        #: of the shared link: the latest connection, where it leads, and what was told of that
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._told: Address | None = None
        self._check: asyncio.Task[None] | None = None
        self._trusted_until_s = 0.0
        #: commands that wait for a primary that is loading
        self._delayed: dict[ReplyFuture, tuple[Slot, asyncio.TimerHandle]] = {}
        self._replicas: Replicas | None = None
        if settings.read_from != "primary":
            self._replicas = Replicas(dialer, self._sentinels, service, settings, observer, self._link)
        self._watch = FailoverWatch(
            dialer,
            self._sentinels,
            service,
            settings,
            on_switch=self._follow_switch,
            on_word=self._weigh,
            on_replicas=None if self._replicas is None else self._replicas.refresh_soon,
        )
        #: the hot path: no frame of ours between caller and link, unless replicas are read from
        self.call: Callable[[Arguments], ReplyFuture] = (
            self._link.call if self._replicas is None else self._call_any
        )

    async def open(self) -> None:
        await self._link.wait_open(self._open_within_s)

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check])
        if self._replicas is not None:
            await self._replicas.close()
        await self._watch.close()
        await self._link.close()
        for slot, timer in list(self._delayed.values()):
            timer.cancel()
            self._resume(slot)  # a closed link tells the caller so

    def link_for(self, arguments: Arguments) -> Link:
        return self._link

    def place_for(self, arguments: Arguments) -> Place:
        return Place(self._link.name, self._dial)

    def follow(self, error: CommandError) -> Redirection | None:
        if not self._is_from_no_primary(error):
            return None
        self._check_primary()
        # Not the name of any server: idle connections to the old primary must not be found by it.
        return Redirection(Place(self._service, self._dial), self._link, is_ask=False)

    def primaries(self) -> list[Link]:
        return [self._link]

    def link_named(self, name: str) -> Link:
        links: dict[str, Link] = {str(self._address): self._link} if self._address else {}
        if self._replicas is not None:
            links |= self._replicas.by_address()
        for address, link in links.items():
            if name in (address, link.name):
                return link
        known = ", ".join(map(repr, links)) or "none yet"
        raise ConfigError(f"{self._service!r} has no server {name!r}, only {known}")

    def statistics(self) -> Mapping[str, Any]:
        return {link.name: link.statistics() for link in (self._link, *(self._replicas or ()))}

    def _call_any(self, arguments: Arguments) -> ReplyFuture:
        if arguments and self._replicas is not None and suits_replicas(arguments):
            return self._replicas.next().call(arguments)
        return self._link.call(arguments)

    # ---------------------------------------------------------------- connecting

    async def _dial_shared(self, connection: Connection) -> ServerFacts:
        facts = await self._dial(connection, is_shared=True)
        self._connection = connection
        self._address = self._connections[connection]
        self._link.name = f"{self._service}@{self._address}"
        self._trusted_until_s = 0.0
        return facts

    async def _dial(self, connection: Connection, *, is_shared: bool = False) -> ServerFacts:
        """Find the primary and connect to it."""
        word = await self._sentinels.find_primary()
        try:
            with self._ended_by_switch(word.primary) as scope:
                async with scope:
                    facts = await self._dialer.to(word.primary, is_shared=is_shared)(connection)
                    await self._make_sure(connection, word)
        except TimeoutError:
            raise NotSentError(f"{self._service} has left {word.primary}") from None
        except PenstockError:
            self._sentinels.doubt(word.sentinel)
            raise
        self._connections[connection] = word.primary
        return facts

    @contextmanager
    def _ended_by_switch(self, address: Address) -> Iterator[asyncio.Timeout]:
        """A scope without a limit until a failover gives it one: a dead host may cost a whole timeout."""
        scope = asyncio.timeout(None)
        self._dials[scope] = address
        try:
            yield scope
        finally:
            del self._dials[scope]

    async def _make_sure(self, connection: Connection, word: Word) -> None:
        """Raise unless the server itself says that it is a primary."""
        timeout_ms = self._settings.handshake_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                role = parse_role(await connection.call(("ROLE",)))
        except TimeoutError:
            raise NotSentError(f"{word.primary} did not tell its role within {timeout_ms} ms") from None
        except CommandError as error:
            raise _role_refused(word.primary, error) from error
        if not isinstance(role, PrimaryRole):
            raise NotSentError(
                f"{word.primary} is not the primary of {self._service}, as {word.sentinel} says it is"
            )

    # ------------------------------------------------------------------ failovers

    def _follow_switch(self, word: Word) -> None:
        """A sentinel says that there is another primary now."""
        self._sentinels.prefer(word.sentinel)
        cause = ConnectionLostError(f"{self._service} has moved to {word.primary}")
        for scope, address in self._dials.items():
            if address != word.primary and not scope.expired():
                scope.reschedule(self._loop.time())
        for connection, address in list(self._connections.items()):
            if address != word.primary:
                _end(connection, cause)
        if self._link.state is LinkState.WAITING:
            self._link.start()
        if self._replicas is not None:
            self._replicas.refresh_soon()

    async def _weigh(self, word: Word) -> None:
        """A sentinel names the primary, unasked for: if it is news, ask that server itself."""
        if self._address is None or word.primary == self._address:
            return
        if isinstance(await self._sentinels.ask_role(word.primary), PrimaryRole):
            self._follow_switch(word)

    def _is_from_no_primary(self, error: CommandError) -> bool:
        is_trusted = self._loop.time() < self._trusted_until_s
        return classify_error(str(error)).kind in _NO_PRIMARY and not is_trusted

    def _check_primary(self) -> None:
        """Find out whether the shared link still leads to a primary; commands are held back meanwhile."""
        connection, address = self._connection, self._address
        if connection is None or address is None or not connection.is_open:
            return
        if self._check is None or self._check.done():
            connection.pause_writing()
            self._check = self._loop.create_task(self._check_role(connection, address))

    async def _check_role(self, connection: Connection, address: Address) -> None:
        try:
            is_primary = isinstance(await self._sentinels.ask_role(address), PrimaryRole)
        except PenstockError:
            is_primary = False  # whoever cannot tell is not to be relied on
        except asyncio.CancelledError:
            connection.resume_writing()  # the client closes: what was held back must come to its end
            raise
        if is_primary:
            self._trusted_until_s = self._loop.time() + _TRUST_S
            connection.resume_writing()
        else:
            _end(connection, ConnectionLostError(f"{address} is not the primary of {self._service}"))

    # ------------------------------------------------------ what the link reports

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        if link.state is LinkState.CLOSED:
            return False
        if self._is_from_no_primary(error):
            self._check_primary()
            link.resume(slot)
            return True
        if classify_error(str(error)).kind is ErrorClass.LOADING and self._has_time(slot):
            timer = self._loop.call_later(_LOADING_DELAY_S, self._resume, slot)
            self._delayed[slot.future] = (slot, timer)
            return True
        return False

    def _has_time(self, slot: Slot) -> bool:
        """Whether a command may be tried once more; else its caller learns what the server said."""
        timeout_ms = self._settings.command_timeout_ms
        return not timeout_ms or self._loop.time() + _LOADING_DELAY_S < slot.issued_s + timeout_ms / 1000

    def _resume(self, slot: Slot) -> None:
        del self._delayed[slot.future]
        if not slot.future.done():
            self._link.resume(slot)

    def on_push(self, link: Link, push: list[Any]) -> None:
        self._observer.on_push(link, push)

    def on_state(self, link: Link) -> None:
        report_state(link, self._observer)
        if link.state is not LinkState.OPEN:
            return
        self._watch.start()
        if self._replicas is not None:
            self._replicas.refresh_soon()
        was, self._told = self._told, self._address
        if was is not None and was != self._address:
            self._observer.on_event(TopologyChanged(added=(str(self._address),), removed=(str(was),)))

    def __repr__(self) -> str:
        watch = "" if self._watch.is_listening else " unwatched"
        return f"<SentinelRouter {self._service} {self._link!r}{watch}>"


def _end(connection: Connection, cause: ConnectionLostError) -> None:
    """End a connection and say why; the transport itself could only say that it was ended."""
    connection.abort()
    connection.transport_lost(cause)


def _role_refused(address: Address, error: CommandError) -> PenstockError:
    if classify_error(str(error)).kind is ErrorClass.NOPERM:
        return AuthenticationError(
            f"{address} does not let this user ask for ROLE, without which a failover goes unnoticed: {error}"
        )
    return NotSentError(f"{address} does not tell its role: {error}")
