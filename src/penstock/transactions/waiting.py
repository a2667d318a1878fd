"""Waiting for a transaction: any number of waiters in any process, and no wake-up is lost.

A waiter takes its ticket (it hears events from then on), then looks with ``watch_ms``: either the transaction
has ended, or the store knows until when somebody listens and publishes what happens. So nothing falls
between.

Rules: events only say "look again"; what is told comes from the store. Whoever listens renews that while it
waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from penstock.client.client import Client
from penstock.client.waking import Wakeups
from penstock.transactions.keys import TOPIC_EVENTS
from penstock.transactions.model import Transaction

#: For how long the store publishes events after somebody asked for them.
WATCH_MS: Final = 30_000
#: … and when they ask again.
_RENEW_S: Final = WATCH_MS / 2_000

Look = Callable[[int], Awaitable[Transaction]]


class Waiters:
    """All who wait through one client."""

    def __init__(self, client: Client) -> None:
        self._wakeups = Wakeups(client, TOPIC_EVENTS + "*", lambda topic: topic.removeprefix(TOPIC_EVENTS))

    async def until_ended(self, tx: str, look: Look, timeout_ms: int) -> Transaction:
        """As it is when it has ended, or when the time is over. ``look(watch_ms)`` reads it."""
        if timeout_ms <= 0:
            return await look(0)
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + timeout_ms / 1_000
        with await self._wakeups.ticket(tx) as ticket:
            while True:
                found = await look(WATCH_MS)
                left_s = end_s - now_s()
                if found.has_ended or left_s <= 0 or self._wakeups.is_released:
                    return found
                await ticket.wait(min(left_s, _RENEW_S))

    async def changes(self, tx: str, look: Look) -> AsyncIterator[Transaction]:
        """As it is now, and again whenever something happened, until it has ended."""
        with await self._wakeups.ticket(tx) as ticket:
            last: Transaction | None = None
            while True:
                found = await look(WATCH_MS)
                if found != last:
                    yield found
                last = found
                if found.has_ended or self._wakeups.is_released:
                    return
                await ticket.wait(_RENEW_S)

    def release(self) -> None:
        """End every wait: somebody wants to stop."""
        self._wakeups.release()

    @property
    def waiting(self) -> int:
        return self._wakeups.waiting

    async def close(self) -> None:
        await self._wakeups.close()
