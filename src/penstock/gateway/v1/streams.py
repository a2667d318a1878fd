"""Streams: make, append, read from anywhere, follow, delete.

=======  =====================================  ==================================================
method   path below ``/v1/streams``             answer
=======  =====================================  ==================================================
GET                                             200, names, by pages
PUT      ``/{stream}``                          201 made, 200 existed: its policy is this now
POST     the same                               201, the offsets of what was appended
GET      the same                               200, messages; 204 if a long poll got none; events
DELETE   the same                               204, 404 if there was none
GET      ``/{stream}/info``                     200, offsets, sizes, policy
POST     ``/{stream}/evict`` ``/compact``       200, how many messages went
=======  =====================================  ==================================================

In the manner of the Durable Streams protocol where it fits: a stream is a URL, ``offset`` and ``live`` in
the query, ``Stream-Next-Offset`` and ``Stream-Up-To-Date`` in answers, 410 for what was evicted. Groups are
in ``stream_groups``. What streams are and do is known to ``penstock.streams`` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from penstock.configuration.durations import parse_duration_ms
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Headers, Refusal, Response, Streaming
from penstock.gateway.http.routing import Answer, Route
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.stream_figures import StreamFigureReader
from penstock.gateway.v1 import events
from penstock.gateway.v1 import stream_documents as documents
from penstock.gateway.v1.bodies import read_optional_json
from penstock.gateway.v1.channel_requests import flag, next_link, refuse_other_sites
from penstock.gateway.v1.feeds import CREDENTIAL_S
from penstock.gateway.v1.following import Terms
from penstock.gateway.v1.listing import list_names, may_read, refuse_strangers
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import (
    DEFAULT_PAGE,
    MAX_PAGE,
    bad,
    read_json,
    wait_ms,
    whole_number,
)
from penstock.gateway.v1.staying import Shutdown, check_room
from penstock.gateway.v1.stream_appending import expected_last_of, pairs_of, producer_of
from penstock.gateway.v1.stream_events import StreamFollower
from penstock.gateway.v1.stream_reading import Page, StreamReader, unless_stopping
from penstock.gateway.v1.stream_requests import (
    admit,
    location,
    not_found,
    offset_of,
    refusals,
    rule_of,
)
from penstock.gateway.v1.transaction_requests import moment_in
from penstock.streams import Stream, StreamCommands

STREAMS: Final = "/v1/streams"
STREAM: Final = STREAMS + "/{stream}"

_DURATION_MS: Final = 3_600_000
_MAX_DURATION_MS: Final = 24 * 3_600_000
_UP_TO_DATE: Final = (b"stream-up-to-date", b"true")


class StreamRoutes:
    """The handlers of one worker."""

    def __init__(
        self,
        services: Services,
        *,
        heartbeat_ms: int = events.HEARTBEAT_MS,
        credential_s: float = CREDENTIAL_S,
    ) -> None:
        self._services = services
        self._commands = StreamCommands(services.store)
        self._max_wait_ms = services.config.http.long_polling_max_timeout_ms
        self._heartbeat_ms = heartbeat_ms
        self._credential_s = credential_s
        self._shutdown = Shutdown(services.life)
        self._figures = StreamFigureReader(services.store)

    def routes(self) -> list[Route]:
        table = (
            ("GET", STREAMS, self.list, documents.LIST),
            ("PUT", STREAM, self.put, documents.PUT),
            ("POST", STREAM, self.append, documents.APPEND),
            ("GET", STREAM, self.read, documents.READ),
            ("DELETE", STREAM, self.delete, documents.DELETE),
            ("GET", STREAM + "/info", self.info, documents.INFO),
            ("POST", STREAM + "/evict", self.evict, documents.EVICT),
            ("POST", STREAM + "/compact", self.compact, documents.COMPACT),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- looking after

    async def list(self, request: Request) -> Response:
        await refuse_strangers(self._services, request, "stream")
        names, following = await list_names(request, self._names, partial(self._may_read, request))
        headers = [next_link(request, following)] if following else ()
        found = await self._figures.read(names) if flag(request, "details") else names
        return answer(documents.StreamPage([*found], following), headers=headers)

    async def _names(self) -> Sequence[str]:
        """Of all streams that HTTP can spell, in order."""
        names: set[str] = set()
        async for key in self._services.store.scan_iter(type="stream", count=1_000):
            try:
                names.add(key.decode())
            except UnicodeDecodeError:
                continue
        return sorted(names)

    async def _may_read(self, request: Request, stream: str) -> bool:
        rule = rule_of(self._services, stream)
        if rule is None or not rule.readable:
            return False
        return await may_read(self._services, request, Resource("stream", stream))

    async def put(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.ADMIN)
        wishes = await read_optional_json(request, documents.StreamPolicy)
        stream = self._stream(name)
        given = {key: value for key, value in _fields(wishes).items() if value is not None}
        with refusals():
            is_new = not await self._exists(name)
            # A policy of nothing makes nothing: this sets the default of something harmless.
            policy = await stream.policy(**(given or {"min_lag_ms": 0} if is_new else given))
            state = documents.StreamState(name, await stream.info(), policy)
        return answer(state, 201, [location(request, name)]) if is_new else answer(state)

    async def _exists(self, name: str) -> bool:
        return bool(await self._services.store.exists(name))

    async def info(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.READ)
        stream = self._stream(name)
        with refusals():
            return answer(documents.StreamState(name, await stream.info(), await stream.policy()))

    async def delete(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.ADMIN)
        stream = self._stream(name)
        with refusals():
            await stream.info()  # something else under this name is not ours to delete
            if not await stream.delete():
                raise not_found()
        return Response(204, b"", ())

    async def evict(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.ADMIN)
        refuse_other_sites(self._services, request)
        wish = await read_json(request, documents.EvictWish)
        stream = self._stream(name)
        with refusals():
            last = (await stream.info()).last  # removing from nothing would be no error
            return answer(documents.Evicted(await stream.evict(**_which(wish, last), acked=wish.acked)))

    async def compact(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.ADMIN)
        refuse_other_sites(self._services, request)
        stream = self._stream(name)
        with refusals():
            await stream.info()
            return answer(documents.Compacted(await stream.compact()))

    # ------------------------------------------------------------------------- writing

    async def append(self, request: Request) -> Response:
        name = await admit(self._services, request, Action.PUBLISH)
        refuse_other_sites(self._services, request)
        expected_last, producer = expected_last_of(request), producer_of(request)
        pairs = pairs_of(request, await request.body())
        self._services.access.count_publish(request, len(pairs))
        with refusals():
            last = await self._stream(name).write_many(pairs, expected_last=expected_last, producer=producer)
        self._services.metrics.published(len(pairs))
        appended = documents.Appended(last - len(pairs) + 1, last)
        return answer(appended, 201, [_next(last + 1), location(request, name)])

    # ------------------------------------------------------------------------- reading

    async def read(self, request: Request) -> Answer:
        name = await admit(self._services, request, Action.SUBSCRIBE)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        tag = request.query.get("tag")
        reader = StreamReader(self._commands, name, limit=limit, tag=None if tag is None else tag.encode())
        live = request.query.get("live")
        with refusals():
            if live == "sse":
                return await self._follow(request, reader)
            if live == "long-poll":
                return await self._poll(request, reader)
            if live is not None:
                raise bad("live", "'long-poll' or 'sse'", live)
            start = await _start(request, reader)
            return self._answer(_checked(start, await reader.page(start)))

    async def _poll(self, request: Request, reader: StreamReader) -> Response:
        timeout_ms = self._max_wait_ms
        if "wait" in request.query or request.header(b"prefer") is not None:
            timeout_ms = wait_ms(request, self._max_wait_ms)
        await request.body()  # there is none; who has gone is heard behind it
        start = await _start(request, reader)
        page = _checked(start, await reader.page(start))
        start = page.next
        if not page.messages and timeout_ms > 0:
            waiting = unless_stopping(self._shutdown, lambda: reader.waited_page(start, timeout_ms))
            found: Page | None = await while_connected(self._services, request, waiting)
            page = page if found is None else found
        if not page.messages:
            return Response(204, b"", _places(page))
        return self._answer(page)

    def _answer(self, page: Page) -> Response:
        self._services.metrics.delivered(len(page.messages))
        return answer(documents.MessagePage(page.messages, page.next), headers=_places(page))

    async def _follow(self, request: Request, reader: StreamReader) -> Streaming:
        duration_ms = duration_ms_of(request)
        check_room(self._services)
        await request.body()
        start = _behind_last_event(request)
        if start is None:
            start = await _start(request, reader)
            page = _checked(start, await reader.page(start))
        else:
            page = await reader.page(start)  # who comes again is told of a gap, and goes on
        ends_s = asyncio.get_running_loop().time() + duration_ms / 1_000
        follower = StreamFollower(
            self._services,
            self._shutdown,
            reader,
            lambda: admit(self._services, request, Action.SUBSCRIBE),
            Terms(ends_s, self._heartbeat_ms, self._credential_s),
        )
        return Streaming(follower.events(start, page), events.HEADERS)

    def _stream(self, name: str) -> Stream:
        return self._services.store.stream(name)


# ------------------------------------------------------------------------- values of requests


async def _start(request: Request, reader: StreamReader) -> int:
    """The offset that a reader begins at; 0 is the first one available."""
    moment_ms = moment_in(request, "at")
    if moment_ms is not None:
        if "offset" in request.query:
            raise bad("offset", "left out where at is given", request.query["offset"])
        return await reader.first_since(moment_ms)
    text = request.query.get("offset", "earliest")
    if text == "earliest":
        return 0
    if text not in ("latest", "now"):
        return offset_of("offset", text)
    first, last = await reader.bounds()
    return last + 1 if text == "now" else max(first, last)


def _checked(start: int, page: Page) -> Page:
    """Refuse an offset that was there once."""
    if 0 < start < page.first:
        detail = f"offset {start} was evicted; the stream begins at {page.first} now"
        raise Refusal(
            410,
            "offset-gone",
            detail,
            headers=[(b"stream-first-offset", b"%d" % page.first)],
            errors=[{"name": "offset", "detail": detail}],
        )
    return page


def _behind_last_event(request: Request) -> int | None:
    """Where a browser goes on that was here before; an id that is none of ours is overlooked."""
    text = request.header(b"last-event-id") or ""
    return int(text) + 1 if text.isascii() and text.isdigit() and len(text) < 20 else None


def duration_ms_of(request: Request) -> int:
    text = request.query.get("for")
    if text is None:
        return _DURATION_MS
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise bad("for", f"a duration ({error})", text) from None
    if duration_ms <= 0:
        raise bad("for", "a duration above 0", text)
    return min(duration_ms, _MAX_DURATION_MS)


def _which(wish: documents.EvictWish, last: int) -> dict[str, int]:
    """What is to be removed, as a stream takes it."""
    wishes = {"keep": wish.keep, "older_than_ms": wish.age_ms}
    given = {name: number for name, number in wishes.items() if number is not None}
    if wish.before is not None:
        given["upto"] = min(wish.before - 1, last)
    if not given and wish.acked:
        given["upto"] = last
    if len(given) != 1:
        raise Refusal(400, "invalid-body", "say which messages: one of before, keep and age_ms, or acked")
    return given


def _fields(policy: documents.StreamPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}


# ------------------------------------------------------------------------- answers


def _places(page: Page) -> Headers:
    return [_next(page.next), _UP_TO_DATE] if page.is_up_to_date else [_next(page.next)]


def _next(offset: int) -> tuple[bytes, bytes]:
    return b"stream-next-offset", b"%d" % offset
