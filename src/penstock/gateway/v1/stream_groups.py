"""Groups of streams: make, read as one of several, acknowledge, give back, look.

=======  ===================================================  ========================================
method   path below ``/v1/streams/{stream}/groups``           answer
=======  ===================================================  ========================================
GET                                                           200, groups, how far each is
PUT      ``/{group}``                                         201 made, 200 existed: options are these
GET      the same                                             200, how far it is, who reads
DELETE   the same                                             204, 404 if there was none
POST     ``/{group}/read``                                    200, messages; waits if asked to
POST     ``/{group}/ack`` ``/nack`` ``/renew`` ``/reject``    200, how many of them were pending
GET      ``/{group}/pending``                                 200, what is not acknowledged, by pages
=======  ===================================================  ========================================

A read whose client goes before the answer may have taken messages that nobody saw; they come again after
their ``retry_ms``, as if their reader had died. Semantics are those of ``penstock.streams``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.client.transports.base import Argument
from penstock.configuration.durations import parse_duration_ms
from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.v1 import stream_documents as documents
from penstock.gateway.v1.bodies import read_optional_json
from penstock.gateway.v1.channel_requests import next_link, refuse_other_sites
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import (
    DEFAULT_PAGE,
    MAX_PAGE,
    bad,
    cursor,
    read_json,
    to_cursor,
    whole_number,
)
from penstock.gateway.v1.staying import Shutdown
from penstock.gateway.v1.stream_reading import unless_stopping
from penstock.gateway.v1.stream_requests import (
    admit,
    admit_to,
    group_of,
    location,
    message_of,
    refusals,
)
from penstock.gateway.v1.streams import STREAM
from penstock.streams import Group, StreamCommands
from penstock.streams.arguments import MAX_OFFSET, Start

GROUPS: Final = STREAM + "/groups"
GROUP: Final = GROUPS + "/{group}"

_PLACES: Final[dict[str, Start]] = {"earliest": 0, "now": "$", "$": "$"}


class StreamGroupRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._commands = StreamCommands(services.store)
        self._shutdown = Shutdown(services.life)
        self._max_wait_ms = services.config.http.long_polling_max_timeout_ms

    def routes(self) -> list[Route]:
        table = (
            ("GET", GROUPS, self.list, documents.GROUPS),
            ("PUT", GROUP, self.put, documents.PUT_GROUP),
            ("GET", GROUP, self.look, documents.GROUP),
            ("DELETE", GROUP, self.destroy, documents.DELETE_GROUP),
            ("POST", GROUP + "/read", self.read, documents.GROUP_READ),
            ("POST", GROUP + "/ack", self.ack, documents.ACK),
            ("POST", GROUP + "/nack", self.nack, documents.NACK),
            ("POST", GROUP + "/renew", self.renew, documents.RENEW),
            ("POST", GROUP + "/reject", self.reject, documents.REJECT),
            ("GET", GROUP + "/pending", self.pending, documents.PENDING),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- the group itself

    async def list(self, request: Request) -> Response:
        stream = await admit(self._services, request, Action.READ)
        with refusals():
            return answer(documents.GroupList(await self._services.store.stream(stream).groups()))

    async def put(self, request: Request) -> Response:
        _, group = await self._admit(request, Action.SUBSCRIBE)
        wishes = await read_optional_json(request, documents.GroupOptions)
        at = _place(wishes.at)
        if wishes.dead_letter:
            # Whoever may name the stream of dead letters has them written there.
            await admit_to(self._services, request, Action.PUBLISH, wishes.dead_letter)
        options: dict[str, Any] = {
            name: value
            for name in wishes.__struct_fields__
            if name != "at" and (value := getattr(wishes, name)) is not None
        }
        with refusals():
            is_new = await group.create(at, **options)
            if not is_new and options:
                await group.configure(**options)
            state = await self._state(group)
        return answer(state, 201, [_location(request)]) if is_new else answer(state)

    async def look(self, request: Request) -> Response:
        _, group = await self._admit(request, Action.READ)
        with refusals():
            return answer(await self._state(group))

    async def _state(self, group: Group) -> documents.GroupState:
        info = await group.info()
        if info is None:
            raise _no_group(group)
        return documents.GroupState(info, await group.consumers())

    async def destroy(self, request: Request) -> Response:
        _, group = await self._admit(request, Action.SUBSCRIBE)
        with refusals():
            if not await group.destroy():
                raise _no_group(group)
        return Response(204, b"", ())

    # ------------------------------------------------------------------------- messages

    async def read(self, request: Request) -> Response:
        stream, group = await self._admit(request, Action.SUBSCRIBE)
        refuse_other_sites(self._services, request)
        wishes = await read_json(request, documents.GroupRead)
        timeout_ms = min(_wait_ms(wishes.wait), self._max_wait_ms)
        words = _words(stream, group, wishes)
        with refusals():
            # What is there is had without a connection of its own; only who must wait gets one.
            rows = await self._commands.execute(*words)
            if not rows and timeout_ms > 0:
                waiting = unless_stopping(
                    self._shutdown, lambda: self._commands.execute(*words, "BLOCK", timeout_ms)
                )
                rows = await while_connected(self._services, request, waiting)
        messages = [message_of(row) for row in rows or () if row[1] is not None]
        gone = [row[0] for row in rows or () if row[1] is None]
        self._services.metrics.delivered(len(messages))
        return answer(documents.GroupPage(messages, gone))

    async def ack(self, request: Request) -> Response:
        return await self._settle(request, documents.Settlement, self._acknowledge)

    async def _acknowledge(self, group: Group, body: documents.Settlement) -> int:
        found = await group.ack(*body.offsets)
        self._services.metrics.acked(found)
        return found

    async def nack(self, request: Request) -> Response:
        return await self._settle(
            request,
            documents.Return,
            lambda group, body: group.nack(*body.offsets, delay_ms=body.delay_ms),
        )

    async def renew(self, request: Request) -> Response:
        return await self._settle(
            request,
            documents.Renewal,
            lambda group, body: group.renew(*body.offsets, retry_ms=body.retry_ms),
        )

    async def reject(self, request: Request) -> Response:
        return await self._settle(
            request,
            documents.Rejected,
            lambda group, body: group.reject(*body.offsets, reason=body.reason),
        )

    async def _settle(
        self, request: Request, kind: type[Any], settle: Callable[[Group, Any], Awaitable[int]]
    ) -> Response:
        _, group = await self._admit(request, Action.SUBSCRIBE)
        refuse_other_sites(self._services, request)
        body = await read_json(request, kind)
        with refusals():
            return answer(documents.Found(await settle(group, body)))

    async def pending(self, request: Request) -> Response:
        _, group = await self._admit(request, Action.READ)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        first = cursor(request, int, 0)
        consumer = request.query.get("consumer") or None
        if not 0 <= first <= MAX_OFFSET:
            raise bad("cursor", "the cursor of the page before", request.query["cursor"])
        with refusals():
            summary = await group.pending_summary()
            # One more than asked for tells whether there is a next page.
            found = await group.pending(first, count=limit + 1, consumer=consumer)
        page = found[:limit]
        following = to_cursor(found[limit].offset) if len(found) > limit else None
        headers = [next_link(request, following)] if following else ()
        state = documents.PendingPage(summary.count, summary.next_ms, page, following)
        return answer(state, headers=headers)

    async def _admit(self, request: Request, action: Action) -> tuple[str, Group]:
        stream = await admit(self._services, request, action)
        return stream, self._services.store.stream(stream).group(group_of(request))


def _words(stream: str, group: Group, wishes: documents.GroupRead) -> tuple[Argument, ...]:
    """The command of one read; a group that is new begins at the first message."""
    words: tuple[Argument, ...] = ("TREAD", stream, 0, wishes.limit, "GROUP", group.name)
    words += ("CONSUMER", wishes.consumer)
    if wishes.retry_ms is not None:
        words += ("RETRY", wishes.retry_ms, wishes.expire_ms)
    return (*words, "WITHTIME", "WITHCOUNT")


def _place(at: int | str) -> Start:
    if isinstance(at, int):
        return at
    if at not in _PLACES:
        raise bad("at", "an offset, 'earliest' or 'now'", at)
    return _PLACES[at]


def _wait_ms(text: str) -> int:
    try:
        return max(0, parse_duration_ms(text))
    except ValueError as error:
        raise bad("wait", f"a duration ({error})", text) from None


def _location(request: Request) -> tuple[bytes, bytes]:
    return location(request, request.params["stream"], "groups", request.params["group"])


def _no_group(group: Group) -> Refusal:
    return Refusal(404, "group-not-found", f"the stream has no group {group.name!r}")
