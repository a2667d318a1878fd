"""A subscription as server-sent events: ``GET /v1/channels/{channel}/subscriptions/{subscriber}/events``.

What browsers do by themselves is made use of. The last message of each batch has the batch's receipt as its
id; an ``EventSource`` that comes again sends the last id it got, and that acknowledges. So a page which
only listens gets every message, and gets again what it had not received.

Rules: nothing is acknowledged but by the client's word, or with ``ack=auto`` when the following fetch is
over and the client is still there. A stream holds one batch; who does not read is not read for. A
``Last-Event-ID`` that makes no sense must not break a stream for ever, since a browser sends it each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from penstock.channels.model import Batch
from penstock.configuration.durations import parse_duration_ms
from penstock.errors import PenstockError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Streaming
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import channel_documents as documents
from penstock.gateway.v1 import events
from penstock.gateway.v1.channel_requests import admit, flag, subscriber_of, window_of
from penstock.gateway.v1.feeds import CREDENTIAL_S, Feed, FeedEnded
from penstock.gateway.v1.problems import refuse
from penstock.gateway.v1.reading import bad
from penstock.gateway.v1.staying import check_room, place
from penstock.gateway.v1.subscriptions import SUBSCRIPTION

#: Messages of one chunk.
_BATCH: Final = 256
_DURATION_MS: Final = 3_600_000
_MAX_DURATION_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a client asked for."""

    window: int
    ends_s: float
    is_auto: bool


class ChannelEventRoutes:
    """The handlers of one worker."""

    def __init__(
        self,
        services: Services,
        *,
        heartbeat_ms: int = events.HEARTBEAT_MS,
        credential_s: float = CREDENTIAL_S,
    ) -> None:
        self._services = services
        self._heartbeat_ms = heartbeat_ms
        self._credential_s = credential_s

    def routes(self) -> list[Route]:
        return [Route("GET", SUBSCRIPTION + "/events", self.follow, refuse, documents.EVENTS)]

    async def follow(self, request: Request) -> Streaming:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        terms = _terms(request)
        check_room(self._services)
        feed = Feed(self._services, request, policy, subscriber, credential_s=self._credential_s)
        batch = await feed.open(
            is_made=flag(request, "create"),
            acknowledged=request.header(b"last-event-id"),
            limit=min(_BATCH, terms.window),
        )
        return Streaming(self._events(feed, batch, terms), events.HEADERS)

    async def _events(self, feed: Feed, batch: Batch, terms: _Terms) -> AsyncIterator[bytes]:
        now_s = asyncio.get_running_loop().time
        unacknowledged = 0
        with place(self._services):
            yield events.PREAMBLE
            try:
                while True:
                    if batch.messages:
                        yield _spelt(batch)
                        unacknowledged += len(batch.messages)
                    left_ms = int((terms.ends_s - now_s()) * 1_000)
                    room = terms.window - (0 if terms.is_auto else unacknowledged)
                    if left_ms <= 0 or room <= 0:
                        return
                    owed = feed.position
                    batch = await feed.following(min(_BATCH, room), min(left_ms, self._heartbeat_ms))
                    if terms.is_auto and unacknowledged and owed is not None and await _settled(feed, owed):
                        unacknowledged = 0
                    if not batch.messages:
                        yield events.HEARTBEAT
            except FeedEnded as end:
                yield events.end(end.reason, end.detail)


async def _settled(feed: Feed, receipt: str) -> bool:
    """Whether the store heard of it; if not, the next receipt will say the same."""
    try:
        await feed.ack(receipt)
    except PenstockError:
        return False
    return True


def _spelt(batch: Batch) -> bytes:
    last = len(batch.messages) - 1
    return b"".join(
        [
            events.event(
                "message",
                b'{"id":"%b","content":%b}' % (message.id.encode(), message.raw),
                batch.receipt if at == last else None,
            )
            for at, message in enumerate(batch.messages)
        ]
    )


def _terms(request: Request) -> _Terms:
    duration_ms = _DURATION_MS
    text = request.query.get("for")
    if text is not None:
        try:
            duration_ms = min(parse_duration_ms(text), _MAX_DURATION_MS)
        except ValueError as error:
            raise bad("for", f"a duration ({error})", text) from None
        if duration_ms <= 0:
            raise bad("for", "a duration above 0", text)
    mode = request.query.get("ack")
    if mode not in (None, "auto"):
        raise bad("ack", "'auto', or absent", mode)
    ends_s = asyncio.get_running_loop().time() + duration_ms / 1_000
    return _Terms(window_of(request), ends_s, mode == "auto")
