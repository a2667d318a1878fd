"""A stream as server-sent events: every message an event whose id is its offset.

What browsers do by themselves is made use of: an ``EventSource`` that comes again sends the last id it got,
and goes on behind it. Nothing is acknowledged; the stream keeps what its policy says.

Rules: a follower holds one page, and who does not read is not read for. It survives a store that is away,
hears of the worker's end at once, and shows its credential again now and then. Messages that were evicted
before they could be sent are told as a ``gap``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.errors import PenstockError
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.responses import Refusal
from penstock.gateway.services import Services
from penstock.gateway.v1 import events
from penstock.gateway.v1.feeds import CREDENTIAL_S, FeedEnded
from penstock.gateway.v1.staying import Shutdown, place
from penstock.gateway.v1.stream_reading import Page, StreamReader, unless_stopping
from penstock.gateway.v1.stream_requests import refusals

_LOG = logging.getLogger("penstock.gateway")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Terms:
    """How a follower is treated."""

    ends_s: float
    heartbeat_ms: int = events.HEARTBEAT_MS
    credential_s: float = CREDENTIAL_S


class StreamFollower:
    """One follower of one stream."""

    def __init__(
        self,
        services: Services,
        shutdown: Shutdown,
        reader: StreamReader,
        show_credential: Callable[[], Awaitable[object]],
        terms: Terms,
    ) -> None:
        self._services = services
        self._shutdown = shutdown
        self._reader = reader
        self._show_credential = show_credential
        self._terms = terms
        self._pause_s = _FIRST_PAUSE_S
        self._now_s = asyncio.get_running_loop().time
        self._asked_s = self._now_s()

    async def events(self, start: int, page: Page) -> AsyncIterator[bytes]:
        """``page`` was read from ``start`` on, before the first byte left."""
        with place(self._services):
            yield events.PREAMBLE
            try:
                while True:
                    chunk = _spelt(start, page)
                    if chunk:
                        yield chunk
                        self._services.metrics.delivered(len(page.messages))
                    start = page.next
                    left_ms = int((self._terms.ends_s - self._now_s()) * 1_000)
                    if left_ms <= 0:
                        return
                    page = await self._following(page, min(left_ms, self._terms.heartbeat_ms))
                    if not page.messages:
                        yield events.HEARTBEAT
            except FeedEnded as end:
                yield events.end(end.reason, end.detail)

    async def _following(self, page: Page, wait_ms: int) -> Page:
        """The next messages; none when time is up, or when the store was away."""
        try:
            if self._now_s() - self._asked_s >= self._terms.credential_s:
                await self._show_credential()
                self._asked_s = self._now_s()
            with refusals():
                found = await unless_stopping(
                    self._shutdown, lambda: self._reader.waited_page(page.next, wait_ms)
                )
            if found is None:
                raise FeedEnded("shutdown", "the gateway stops; come again")
        except (PenstockError, Refusal) as error:
            await self._survive(error)
            return Page(page.first, page.last, [], page.next)
        self._pause_s = _FIRST_PAUSE_S
        if found.last < page.last:
            raise FeedEnded("stream-removed", "the stream was deleted; offsets begin anew")
        return found

    async def _survive(self, error: PenstockError | Refusal) -> None:
        """Wait for better times if they may come."""
        refusal = error if isinstance(error, Refusal) else refusal_of(error)
        if refusal is None:
            _LOG.error("a follower of a stream met an error", exc_info=error)
            raise FeedEnded("failed", "something went wrong here; it was logged") from None
        if refusal.status in (401, 403):
            raise FeedEnded("unauthorized", refusal.detail) from None
        if refusal.status != 503:
            raise FeedEnded(refusal.code, refusal.detail) from None
        if self._services.life.is_stopping:
            raise FeedEnded("shutdown", "the gateway stops; come again") from None
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _spelt(start: int, page: Page) -> bytes:
    """Events of one page; ``start`` is where it should have begun."""
    chunks: list[bytes] = []
    if 0 < start < page.first:
        chunks.append(events.event_of("gap", {"from": start, "first": page.first}))
    chunks += [events.event("message", _encode(each), str(each.offset)) for each in page.messages]
    return b"".join(chunks)
