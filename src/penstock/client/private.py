"""Links that belong to one caller at a time: for commands that block, watch or change their connection.

Rules: a private link never reconnects, since what its connection knew (keys it watches, a
database) is gone with it. Who takes one gives it back or lets it go; what is given back
clean is lent again. At most ``max_blocking_connections`` are out at a time, further callers
wait in the order they came; only control traffic (CLIENT UNBLOCK) never waits for room.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.client.config import Settings
from penstock.client.connection import Slot
from penstock.client.link import Link, LinkState
from penstock.client.policies import NoReconnect
from penstock.client.router.base import Place
from penstock.client.transports.base import Arguments
from penstock.errors import ClosedError, CommandError, CommandTimeoutError
from penstock.protocol.replies import Reply

#: Idle links kept to each server; more are closed when they come back.
_MAX_IDLE: Final = 8

#: Takes the server's name, a command whose caller has gone, and its reply.
OrphanHandler = Callable[[str, Slot, Reply], None]


class PrivateLink(Link):
    """A link that ends with its connection."""

    def __init__(self, place: Place, settings: Settings, on_orphan: OrphanHandler) -> None:
        super().__init__(place.name, _NO_OWNER, place.dial, settings)
        self.place = place
        #: takes pushes, of a MONITOR say
        self.on_private_push: Callable[[list[Any]], None] | None = None
        #: told when the link has ended
        self.on_end: Callable[[], None] | None = None
        self.on_orphan = lambda slot, reply: on_orphan(self.name, slot, reply)

    @property
    def is_open(self) -> bool:
        return self.state is LinkState.OPEN


class _NoOwner:
    """Nobody routes: refusals go to the caller."""

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        if isinstance(link, PrivateLink) and link.on_private_push is not None:
            link.on_private_push(push)

    def on_state(self, link: Link) -> None:
        if isinstance(link, PrivateLink) and link.state is LinkState.CLOSED and link.on_end is not None:
            link.on_end()


_NO_OWNER: Final = _NoOwner()


class PrivateLinks:
    """Lends private links."""

    def __init__(self, settings: Settings, on_orphan: OrphanHandler) -> None:
        self._settings = replace(settings, reconnect=NoReconnect(), fail_fast=True)
        self._open_within_s = (settings.connect_timeout_ms + settings.handshake_timeout_ms) / 1000
        self._on_orphan = on_orphan
        self._room = asyncio.Semaphore(settings.max_blocking_connections)
        self._idle: defaultdict[str, list[PrivateLink]] = defaultdict(list)
        #: lent to callers, and for control traffic
        self._counted: set[PrivateLink] = set()
        self._uncounted: set[PrivateLink] = set()
        self._closings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def take(self, place: Place, *, is_control: bool = False) -> PrivateLink:
        """A connected link to a server; give it back or let it go."""
        if not is_control:
            await self._room.acquire()
        try:
            return await self._take(place, self._counted if not is_control else self._uncounted)
        except BaseException:
            if not is_control:
                self._room.release()
            raise

    async def take_in_time(self, place: Place) -> PrivateLink:
        """The same, within ``command_timeout_ms``."""
        timeout_ms = self._settings.command_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                return await self.take(place)
        except TimeoutError:
            raise CommandTimeoutError(
                f"there was no connection of one's own to {place.name} within {timeout_ms} ms;"
                f" {len(self._counted)} are in use"
                f" (max_blocking_connections {self._settings.max_blocking_connections})"
            ) from None

    async def _take(self, place: Place, lent: set[PrivateLink]) -> PrivateLink:
        if self._is_closed:
            raise ClosedError("the client is closed")
        link = self._take_idle(place) or PrivateLink(place, self._settings, self._on_orphan)
        lent.add(link)
        try:
            await link.wait_open(self._open_within_s)
        except BaseException:
            lent.discard(link)
            self._close_soon(link)
            raise
        return link

    async def tell(self, place: Place, arguments: Arguments) -> Reply:
        """Control traffic: one command on a link of its own."""
        link = await self.take(place, is_control=True)
        try:
            reply = await link.call(arguments)
        except CommandError:
            self.give_back(link)
            raise
        except BaseException:
            self.let_go(link)
            raise
        self.give_back(link)
        return reply

    def _take_idle(self, place: Place) -> PrivateLink | None:
        idle = self._idle[place.name]
        while idle:
            link = idle.pop()
            if link.is_open:
                return link
        return None

    def give_back(self, link: PrivateLink) -> None:
        """For the next caller; nothing may be in flight or remembered on it."""
        idle = self._idle[link.name]
        if self._is_closed or not link.is_open or len(idle) >= _MAX_IDLE:
            self.let_go(link)
        elif self._is_returned(link):
            idle.append(link)

    def let_go(self, link: PrivateLink) -> None:
        """End a link that nobody may use again."""
        self._is_returned(link)
        self._close_soon(link)

    def _is_returned(self, link: PrivateLink) -> bool:
        """Take a link off the books; False if it was not on them any more."""
        if link in self._counted:
            self._counted.remove(link)
            self._room.release()
            return True
        is_lent = link in self._uncounted
        self._uncounted.discard(link)
        return is_lent

    def _close_soon(self, link: PrivateLink) -> None:
        task = asyncio.get_running_loop().create_task(link.close(at_once=True))
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """End all of them, lent ones included; whoever waits for one is told."""
        self._is_closed = True
        idle = (link for links in self._idle.values() for link in links)
        links = [*self._counted, *self._uncounted, *idle]
        self._counted.clear()
        self._uncounted.clear()
        self._idle.clear()
        self._room.release()  # the first who waits for room finds out, and lets the next one find out
        for link in links:
            self._close_soon(link)
        while self._closings:
            await asyncio.gather(*self._closings, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {"lent": len(self._counted), "idle": sum(map(len, self._idle.values()))}

    def __repr__(self) -> str:
        return f"<PrivateLinks lent={len(self._counted)} idle={sum(map(len, self._idle.values()))}>"
