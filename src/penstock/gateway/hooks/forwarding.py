"""Moves what outboxes hold into the queue of deliveries.

Rules
-----
1. An entry leaves its outbox only when every endpoint that wants it has it in the queue. Doing it twice is
   harmless: the queue knows each pair of endpoint and event.
2. Workers share the channels: whoever holds the lock of a channel empties its outbox, and looks once more
   after giving the lock back, so that an entry that came in between is not left. Who found it locked
   looks again a little later: its holder may have died.
3. Woken by pub/sub. What a dead worker left is found when another starts, after a gap, and once a minute.
4. An outbox that was empty for long, and whose channel may not publish unannounced, is forgotten.
5. A queue that is full makes entries wait in the outbox. An entry that no queue would ever take is left
   out, and logged: others must not wait behind it for ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.channels import Channels, Message
from penstock.channels.keys import OUTBOXES
from penstock.channels.model import parse_body
from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.client.pubsub import Message as News
from penstock.clock import Clock, SystemClock
from penstock.errors import BackpressureError, ClosedError, PenstockError, UsageError
from penstock.gateway.hooks.directory import Directory
from penstock.gateway.hooks.routes import HookRoutes
from penstock.gateway.hooks.translation import dsps_body, standard_body
from penstock.gateway.policies import ChannelPolicies
from penstock.webhooks import Endpoint, EndpointStore, WebhookQueue

_LOG = logging.getLogger("penstock.gateway.webhook-out")

_PAGE: Final = 100
#: A lock outlives the work on one page by far; a dead worker's ends by itself.
_LOCK_MS: Final = 5_000
_SWEEP_S: Final = 60.0
_PAUSE_S: Final = 1.0


class Forwarder:
    """One worker's share of forwarding."""

    def __init__(
        self,
        client: Client,
        channels: Channels,
        policies: ChannelPolicies,
        directory: Directory,
        routes: HookRoutes,
        users: EndpointStore,
        queue: WebhookQueue,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._channels = channels
        self._policies = policies
        self._directory = directory
        self._routes = routes
        self._users = users
        self._queue = queue
        self._clock = clock or SystemClock()
        self._wanted: dict[str, None] = {}
        self._bell = asyncio.Event()
        #: channels that will be looked at again
        self._later: set[str] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                await self._bell.wait()
                self._bell.clear()
                while self._wanted:
                    channel = next(iter(self._wanted))
                    del self._wanted[channel]
                    await self._forward(channel)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub() as subscriber:
                    await subscriber.subscribe(OUTBOXES)
                    await self._want_all()
                    while True:
                        item = await subscriber.get(timeout_ms=_SWEEP_S * 1_000)
                        if isinstance(item, News):
                            self._want(to_bytes(item.data).decode("utf-8", "replace"))
                        else:
                            await self._want_all()
            except ClosedError:
                return
            except PenstockError as error:
                _LOG.warning("cannot hear of new messages for webhooks: %s", error)
            await asyncio.sleep(_PAUSE_S)

    async def _want_all(self) -> None:
        for channel in await self._channels.outboxes():
            self._want(channel)

    def _want(self, channel: str) -> None:
        self._wanted[channel] = None
        self._bell.set()

    def _want_later(self, channel: str) -> None:
        if channel not in self._later:
            self._later.add(channel)
            asyncio.get_running_loop().call_later(_PAUSE_S, self._want_again, channel)

    def _want_again(self, channel: str) -> None:
        self._later.discard(channel)
        self._want(channel)

    async def _forward(self, channel: str) -> None:
        try:
            while await self._empty(channel):
                pass
        except BackpressureError as error:
            _LOG.warning("messages of %s wait for webhooks: %s", channel, error)
            self._want_later(channel)
        except PenstockError as error:
            _LOG.warning("messages of %s could not be handed to webhooks: %s", channel, error)
            self._want_later(channel)

    async def _empty(self, channel: str) -> bool:
        """Hand on a page under the channel's lock; whether it has to be looked at again."""
        lock = f"c.{{{channel}}}.forwarding"
        if await self._client.execute("SET", lock, "1", "NX", "PX", _LOCK_MS) is None:
            self._want_later(channel)
            return False
        try:
            entries = await self._channels.read_outbox(channel, _PAGE)
            for entry in entries:
                await self._put(channel, entry)
            left = await self._channels.forwarded(channel, entries) if entries else 0
        finally:
            await self._client.execute("DEL", lock)
        if not entries:
            await self._channels.forget_outbox(channel)
        if left:
            return True
        return bool(await self._channels.read_outbox(channel, 1))

    async def _put(self, channel: str, entry: bytes) -> None:
        clock, _, body = entry.partition(b" ")
        message = parse_body(int(clock), body)
        if message is None:
            _LOG.warning("an entry in the outbox of %s does not decode; it is left out", channel)
            return
        for endpoint, is_standard in await self._receivers(channel):
            text = (
                standard_body(channel, message, self._clock.now_ms())
                if is_standard
                else dsps_body(channel, message)
            )
            try:
                await self._queue.put(endpoint, _event_id(channel, message), text, _HEADERS)
            except UsageError as error:
                _LOG.error("%s of %s is not sent to webhook %s: %s", message.id, channel, endpoint.id, error)

    async def _receivers(self, channel: str) -> list[tuple[Endpoint, bool]]:
        found: list[tuple[Endpoint, bool]] = []
        policy = self._policies.match(channel)
        for webhook in policy.webhooks if policy else ():
            assert policy is not None
            found.append((await self._directory.configured(policy, webhook), webhook.is_endpoint))
        for endpoint_id in self._routes.match(channel):
            endpoint = await self._users.get(endpoint_id)
            if endpoint is not None:
                found.append((endpoint, True))
        return found


_HEADERS: Final = {"content-type": "application/json"}


def _event_id(channel: str, message: Message) -> str:
    """The same message has the same; an id that is used again after it expired has another."""
    return f"{channel}/{message.id}/{message.clock}"
