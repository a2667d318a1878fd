"""Subscriptions of channels: make, remove, fetch, acknowledge, look.

=======  =====================================  ==================================================
method   path below ``/v1/channels/{channel}``  answer
=======  =====================================  ==================================================
GET      ``/subscriptions``                     200, subscribers, by pages
PUT      ``/subscriptions/{subscriber}``        201 made, 200 existed
GET      the same                               200, how much is unread
DELETE   the same                               204, 404 if there was none
GET      ``…/messages``                         200, messages; waits if asked to
POST     ``…/ack``                              200, whether anything changed
POST     ``…/nack``                             200, the same
GET      ``…/backlog``                          200, unread messages from anywhere, by pages
=======  =====================================  ==================================================
"""

from __future__ import annotations

from typing import Final

from penstock.channels.model import FETCH_LIMIT, MAX_FETCH, Batch
from penstock.gateway.auth.decisions import Action
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import JSON, Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services
from penstock.gateway.v1 import channel_documents as documents
from penstock.gateway.v1.channel_requests import (
    admit,
    location,
    messages_json,
    next_link,
    page_of,
    subscriber_of,
)
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import (
    DEFAULT_PAGE,
    MAX_PAGE,
    bad,
    cursor,
    read_json,
    to_cursor,
    wait_ms,
    whole_number,
)

SUBSCRIPTIONS: Final = "/v1/channels/{channel}/subscriptions"
SUBSCRIPTION: Final = SUBSCRIPTIONS + "/{subscriber}"

_NO_CONTENT: Final = Response(204, b"", ())
#: Clocks wrap at this number, so none is larger or smaller.
_MAX_CLOCK: Final = 2**53 - 1


class SubscriptionRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._channels = services.channels
        self._max_wait_ms = services.config.http.long_polling_max_timeout_ms

    def routes(self) -> list[Route]:
        table = (
            ("GET", SUBSCRIPTIONS, self.list, documents.SUBSCRIPTIONS),
            ("PUT", SUBSCRIPTION, self.subscribe, documents.SUBSCRIBE),
            ("GET", SUBSCRIPTION, self.look, documents.SUBSCRIPTION),
            ("DELETE", SUBSCRIPTION, self.unsubscribe, documents.UNSUBSCRIBE),
            ("GET", SUBSCRIPTION + "/messages", self.fetch, documents.FETCH),
            ("POST", SUBSCRIPTION + "/ack", self.ack, documents.ACK),
            ("POST", SUBSCRIPTION + "/nack", self.nack, documents.NACK),
            ("GET", SUBSCRIPTION + "/backlog", self.backlog, documents.BACKLOG),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- subscriptions

    async def list(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.READ)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        info = await self._channels.info(policy.channel)
        unread = {} if info is None else info.unread
        page, last = page_of(sorted(unread), cursor(request, str, ""), limit)
        subscriptions = [documents.Subscription(name, unread[name]) for name in page]
        following = None if last is None else to_cursor(last)
        headers = [next_link(request, following)] if following else ()
        return answer(documents.SubscriptionPage(subscriptions, following), headers=headers)

    async def subscribe(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        if await self._channels.create(policy.channel, subscriber, expire_ms=policy.expire_ms):
            made = location(request, "subscriptions", subscriber)
            return answer(documents.Subscription(subscriber, 0), 201, [made])
        return answer(await self._state(policy.channel, subscriber))

    async def look(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.READ)
        return answer(await self._state(policy.channel, subscriber_of(request)))

    async def _state(self, channel: str, subscriber: str) -> documents.Subscription:
        backlog = await self._channels.backlog(channel, subscriber, limit=1)
        return documents.Subscription(subscriber, backlog.unread)

    async def unsubscribe(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        if not await self._channels.remove(policy.channel, subscriber):
            raise Refusal(404, "subscription-not-found", f"there was no subscriber {subscriber!r}")
        return _NO_CONTENT

    # ------------------------------------------------------------------------- messages

    async def fetch(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        limit = whole_number(request, "limit", FETCH_LIMIT, 1, MAX_FETCH)
        timeout_ms = wait_ms(request, self._max_wait_ms)
        after = request.query.get("after")
        if timeout_ms > 0:
            await request.body()  # there is none; who has gone is heard behind it
        fetching = self._channels.fetch(
            policy.channel,
            subscriber,
            limit=limit,
            timeout_ms=timeout_ms,
            expire_ms=policy.expire_ms,
            # An un-escaped plus sign of Base64 arrives as a space.
            after=after.replace(" ", "+") if after else None,
        )
        if timeout_ms > 0:
            return _batch(await while_connected(self._services, request, fetching))
        return _batch(await fetching)

    async def ack(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        body = await read_json(request, documents.Acknowledgement)
        moved = await self._channels.ack(policy.channel, subscriber, body.receipt, expire_ms=policy.expire_ms)
        return answer(documents.Moved(moved))

    async def nack(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        body = await read_json(request, documents.Return)
        returned = await self._channels.nack(policy.channel, subscriber, body.receipt, delay_ms=body.delay_ms)
        return answer(documents.Returned(returned))

    async def backlog(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        subscriber = subscriber_of(request)
        limit = whole_number(request, "limit", FETCH_LIMIT, 1, MAX_FETCH)
        after = cursor(request, int, _clock(request))
        found = await self._channels.backlog(policy.channel, subscriber, after=after, limit=limit)
        following = None if found.after is None else to_cursor(found.after)
        spelt = b"null" if following is None else b'"%b"' % following.encode()
        body = b'{"messages":[%b],"unread":%d,"cursor":%b}' % (
            messages_json(found.messages),
            found.unread,
            spelt,
        )
        return Response(200, body, [JSON, next_link(request, following)] if following else (JSON,))


def _clock(request: Request) -> int | None:
    if "after" not in request.query:
        return None
    clock = whole_number(request, "after", 0, -_MAX_CLOCK, _MAX_CLOCK + 1)
    if clock > _MAX_CLOCK:
        raise bad("after", "a clock of the channel", request.query["after"])
    return clock


def _batch(batch: Batch) -> Response:
    more = b"true" if batch.more else b"false"
    receipt = b"null" if batch.receipt is None else b'"%b"' % batch.receipt.encode()
    body = b'{"messages":[%b],"more":%b,"receipt":%b}' % (messages_json(batch.messages), more, receipt)
    return Response(200, body)
