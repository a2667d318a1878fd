"""What the stream of a subscriber is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

#: A channel or a pattern: text with ``decode_responses``, else bytes.
Name: TypeAlias = bytes | str


class Message(NamedTuple):
    """What somebody published. (A tuple: the cheapest to make, and floods are made of it.)"""

    channel: Name
    data: bytes | str
    #: the pattern that the channel matched, for a ``pmessage``
    pattern: Name | None = None
    kind: Literal["message", "pmessage", "smessage"] = "message"


@dataclass(frozen=True, slots=True)
class Gap:
    """Here messages may be missing: the server did not have these subscriptions for a time."""

    #: that has them now
    server: str
    #: channels, patterns and shard channels
    channels: tuple[Name, ...]
    #: From the moment the loss was noticed to the new confirmation. A peer that fell silent was
    #: lost before it was noticed, by ``idle_ping_ms`` and ``unresponsive_timeout_ms`` at most.
    duration_s: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """Here messages are missing: the subscriber was too slow, and its queue full."""

    count: int


Item: TypeAlias = Message | Gap | Dropped
