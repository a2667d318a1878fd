"""What followers of streams and of transactions share: how long they stay, and what they survive.

Rules: a follower survives a store that is away, with growing pauses, and shows its credential again now and
then. Whatever ends it is a :class:`FeedEnded` that says why. Nothing here knows what is followed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from penstock.errors import PenstockError
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.responses import Refusal
from penstock.gateway.services import Services
from penstock.gateway.v1 import events
from penstock.gateway.v1.feeds import CREDENTIAL_S, FeedEnded

_LOG = logging.getLogger("penstock.gateway")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Terms:
    """How a follower is treated."""

    ends_s: float
    heartbeat_ms: int = events.HEARTBEAT_MS
    credential_s: float = CREDENTIAL_S


class Follower:
    """One follower of one thing; ``what`` names it in logs."""

    def __init__(
        self, services: Services, show_credential: Callable[[], Awaitable[object]], terms: Terms, what: str
    ) -> None:
        self._services = services
        self._show_credential = show_credential
        self._terms = terms
        self._what = what
        self._pause_s = _FIRST_PAUSE_S
        self._now_s = asyncio.get_running_loop().time
        self._asked_s = self._now_s()

    def left_s(self) -> float:
        """Until the time that was asked for is over."""
        return self._terms.ends_s - self._now_s()

    async def check_credential(self) -> None:
        """Does nothing if it was asked lately."""
        if self._now_s() - self._asked_s >= self._terms.credential_s:
            await self._show_credential()
            self._asked_s = self._now_s()

    def note_success(self) -> None:
        """The store is there: the next pause is short again."""
        self._pause_s = _FIRST_PAUSE_S

    async def survive(self, error: PenstockError | Refusal) -> None:
        """Wait for better times if they may come."""
        refusal = error if isinstance(error, Refusal) else refusal_of(error)
        if refusal is None:
            _LOG.error("a follower of %s met an error", self._what, exc_info=error)
            raise FeedEnded("failed", "something went wrong here; it was logged") from None
        if refusal.status in (401, 403):
            raise FeedEnded("unauthorized", refusal.detail) from None
        if refusal.status != 503:
            raise FeedEnded(refusal.code, refusal.detail) from None
        if self._services.life.is_stopping:
            raise stopping() from None
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def stopping() -> FeedEnded:
    return FeedEnded("shutdown", "the gateway stops; come again")
