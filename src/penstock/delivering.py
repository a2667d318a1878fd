"""How messages of transactions reach streams and channels of the same client, each once.

=========  =================================================  ==========================================
kind       how a repetition is recognised                     for how long
=========  =================================================  ==========================================
stream     the outbox is a producer of the stream             a day after its last message to the stream
           (``outbox:{p0}``), the entry's number its sequence
channel    by the id of the message                           as long as the channel keeps messages
=========  =================================================  ==========================================

So a message is written twice only if the process died between writing it and saying so, and nobody has looked
after the outbox for that long since.

Here facilities meet that know nothing of one another. Nothing here retries: who calls does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.channels import ChannelStore
from penstock.channels.keys import check_id
from penstock.channels.model import EXPIRE_MS, compact
from penstock.errors import CommandError, UsageError
from penstock.streams.arguments import Execute
from penstock.streams.writing import Batch, fits
from penstock.transactions.outbox_messages import OutboxEntry, decode_channel_message, decode_stream_message

_IS_AT: Final = re.compile(r"is at (\d+)$")


class StoreOutlet:
    """An ``Outlet`` to the streams and channels of one client. Messages live ``expire_ms`` in channels."""

    def __init__(self, streams: Execute, channels: ChannelStore, *, expire_ms: int = EXPIRE_MS) -> None:
        self._streams = streams
        self._channels = channels
        self._expire_ms = expire_ms

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        kind = entries[0].kind
        if kind == "stream":
            return await self._write(entries)
        if kind == "channel":
            return await self._publish(entries)
        raise UsageError(f"kind must be stream or channel, not {kind!r}")

    async def _write(self, entries: Sequence[OutboxEntry]) -> int:
        first = entries[0]
        batch = Batch()
        for entry in entries:
            message = decode_stream_message(entry.payload)
            size_bytes = len(message.tag) + len(message.data)
            # A command has no gaps in its numbers.
            if len(batch) and (
                entry.number != first.number + len(batch)
                or not fits(len(batch) + 1, batch.size_bytes + size_bytes)
            ):
                break
            batch.add(message.tag, message.data)
        producer = f"outbox:{{p{first.partition}}}"
        try:
            await self._streams.execute(*batch.command(first.name, ("PRODUCER", producer, first.number)))
        except CommandError as error:
            is_at = _IS_AT.search(str(error)) if error.code == "SEQUENCE" else None
            written = sum(entry.number <= int(is_at[1]) for entry in entries) if is_at else 0
            if not written:
                raise
            # Somebody has sent these before, in another command.
            return written
        return len(batch)

    async def _publish(self, entries: Sequence[OutboxEntry]) -> int:
        messages: list[tuple[str, bytes]] = []
        for entry in entries:
            message = decode_channel_message(entry.payload)
            messages.append((check_id("message_id", message.id), compact(message.content)))
        channel = check_id("channel", entries[0].name)
        await self._channels.publish(channel, messages, expire_ms=self._expire_ms)
        return len(entries)

    def __repr__(self) -> str:
        return f"<StoreOutlet to {self._channels!r}>"
