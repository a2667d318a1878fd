"""The way to one server, kept open: connect, reconnect, hold back what cannot be sent now.

States
------
==========  ==============================  ==================================================
state       means                           leaves by
==========  ==============================  ==================================================
new         never tried                     ``open``: connecting
connecting  a dial is under way             dialled: open; failed: waiting (or closed, if the
                                            policy gives up or the server refused us)
open        a connection carries commands   ``on_lost``: waiting; ``close``: closed
waiting     the policy's delay runs         timer: connecting; ``close``: closed
closed      for good                        nothing
==========  ==============================  ==================================================

Commands issued while the link is not open, or while the connection is full, wait in the
backlog, in order, and go before everything newer. A caller that was cancelled meanwhile
is never sent. What was written when a connection ended is sent again only where that is
safe (``policies.decide``); otherwise its caller learns that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Protocol

from penstock.client.config import Settings
from penstock.client.connection import Connection, ReplyFuture, Slot
from penstock.client.facts import is_idempotent, is_readonly
from penstock.client.policies import Decision, decide
from penstock.client.transports.base import Arguments
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    CommandError,
    ConfigError,
    CommandTimeoutError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
    PenstockError,
)

log = logging.getLogger("penstock.client")

_SWEEP_S: Final = 0.1


class LinkState(Enum):
    NEW = "new"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    CLOSED = "closed"


class LinkOwner(Protocol):
    """Whoever routes commands to the link."""

    def on_refused(self, link: Link, slot: Slot, error: CommandError) -> bool:
        """A command was refused; True if it is taken care of (redirected, retried)."""

    def on_push(self, link: Link, push: list[Any]) -> None: ...

    def on_state(self, link: Link) -> None:
        """The link opened, was lost, or closed."""


#: Opens a connection for an owner and completes the handshake.
Dial = Callable[[Connection], Awaitable[None]]


class Link:
    """One server. ``call`` from any task of the loop."""

    def __init__(self, name: str, owner: LinkOwner, dial: Dial, settings: Settings) -> None:
        self.name = name
        self.state = LinkState.NEW
        self.last_error: Exception | None = None
        self._owner = owner
        self._dial = dial
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        #: the connection while nothing waits before it: what the hot path looks at
        self._ready: Connection | None = None
        self._backlog: deque[Slot] = deque()
        self._attempts = 0
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._opened = asyncio.Event()
        self.reconnections = 0

    # --------------------------------------------------------------------- call

    def call(self, arguments: Arguments) -> ReplyFuture:
        """Issue a command; it waits where it cannot be sent now."""
        ready = self._ready
        if ready is not None and ready.has_room:
            return ready.call(arguments)
        return self._hold(Slot(self._loop.create_future(), arguments, self._loop.time(), 1))

    def resume(self, slot: Slot) -> None:
        """Issue a command for a caller that waits already (redirected, or sent before)."""
        ready = self._ready
        if ready is not None and ready.has_room:
            ready.resume(slot)
        else:
            self._hold(slot)

    def _hold(self, slot: Slot) -> ReplyFuture:
        refusal = self._why_not_hold()
        if refusal is not None:
            if not slot.future.done():
                slot.future.set_exception(refusal)
            return slot.future
        self._backlog.append(slot)
        self._ready = None
        if self.state is LinkState.NEW:
            self.start()
        return slot.future

    def _why_not_hold(self) -> PenstockError | None:
        settings = self._settings
        if self.state is LinkState.CLOSED:
            return self._closed_error()
        if self.state is LinkState.OPEN and settings.when_full == "error":
            return BackpressureError(
                f"{settings.max_in_flight} commands are unanswered on {self.name} (max_in_flight)"
            )
        if self.state is LinkState.WAITING and settings.fail_fast:
            return NotSentError(f"{self.name} is not connected: {self.last_error}")
        if len(self._backlog) >= settings.max_command_buffer_len:
            return BackpressureError(
                f"{len(self._backlog)} commands wait for {self.name} (max_command_buffer_len)"
            )
        return None

    def _closed_error(self) -> PenstockError:
        if isinstance(self.last_error, AuthenticationError | ConfigError):
            return self.last_error
        return ClosedError(f"the client of {self.name} is closed")

    # ------------------------------------------------------------------ opening

    def start(self) -> None:
        """Begin to connect, without waiting for it."""
        if self.state in (LinkState.NEW, LinkState.WAITING):
            self._cancel_timer()
            self._enter(LinkState.CONNECTING)
            self._opening = self._loop.create_task(self._open())

    async def wait_open(self) -> None:
        """Until the first connection stands; raises why it cannot."""
        self.start()
        await self._opened.wait()
        if self.state is LinkState.CLOSED:
            raise self.last_error or self._closed_error()

    async def _open(self) -> None:
        connection = Connection(self, self._loop, self._settings.max_in_flight)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await self._dial(connection)
        except (AuthenticationError, ConfigError) as error:
            connection.abort()
            self._give_up(error)
        except TimeoutError:
            connection.abort()
            self._failed(NotSentError(f"{self.name} did not answer within connect_timeout_ms"))
        except (PenstockError, OSError) as error:
            connection.abort()
            self._failed(error)
        else:
            self._established(connection)

    def _established(self, connection: Connection) -> None:
        if not connection.is_open:
            self._failed(NotSentError(f"{self.name} closed the connection after the handshake"))
            return
        self._connection = connection
        self._attempts = 0
        self.last_error = None
        self._enter(LinkState.OPEN)
        self._opened.set()
        self._owner.on_state(self)
        self._send_backlog()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _failed(self, error: Exception) -> None:
        """A dial did not succeed: wait and try again, or give up."""
        self.last_error = error
        if self.state is LinkState.CLOSED:
            return
        self._attempts += 1
        delay_ms = self._settings.reconnect.delay_ms(self._attempts, random.random)
        if delay_ms is None:
            self._give_up(error)
            return
        self._enter(LinkState.WAITING)
        self._owner.on_state(self)
        if self._settings.fail_fast:
            self._refuse_backlog(NotSentError(f"{self.name} is not connected: {error}"))
        self._timer = self._loop.call_later(delay_ms / 1000, self.start)

    def _give_up(self, error: Exception) -> None:
        self.last_error = error
        self._enter(LinkState.CLOSED)
        self._opened.set()
        self._refuse_backlog(error if isinstance(error, PenstockError) else NotSentError(str(error)))
        self._owner.on_state(self)

    def _enter(self, state: LinkState) -> None:
        log.debug("link %s: %s -> %s", self.name, self.state.value, state.value)
        self.state = state

    # ------------------------------------------------------------------ backlog

    def _send_backlog(self) -> None:
        connection = self._connection
        backlog = self._backlog
        assert connection is not None
        while backlog and connection.has_room:
            slot = backlog.popleft()
            if not slot.future.done():
                connection.resume(slot)
        self._ready = None if backlog else connection

    def _refuse_backlog(self, error: PenstockError) -> None:
        backlog, self._backlog = self._backlog, deque()
        for slot in backlog:
            if not slot.future.done():
                slot.future.set_exception(error)

    # -------------------------------------------------- what a connection reports

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        return self._owner.on_refused(self, slot, error)

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        self._owner.on_push(self, push)

    def on_room(self, connection: Connection) -> None:
        if connection is self._connection:
            self._send_backlog()

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        cause = error or ConnectionLostError(f"{self.name} closed the connection")
        if connection is not self._connection:
            # It died during the handshake; the dial itself reports.
            for slot in [*unanswered, *unsent]:
                slot.future.set_exception(NotSentError(f"{self.name} closed the connection: {cause}"))
            return
        self._connection = self._ready = None
        self.last_error = cause
        again = [slot for slot in unanswered if self._may_resend(slot, cause)]
        self._backlog.extendleft(reversed([*again, *unsent]))
        if self.state is LinkState.CLOSED:
            self._refuse_backlog(self._closed_error())
            return
        self.reconnections += 1
        self._enter(LinkState.WAITING)
        self._owner.on_state(self)
        delay_ms = self._settings.reconnect.delay_ms(1, random.random)
        if delay_ms is None:
            self._give_up(cause)
            return
        # The first attempt goes at once: most losses are a server that restarts or a proxy that hiccups.
        self._timer = self._loop.call_later(0, self.start)

    def _may_resend(self, slot: Slot, cause: Exception) -> bool:
        """Keep a written command for sending again, or tell its caller why not."""
        arguments = slot.arguments
        decision = decide(
            was_sent=True,
            is_readonly=is_readonly(arguments[0]),
            is_idempotent=self._settings.retry_idempotent_writes and is_idempotent(arguments),
            attempt=slot.attempt,
            max_attempts=self._settings.max_attempts,
        )
        if decision is Decision.RESEND and self.state is not LinkState.CLOSED:
            return True
        slot.future.set_exception(
            OutcomeUnknownError(
                f"{self.name} ended the connection before the reply ({cause}); it may have run"
            )
        )
        return False

    # ----------------------------------------------------------------- watching

    def _sweep(self) -> None:
        """Time out old commands; end a connection that has gone silent."""
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        now_s = self._loop.time()
        timeout_ms = self._settings.command_timeout_ms
        connection = self._connection
        if timeout_ms:
            horizon_s = now_s - timeout_ms / 1000
            if connection is not None:
                connection.expire(horizon_s)
            self._expire_backlog(horizon_s)
        limit_ms = self._settings.unresponsive_timeout_ms
        oldest_s = connection.oldest_unanswered_s if connection is not None else None
        if limit_ms and oldest_s is not None and now_s - oldest_s > limit_ms / 1000:
            log.warning("%s has not answered for %d ms; reconnecting", self.name, limit_ms)
            assert connection is not None
            connection.abort()

    def _expire_backlog(self, horizon_s: float) -> None:
        for slot in self._backlog:
            if slot.issued_s <= horizon_s and not slot.future.done():
                slot.future.set_exception(
                    CommandTimeoutError(
                        f"not sent to {self.name} within the command timeout: {self.last_error}"
                    )
                )

    # -------------------------------------------------------------------- close

    async def close(self) -> None:
        """End for good; no caller is left waiting. Idempotent."""
        if self.state is LinkState.CLOSED and self._connection is None and self._opening is None:
            return
        self._enter(LinkState.CLOSED)
        self._cancel_timer()
        if self._sweeper is not None:
            self._sweeper.cancel()
        opening, self._opening = self._opening, None
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        connection, self._connection, self._ready = self._connection, None, None
        self._refuse_backlog(ClosedError(f"the client of {self.name} was closed"))
        if connection is not None:
            connection.refuse_all(ClosedError(f"the client of {self.name} was closed before the reply"))
            connection.close()
        self._opened.set()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def statistics(self) -> dict[str, int | str]:
        connection = self._connection
        return {
            "state": self.state.value,
            "in_flight": 0 if connection is None else connection.in_flight,
            "waiting": len(self._backlog),
            "discarded_replies": 0 if connection is None else connection.discarded,
            "reconnections": self.reconnections,
        }

    def __repr__(self) -> str:
        in_flight = 0 if self._connection is None else self._connection.in_flight
        return f"<Link {self.name} {self.state.value} in_flight={in_flight} waiting={len(self._backlog)}>"
