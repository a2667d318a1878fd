"""What users of PUB/SUB hold: their subscriptions, and the stream of what comes of them.

Rules: a subscription is recorded, or withdrawn, before the first ``await``; what is waited for
is only the server's word. So a call that is cancelled leaves nothing half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self

from penstock.client.config import Settings
from penstock.client.pubsub.desk import Desk
from penstock.client.pubsub.inbox import Inbox
from penstock.client.pubsub.items import Item, Message, Name
from penstock.client.pubsub.topics import Key, Kind, Want, from_wire
from penstock.errors import ClosedError, CommandTimeoutError

#: Items taken in a row before others get a turn: a full queue must not stop the loop.
MAX_STREAK: Final = 100


class Subscriber:
    """One stream of messages, with a queue of its own. Made by ``Client.pubsub()``.

    Of use by any number of tasks; each item goes to one of them.
    """

    def __init__(self, desk: Desk, inbox: Inbox, settings: Settings) -> None:
        self._desk = desk
        self._inbox = inbox
        self._inbox.on_failed = desk.leave_all
        self._is_decoded = settings.decode_responses
        self._timeout_ms = settings.command_timeout_ms
        self._streak = 0

    # ------------------------------------------------------------------- wanting

    async def subscribe(self, *channels: Name) -> None:
        """Until the server has confirmed; messages that are published later come.

        Raises what the server says against it, or ``CommandTimeoutError``; the subscriptions are
        then as they were before.
        """
        await self._join(Kind.CHANNEL, channels)

    async def psubscribe(self, *patterns: Name) -> None:
        """The same for every channel that matches, such as ``room.*``."""
        await self._join(Kind.PATTERN, patterns)

    async def ssubscribe(self, *channels: Name) -> None:
        """The same for shard channels, which live where keys of their name would (SPUBLISH)."""
        await self._join(Kind.SHARD, channels)

    async def unsubscribe(self, *channels: Name) -> None:
        """From these, or from all channels. Nothing comes of them any more, but what waits already stays.

        Returns when the server has confirmed, where nobody else wants them.
        """
        await self._leave(Kind.CHANNEL, channels)

    async def punsubscribe(self, *patterns: Name) -> None:
        await self._leave(Kind.PATTERN, patterns)

    async def sunsubscribe(self, *channels: Name) -> None:
        await self._leave(Kind.SHARD, channels)

    @property
    def channels(self) -> frozenset[Name]:
        """What is wanted, confirmed or not."""
        return frozenset(self._desk.wanted(self._inbox, Kind.CHANNEL))

    @property
    def patterns(self) -> frozenset[Name]:
        return frozenset(self._desk.wanted(self._inbox, Kind.PATTERN))

    @property
    def shard_channels(self) -> frozenset[Name]:
        return frozenset(self._desk.wanted(self._inbox, Kind.SHARD))

    async def _join(self, kind: Kind, names: tuple[Name, ...]) -> None:
        self._check_usable()
        wants = self._desk.join(self._inbox, kind, self._wire_names(names))
        for want in wants:
            want.calls += 1
        try:
            if not await self._answered([want.future for want in wants]):
                raise CommandTimeoutError(
                    f"{kind.subscribe} was not confirmed within {self._timeout_ms} ms (command_timeout_ms);"
                    " it was withdrawn"
                )
        except BaseException:
            self._withdraw(wants)
            raise
        for want in wants:
            want.calls -= 1
            want.is_kept = True

    def _withdraw(self, wants: list[Want]) -> None:
        """Without those that another call waits for, or has got already."""
        unwanted: list[Key] = []
        for want in wants:
            want.calls -= 1
            is_current = want.topic.wants.get(self._inbox) is want
            if is_current and not want.calls and not want.is_kept:
                unwanted.append(want.topic.key)
        self._desk.leave(self._inbox, unwanted)

    async def _leave(self, kind: Kind, names: tuple[Name, ...]) -> None:
        self._check_usable()
        wire_names = self._wire_names(names) if names else self._desk.wanted(self._inbox, kind)
        departures = self._desk.leave(self._inbox, [(kind, name) for name in wire_names])
        if not await self._answered(departures):
            raise CommandTimeoutError(
                f"{kind.unsubscribe} was not confirmed within {self._timeout_ms} ms (command_timeout_ms);"
                " it needs no repetition"
            )

    async def _answered(self, futures: list[asyncio.Future[None]]) -> bool:
        """Whether all were answered in time; raises the first refusal."""
        waiting = {future for future in futures if not future.done()}
        if waiting:
            # Not gather: others may wait for the same futures, which must survive our cancellation.
            timeout_s = self._timeout_ms / 1000 if self._timeout_ms else None
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
        for future in futures:
            if future.done():
                future.result()
        return all(future.done() for future in futures)

    def _wire_names(self, names: tuple[Name, ...]) -> list[Name]:
        for name in names:
            if not isinstance(name, bytes | str):
                raise TypeError(f"a channel or pattern must be bytes or str, not {type(name).__name__}")
        return [from_wire(name, self._is_decoded) for name in names]

    # -------------------------------------------------------------------- taking

    async def get(self, timeout_ms: float | None = None) -> Item | None:
        """The next item; None when time is up (0: without waiting).

        Raises ``ClosedError`` after ``close``, and why the subscriber has failed, after what it held.
        """
        self._streak += 1
        if self._streak >= MAX_STREAK:
            self._streak = 0
            await asyncio.sleep(0)
        item = self._inbox.take()
        return item if item is not None else await self._wait(timeout_ms)

    async def _wait(self, timeout_ms: float | None) -> Item | None:
        self._check_usable()
        self._streak = 0
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while (item := self._inbox.take()) is None:
                    await self._inbox.wait()
                return item
        except TimeoutError:
            return self._inbox.take()

    def __aiter__(self) -> Self:
        """All items until ``close``; raises why the subscriber has failed."""
        return self

    async def __anext__(self) -> Item:
        try:
            item = await self.get()
        except ClosedError:
            if self._inbox.is_closed:
                raise StopAsyncIteration from None
            raise
        assert item is not None, "there is no time to be up"
        return item

    async def messages(self) -> AsyncIterator[Message]:
        """Messages alone, without a word on what was lost."""
        async for item in self:
            if isinstance(item, Message):
                yield item

    # ----------------------------------------------------------------------- end

    def _check_usable(self) -> None:
        self._inbox.check()
        self._desk.check_usable()

    async def close(self) -> None:
        """Leave everything; nobody is left waiting. Idempotent.

        What nobody else wants is unsubscribed. The last subscriber's end is that of the
        connections too.
        """
        self._inbox.close()
        self._desk.leave_all(self._inbox, ClosedError("the subscriber is closed"))
        await self._desk.wait_rested()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def waiting(self) -> int:
        """Messages that wait to be taken."""
        return len(self._inbox)

    @property
    def dropped(self) -> int:
        """Messages lost for want of room, in all."""
        return self._inbox.dropped

    def __repr__(self) -> str:
        wanted = sum(len(self._desk.wanted(self._inbox, kind)) for kind in Kind)
        return f"<Subscriber subscriptions={wanted} {self._inbox!r}>"
