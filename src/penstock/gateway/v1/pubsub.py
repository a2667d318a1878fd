"""Pub/sub over HTTP: what is published goes to whoever listens now, and is kept nowhere.

=======  ===============================  ===============================================================
method   path                             answer
=======  ===============================  ===============================================================
POST     ``/v1/pubsub/{topic}``           200, how many received it; the body is published as it is
GET      ``/v1/pubsub/{topic}/events``    200, server-sent events: ``message``, ``gap``, ``dropped``, ``end``
=======  ===============================  ===============================================================

With ``pattern=true`` the topic of a follower is a glob over topics. A payload that is UTF-8 is ``data``,
any other is ``data_base64``. ``gap``: the server was lost for a time, messages may be missing; ``dropped``:
the follower was too slow, so many are missing.

Rules: the topics by which gateways and stores talk among themselves do not exist here, neither by name nor
by pattern. Who follows a pattern gets what it may follow by name, and no more. All of it only where the
configuration says so.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from penstock.client.facts import to_bytes
from penstock.client.pubsub import Dropped, Gap, Item, Message, Subscriber
from penstock.errors import ClosedError, PenstockError
from penstock.gateway.auth.decisions import Action, AuthRejected, Resource
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response, Streaming
from penstock.gateway.http.routing import Route
from penstock.gateway.services import Services
from penstock.gateway.v1 import events
from penstock.gateway.v1.channel_requests import flag, refuse_other_sites
from penstock.gateway.v1.documents import Body, Doc, Parameter, Reply
from penstock.gateway.v1.feeds import CREDENTIAL_S
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import bad
from penstock.gateway.v1.staying import Shutdown, check_room, place

_LOG = logging.getLogger("penstock.gateway")

_MAX_TOPIC_BYTES: Final = 512
#: Wake-ups of channels and transactions, the line between workers, and notifications about keys.
_RESERVED: Final = (
    "dsps.",
    "channels.",
    "penstock.",
    "tx.",
    "__keyspace@",
    "__keyevent@",
    "__redis__:",
    "__sentinel__:",
)
#: Items that are sent as one chunk.
_CHUNK_ITEMS: Final = 100
#: Topics whose permission a follower of a pattern remembers.
_MAX_REMEMBERED: Final = 10_000


class Received(msgspec.Struct):
    receivers: int


_PUBLISH: Final = Doc(
    "pubsub",
    "Publish to whoever listens",
    {200: Reply("How many received it.", Received)},
    "Nothing is kept: who does not listen now will not get it. In a cluster, those at one node count.",
    body=Body(media="application/octet-stream", description="Any bytes, published as they are."),
    refusals={404: "Pub/sub is not enabled."},
    scope="publish",
)
_EVENTS: Final = Doc(
    "pubsub",
    "Follow a topic",
    {200: Reply("Server-sent events.", media="text/event-stream")},
    "Events `message`, `gap` (messages may be missing), `dropped` (messages are missing) and `end`.",
    (Parameter("pattern", "The topic is a glob over topics.", {"type": "boolean"}),),
    refusals={404: "Pub/sub is not enabled."},
    scope="subscribe",
)


class PubSubRoutes:
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
        self._shutdown = Shutdown(services.life)

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/pubsub/{topic}", self.publish, refuse, _PUBLISH),
            Route("GET", "/v1/pubsub/{topic}/events", self.follow, refuse, _EVENTS),
        ]

    async def publish(self, request: Request) -> Response:
        topic = self._topic(request)
        await self._services.access.admit(request, Action.PUBLISH, Resource("pubsub", topic))
        refuse_other_sites(self._services, request)
        self._services.access.count_publish(request, 1)
        body = await request.body()
        return answer(Received(int(await self._services.store.publish(topic, body))))

    async def follow(self, request: Request) -> Streaming:
        topic = self._topic(request)
        is_pattern = flag(request, "pattern")
        await self._services.access.admit(request, Action.SUBSCRIBE, Resource("pubsub", topic))
        check_room(self._services)
        subscriber = self._services.store.pubsub()
        try:
            await (subscriber.psubscribe(topic) if is_pattern else subscriber.subscribe(topic))
        except BaseException:
            await subscriber.close()
            raise
        door = _Door(self._services, request, topic, is_pattern, self._credential_s)
        return Streaming(self._events(subscriber, door), events.HEADERS)

    def _topic(self, request: Request) -> str:
        if not self._services.config.pubsub.enabled:
            raise Refusal(404, "pubsub-disabled", "this gateway has no pub/sub; see pubsub.enabled")
        topic = request.params["topic"]
        if not topic or len(topic.encode()) > _MAX_TOPIC_BYTES:
            raise bad("topic", f"1 to {_MAX_TOPIC_BYTES} bytes of text", topic)
        if topic.startswith(_RESERVED):
            raise Refusal(
                403, "topic-reserved", f"topics that begin like {topic[:20]!r} are used by gateways"
            )
        return topic

    # ------------------------------------------------------------------------- following

    async def _events(self, subscriber: Subscriber, door: _Door) -> AsyncIterator[bytes]:
        closing: set[asyncio.Task[None]] = set()

        def stop() -> None:
            closing.add(asyncio.ensure_future(subscriber.close()))

        try:
            with place(self._services), self._shutdown.watched(stop):
                yield events.PREAMBLE
                while True:
                    item = await subscriber.get(self._heartbeat_ms)
                    await door.check()
                    yield events.HEARTBEAT if item is None else await _chunk(item, subscriber, door)
        except ClosedError:
            yield events.end("shutdown", "the gateway stops; come again")
        except PenstockError as error:
            yield _end_for(error)
        finally:
            await subscriber.close()
            await asyncio.gather(*closing)


class _Door:
    """Whether a follower may go on, and which topics of a pattern it may have."""

    def __init__(
        self, services: Services, request: Request, topic: str, is_pattern: bool, credential_s: float
    ) -> None:
        self._services = services
        self._request = request
        self._topic = topic
        self._is_pattern = is_pattern
        self._credential_s = credential_s
        self._now_s = asyncio.get_running_loop().time
        self._asked_s = self._now_s()
        self._known: dict[str, bool] = {}

    async def check(self) -> None:
        """The credential again, if it was not asked for lately."""
        if self._now_s() - self._asked_s >= self._credential_s:
            self._known.clear()
            await self._ask(self._topic)
            self._asked_s = self._now_s()

    async def lets_in(self, topic: str) -> bool:
        if not self._is_pattern:
            return True
        known = self._known.get(topic)
        if known is None:
            known = not topic.startswith(_RESERVED) and await self._may_have(topic)
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[topic] = known
        return known

    async def _may_have(self, topic: str) -> bool:
        try:
            await self._ask(topic)
        except AuthRejected:
            return False
        return True

    async def _ask(self, topic: str) -> None:
        await self._services.access.admit(self._request, Action.SUBSCRIBE, Resource("pubsub", topic))


async def _chunk(item: Item | None, subscriber: Subscriber, door: _Door) -> bytes:
    """This item and what waits behind it; a comment if nothing of it is for the follower."""
    spelt: list[bytes] = []
    while item is not None:
        if not isinstance(item, Message) or await door.lets_in(_text(item.channel)):
            spelt.append(_spelt(item))
        if len(spelt) >= _CHUNK_ITEMS:
            break
        item = await subscriber.get(0) if subscriber.waiting else None
    return b"".join(spelt) or events.HEARTBEAT


def _spelt(item: Item) -> bytes:
    match item:
        case Message():
            return events.event_of("message", {"topic": _text(item.channel), **_payload(to_bytes(item.data))})
        case Gap():
            return events.event_of("gap", {"duration_s": round(item.duration_s, 3)})
        case Dropped():
            return events.event_of("dropped", {"count": item.count})


def _payload(data: bytes) -> dict[str, Any]:
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def _text(topic: bytes | str) -> str:
    return to_bytes(topic).decode("utf-8", "replace")


def _end_for(error: PenstockError) -> bytes:
    refusal = refusal_of(error)
    if refusal is None:
        _LOG.error("a follower of a topic met an error", exc_info=error)
        return events.end("failed", "something went wrong here; it was logged")
    if refusal.status in (401, 403):
        return events.end("unauthorized", refusal.detail)
    return events.end("unavailable", refusal.detail)
