"""What lies in an outbox: messages for streams and channels, as bytes and as values; and where they go.

A destination is ``stream:<name>`` or ``channel:<name>``; its payload is msgpack, an array:

========  ======================================
stream    tag (bytes), data (bytes)
channel   id (text), content (bytes: JSON)
========  ======================================

Nothing here sends anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from penstock.errors import UsageError
from penstock.transactions.model import to_json

#: The same as channels have, which are out of sight here.
_CHANNEL_ID: Final = re.compile(r"[0-9a-z][0-9a-z_-]{0,62}")


class StreamMessage(msgspec.Struct, frozen=True, array_like=True):
    tag: bytes
    data: bytes


class ChannelMessage(msgspec.Struct, frozen=True, array_like=True):
    id: str
    #: JSON
    content: bytes


_decode_stream: Final = msgspec.msgpack.Decoder(StreamMessage).decode
_decode_channel: Final = msgspec.msgpack.Decoder(ChannelMessage).decode
encode: Final = msgspec.msgpack.Encoder().encode


def stream_destination(name: str) -> str:
    if not name:
        raise UsageError("stream must have a name")
    return f"stream:{name}"


def channel_destination(name: str) -> str:
    return f"channel:{_checked_id('channel', name)}"


def encode_stream_message(tag: str | bytes, data: bytes) -> bytes:
    return encode(StreamMessage(tag.encode() if isinstance(tag, str) else tag, data))


def encode_channel_message(id: str, content: Any) -> bytes:
    """``content`` is any value that has JSON. The channel takes each id once."""
    return encode(ChannelMessage(_checked_id("message_id", id), to_json("content", content)))


def decode_stream_message(payload: bytes) -> StreamMessage:
    try:
        return _decode_stream(payload)
    except msgspec.MsgspecError as error:
        raise UsageError(f"payload must be a message for a stream: {error}") from None


def decode_channel_message(payload: bytes) -> ChannelMessage:
    try:
        return _decode_channel(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"payload must be a message for a channel: {error}") from None


def _checked_id(what: str, value: str) -> str:
    if not _CHANNEL_ID.fullmatch(value):
        raise UsageError(
            f"{what} must be 1 to 63 of the characters 0-9 a-z _ -, a digit or letter first, not {value!r}"
        )
    return value


class OutboxEntry(NamedTuple):
    partition: int
    #: counts the messages of its destination in its partition, from 1; those that were buried leave gaps
    number: int
    #: stream or channel
    kind: str
    name: str
    payload: bytes


class DeadEntry(msgspec.Struct, frozen=True):
    """A message that did not go out, and why."""

    number: int
    destination: str
    payload: bytes
    reason: str
    at_ms: int


decode_dead: Final = msgspec.msgpack.Decoder(DeadEntry).decode


class Outlet(Protocol):
    """Where messages go."""

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        """Bring entries of one destination there, in order; how many of the first are there now, at least 1.

        Those that were there before count, and are not written again. If none of them can be brought there it
        raises why: ``UsageError`` or ``CommandError`` for what is refused, another error of ours for what
        may work later.
        """
