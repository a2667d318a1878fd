"""Commands that were refused and are tried again: how often, when, until when.

===================  ======================================================================
MOVED, ASK           at once, as often as ``max_redirections`` allows. From the third on with
                     a pause: servers that send a command in circles do not agree yet
anything else that   after a pause that grows each time, as long as the next try comes before
passes               the command's deadline
===================  ======================================================================

The deadline counts from the issue of the command (``command_timeout_ms``) and covers all of
it. What cannot be tried again is told what the server said last. Whoever has gone meanwhile
is not sent.

An error reply says that the command did not run, so a write may be sent again like a read.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Final

from penstock.client.backlog import refuse
from penstock.client.config import Settings
from penstock.client.connection import Burst, ReplyFuture, Slot
from penstock.client.facts import is_repeatable
from penstock.client.link import Link
from penstock.errors import ClosedError, CommandError
from penstock.protocol.replies import Reply

#: The pauses: the first, and the longest. No jitter, so that commands keep their order.
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
#: Redirections that are normal while slots move.
_NORMAL_REDIRECTIONS: Final = 2


class _Trip:
    """What one command has been through."""

    __slots__ = ("pauses", "redirections")

    def __init__(self) -> None:
        self.redirections = 0
        self.pauses = 0


class Detours:
    """Counts and delays; where to is not known here."""

    def __init__(self, settings: Settings, context: contextvars.Context) -> None:
        self._timeout_s = settings.command_timeout_ms / 1000
        self._max_redirections = settings.max_redirections
        self._context = context
        self._loop = asyncio.get_running_loop()
        #: of commands without a reply
        self._trips: dict[ReplyFuture, _Trip] = {}
        self._paused: dict[asyncio.TimerHandle, Slot] = {}
        self._is_closed = False
        #: MOVED and ASK that were followed
        self.redirections = 0

    def redirect(self, slot: Slot, send: Callable[[Slot], None]) -> bool:
        """Follow a redirection; False if there were too many."""
        if self._is_closed:
            return self._refuse(slot)
        trip = self._trip(slot)
        if trip.redirections >= self._max_redirections:
            return False
        if trip.redirections < _NORMAL_REDIRECTIONS:
            send(slot)
        elif not self.retry(slot, send):
            return False
        trip.redirections += 1
        self.redirections += 1
        return True

    def retry(self, slot: Slot, send: Callable[[Slot], None]) -> bool:
        """Try again after a pause; False if the deadline comes first."""
        if self._is_closed:
            return self._refuse(slot)
        trip = self._trip(slot)
        pause_s = min(_FIRST_PAUSE_S * 2**trip.pauses, _LONGEST_PAUSE_S)
        if self._timeout_s and self._loop.time() + pause_s >= slot.issued_s + self._timeout_s:
            return False
        trip.pauses += 1
        handle: asyncio.TimerHandle | None = None

        def due() -> None:
            assert handle is not None
            del self._paused[handle]
            if not slot.future.done():
                send(slot)

        handle = self._loop.call_later(pause_s, due, context=self._context)
        self._paused[handle] = slot
        return True

    def _trip(self, slot: Slot) -> _Trip:
        trip = self._trips.get(slot.future)
        if trip is None:
            trip = self._trips[slot.future] = _Trip()
            slot.future.add_done_callback(self._forget, context=self._context)
        return trip

    def _forget(self, future: ReplyFuture) -> None:
        self._trips.pop(future, None)

    def close(self) -> None:
        """Refuse what waits for its next try, and what will be refused from now on."""
        self._is_closed = True
        paused, self._paused = self._paused, {}
        for handle, slot in paused.items():
            handle.cancel()
            self._refuse(slot)

    def _refuse(self, slot: Slot) -> bool:
        refuse(slot, ClosedError("the client was closed before the command could be tried again"))
        return True


class Asking(Burst):
    """ASKING and the command that it is for: in one piece, since it holds for one command only.

    The caller sees the command's reply alone; a refusal goes the way of every other.
    """

    __slots__ = ("_link", "_on_refused", "_slot")

    def __init__(
        self, slot: Slot, link: Link, on_refused: Callable[[Link, Slot, CommandError], bool]
    ) -> None:
        commands = (("ASKING",), slot.arguments)
        super().__init__(slot.future, commands, is_harmless=is_repeatable(slot.arguments))
        self._slot = slot
        self._link = link
        self._on_refused = on_refused

    def send(self) -> None:
        self._link.resume(*self.slots(self._slot.issued_s, self._slot.attempt))

    def set_result(self, reply: Reply) -> None:
        self._replies.append(reply)
        if len(self._replies) < len(self.commands):
            return
        if not isinstance(reply, CommandError):
            self.future.set_result(reply)
        elif not self._on_refused(self._link, self._slot, reply):
            self.future.set_exception(reply)
