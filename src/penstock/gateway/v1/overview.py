"""Everything at one look, and again every second as server-sent events.

=======  =============================  ============================================
method   path below ``/v1/overview``    answer
=======  =============================  ============================================
GET                                     200, transactions, groups, jobs, the store
GET      ``/events``                    200, the same every second as ``overview``
=======  =============================  ============================================

    event: overview
    data: {"now_ms":…,"transactions":{…},…}

Rules: followers of a level share one reader and one text (``sharing``). A follower survives a store that is
away, hears of the worker's end at once, and shows its credential again now and then. How it is read is known
to ``gateway.overview`` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, cast, get_args

import msgspec

from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response, Streaming
from penstock.gateway.http.routing import Answer, Route
from penstock.gateway.overview import Overview, OverviewReader
from penstock.gateway.services import Services
from penstock.gateway.sharing import EVERY_S, SharedFeed
from penstock.gateway.store_figures import StoreReader
from penstock.gateway.v1 import events
from penstock.gateway.v1 import overview_documents as documents
from penstock.gateway.v1.feeds import CREDENTIAL_S, FeedEnded
from penstock.gateway.v1.following import Follower, Terms, stopping
from penstock.gateway.v1.observers import admit_observer
from penstock.gateway.v1.operation_documents import TransactionOverview
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import bad
from penstock.gateway.v1.staying import Shutdown, check_room, place
from penstock.gateway.v1.streams import duration_ms_of
from penstock.gateway.v1.transaction_operations import group_states, statistics_of
from penstock.transactions.statistics import Level

OVERVIEW: Final = "/v1/overview"
_LEVELS: Final = get_args(Level)
#: How long a look of followers may take before the store counts as away.
PATIENCE_S: Final = 3.0

_encode: Final = msgspec.json.Encoder().encode


class OverviewRoutes:
    """The handlers of one worker."""

    def __init__(
        self,
        services: Services,
        store: StoreReader,
        *,
        heartbeat_ms: int = events.HEARTBEAT_MS,
        credential_s: float = CREDENTIAL_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._services = services
        transactions = services.transactions
        facility = None if transactions is None else transactions.facility
        self._reader = OverviewReader(services.store, facility, store)
        self._clock = SystemClock()
        self._heartbeat_ms = heartbeat_ms
        self._credential_s = credential_s
        self._shutdown = Shutdown(services.life)
        self._feeds: dict[Level, SharedFeed[bytes]] = {
            level: SharedFeed(partial(self._event, level), every_s) for level in _LEVELS
        }

    def routes(self) -> list[Route]:
        return [
            Route("GET", OVERVIEW, self.overview, refuse, documents.OVERVIEW),
            Route("GET", OVERVIEW + "/events", self.follow, refuse, documents.EVENTS),
        ]

    async def overview(self, request: Request) -> Response:
        await admit_observer(self._services, request)
        return answer(_state_of(await self._reader.read(_level_of(request))))

    async def follow(self, request: Request) -> Answer:
        await admit_observer(self._services, request)
        feed = self._feeds[_level_of(request)]
        duration_ms = duration_ms_of(request)
        check_room(self._services)
        await request.body()
        ends_s = asyncio.get_running_loop().time() + duration_ms / 1_000
        follower = OverviewFollower(
            self._services,
            self._shutdown,
            feed,
            lambda: admit_observer(self._services, request),
            Terms(ends_s, self._heartbeat_ms, self._credential_s),
        )
        return Streaming(follower.events(), events.HEADERS)

    async def _event(self, level: Level) -> bytes:
        """One look as an event; of nulls while the store is away."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                state = _state_of(await self._reader.read(level))
        except (PenstockError, TimeoutError):
            state = documents.OverviewState(now_ms=self._clock.now_ms())
        return events.event("overview", _encode(state))


class OverviewFollower(Follower):
    """One follower of one level."""

    def __init__(
        self,
        services: Services,
        shutdown: Shutdown,
        feed: SharedFeed[bytes],
        show_credential: Callable[[], Awaitable[object]],
        terms: Terms,
    ) -> None:
        super().__init__(services, show_credential, terms, "the overview")
        self._shutdown = shutdown
        self._feed = feed

    async def events(self) -> AsyncIterator[bytes]:
        with place(self._services):
            yield events.PREAMBLE
            seen = 0
            try:
                with self._feed.followed(), self._shutdown.watched(self._feed.nudge):
                    while True:
                        try:
                            await self.check_credential()
                        except (PenstockError, Refusal) as error:
                            await self.survive(error)
                        news = await self._feed.following(seen, self._pause())
                        if news is None:
                            yield events.HEARTBEAT
                        else:
                            self.note_success()
                            seen = news.number
                            yield news.value
            except FeedEnded as end:
                yield events.end(end.reason, end.detail)

    def _pause(self) -> float:
        """How long to wait for news; FeedEnded if there is no more time."""
        if self._services.life.is_stopping:
            raise stopping()
        left_s = self.left_s()
        if left_s <= 0:
            raise FeedEnded("time-over", "the time that was asked for is over; come again")
        return min(left_s, self._terms.heartbeat_ms / 1_000, self._terms.credential_s)


def _level_of(request: Request) -> Level:
    text = request.query.get("level", documents.DEFAULT_LEVEL)
    if text not in _LEVELS:
        raise bad("level", f"one of {', '.join(_LEVELS)}", text)
    return cast(Level, text)


def _state_of(found: Overview) -> documents.OverviewState:
    side = found.transactions
    return documents.OverviewState(
        now_ms=found.now_ms,
        transactions=None if side is None else TransactionOverview(**side.overview._asdict()),
        statistics=None if found.statistics is None else statistics_of(found.statistics),
        node_groups=[] if side is None else group_states(side.groups, side.workers, side.wishes),
        jobs=found.jobs,
        store=found.store,
    )
