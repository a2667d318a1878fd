"""Messages and polling subscriptions: what a DSPS client does all day.

=======  =======================================  ================================================
method   path below ``/channel/{channelID}``      answer
=======  =======================================  ================================================
PUT      ``/message/{messageID}``                 200, the ids; a duplicate is the same answer
PUT      ``/subscription/polling/{subscriberID}`` 200, the ids
DELETE   the same                                 200, the ids, also if there was none
GET      the same, ``timeout``, ``max``           200, messages, until ``ackHandle`` comes back
DELETE   ``…/{subscriberID}/message``             204; a stale handle too
=======  =======================================  ================================================

The order of checks is part of the API: channel (400), credential (403), other ids, query, body, storage.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.channels.keys import is_id
from penstock.channels.model import FETCH_LIMIT, MAX_FETCH, Batch, compact
from penstock.configuration.durations import parse_duration_ms
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.dsps.answers import invalid, missing
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Refuse, Route
from penstock.gateway.policies import Policy
from penstock.gateway.polls import while_connected
from penstock.gateway.services import Services

_BASE: Final = "/channel/{channelID}"
_SUBSCRIPTION: Final = _BASE + "/subscription/polling/{subscriberID}"
_NO_CONTENT: Final = Response(204, b"", ())
_INT64: Final = 2**63
#: Clients wait for the same time again and again.
_duration_ms: Final = lru_cache(maxsize=1_024)(parse_duration_ms)


class Polling:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._channels = services.channels
        self._max_timeout_ms = services.config.http.long_polling_max_timeout_ms
        storages = services.config.storages.values()
        self._has_storage = not all(storage.chosen.disable_pub_sub for storage in storages)

    def routes(self, refuse: Refuse) -> list[Route]:
        table = (
            ("PUT", _BASE + "/message/{messageID}", self.publish),
            ("PUT", _SUBSCRIPTION, self.subscribe),
            ("DELETE", _SUBSCRIPTION, self.unsubscribe),
            ("GET", _SUBSCRIPTION, self.fetch),
            ("DELETE", _SUBSCRIPTION + "/message", self.acknowledge),
        )
        return [Route(method, template, handler, refuse) for method, template, handler in table]

    async def _admit(self, request: Request, action: Action) -> tuple[str, Policy]:
        channel = request.params["channelID"]
        if not is_id(channel):
            raise invalid("channelID")
        policy = self._services.rules.match(channel)
        if policy is None:
            raise Refusal(400, "invalid-channel", 'Invalid "channelID" parameter')
        await self._services.access.admit(request, action, Resource("channel", channel), policy.jwt_rules)
        if not self._has_storage:
            raise Refusal(501, "no-pubsub-storage", "No PubSub compatible storage available.")
        return channel, policy

    async def publish(self, request: Request) -> Response:
        channel, policy = await self._admit(request, Action.PUBLISH)
        message = request.params["messageID"]
        if not is_id(message):
            raise invalid("messageID")
        self._services.access.count_publish(request, 1)
        content = compact(await request.body())
        await self._channels.publish(
            channel,
            ((message, content),),
            expire_ms=policy.expire_ms,
            outbox=self._services.wants_outbox(policy),
        )
        return Response(200, f'{{"channelID":"{channel}","messageID":"{message}"}}\n'.encode())

    async def subscribe(self, request: Request) -> Response:
        channel, policy = await self._admit(request, Action.SUBSCRIBE)
        subscriber = _subscriber(request)
        await self._channels.create(channel, subscriber, expire_ms=policy.expire_ms)
        return _subscription(channel, subscriber)

    async def unsubscribe(self, request: Request) -> Response:
        channel, _ = await self._admit(request, Action.SUBSCRIBE)
        subscriber = _subscriber(request)
        await self._channels.remove(channel, subscriber)
        return _subscription(channel, subscriber)

    async def fetch(self, request: Request) -> Response:
        channel, policy = await self._admit(request, Action.SUBSCRIBE)
        subscriber = _subscriber(request)
        timeout_ms = min(_timeout_ms(request), self._max_timeout_ms)
        limit = _limit(request)
        if timeout_ms > 0:
            await request.body()  # there is none; who has gone is heard behind it
        fetching = self._channels.fetch(
            channel, subscriber, limit=limit, timeout_ms=timeout_ms, expire_ms=policy.expire_ms
        )
        if timeout_ms > 0:
            return _batch(channel, await while_connected(self._services, request, fetching))
        return _batch(channel, await fetching)

    async def acknowledge(self, request: Request) -> Response:
        channel, policy = await self._admit(request, Action.SUBSCRIBE)
        subscriber = _subscriber(request)
        handle = request.query.get("ackHandle")
        if not handle:
            raise missing("ackHandle")
        # An un-escaped plus sign of Base64 arrives as a space.
        await self._channels.ack(channel, subscriber, handle.replace(" ", "+"), expire_ms=policy.expire_ms)
        return _NO_CONTENT


def _subscriber(request: Request) -> str:
    subscriber = request.params["subscriberID"]
    if not is_id(subscriber):
        raise invalid("subscriberID")
    return subscriber


def _timeout_ms(request: Request) -> int:
    text = request.query.get("timeout")
    if text is None:
        return 0
    try:
        return _duration_ms(text)
    except ValueError:
        raise invalid("timeout") from None


def _limit(request: Request) -> int:
    text = request.query.get("max")
    if text is None:
        return FETCH_LIMIT
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise invalid("max")
    number = int(text)
    if not 0 <= number < _INT64:
        raise invalid("max")
    return min(number, MAX_FETCH)


def _subscription(channel: str, subscriber: str) -> Response:
    return Response(200, f'{{"channelID":"{channel}","subscriberID":"{subscriber}"}}\n'.encode())


def _batch(channel: str, batch: Batch) -> Response:
    """Keys in alphabetical order; contents as they are stored."""
    handle = f'"ackHandle":"{batch.receipt}",' if batch.receipt else ""
    messages = b",".join(
        [
            b'{"content":%b,"messageID":"%b"}' % (message.raw, message.id.encode())
            for message in batch.messages
        ]
    )
    more = b"true" if batch.more else b"false"
    head = f'{{{handle}"channelID":"{channel}","messages":['.encode()
    return Response(200, b'%b%b],"moreMessages":%b}\n' % (head, messages, more))
