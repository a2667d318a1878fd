"""What users hold: a channel to publish to, and a subscription to fetch from.

    room = ps.channel("room-7")
    await room.publish("msg-1", {"text": "hi"})
    alice = await room.subscribe("alice")
    batch = await alice.fetch(timeout_ms=30_000)
    await alice.ack(batch.receipt)

    async for message in alice.consume():       # the same as a loop
        print(message.content)

Both are names with methods; making one sends nothing. A channel needs no creation. Names (of channels,
subscribers, messages) are 1 to 63 of ``0-9 a-z _ -`` and start with a digit or a letter.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final

from penstock.channels.keys import check_id
from penstock.channels.model import EXPIRE_MS, FETCH_LIMIT, Backlog, Batch, ChannelInfo, Message, to_json
from penstock.channels.port import Channels
from penstock.errors import UsageError

_POLL_MS: Final = 30_000


class Channel:
    """One channel. Make one with ``ps.channel(name)``."""

    def __init__(self, channels: Channels, name: str, expire_ms: int = EXPIRE_MS) -> None:
        self._channels = channels
        self.name: str = check_id("name", name)
        self.expire_ms: int = _positive("expire_ms", expire_ms)

    async def publish(self, message_id: str | None, content: Any) -> bool:
        """Append a message, any value that JSON can hold. False: the id was published already.

        Without an id the message gets one of its own, and publishing twice is two messages.
        """
        return (await self.publish_many([(message_id, content)]))[0]

    async def publish_many(self, messages: Iterable[tuple[str | None, Any]]) -> list[bool]:
        """Append messages (id, content) in this order, all or none; for each whether it is new."""
        checked = [
            (check_id("message_id", f"msg-{uuid.uuid4()}" if given is None else given), to_json(content))
            for given, content in messages
        ]
        return await self._channels.publish(self.name, checked, expire_ms=self.expire_ms)

    async def subscribe(self, subscriber: str) -> Subscription:
        """A subscription that starts with the next message; one that exists goes on where it is."""
        subscription = self.subscription(subscriber)
        await subscription.create()
        return subscription

    def subscription(self, subscriber: str) -> Subscription:
        """A subscription that was made before."""
        return Subscription(self._channels, self, subscriber)

    async def message(self, message_id: str) -> Message | None:
        """A message by its id, while the channel keeps it."""
        return await self._channels.find(self.name, check_id("message_id", message_id))

    async def info(self) -> ChannelInfo | None:
        """The channel and its subscribers; None if nobody uses it. Reads the keyspace: not for programs."""
        return await self._channels.info(self.name)

    def __repr__(self) -> str:
        return f"<Channel {self.name}>"


class Subscription:
    """A subscriber of one channel."""

    def __init__(self, channels: Channels, channel: Channel, subscriber: str) -> None:
        self._channels = channels
        self.channel: Channel = channel
        self.subscriber: str = check_id("subscriber", subscriber)

    async def create(self) -> bool:
        """Begin with the next message. False: it had begun already."""
        return await self._channels.create(
            self.channel.name, self.subscriber, expire_ms=self.channel.expire_ms
        )

    async def fetch(self, limit: int = FETCH_LIMIT, *, timeout_ms: int = 0) -> Batch:
        """What was not acknowledged, oldest first; waits up to ``timeout_ms`` for the first message."""
        if limit < 0:
            raise UsageError(f"limit must not be negative, not {limit}")
        return await self._channels.fetch(
            self.channel.name,
            self.subscriber,
            limit=limit,
            timeout_ms=timeout_ms,
            expire_ms=self.channel.expire_ms,
        )

    async def ack(self, receipt: str | Batch) -> bool:
        """Done with everything up to this receipt. False: it was acknowledged before."""
        return await self._channels.ack(
            self.channel.name, self.subscriber, _receipt_of(receipt), expire_ms=self.channel.expire_ms
        )

    async def nack(self, receipt: str | Batch, *, delay_ms: int = 0) -> bool:
        """Not done: the same comes again, after the delay. Until then the subscriber gets nothing."""
        if delay_ms < 0:
            raise UsageError(f"delay_ms must not be negative, not {delay_ms}")
        return await self._channels.nack(
            self.channel.name, self.subscriber, _receipt_of(receipt), delay_ms=delay_ms
        )

    async def backlog(self, *, after: int | None = None, limit: int = FETCH_LIMIT) -> Backlog:
        """Look at what is unread, from anywhere (``after`` a clock), and change nothing."""
        return await self._channels.backlog(
            self.channel.name, self.subscriber, after=after, limit=_positive("limit", limit)
        )

    async def consume(self, limit: int = FETCH_LIMIT) -> AsyncGenerator[Message, None]:
        """Every message, for ever. A batch is acknowledged when its last message has been handled."""
        while True:
            batch = await self.fetch(_positive("limit", limit), timeout_ms=_POLL_MS)
            for message in batch.messages:
                yield message
            if batch.receipt is not None:
                await self.ack(batch.receipt)

    async def unsubscribe(self) -> bool:
        """End it. False: there was none."""
        return await self._channels.remove(self.channel.name, self.subscriber)

    def __repr__(self) -> str:
        return f"<Subscription {self.subscriber} of {self.channel.name}>"


def _receipt_of(given: str | Batch) -> str:
    receipt = given.receipt if isinstance(given, Batch) else given
    if not isinstance(receipt, str):
        raise UsageError("receipt must be the receipt of a batch that has messages")
    return receipt


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise UsageError(f"{name} must be a whole number above 0, not {value!r}")
    return value
