"""Channels that are counted: what was published, delivered and acknowledged, whichever API asked.

A fetch that reads ahead or comes again delivers again; that is what is counted. Everything else is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.channels import Backlog, Batch, ChannelInfo, Channels, Message
from penstock.errors import PenstockError, ReceiptError, SubscriptionNotFoundError, UsageError
from penstock.gateway.observing.metrics import Metrics

#: Faults of callers; everything else is the store's.
_CALLERS = (ReceiptError, SubscriptionNotFoundError, UsageError)


class MeasuredChannels:
    """``Channels`` around others."""

    def __init__(self, channels: Channels, metrics: Metrics) -> None:
        self._channels = channels
        self._metrics = metrics

    async def publish(
        self, channel: str, messages: Sequence[tuple[str, bytes]], *, expire_ms: int, outbox: bool = False
    ) -> list[bool]:
        try:
            news = await self._channels.publish(channel, messages, expire_ms=expire_ms, outbox=outbox)
        except PenstockError as error:
            self._failed("publish", error)
            raise
        count = sum(news)
        if count:
            self._metrics.published(count)
        if count < len(news):
            self._metrics.duplicate(len(news) - count)
        return news

    async def fetch(
        self,
        channel: str,
        subscriber: str,
        *,
        limit: int,
        timeout_ms: int,
        expire_ms: int,
        after: str | None = None,
    ) -> Batch:
        try:
            batch = await self._channels.fetch(
                channel, subscriber, limit=limit, timeout_ms=timeout_ms, expire_ms=expire_ms, after=after
            )
        except PenstockError as error:
            self._failed("fetch", error)
            raise
        if batch.messages:
            self._metrics.delivered(len(batch.messages))
        return batch

    async def ack(self, channel: str, subscriber: str, receipt: str, *, expire_ms: int) -> bool:
        try:
            has_moved = await self._channels.ack(channel, subscriber, receipt, expire_ms=expire_ms)
        except PenstockError as error:
            self._failed("ack", error)
            raise
        if has_moved:
            self._metrics.acked()
        return has_moved

    def _failed(self, what: str, error: PenstockError) -> None:
        if not isinstance(error, _CALLERS):
            self._metrics.store_error(what, type(error).__name__)

    # -------------------------------------------------------------------------- passed on

    async def create(self, channel: str, subscriber: str, *, expire_ms: int) -> bool:
        return await self._channels.create(channel, subscriber, expire_ms=expire_ms)

    async def remove(self, channel: str, subscriber: str) -> bool:
        return await self._channels.remove(channel, subscriber)

    async def nack(self, channel: str, subscriber: str, receipt: str, *, delay_ms: int) -> bool:
        return await self._channels.nack(channel, subscriber, receipt, delay_ms=delay_ms)

    async def backlog(
        self, channel: str, subscriber: str, *, after: int | None = None, limit: int
    ) -> Backlog:
        return await self._channels.backlog(channel, subscriber, after=after, limit=limit)

    async def find(self, channel: str, message_id: str) -> Message | None:
        return await self._channels.find(channel, message_id)

    async def are_old(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[bool]:
        return await self._channels.are_old(channel, subscriber, message_ids)

    async def info(self, channel: str) -> ChannelInfo | None:
        return await self._channels.info(channel)

    async def names(self) -> list[str]:
        return await self._channels.names()

    async def read_outbox(self, channel: str, limit: int) -> list[bytes]:
        return await self._channels.read_outbox(channel, limit)

    async def forwarded(self, channel: str, entries: Sequence[bytes]) -> int:
        return await self._channels.forwarded(channel, entries)

    async def outboxes(self) -> list[str]:
        return await self._channels.outboxes()

    async def forget_outbox(self, channel: str) -> None:
        await self._channels.forget_outbox(channel)

    async def probe(self) -> dict[str, Any]:
        return await self._channels.probe()

    def release(self) -> None:
        self._channels.release()

    async def close(self) -> None:
        await self._channels.close()

    @property
    def waiting(self) -> int:
        return self._channels.waiting
