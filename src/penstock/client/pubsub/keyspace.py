"""Keyspace notifications: what a server publishes about its keys, as values.

========================  =============  ==============
channel                   data           ``notify-keyspace-events``
========================  =============  ==============
``__keyspace@0__:key``    the operation  has ``K``
``__keyevent@0__:set``    the key        has ``E``
========================  =============  ==============

In a cluster every node tells of its own keys only, and to its own subscribers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.client.pubsub.items import Item, Message

_CHANNEL: Final = re.compile(rb"__key(space|event)@(\d{1,9})__:(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyspaceEvent:
    db: int
    #: as in the message: text with ``decode_responses``, else bytes
    key: bytes | str
    #: ``set``, ``expired``, ``del``, …
    operation: str


def parse_keyspace(item: Item) -> KeyspaceEvent | None:
    """What a message tells of a key; None if it is none of that kind."""
    if not isinstance(item, Message):
        return None
    match = _CHANNEL.fullmatch(_to_bytes(item.channel))
    if match is None:
        return None
    kind, db, rest = match.groups()
    if kind == b"event":
        return KeyspaceEvent(int(db), item.data, _to_text(rest))
    # The key in the form it came in.
    key = rest if isinstance(item.channel, bytes) else _to_text(rest)
    return KeyspaceEvent(int(db), key, _to_text(item.data))


def _to_bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="surrogateescape")


def _to_text(text: bytes | str) -> str:
    return text if isinstance(text, str) else text.decode(errors="surrogateescape")
