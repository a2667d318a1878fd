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
   afterwards is taken for a caller that is not there.
2. What the server had handed out already is returned to a caller that ran out of time, and
   told as :class:`OrphanedReply` where there is no caller any more. It is never dropped
   without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from penstock.client.config import Settings
from penstock.client.connection import ReplyFuture
from penstock.client.events import Event, OrphanedReply
from penstock.client.facts import is_repeatable, to_bytes
from penstock.client.link import Link
from penstock.client.private import PrivateLink, PrivateLinks
from penstock.client.router.base import Place, Router
from penstock.client.transports.base import Arguments
from penstock.errors import CommandError, CommandTimeoutError, ConnectionLostError, PenstockError
from penstock.protocol.replies import Reply

log = logging.getLogger("penstock.client")

#: How long a caller that goes away waits at most for its command to be taken back.
_TAKE_BACK_S: Final = 2.0
#: CLIENT UNBLOCK may overtake the command that it is for; it is sent again this much later.
_UNBLOCK_AGAIN_S: Final = 0.005


@dataclass(eq=False, slots=True)
class _Wait:
    """One command at the server."""

    arguments: Arguments
    link: Link
    place: Place
    reply: ReplyFuture

    @property
    def name(self) -> str:
        return to_bytes(self.arguments[0]).decode(errors="replace").upper()


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
        self._shared: set[_Wait] = set()
        self._interruption: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, arguments: Arguments, own_timeout_ms: int, timeout_ms: int | None, place: Place | None = None
    ) -> Reply:
        """Run a command that the server may answer ``own_timeout_ms`` later (0: whenever it likes).

        It goes where its keys are. A ``place`` that the caller knows better always gets a
        private connection.
        """
        patience_s = self._patience_s(own_timeout_ms, timeout_ms)
        if place is not None or self._settings.blocking_policy == "dedicated":
            place = place or self._router.place_for(arguments)
            return await self._call_dedicated(arguments, place, patience_s, timeout_ms)
        return await self._call_shared(arguments, patience_s, timeout_ms)

    def _patience_s(self, own_timeout_ms: int, timeout_ms: int | None) -> float | None:
        """What to tell the link, whose command timeout counts from the end of it; None: no limit."""
        if timeout_ms is None and own_timeout_ms == 0:
            return None
        limit_ms = own_timeout_ms + self._settings.blocking_margin_ms if timeout_ms is None else timeout_ms
        return (limit_ms - self._settings.command_timeout_ms) / 1000

    # ---------------------------------------------------------------- dedicated

    async def _call_dedicated(
        self, arguments: Arguments, place: Place, patience_s: float | None, timeout_ms: int | None
    ) -> Reply:
        is_ask = False
        for _ in range(self._settings.max_redirections):
            try:
                return await self._call_at(place, is_ask, arguments, patience_s, timeout_ms)
            except CommandError as error:
                redirection = self._router.follow(error)
                if redirection is None:
                    raise
                place, is_ask = redirection.place, redirection.is_ask
        return await self._call_at(place, is_ask, arguments, patience_s, timeout_ms)

    async def _call_at(
        self,
        place: Place,
        is_ask: bool,
        arguments: Arguments,
        patience_s: float | None,
        timeout_ms: int | None,
    ) -> Reply:
        link = await self._links.take(place)
        try:
            if is_ask:
                await link.call(("ASKING",))
            wait = _Wait(arguments, link, place, link.call_blocking(arguments, patience_s))
        except BaseException:
            self._links.let_go(link)
            raise
        try:
            return await self._finish(wait, timeout_ms)
        finally:
            self._return(link, wait)

    def _return(self, link: PrivateLink, wait: _Wait) -> None:
        """A link whose command is still at the server cannot serve anybody else."""
        reply = wait.reply
        if not reply.done() or reply.cancelled() or isinstance(reply.exception(), CommandTimeoutError):
            self._links.let_go(link)
        else:
            self._links.give_back(link)

    # ------------------------------------------------------------------- shared

    async def _call_shared(
        self, arguments: Arguments, patience_s: float | None, timeout_ms: int | None
    ) -> Reply:
        link = self._router.link_for(arguments)
        place = self._router.place_for(arguments)
        wait = _Wait(arguments, link, place, link.call_blocking(arguments, patience_s))
        self._shared.add(wait)
        if len(self._shared) == 1:
            self._on_shared_waits(True)
        try:
            return await self._finish(wait, timeout_ms)
        finally:
            self._shared.discard(wait)
            if not self._shared:
                self._on_shared_waits(False)

    @property
    def what_waits(self) -> str:
        """The names of the commands that wait on shared connections."""
        return ", ".join(sorted({wait.name for wait in self._shared}))

    def interrupt(self) -> None:
        """End every wait on a shared connection, each with an error."""
        if self._interruption is None or self._interruption.done():
            self._interruption = self._start(self._interrupt())

    async def _interrupt(self) -> None:
        for wait in list(self._shared):
            await self._unblock(wait, "ERROR")

    # ---------------------------------------------------------------- taking back

    async def _finish(self, wait: _Wait, timeout_ms: int | None) -> Reply:
        """The reply; if the caller goes away before it, the command is taken back."""
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        try:
            await asyncio.wait([wait.reply], timeout=timeout_s)
        except asyncio.CancelledError:
            await self._take_back(wait)
            self._surface(wait)
            raise
        if not wait.reply.done():
            await self._take_back(wait)
            if not wait.reply.done() or wait.reply.result() is None:
                wait.reply.cancel()
                raise CommandTimeoutError(f"{wait.name} waited for {timeout_ms} ms; it was taken back")
        return wait.reply.result()

    async def _take_back(self, wait: _Wait) -> None:
        task = self._start(self._unblock(wait, "TIMEOUT"))
        # A second cancellation does not stop it: it goes on by itself.
        await asyncio.wait([task], timeout=_TAKE_BACK_S)

    async def _unblock(self, wait: _Wait, how: str) -> None:
        """Until the command has its reply."""
        client_id = wait.link.facts.client_id
        if client_id is None or wait.reply.done():
            return
        try:
            control = await self._links.take(wait.place, is_control=True)
        except (PenstockError, OSError) as error:
            log.info("%s: cannot unblock %s: %s", wait.link.name, wait.name, error)
            return
        try:
            while not wait.reply.done():
                is_unblocked = await control.call(("CLIENT", "UNBLOCK", str(client_id), how))
                await asyncio.wait([wait.reply], timeout=None if is_unblocked else _UNBLOCK_AGAIN_S)
        except (CommandError, ConnectionLostError) as error:
            log.info("%s: cannot unblock %s: %s", wait.link.name, wait.name, error)
        finally:
            self._links.give_back(control)

    def _surface(self, wait: _Wait) -> None:
        """Tell what a command took for a caller that has gone."""
        if not wait.reply.done():
            wait.reply.cancel()  # from now on its reply is the link's to report
        elif not wait.reply.cancelled() and wait.reply.exception() is None:
            self.tell_orphan(wait.link.name, wait.arguments, wait.reply.result())

    def tell_orphan(self, server: str, arguments: Arguments, reply: Reply) -> None:
        """A reply without a caller: silent only if it took nothing."""
        if reply is None or isinstance(reply, CommandError) or is_repeatable(arguments):
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
