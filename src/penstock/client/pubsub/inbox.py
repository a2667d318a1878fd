"""The bounded queue of one subscriber, and those who wait for its next item.

``pubsub_overflow`` decides when a message comes and the queue is full:

===============  ==================================================================
``drop_oldest``  the oldest message goes
``drop_newest``  the new one goes
``close``        the inbox fails with ``BackpressureError``; what it holds can still
                 be taken
===============  ==================================================================

Rules: ``put`` only appends, whatever the consumer does. What is lost leaves a mark in its
place; marks that meet are one, so there are never more marks than messages and one. The inbox
does not know who publishes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from penstock.client.pubsub.items import Dropped, Gap, Item, Message
from penstock.errors import BackpressureError, ClosedError, PenstockError

Overflow: TypeAlias = Literal["drop_oldest", "drop_newest", "close"]


class _Loss:
    """What was lost between two messages."""

    __slots__ = ("dropped", "gaps")

    def __init__(self) -> None:
        self.dropped = 0
        #: by server: as many as there are servers, however long nobody looks
        self.gaps: dict[str, Gap] = {}

    def add_gap(self, gap: Gap) -> None:
        before = self.gaps.get(gap.server)
        if before is not None:
            channels = dict.fromkeys((*before.channels, *gap.channels))
            gap = Gap(gap.server, tuple(channels), before.duration_s + gap.duration_s)
        self.gaps[gap.server] = gap

    def absorb(self, other: _Loss) -> None:
        self.dropped += other.dropped
        for gap in other.gaps.values():
            self.add_gap(gap)

    def take(self) -> Dropped | Gap:
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            return Dropped(dropped)
        return self.gaps.pop(next(iter(self.gaps)))

    @property
    def is_told(self) -> bool:
        return not self.dropped and not self.gaps


class Inbox:
    """Messages and losses in order, until it fails or is closed."""

    def __init__(self, limit: int, overflow: Overflow) -> None:
        self._limit = limit
        self._overflow = overflow
        #: no two losses are neighbours
        self._items: deque[Message | _Loss] = deque()
        #: messages among them
        self._count = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._error: PenstockError | None = None
        #: told when the inbox fails by itself or by ``fail``, not when it is closed
        self.on_failed: Callable[[Inbox, PenstockError], None] = _nobody
        #: ended on purpose
        self.is_closed = False
        #: messages lost for want of room, in all
        self.dropped = 0

    def __len__(self) -> int:
        """Messages that wait."""
        return self._count

    # ---------------------------------------------------------------- filling

    def put(self, message: Message) -> None:
        if self._count >= self._limit and not self._make_room():
            return
        self._items.append(message)
        self._count += 1
        if self._waiters:
            self._wake()

    def put_gap(self, gap: Gap) -> None:
        if self._error is None:
            self._last_loss().add_gap(gap)
            self._wake()

    def _make_room(self) -> bool:
        """Whether the new message may be kept."""
        if self._overflow == "close":
            self.fail(
                BackpressureError(
                    f"{self._count} messages wait for one subscriber (pubsub_queue_len {self._limit},"
                    " pubsub_overflow close): take them faster, or allow more"
                )
            )
            return False
        self.dropped += 1
        if self._overflow == "drop_newest":
            self._last_loss().dropped += 1
            return False
        self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        items = self._items
        first = items.popleft()
        if isinstance(first, _Loss):
            loss = first
            items.popleft()
        else:
            loss = _Loss()
        loss.dropped += 1
        self._count -= 1
        if items and isinstance(follower := items[0], _Loss):
            loss.absorb(follower)
            items.popleft()
        items.appendleft(loss)

    def _last_loss(self) -> _Loss:
        items = self._items
        if items and isinstance(last := items[-1], _Loss):
            return last
        loss = _Loss()
        items.append(loss)
        return loss

    # ----------------------------------------------------------------- taking

    def take(self) -> Item | None:
        """The next item, None if there is none yet; raises why there will be no more."""
        items = self._items
        if not items:
            self.check()
            return None
        first = items[0]
        if isinstance(first, _Loss):
            item = first.take()
            if first.is_told:
                items.popleft()
            return item
        self._count -= 1
        items.popleft()
        return first

    def check(self) -> None:
        """Raise why the inbox has ended."""
        if self._error is not None:
            raise fresh(self._error)

    async def wait(self) -> None:
        """Until there may be something to take: another may be faster."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._items:
                # We were called and go away: the next one must hear of it.
                self._wake()
            raise

    def _wake(self) -> None:
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # -------------------------------------------------------------------- end

    def fail(self, error: PenstockError) -> None:
        """End after what is there."""
        if self._error is None:
            self._end(error)
            self.on_failed(self, error)

    def close(self) -> None:
        """End now. Idempotent."""
        self.is_closed = True
        self._items.clear()
        self._count = 0
        self._end(ClosedError("the subscriber is closed"))

    def _end(self, error: PenstockError) -> None:
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def __repr__(self) -> str:
        state = "open" if self._error is None else "closed" if self.is_closed else "failed"
        return f"<Inbox {state} messages={self._count} dropped={self.dropped}>"


def fresh(error: PenstockError) -> PenstockError:
    """A copy for each caller: raising one object in many places piles up its traceback."""
    copy = type(error)(*error.args)
    copy.__cause__ = error
    return copy


def _nobody(inbox: Inbox, error: PenstockError) -> None:
    """Nobody asks."""
