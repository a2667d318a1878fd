"""The way to one server, kept open: connect, reconnect, hold back what cannot be sent now.

States
------
==========  ==============================  ==================================================
state       means                           leaves by
==========  ==============================  ==================================================
new         never tried                     ``start``: connecting; ``close``: closed
connecting  a dial is under way             ``_established``: open; ``_failed``: waiting;
                                            ``_give_up`` (the policy has no further attempt, or
                                            the server refused us) and ``close``: closed
open        a connection carries commands   ``on_lost``: waiting; ``close``: closed
waiting     the policy's delay runs         timer, ``start``: connecting; ``close``: closed
closed      for good                        nothing
==========  ==============================  ==================================================

Rules
-----
L1  What is kept waits in the backlog in the order it was issued, and goes before
    everything newer. A caller that has gone meanwhile is never sent.
L2  The backlog is bounded while there is no connection (``max_command_buffer_len``).
    While there is one that is full, ``when_full`` decides. What was accepted once
    (replays, redirections) is never refused for lack of room.
L3  After ``close`` nothing is pending, no task and no timer is left.
L4  Of use by its own event loop alone. A forked child has only closed links.

``backlog`` says what is kept, ``redialing`` when to connect again, ``watching`` what takes
too long. The link does not know which command belongs to which server.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from penstock.client.backlog import Backlog, kept_after_loss, refuse, size_of
from penstock.client.config import Settings
from penstock.client.connection import Burst, Connection, ReplyFuture, Slot
from penstock.client.handshake import ServerFacts
from penstock.client.redialing import Redialing
from penstock.client.transports.base import Arguments
from penstock.client.watching import Watch
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    NotSentError,
    OutcomeUnknownError,
    PenstockError,
)
from penstock.protocol.replies import Reply

log = logging.getLogger("penstock.client")


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
        """The link opened, was lost, failed to connect, or closed."""


#: Attaches a transport to the connection and completes the handshake, within its own time limits.
Dial = Callable[[Connection], Awaitable[ServerFacts]]


class Link:
    """One server. ``call`` from any task of the loop."""

    def __init__(self, name: str, owner: LinkOwner, dial: Dial, settings: Settings) -> None:
        self.name = name
        self.state = LinkState.NEW
        #: why there is no connection, or was none the last time
        self.last_error: Exception | None = None
        #: of the latest connection
        self.facts = ServerFacts()
        self.reconnections = 0
        #: takes a reply whose caller has gone
        self.on_orphan: Callable[[Slot, Reply], None] | None = None
        self._owner = owner
        #: the way to the server, for connections beside the link's own
        self.dial = dial
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        # What outlives the call that caused it must not keep that call's context alive.
        self._context = contextvars.Context()
        self._connection: Connection | None = None
        #: the connection while nothing waits before it: what the hot path looks at
        self._ready: Connection | None = None
        self._backlog = Backlog()
        #: by earlier connections
        self._sent = self._discarded = self._bytes_sent = self._bytes_received = 0
        self._redialing = Redialing(settings)
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch = Watch(name, settings, self._context)
        #: set when there is news for ``wait_open``
        self._news = asyncio.Event()
        #: set when the connection in use has nothing in flight, or ended, during ``close``
        self._quiet = asyncio.Event()
        _links.add(self)

    # --------------------------------------------------------------------- call

    def call(self, arguments: Arguments) -> ReplyFuture:
        """Issue a command; it waits where it cannot be sent now."""
        ready = self._ready
        if ready is not None and arguments:
            return ready.call(arguments)
        return self._hold([self._new_slot(arguments)])

    def call_blocking(self, arguments: Arguments, own_timeout_s: float | None) -> ReplyFuture:
        """Issue a command that the server may answer that much later; None: whenever it likes.

        The command timeout and the watch for dead peers begin to count only then.
        """
        slot = self._new_slot(arguments, math.inf if own_timeout_s is None else own_timeout_s)
        self._issue([slot], is_new=True)
        return slot.future

    def call_burst(
        self, commands: Sequence[Arguments], *, is_harmless: bool = False
    ) -> asyncio.Future[list[Reply]]:
        """Issue several commands in one piece, with nothing in between, such as MULTI … EXEC.

        The future's result are the replies; a refused command is a ``CommandError`` among
        them. Unless ``is_harmless``, it is never sent again once it was written.
        """
        burst = Burst(self._loop.create_future(), tuple(commands), is_harmless)
        for arguments in commands:
            _check(arguments)
        if commands:
            self._issue(burst.slots(self._loop.time(), 1), is_new=True)
        else:
            burst.future.set_result([])
        return burst.future

    def monitor(self) -> ReplyFuture:
        """From the reply on every command that the server runs is a push; nothing else may be issued."""
        if self._connection is None:
            raise self._not_connected()
        self._watch.stop()  # it would ask for signs of life
        return self._connection.monitor()

    def resume(self, *slots: Slot) -> None:
        """Issue a command, or a whole burst, for a caller that waits already (redirected, retried);
        never one too many."""
        self._issue(list(slots), is_new=False)

    def hand_over(self) -> list[list[Slot]]:
        """Let go of what waits here, to be resumed elsewhere: oldest first, each command or burst apart."""
        return self._backlog.take_all()

    def _new_slot(self, arguments: Arguments, patience_s: float = 0.0) -> Slot:
        _check(arguments)
        return Slot(self._loop.create_future(), arguments, self._loop.time() + patience_s, 1)

    def _issue(self, slots: list[Slot], *, is_new: bool) -> None:
        ready = self._ready
        if ready is not None and ready.has_room_for(len(slots)):
            ready.resume_all(slots)
        else:
            self._hold(slots, is_exempt=not is_new, is_in_order=False)

    def _hold(self, slots: list[Slot], *, is_exempt: bool = False, is_in_order: bool = True) -> ReplyFuture:
        """Keep commands that belong together, or tell their caller why not."""
        future = slots[0].future
        refusal = self._why_not_hold(is_exempt)
        if refusal is not None:
            if not future.done():
                future.set_exception(refusal)
            return future
        self._backlog.add(slots, is_in_order=is_in_order)
        self._ready = None
        if self.state is LinkState.NEW:
            self.start()
        elif self._connection is not None:
            self._send_backlog()
        return future

    def _why_not_hold(self, is_exempt: bool) -> PenstockError | None:
        settings = self._settings
        if self.state is LinkState.CLOSED:
            return self._closed_error()
        if asyncio._get_running_loop() is not self._loop:
            return ClosedError("this client belongs to another event loop; open one for each loop")
        if self.state is LinkState.OPEN:
            if settings.when_full == "error" and not is_exempt and self._is_full:
                return BackpressureError(
                    f"{self._in_flight} commands are unanswered on {self.name}"
                    f" (max_in_flight {settings.max_in_flight}, when_full error)"
                )
            return None
        if settings.fail_fast and (self._redialing.was_open or self.last_error is not None):
            return self._not_connected()
        if len(self._backlog) >= settings.max_command_buffer_len and not is_exempt:
            return BackpressureError(
                f"{len(self._backlog)} commands wait for {self.name}"
                f" (max_command_buffer_len {settings.max_command_buffer_len})"
            )
        return None

    @property
    def _is_full(self) -> bool:
        return self._connection is not None and not self._connection.has_room

    def _closed_error(self) -> PenstockError:
        if self._closing is None and isinstance(self.last_error, PenstockError):
            return _copy(self.last_error)
        return ClosedError(f"the client of {self.name} is closed")

    def _not_connected(self) -> NotSentError:
        return NotSentError(f"{self.name} is not connected: {self.last_error or 'no answer yet'}")

    # ------------------------------------------------------------------ opening

    def start(self) -> None:
        """Begin to connect, without waiting for it."""
        if self.state not in (LinkState.NEW, LinkState.WAITING):
            return
        self._cancel_timer()
        self._enter(LinkState.CONNECTING)
        self._opening = self._loop.create_task(self._open(), context=self._context)
        self._watch.start(self._look)

    async def wait_open(self, timeout_s: float | None = None) -> None:
        """Until a connection stands; raises why there is none to be had.

        With ``fail_fast`` the first failure counts, else the reconnect policy decides how
        long to try, and ``timeout_s`` how long to wait for that.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_open()
        except TimeoutError:
            raise self._not_connected() from None

    async def _wait_open(self) -> None:
        if self.state is LinkState.NEW:
            self.start()
        while self.state is not LinkState.OPEN:
            if self.state is LinkState.CLOSED:
                raise self._closed_error()
            if self._settings.fail_fast and self.last_error is not None:
                raise self._not_connected()
            self._news.clear()
            await self._news.wait()

    async def _open(self) -> None:
        connection = Connection(self, self._loop, self._settings.max_in_flight)
        connection.on_full = self._overflow
        connection.on_orphan = self._orphaned
        try:
            facts = await self.dial(connection)
        except asyncio.CancelledError:
            connection.abort()
            raise
        except Exception as error:  # noqa: BLE001 - a dial asks credential providers, which are users' code
            connection.abort()
            self._failed(error, self._redialing.delay_after_failure_s(error))
        else:
            self._established(connection, facts)

    def _established(self, connection: Connection, facts: ServerFacts) -> None:
        if not connection.is_open:
            error = NotSentError(f"{self.name} closed the connection after the handshake")
            self._failed(error, self._redialing.delay_after_failure_s(error))
            return
        self._connection = connection
        self.facts = facts
        self.last_error = None
        self.reconnections += self._redialing.was_open
        self._redialing.opened(self._loop.time())
        self._enter(LinkState.OPEN)
        self._send_backlog()
        self._tell_state()

    def _failed(self, error: Exception, delay_s: float | None) -> None:
        """There is no connection: wait and try again, or give up."""
        self.last_error = error
        if delay_s is None:
            self._give_up(error)
            return
        log.info("%s: no connection (%s); next attempt in %.3f s", self.name, error, delay_s)
        self._enter(LinkState.WAITING)
        if self._settings.fail_fast:
            self._backlog.refuse_all(self._not_connected)
        self._timer = self._loop.call_later(delay_s, self.start, context=self._context)
        self._tell_state()

    def _give_up(self, error: Exception) -> None:
        log.warning("%s: giving up: %s", self.name, error)
        if not isinstance(error, PenstockError) or type(error) is ConnectionLostError:
            # Whatever became of what was sent: what is refused from now on never was.
            error = NotSentError(f"{self.name} cannot be reached: {error}")
        self.last_error = error
        self._watch.stop()
        self._enter(LinkState.CLOSED)
        self._backlog.refuse_all(self._closed_error)
        self._tell_state()

    def _enter(self, state: LinkState) -> None:
        log.debug("%s: %s -> %s", self.name, self.state.value, state.value)
        self.state = state
        self._news.set()

    def _tell_state(self) -> None:
        try:
            self._owner.on_state(self)
        except Exception:
            log.exception("%s: cannot handle the state %s", self.name, self.state.value)

    # ------------------------------------------------------------------ backlog

    def _send_backlog(self) -> None:
        """As much as there is room for, in order (L1)."""
        connection = self._connection
        backlog = self._backlog
        assert connection is not None
        while (slot := backlog.first()) is not None:
            size = size_of(slot)
            if not connection.has_room_for(size):
                return
            connection.resume_all(backlog.take(size))
        if self.state is LinkState.OPEN:
            self._ready = connection

    # -------------------------------------------------- what a connection reports

    def _overflow(self, arguments: Arguments) -> ReplyFuture:
        """The connection cannot take a command now."""
        if self._connection is None and self.state is LinkState.CONNECTING:
            # The handshake's own: it must not wait for its own end.
            future: ReplyFuture = self._loop.create_future()
            future.set_exception(NotSentError(f"{self.name} closed the connection"))
            return future
        return self._hold([self._new_slot(arguments)])

    def on_room(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._send_backlog()
        if self.state is LinkState.CLOSED:
            if connection.in_flight:
                connection.tell_when_empty()
            else:
                self._quiet.set()

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        # What the handshake is refused is the dial's business.
        return connection is self._connection and self._owner.on_refused(self, slot, error)

    def _orphaned(self, slot: Slot, reply: Reply) -> None:
        if self.on_orphan is not None:
            self.on_orphan(slot, reply)

    def on_push(self, connection: Connection, push: list[Any]) -> None:
        if connection is self._connection:
            self._owner.on_push(self, push)

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        cause = error or ConnectionLostError(f"{self.name} closed the connection")
        if connection is not self._connection:
            # It died during the handshake; the dial itself reports.
            for slot in [*unanswered, *unsent]:
                slot.future.set_exception(NotSentError(f"{self.name} ended the connection: {cause}"))
            return
        self._connection = self._ready = None
        self._sent += connection.sent
        self._discarded += connection.discarded
        self._bytes_sent += connection.bytes_sent
        self._bytes_received += connection.bytes_received
        self._quiet.set()
        if self.state is LinkState.CLOSED:
            self._end(unanswered, unsent)
            return
        self.last_error = cause
        log.warning("%s: connection lost: %s", self.name, cause)
        self._backlog.add_first(
            kept_after_loss(unanswered, unsent, self._settings, lambda: self._outcome_unknown(cause))
        )
        self._failed(cause, self._redialing.delay_after_loss_s(self._loop.time()))

    def _end(self, unanswered: list[Slot], unsent: list[Slot]) -> None:
        """The last connection of a link that is being closed has ended."""
        for slot in unanswered:
            if not slot.future.done():
                slot.future.set_exception(self._closed_before_reply())
        for slot in unsent:
            refuse(slot, self._closed_error())
        self._backlog.refuse_all(self._closed_error)

    def _closed_before_reply(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"the client of {self.name} was closed before the reply; it may have run")

    def _outcome_unknown(self, cause: Exception) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"the connection to {self.name} ended before the reply ({cause}); it may have run"
        )

    # ----------------------------------------------------------------- watching

    def _look(self) -> None:
        connection = self._connection
        self._watch.look_at_backlog(self._backlog, self._not_sent_in_time)
        if connection is not None:
            self._watch.look_at_connection(connection)
        else:
            self._backlog.drop_gone()

    def _not_sent_in_time(self, slot: Slot) -> PenstockError:
        why = self.last_error or "too many commands are unanswered"
        return CommandTimeoutError(f"not sent to {self.name} within the command timeout: {why}")

    # -------------------------------------------------------------------- close

    async def close(self, *, at_once: bool = False) -> None:
        """End for good; no caller is left waiting. Idempotent.

        Nothing is accepted any more; what is on its way may still be answered for
        ``close_timeout_ms``, unless it is ``at_once``.
        """
        if self._closing is None:
            if self.state is LinkState.CLOSED and self._opening is None:
                return
            if asyncio.get_running_loop() is not self._loop:
                raise ClosedError("this client belongs to another event loop; close it there")
            self._closing = self._loop.create_task(self._close(at_once), context=self._context)
        await asyncio.shield(self._closing)

    async def _close(self, at_once: bool) -> None:
        was_closed = self.state is LinkState.CLOSED
        self._enter(LinkState.CLOSED)
        self._ready = None
        self._cancel_timer()
        self._watch.stop()
        opening, self._opening = self._opening, None
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        connection = self._connection
        if connection is None:
            self._backlog.refuse_all(self._closed_error)
        else:
            await self._hang_up(connection, 0 if at_once else self._settings.close_timeout_ms / 1000)
        if not was_closed:
            self._tell_state()

    async def _hang_up(self, connection: Connection, timeout_s: float) -> None:
        """Let what is in flight be answered, then end the connection and wait for its end."""
        try:
            self._quiet.clear()
            if connection.in_flight or self._backlog:
                connection.tell_when_empty()
                await self._wait_quiet(timeout_s)
            self._quiet.clear()
            self._refuse_all(connection)
            if self._connection is not None:
                connection.close()
                if not await self._wait_quiet(timeout_s):
                    connection.abort()
                    await self._quiet.wait()
        except asyncio.CancelledError:
            self._refuse_all(connection)
            connection.abort()
            raise

    def _refuse_all(self, connection: Connection) -> None:
        connection.refuse_all(self._closed_before_reply, self._closed_error)
        self._backlog.refuse_all(self._closed_error)

    async def _wait_quiet(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abandon(self) -> None:
        """In a forked child: be closed, and touch nothing that the parent uses."""
        self.state = LinkState.CLOSED
        self.last_error = ClosedError(
            f"the client of {self.name} was opened before fork and cannot be used in the child"
        )
        if self._connection is not None:
            self._connection.forget()
        self._connection = self._ready = self._opening = self._closing = None
        self._backlog.clear()

    # --------------------------------------------------------------- statistics

    @property
    def _in_flight(self) -> int:
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def silent_s(self) -> float:
        """For how long the server owes a reply; 0 if it owes none."""
        connection = self._connection
        if connection is None or not connection.in_flight:
            return 0.0
        return max(0.0, self._loop.time() - connection.silent_since_s)

    def position_of(self, future: ReplyFuture) -> int | None:
        """How many commands before that of this caller are unanswered here; None if it is not in flight."""
        return None if self._connection is None else self._connection.position_of(future)

    @property
    def is_busy(self) -> bool:
        """Whether a command is in flight, or waits."""
        return bool(self._in_flight or self._backlog)

    def statistics(self) -> dict[str, Any]:
        """Counts since the link was made; times (in milliseconds) of the connection in use."""
        connection = self._connection or Connection(self, self._loop, 0)
        return {
            "state": self.state.value,
            "in_flight": connection.in_flight,
            "tombstones": connection.tombstones,
            "waiting": len(self._backlog),
            "sent": self._sent + connection.sent,
            "discarded_replies": self._discarded + connection.discarded,
            "bytes_sent": self._bytes_sent + connection.bytes_sent,
            "bytes_received": self._bytes_received + connection.bytes_received,
            "reconnections": self.reconnections,
            "latency_ms": connection.answering.as_ms(),
            "queueing_ms": connection.queueing.as_ms(),
        }

    def __repr__(self) -> str:
        return (
            f"<Link {self.name} {self.state.value} in_flight={self._in_flight} waiting={len(self._backlog)}>"
        )


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for link in list(_links):
        link.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)


def _check(arguments: Arguments) -> None:
    if not arguments:
        # A server answers an empty command with nothing, and everybody's replies would be off by one.
        raise TypeError("a command needs at least its name")


def _copy(error: PenstockError) -> PenstockError:
    """A fresh error for each caller: raising one object in many tasks piles up its traceback."""
    copy = type(error)(*error.args)
    copy.__cause__ = error
    return copy
