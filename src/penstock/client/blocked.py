"""Commands that wait at the server, such as BLPOP, without anybody else waiting for them.

What ``blocking_policy`` says:

=============  ======================================================================
``dedicated``  a private connection for as long as the command waits
``block``      the shared connection; everybody behind it waits
``error``      the shared connection; others are refused meanwhile
``interrupt``  the shared connection; the next command of another task ends the wait
               (its caller gets the server's UNBLOCKED error)
=============  ======================================================================

Rules:

1. A caller that goes away (cancelled, out of time) takes its command back: CLIENT UNBLOCK on
   another connection, and only when that is through does it go. So nothing that arrives
   afterwards is taken for a caller that is not there. One that does not even wait for that
   (cancelled twice) leaves it to a task that goes on by itself.
2. What the server had handed out already is returned to a caller that ran out of time, and
   told as :class:`OrphanedReply` where there is no caller any more. It is never dropped
   without a word.
3. CLIENT UNBLOCK ends whatever waits on a connection: on a shared one a command is taken back
   when those before it are through, however long that takes. One that cannot be taken back
   keeps everybody waiting until the connection counts as dead (``unresponsive_timeout_ms``).
4. One limit covers the wait for room, for a connection and for the reply: that of the call,
   or the command's own timeout and ``blocking_margin_ms``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture, Slot
from penstock.client.events import Event, OrphanedReply
from penstock.client.facts import blocking_timeout_ms, is_repeatable, to_bytes
from penstock.client.link import Link
from penstock.client.private import PrivateLink, PrivateLinks
from penstock.client.router.base import Place, Router
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError, CommandTimeoutError, PenstockError
from penstock.protocol.replies import Reply

log = logging.getLogger("penstock.client")

#: How long a caller that goes away waits at most for its command to be taken back.
_TAKE_BACK_S: Final = 2.0
#: CLIENT UNBLOCK may overtake the command that it is for, …
_UNBLOCK_AGAIN_S: Final = 0.005
#: … end another one, or not get through; it is sent again this much later.
_UNBLOCK_LATER_S: Final = 0.05


class _Limit(NamedTuple):
    """How long a caller waits at most, in all."""

    ms: int
    #: by the loop's clock
    ends_s: float


@dataclass(eq=False, slots=True)
class _Wait:
    """One command at the server."""

    arguments: Arguments
    link: Link
    place: Place
    reply: ReplyFuture
    #: to be called when nobody waits for the reply any more
    release: Callable[[_Wait], None]
    #: whether the caller has gone for good
    is_abandoned: bool = False
    #: whether it was taken back, or given up
    is_over: bool = False
    is_interrupted: bool = False

    @property
    def name(self) -> str:
        return _name_of(self.arguments)


class BlockingCalls:
    """Runs blocking commands of one client."""

    def __init__(
        self,
        router: Router,
        links: PrivateLinks,
        settings: Settings,
        on_event: Callable[[Event], None],
        on_shared_waits: Callable[[bool], None],
    ) -> None:
        self._router = router
        self._links = links
        self._settings = settings
        self._on_event = on_event
        #: told when the first command begins to wait on a shared connection, and when the last has ended
        self._on_shared_waits = on_shared_waits
        #: oldest first
        self._shared: dict[_Wait, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, arguments: Arguments, own_timeout_ms: int, timeout_ms: int | None, place: Place | None = None
    ) -> Reply:
        """Run a command that the server may answer ``own_timeout_ms`` later (0: whenever it likes).

        It goes where its keys are. A ``place`` that the caller knows better always gets a
        private connection.
        """
        limit = self._limit(own_timeout_ms, timeout_ms)
        if place is not None or self._settings.blocking_policy == "dedicated":
            return await self._call_dedicated(arguments, place or self._router.place_for(arguments), limit)
        return await self._call_shared(arguments, own_timeout_ms, limit)

    def _limit(self, own_timeout_ms: int, timeout_ms: int | None) -> _Limit | None:
        if timeout_ms is None and own_timeout_ms == 0:
            return None
        limit_ms = own_timeout_ms + self._settings.blocking_margin_ms if timeout_ms is None else timeout_ms
        return _Limit(limit_ms, _now_s() + limit_ms / 1000)

    # ---------------------------------------------------------------- dedicated

    async def call_on(self, link: PrivateLink, arguments: Arguments, own_timeout_ms: int) -> Reply:
        """The same on a link that the caller has taken, and gives back."""
        limit = self._limit(own_timeout_ms, None)
        return await self._wait_on(link, link.place, arguments, limit, release=lambda _: None)

    async def _call_dedicated(self, arguments: Arguments, place: Place, limit: _Limit | None) -> Reply:
        is_ask = False
        for _ in range(self._settings.max_redirections):
            try:
                return await self._call_at(place, is_ask, arguments, limit)
            except CommandError as error:
                redirection = self._router.follow(error)
                if redirection is None:
                    raise
                place, is_ask = redirection.place, redirection.is_ask
        return await self._call_at(place, is_ask, arguments, limit)

    async def _call_at(self, place: Place, is_ask: bool, arguments: Arguments, limit: _Limit | None) -> Reply:
        link = await self._take(place, arguments, limit)
        try:
            if is_ask:
                await link.call(("ASKING",))
        except BaseException:
            self._links.let_go(link)
            raise
        return await self._wait_on(link, place, arguments, limit, self._return)

    async def _wait_on(
        self,
        link: PrivateLink,
        place: Place,
        arguments: Arguments,
        limit: _Limit | None,
        release: Callable[[_Wait], None],
    ) -> Reply:
        # The link must not give up before us, nor while the command is taken back.
        patience_s = None if limit is None else limit.ends_s - _now_s() + _TAKE_BACK_S
        reply = link.call_blocking(arguments, patience_s)
        return await self._finish(_Wait(arguments, link, place, reply, release), limit)

    async def _take(self, place: Place, arguments: Arguments, limit: _Limit | None) -> PrivateLink:
        if limit is None:
            return await self._links.take(place)
        try:
            async with asyncio.timeout_at(limit.ends_s):
                return await self._links.take(place)
        except TimeoutError:
            raise CommandTimeoutError(
                f"{_name_of(arguments)} got no connection to {place.name} within {limit.ms} ms;"
                " it was not sent"
            ) from None

    def _return(self, wait: _Wait) -> None:
        """A link whose command is still at the server cannot serve anybody else."""
        assert isinstance(wait.link, PrivateLink)
        reply = wait.reply
        if reply.cancelled() or isinstance(reply.exception(), CommandTimeoutError):
            self._links.let_go(wait.link)
        else:
            self._links.give_back(wait.link)

    # ------------------------------------------------------------------- shared

    async def _call_shared(self, arguments: Arguments, own_timeout_ms: int, limit: _Limit | None) -> Reply:
        link = self._router.link_for(arguments)
        place = self._router.place_for(arguments)
        self._listen_for_orphans(link)
        # Not shorter for our own limit: until it is taken back, it keeps the connection.
        patience_s = own_timeout_ms / 1000 + _TAKE_BACK_S if own_timeout_ms else None
        reply = link.call_blocking(arguments, patience_s)
        wait = _Wait(arguments, link, place, reply, self._leave)
        self._shared[wait] = None
        if len(self._shared) == 1:
            self._on_shared_waits(True)
        return await self._finish(wait, limit)

    def _leave(self, wait: _Wait) -> None:
        del self._shared[wait]
        if not self._shared:
            self._on_shared_waits(False)

    def _listen_for_orphans(self, link: Link) -> None:
        def on_orphan(slot: Slot, reply: Reply) -> None:
            self.tell_orphan(link.name, slot.arguments, reply)

        if link.on_orphan is None:
            link.on_orphan = on_orphan

    @property
    def what_waits(self) -> str:
        """The names of the commands that wait on shared connections."""
        return ", ".join(sorted({wait.name for wait in self._shared}))

    def interrupt(self) -> None:
        """End every wait on a shared connection, each with an error."""
        for wait in self._shared:
            if not wait.is_interrupted:
                wait.is_interrupted = True
                self._start(self._interrupt(wait))

    async def _interrupt(self, wait: _Wait) -> None:
        try:
            await self._unblock(wait, "ERROR")
        finally:
            wait.is_interrupted = False  # if it was in vain, the next command tries it again

    # ---------------------------------------------------------------- taking back

    async def _finish(self, wait: _Wait, limit: _Limit | None) -> Reply:
        """The reply; if the caller goes away before it, the command is taken back."""
        try:
            await asyncio.wait([wait.reply], timeout=limit and limit.ends_s - _now_s())
        except asyncio.CancelledError:
            wait.is_abandoned = True
            await self._take_back(wait)
            raise
        if wait.reply.done():
            wait.release(wait)
            return wait.reply.result()
        assert limit is not None
        await self._take_back(wait)
        if wait.is_abandoned or wait.reply.cancelled():
            raise CommandTimeoutError(
                f"{wait.name} waited for {limit.ms} ms and could not be taken back; it may have run"
            )
        reply = wait.reply.result()
        if reply is None:
            raise CommandTimeoutError(f"{wait.name} waited for {limit.ms} ms; it was taken back")
        return reply

    async def _take_back(self, wait: _Wait) -> None:
        """Until the command has its reply, or is given up, or the caller has waited long enough."""
        task = self._start(self._unblock(wait, "TIMEOUT"))
        # Whatever becomes of the caller, this comes to its end.
        task.add_done_callback(lambda _: self._end(wait))
        try:
            await asyncio.wait([task], timeout=_TAKE_BACK_S)
        except asyncio.CancelledError:
            if wait.is_over and not wait.is_abandoned:
                self._surface(wait)
            wait.is_abandoned = True
            raise
        wait.is_abandoned |= not wait.is_over

    def _end(self, wait: _Wait) -> None:
        # If there is no reply yet, it is the link's to report; what was not sent never will be.
        wait.reply.cancel()
        wait.is_over = True
        if wait.is_abandoned:
            self._surface(wait)
        wait.release(wait)

    async def _unblock(self, wait: _Wait, how: str) -> None:
        """Until the command has its reply, or there is no hope."""
        ends_s: float | None = None
        while not wait.reply.done():
            first = self._first_in_line(wait)
            if first is None and how == "TIMEOUT":
                return  # it was not sent
            if first is None:
                await asyncio.wait([wait.reply], timeout=_UNBLOCK_LATER_S)
            elif first is not wait:
                await asyncio.wait([first.reply, wait.reply], return_when=asyncio.FIRST_COMPLETED)
            else:
                ends_s = ends_s or _now_s() + _TAKE_BACK_S
                pause_s = await self._unblock_once(wait, how, ends_s)
                if pause_s is None:
                    return
                await asyncio.wait([wait.reply], timeout=pause_s)

    def _first_in_line(self, wait: _Wait) -> _Wait | None:
        """Whom CLIENT UNBLOCK would end on the connection of that one; None: it is on none."""
        if wait not in self._shared:
            return wait
        links = [link for link in self._router.primaries() if link.position_of(wait.reply) is not None]
        if not links:
            return None
        link = links[0]
        wait.link, wait.place = link, Place(link.name, link.dial)  # it may have been redirected
        self._listen_for_orphans(link)
        waiting = [each for each in self._shared if not each.reply.done()]
        return min(waiting, key=lambda each: _or_inf(link.position_of(each.reply)))

    async def _unblock_once(self, wait: _Wait, how: str, ends_s: float) -> float | None:
        """After how long to try again; None: never."""
        client_id = wait.link.facts.client_id
        if client_id is None:
            return None
        try:
            async with asyncio.timeout_at(ends_s):
                is_unblocked = await self._links.tell(wait.place, ("CLIENT", "UNBLOCK", str(client_id), how))
        except (PenstockError, TimeoutError, OSError) as error:
            log.info("%s: cannot unblock %s: %s", wait.link.name, wait.name, error)
            is_hopeless = isinstance(error, CommandError) or _now_s() > ends_s
            return None if is_hopeless else _UNBLOCK_LATER_S
        if _now_s() > ends_s:
            return None
        return _UNBLOCK_LATER_S if is_unblocked else _UNBLOCK_AGAIN_S

    def _surface(self, wait: _Wait) -> None:
        """Tell what a command took for a caller that has gone."""
        if not wait.reply.cancelled() and wait.reply.exception() is None:
            self.tell_orphan(wait.link.name, wait.arguments, wait.reply.result())

    def tell_orphan(self, server: str, arguments: Arguments, reply: Reply) -> None:
        """A reply without a caller: silent only if it took nothing. Replies to other commands are
        discarded in the same places; they are of no interest, and may hold secrets (HELLO, AUTH)."""
        if reply is None or isinstance(reply, CommandError) or is_repeatable(arguments):
            return
        if blocking_timeout_ms(arguments) is None:
            return
        log.warning("%s: the caller of %.80r has gone; its reply was %.200r", server, arguments, reply)
        self._on_event(OrphanedReply(server, arguments, reply))

    # ----------------------------------------------------------------------- end

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _or_inf(position: int | None) -> float:
    return math.inf if position is None else position


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _name_of(arguments: Arguments) -> str:
    return to_bytes(arguments[0]).decode(errors="replace").upper()
