"""Who waits for which subject, and the wake-ups that reach them from any process.

    wakeups = Wakeups(client, "dsps.c.*", channel_of_topic)
    with await wakeups.ticket("room-7") as ticket:
        while not (found := await look()):
            if not await ticket.wait(30.0): break

Rules
-----
1. A ticket that exists hears every wake-up from then on, so looking after taking it misses nothing;
   ``wait`` forgets what it heard, so look again after each.
2. All waiters share one subscription, to the pattern of all topics. It is made with the first ticket and
   given up when nobody has waited for a time.
3. Whatever may have been missed (a lost connection, a full queue) wakes everybody: looking once too often
   is cheap.
4. ``release`` ends every wait for good: somebody wants to stop.

Nothing here knows what is looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.client.pubsub import Message, Subscriber
from penstock.errors import ClosedError, PenstockError

_LOG = logging.getLogger(__name__)

#: How long the subscription is kept when nobody waits.
_LINGER_S: Final = 60.0


class Wakeups:
    """The waiters of one client for what one pattern of topics tells; each topic names a subject."""

    def __init__(self, client: Client, pattern: str, subject_of: Callable[[str], str]) -> None:
        self._client = client
        self._pattern = pattern
        self._subject_of = subject_of
        self._tickets: dict[str, set[Ticket]] = {}
        self._count = 0
        self._subscriber: Subscriber | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._is_released = False
        #: loop time since when nobody waits
        self._idle_since_s = 0.0

    @property
    def waiting(self) -> int:
        """How many tickets there are."""
        return self._count

    async def ticket(self, subject: str) -> Ticket:
        """A place among the waiters of a subject; it hears everything from now on."""
        await self.listen()
        return Ticket(self, subject)

    async def _subscribe(self) -> None:
        """One for all who come at the same time; whoever gives up leaves it to the others."""
        if self._is_released:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start(), name="penstock wake-ups")
            self._starting.add_done_callback(self._started)
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        subscriber = self._client.pubsub()
        try:
            await subscriber.psubscribe(self._pattern)
        except BaseException:
            await subscriber.close()
            raise
        self._subscriber = subscriber
        self._reader = asyncio.create_task(self._read(subscriber), name="penstock wake-ups")
        self._leave_later(_LINGER_S)

    def _started(self, starting: asyncio.Task[None]) -> None:
        self._starting = None
        if not starting.cancelled():
            starting.exception()  # those who waited have it; nobody may be left who did

    async def _read(self, subscriber: Subscriber) -> None:
        try:
            async for item in subscriber:
                if isinstance(item, Message):
                    self._wake(self._subject_of(to_bytes(item.channel).decode("utf-8", "replace")))
                else:
                    self._wake_all()
        except ClosedError:
            pass
        except PenstockError:
            _LOG.exception("wake-ups ended; the next one who waits starts them again")
        finally:
            # Whoever waits now would wait in vain: they look again, and their next wait subscribes.
            if self._subscriber is subscriber:
                self._subscriber = None
            self._wake_all()

    def _wake(self, subject: str) -> None:
        for ticket in self._tickets.get(subject, ()):
            ticket.wake()

    def _wake_all(self) -> None:
        for tickets in self._tickets.values():
            for ticket in tickets:
                ticket.wake()

    def release(self) -> None:
        """End every wait, also those to come."""
        self._is_released = True
        self._wake_all()

    async def close(self) -> None:
        self.release()
        if self._leaving is not None:
            self._leaving.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._subscriber is not None:
            await self._subscriber.close()
        if self._reader is not None:
            await self._reader

    # ------------------------------------------------------------------------ tickets

    @property
    def is_released(self) -> bool:
        return self._is_released

    def join(self, ticket: Ticket) -> None:
        self._tickets.setdefault(ticket.subject, set()).add(ticket)
        self._count += 1

    def leave(self, ticket: Ticket) -> None:
        tickets = self._tickets[ticket.subject]
        tickets.discard(ticket)
        if not tickets:
            del self._tickets[ticket.subject]
        self._count -= 1
        if not self._count:
            self._idle_since_s = asyncio.get_running_loop().time()
            self._leave_later(_LINGER_S)

    async def listen(self) -> bool:
        """Make sure that wake-ups come. True: they had ended, and some may have been missed."""
        if self._subscriber is not None:
            return False
        await self._subscribe()
        return True

    def _leave_later(self, delay_s: float) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(delay_s, self._leave_if_idle)

    def _leave_if_idle(self) -> None:
        self._leaving = None
        if self._count:
            return  # the last who leaves starts the time again
        left_s = self._idle_since_s + _LINGER_S - asyncio.get_running_loop().time()
        if left_s > 0:
            self._leave_later(left_s)
            return
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            # Its reader ends with it, and nobody waits for either.
            task = asyncio.get_running_loop().create_task(subscriber.close())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())


class Ticket:
    """One waiter."""

    __slots__ = ("_future", "_is_woken", "_wakeups", "subject")

    def __init__(self, wakeups: Wakeups, subject: str) -> None:
        self._wakeups = wakeups
        self.subject = subject
        self._future: asyncio.Future[None] | None = None
        self._is_woken = False

    def __enter__(self) -> Self:
        self._wakeups.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wakeups.leave(self)

    def wake(self) -> None:
        self._is_woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Until somebody wakes it, or the time is over. False: waiting is over for good."""
        if self._wakeups.is_released:
            return False
        is_new = await self._wakeups.listen()
        if not (self._is_woken or is_new):
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(timeout_s, self.wake)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        self._is_woken = False
        return not self._wakeups.is_released
