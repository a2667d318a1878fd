"""Reading a group message by message: what is read ahead, kept, handed out and given back.

``Consumption`` has two tasks of its own: one reads ahead, one renews. ``consumer`` has what users
step through.

==================  =======================================================================
a message is        and then
==================  =======================================================================
read ahead          ``_ahead``; renewed when half of its time is over, so that it is handed
                    out with at least the other half
handed out          ``_out``, until it is settled or its time is up; with ``renews`` it is
                    renewed as well
settled             forgotten, except that ``_given`` knows how often it had been delivered
==================  =======================================================================

Invariants:

1. A message is handed out only while it is surely ours: one whose time is up is left to whoever
   the group gives it to next.
2. When a consumption ends, for whatever reason, what was read ahead is given back at once.
3. A read that was cut off (closed, cancelled, connection lost) may have taken messages whose
   reply nobody saw. They are pending under our own name and we do not know them: *strays*. They
   are given back, too. For this the name of a consumer must be its own.
4. What was handed out belongs to the caller; it is never given back behind his back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.resending import persistently
from penstock.client.transports.base import Argument
from penstock.clock import Clock, SystemClock
from penstock.errors import PenstockError, UsageError
from penstock.streams.arguments import MAX_OFFSET, Execute, Name, Start
from penstock.streams.infos import GroupInfo, parse_pending, text
from penstock.streams.messages import GroupMessage, parse_group_messages
from penstock.streams.settling import Settling

log = logging.getLogger("penstock.streams")

#: How long one command waits for messages. Then it is sent again: a dead peer is noticed.
BLOCK_MS: Final = 10_000
#: How many messages handed out are remembered, to tell strays from them.
_MAX_GIVEN: Final = 100_000
#: Strays that are looked for at once.
_STRAYS_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Terms:
    """How a consumer reads."""

    #: how long a message is its reader's; None: at most once, nothing is pending
    retry_ms: int | None
    #: how long after its first delivery a message is given up; 0: never
    expire_ms: int
    #: the reader's name, which nobody else uses at the same time
    consumer: str
    #: most messages read ahead
    prefetch: int
    #: most messages handed out and not settled; None: no limit
    concurrency: int | None
    #: whether messages that were handed out are renewed until they are settled
    renews: bool
    #: where the group begins if it is new
    at: Start


class Consumption:
    """The working half of one consumer. ``describe`` answers what is known of the group, if it is there."""

    def __init__(
        self,
        commands: Execute,
        key: Name,
        group: Name,
        settling: Settling,
        describe: Callable[[], Awaitable[GroupInfo | None]],
        terms: Terms,
        clock: Clock | None = None,
    ) -> None:
        self._commands = commands
        self._key = key
        self._group = group
        self._settling = settling
        self._describe = describe
        self._clock = clock or SystemClock()
        self.terms = terms
        #: called by ``stop``
        self.on_stop: Callable[[], None] = lambda: None
        #: read ahead, oldest first, by offset
        self._ahead: dict[int, GroupMessage] = {}
        #: handed out and not settled, by offset
        self._out: dict[int, GroupMessage] = {}
        #: until when a message is ours, by offset; of those above
        self._ours_until_s: dict[int, float] = {}
        #: handed out and not acknowledged: how often it had been delivered
        self._given: dict[int, int] = {}
        #: something happened that ``next`` may wait for
        self._news = asyncio.Event()
        #: there is room to read ahead
        self._room = asyncio.Event()
        self._room.set()
        self._error: BaseException | None = None
        self._is_stopping = False
        self._has_read_in_flight = False
        #: a delivery lasts shorter than ``retry_ms`` by the group's own backoff
        self._must_renew_at_once = False
        self._reader: asyncio.Task[None] | None = None
        self._renewer: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ handing out

    async def next(self) -> GroupMessage | None:
        """The next message, when there is one; None after ``stop``."""
        if self._reader is None and not self._is_stopping:
            self._start()
        while not self._is_stopping:
            self._news.clear()
            if self._may_hand_out():
                message = self._take()
                if message is not None:
                    return message
                if self._error is not None:
                    raise self._error
            await self._wait_for_news()
        return None

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read_ahead())
        if self.terms.retry_ms is not None:
            self._renewer = loop.create_task(self._renew_in_time(self.terms.retry_ms))

    def _may_hand_out(self) -> bool:
        limit = self.terms.concurrency
        if limit is None or len(self._out) < limit:
            return True
        self._forget_lapsed()
        return len(self._out) < limit

    def _take(self) -> GroupMessage | None:
        while self._ahead:
            offset = next(iter(self._ahead))
            message = self._ahead.pop(offset)
            if len(self._ahead) <= self.terms.prefetch // 2:
                self._room.set()
            if self.terms.retry_ms is None:
                return message
            if self._is_ours(offset):
                self._out[offset] = message
                self._given[offset] = message.deliveries
                if len(self._given) > _MAX_GIVEN:
                    del self._given[next(iter(self._given))]
                return message
            log.warning("message %d of %r was kept waiting for too long; it will come again", offset, self)
            self._ours_until_s.pop(offset, None)
        return None

    async def _wait_for_news(self) -> None:
        """Or until the oldest message that was handed out is not ours any more."""
        if self.terms.concurrency is None or not self._out:
            await self._news.wait()
            return
        soonest_s = min(self._ours_until_s.get(offset, 0.0) for offset in self._out)
        try:
            async with asyncio.timeout(max(0.001, soonest_s - self._clock.monotonic_s())):
                await self._news.wait()
        except TimeoutError:
            return

    # ----------------------------------------------------------------- reading ahead

    async def _read_ahead(self) -> None:
        try:
            await self._learn_backoff()
            while True:
                await self._room.wait()
                await self._read(self.terms.prefetch - len(self._ahead))
        except Exception as error:  # noqa: BLE001 - it is raised to whoever asks for the next message
            self._error = error
            self._news.set()

    async def _learn_backoff(self) -> None:
        retry_ms = self.terms.retry_ms
        if retry_ms is not None:
            info = await persistently("TINFO", self._describe, limit_ms=None)
            self._must_renew_at_once = info is not None and any(ms < retry_ms for ms in info.backoff_ms)

    async def _read(self, count: int) -> None:
        """Read what is there; only if there is nothing, wait for it (on a connection of its own)."""
        self._has_read_in_flight = True
        for block in ((), ("BLOCK", BLOCK_MS)):
            words = (*self._words(count), *block)

            async def attempt(words: tuple[Argument, ...] = words) -> Any:
                return await self._commands.execute(*words)

            reply = await persistently("TREAD", attempt, limit_ms=None, between=self._give_back_strays)
            if reply:
                await self._take_in(reply)
                break
        self._has_read_in_flight = False

    def _words(self, count: int) -> tuple[Argument, ...]:
        terms = self.terms
        words: tuple[Argument, ...] = ("TREAD", self._key, terms.at, count, "GROUP", self._group)
        words += ("CONSUMER", terms.consumer)
        if terms.retry_ms is not None:
            words += ("RETRY", terms.retry_ms, terms.expire_ms)
        return (*words, "WITHTIME", "WITHCOUNT")

    async def _take_in(self, rows: list[Any]) -> None:
        messages, gone = parse_group_messages(self._key, rows, self)
        for offset in gone:
            log.warning("message %d of %r was evicted before it was acknowledged", offset, self)
            self._forget(offset)
        for message in messages:
            self._ahead.pop(message.offset, None)  # its time was up, and here it is again
            self._ahead[message.offset] = message
        if len(self._ahead) > self.terms.prefetch // 2:
            self._room.clear()
        if self.terms.retry_ms is not None:
            self._keep([message.offset for message in messages], self.terms.retry_ms)
            if self._must_renew_at_once:
                await self._renew([message.offset for message in messages], self.terms.retry_ms)
        self._news.set()

    # ---------------------------------------------------------------------- renewing

    def _keep(self, offsets: list[int], retry_ms: int) -> None:
        until_s = self._clock.monotonic_s() + retry_ms / 1000
        self._ours_until_s.update(dict.fromkeys(offsets, until_s))

    def _is_ours(self, offset: int) -> bool:
        return self._ours_until_s.get(offset, 0.0) > self._clock.monotonic_s()

    def _forget(self, offset: int) -> None:
        self._ahead.pop(offset, None)
        self._out.pop(offset, None)
        self._ours_until_s.pop(offset, None)

    def _forget_lapsed(self) -> None:
        for offset in [offset for offset in self._out if not self._is_ours(offset)]:
            del self._out[offset]
            self._ours_until_s.pop(offset, None)

    async def _renew_in_time(self, retry_ms: int) -> None:
        while True:
            await asyncio.sleep(retry_ms / 4000)
            try:
                await self.renew_due()
            except PenstockError as error:
                log.warning("messages of %r could not be renewed: %s", self, error)

    async def renew_due(self) -> None:
        """Renew what is kept and has less than half of its time left."""
        retry_ms = self.terms.retry_ms
        assert retry_ms is not None
        kept = [*self._ahead, *self._out] if self.terms.renews else [*self._ahead]
        horizon_s = self._clock.monotonic_s() + retry_ms / 2000
        due = [offset for offset in kept if self._is_ours(offset) and self._ours_until_s[offset] <= horizon_s]
        if due:
            await self._renew(due, retry_ms)
        if not self.terms.renews:
            self._forget_lapsed()

    async def _renew(self, offsets: list[int], retry_ms: int) -> None:
        await self._settling.settle_now(offsets, "TRENEW", retry_ms)
        self._keep([offset for offset in offsets if offset in self._ours_until_s], retry_ms)

    # ---------------------------------------------------------- what messages ask for

    async def settle(self, message: GroupMessage, command: str, *parameters: int | str) -> None:
        """A message is acknowledged, given back or given up by whoever has it."""
        if self.terms.retry_ms is None:
            if command == "TACK":
                return
            raise UsageError(f"message {message.offset} was read without retry_ms: it is done with")
        await self._settling.settle(message.offset, command, *parameters)
        if self._out.get(message.offset) is message:
            self._forget(message.offset)
        if command != "TNACK":
            self._given.pop(message.offset, None)
        self._news.set()

    async def renew(self, message: GroupMessage, retry_ms: int | None) -> None:
        wished_ms = retry_ms or self.terms.retry_ms
        if wished_ms is None:
            raise UsageError(f"message {message.offset} was read without retry_ms: it is done with")
        await self._settling.settle(message.offset, "TRENEW", wished_ms)
        if self._out.get(message.offset) is message:
            self._keep([message.offset], wished_ms)

    # ------------------------------------------------------------------------ ending

    def stop(self) -> None:
        """Hand out nothing more; ``next`` answers None."""
        self._is_stopping = True
        self._news.set()
        self.on_stop()

    async def rest(self) -> None:
        """Read no more and give back what was read ahead; what was handed out is still renewed."""
        self.stop()
        if self._resting is None:
            self._resting = asyncio.get_running_loop().create_task(self._rest())
        await asyncio.shield(self._resting)

    async def close(self) -> None:
        """The same, and renew no more. Comes to its end even if the caller does not wait for it."""
        self.stop()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await _end(self._renewer)
        await self.rest()

    async def _rest(self) -> None:
        await _end(self._reader)
        ahead = [offset for offset in self._ahead if self._is_ours(offset)]
        self._given.update((offset, message.deliveries) for offset, message in self._ahead.items())
        self._ahead.clear()
        if self.terms.retry_ms is None:
            return
        try:
            if ahead:
                await self._settling.settle_now(ahead, "TNACK", 0)
            if self._has_read_in_flight:
                await self._give_back_strays()
        except PenstockError as error:
            log.info("%r: what was read ahead comes again when its time is up: %s", self, error)

    async def _give_back_strays(self) -> None:
        """See invariant 3."""
        start = 0
        while True:
            reply = await self._commands.execute(
                "TPENDING", self._key, self._group, start, MAX_OFFSET, _STRAYS_PAGE,
                "CONSUMER", self.terms.consumer,
            )  # fmt: skip
            rows = [parse_pending(row) for row in reply]
            strays = [row.offset for row in rows if row.deliveries > self._known_deliveries(row.offset)]
            if strays:
                await self._settling.settle_now(strays, "TNACK", 0)
            if len(rows) < _STRAYS_PAGE:
                return
            start = rows[-1].offset + 1

    def _known_deliveries(self, offset: int) -> int:
        ahead = self._ahead.get(offset)
        return self._given.get(offset, 0) if ahead is None else ahead.deliveries

    def __repr__(self) -> str:
        state = "stopping" if self._is_stopping else "new" if self._reader is None else "reading"
        return (
            f"<Consumption {text(self._key)}/{text(self._group)} by {self.terms.consumer} {state}:"
            f" {len(self._ahead)} ahead, {len(self._out)} out>"
        )


async def _end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it is over."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
