"""A stream as server-sent events: every message an event whose id is its offset.

What browsers do by themselves is made use of: an ``EventSource`` that comes again sends the last id it got,
and goes on behind it. Nothing is acknowledged; the stream keeps what its policy says.

Rules: a follower holds one page, and who does not read is not read for. It survives a store that is away,
hears of the worker's end at once, and shows its credential again now and then. Messages that were evicted
before they could be sent are told as a ``gap``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from penstock.errors import PenstockError
from penstock.gateway.http.responses import Refusal
from penstock.gateway.services import Services
from penstock.gateway.v1 import events
from penstock.gateway.v1.feeds import FeedEnded
from penstock.gateway.v1.following import Follower, Terms, stopping
from penstock.gateway.v1.staying import Shutdown, place
from penstock.gateway.v1.stream_reading import Page, StreamReader, unless_stopping
from penstock.gateway.v1.stream_requests import refusals

_encode: Final = msgspec.json.Encoder().encode


class StreamFollower(Follower):
    """One follower of one stream."""

    def __init__(
        self,
        services: Services,
        shutdown: Shutdown,
        reader: StreamReader,
        show_credential: Callable[[], Awaitable[object]],
        terms: Terms,
    ) -> None:
        super().__init__(services, show_credential, terms, "a stream")
        self._shutdown = shutdown
        self._reader = reader

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
                    left_ms = int(self.left_s() * 1_000)
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
            await self.check_credential()
            with refusals():
                found = await unless_stopping(
                    self._shutdown, lambda: self._reader.waited_page(page.next, wait_ms)
                )
            if found is None:
                raise stopping()
        except (PenstockError, Refusal) as error:
            await self.survive(error)
            return Page(page.first, page.last, [], page.next)
        self.note_success()
        if found.last < page.last:
            raise FeedEnded("stream-removed", "the stream was deleted; offsets begin anew")
        return found


def _spelt(start: int, page: Page) -> bytes:
    """Events of one page; ``start`` is where it should have begun."""
    chunks: list[bytes] = []
    if 0 < start < page.first:
        chunks.append(events.event_of("gap", {"from": start, "first": page.first}))
    chunks += [events.event("message", _encode(each), str(each.offset)) for each in page.messages]
    return b"".join(chunks)
