"""Channels and their messages.

=======  =====================================  ==================================================
method   path below ``/v1/channels``            answer
=======  =====================================  ==================================================
GET                                             200, names, by pages
GET      ``/{channel}``                         200, clock, life and subscribers
POST     ``/{channel}/messages``                201, the id; 200 if it was published before
POST     ``/{channel}/batch``                   200, the same for each of many, all or none
GET      ``/{channel}/messages/{message}``      200, one message
=======  =====================================  ==================================================

Subscriptions are in ``subscriptions``, followers in ``channel_events`` and ``sockets``.
"""

from __future__ import annotations

import hashlib
import uuid
from functools import partial
from typing import Final

from penstock.channels.keys import is_id
from penstock.channels.model import compact
from penstock.errors import ContentError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import channel_documents as documents
from penstock.gateway.v1.channel_requests import (
    ID_FORM,
    admit,
    checked_id,
    location,
    message_json,
    next_link,
    refuse_other_sites,
)
from penstock.gateway.v1.listing import list_names, may_read, refuse_strangers
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import read_json

_BASE: Final = "/v1/channels"
_KEY_DIGITS: Final = 40


class ChannelRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._channels = services.channels

    def routes(self) -> list[Route]:
        table = (
            ("GET", _BASE, self.list, documents.LIST),
            ("GET", _BASE + "/{channel}", self.info, documents.INFO),
            ("POST", _BASE + "/{channel}/messages", self.publish, documents.PUBLISH),
            ("POST", _BASE + "/{channel}/batch", self.publish_batch, documents.PUBLISH_BATCH),
            ("GET", _BASE + "/{channel}/messages/{message}", self.message, documents.MESSAGE),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- looking

    async def list(self, request: Request) -> Response:
        await refuse_strangers(self._services, request, "channel")
        names, following = await list_names(request, self._channels.names, partial(self._may_read, request))
        headers = [next_link(request, following)] if following else ()
        return answer(documents.ChannelPage(names, following), headers=headers)

    async def _may_read(self, request: Request, channel: str) -> bool:
        policy = self._services.rules.match(channel) if is_id(channel) else None
        if policy is None:
            return False
        return await may_read(self._services, request, Resource("channel", channel), policy.jwt_rules)

    async def info(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.READ)
        info = await self._channels.info(policy.channel)
        if info is None:
            raise Refusal(404, "channel-not-found", f"nobody uses channel {policy.channel!r}")
        subscriptions = [documents.Subscription(name, unread) for name, unread in info.unread.items()]
        return answer(documents.ChannelState(info.name, info.clock, info.ttl_ms, subscriptions))

    async def message(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.SUBSCRIBE)
        message_id = checked_id("message", request.params["message"])
        message = await self._channels.find(policy.channel, message_id)
        if message is None:
            raise Refusal(404, "message-not-found", f"the channel keeps no message {message_id!r}")
        return Response(200, message_json(message))

    # ------------------------------------------------------------------------- publishing

    async def publish(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.PUBLISH)
        refuse_other_sites(self._services, request)
        message_id = _message_id(request)
        self._services.access.count_publish(request, 1)
        content = compact(await request.body())
        is_new = await self._channels.publish(
            policy.channel,
            ((message_id, content),),
            expire_ms=policy.expire_ms,
            outbox=self._services.wants_outbox(policy),
        )
        if not is_new[0]:
            return Response(200, b'{"id":"%b","duplicate":true}' % message_id.encode())
        made = location(request, "messages", message_id)
        return answer(documents.Published(message_id, False), 201, [made])

    async def publish_batch(self, request: Request) -> Response:
        policy = await admit(self._services, request, Action.PUBLISH)
        refuse_other_sites(self._services, request)
        batch = await read_json(request, documents.PublishBatch)
        messages = _checked_batch(batch)
        self._services.access.count_publish(request, len(messages))
        are_new = await self._channels.publish(
            policy.channel, messages, expire_ms=policy.expire_ms, outbox=self._services.wants_outbox(policy)
        )
        published = zip(messages, are_new, strict=True)
        results = [documents.Published(message_id, not is_new) for (message_id, _), is_new in published]
        return answer(documents.PublishedBatch(results))


def new_message_id() -> str:
    return f"msg-{uuid.uuid4()}"


def _message_id(request: Request) -> str:
    """What the client calls the message, or a new name."""
    for name, given in (("id", request.query.get("id")), ("Message-Id", request.header(b"message-id"))):
        if given is not None:
            return checked_id(name, given)
    key = request.header(b"idempotency-key")
    if key is None:
        return new_message_id()
    key = key.strip('"')
    # Any text may be a key: one that is no id gets a name made of it, so that repeating stays safe.
    return key if is_id(key) else f"key-{hashlib.sha256(key.encode()).hexdigest()[:_KEY_DIGITS]}"


def _checked_batch(batch: documents.PublishBatch) -> list[tuple[str, bytes]]:
    """Ids and compact contents; all faults of all messages are told at once."""
    messages: list[tuple[str, bytes]] = []
    faults: list[dict[str, str]] = []
    for at, item in enumerate(batch.messages):
        message_id = new_message_id() if item.id is None else item.id
        if not is_id(message_id):
            faults.append({"name": f"messages[{at}].id", "detail": f"must be {ID_FORM}"})
            continue
        try:
            messages.append((message_id, compact(bytes(item.content))))
        except ContentError as error:
            faults.append({"name": f"messages[{at}].content", "detail": str(error)})
    if faults:
        detail = f"{faults[0]['name']}: {faults[0]['detail']}"
        raise Refusal(400, "invalid-body", detail, errors=faults)
    return messages
