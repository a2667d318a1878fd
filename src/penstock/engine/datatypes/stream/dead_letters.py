"""Messages that were given up, written to another stream with the story of each.

The tag of a dead letter is that of its message. Its entry is lines of ``name: value``, an empty line,
and the entry itself::

    stream: orders
    offset: 17
    group: billing
    deliveries: 3
    reason: expired
    time_ms: 1700000000000

    {"id": 4711}

``time_ms`` is when it was given up. A message whose tag and entry are gone has an empty tag and nothing
after the empty line. Line breaks in names become spaces, so that the lines stay lines.

A letter is part of the unit in which its message is given up, so that neither is there without the other.
Where it cannot be written (the key holds another type) it is dropped: readers must go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.stream.groups import EVENT_CLASS
from penstock.engine.datatypes.stream.log import Stream
from penstock.errors import CommandError

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.groups import Group
    from penstock.engine.keyspace import Keyspace

EXPIRED: Final = b"expired"
DELIVERIES: Final = b"deliveries"
EVICTED: Final = b"evicted"


def write_letters(
    ks: Keyspace, stream: Stream, group: Group, offsets: Sequence[int], deliveries: int, reason: bytes
) -> None:
    """Write a letter for each of these messages, if the group wants them written."""
    key = group.options.dead_letter
    if not key:
        return
    tags: list[bytes] = []
    letters: list[bytes] = []
    for offset in offsets:
        message = stream.get(offset)
        tags.append(message.tag if message is not None else b"")
        entry = message.entry if message is not None else None
        letters.append(_head(stream, group, offset, deliveries, reason) + (entry or b""))
    try:
        # Itself, or there would be two loaded streams of one key.
        target = stream if key == stream.key else ks.load_or_new(key, Stream)
        target.append(tags, letters)
    except CommandError:
        return  # another type, or full
    target.save()
    ks.changed(key, EVENT_CLASS, b"twrite")
    ks.ready(key)


def _head(stream: Stream, group: Group, offset: int, deliveries: int, reason: bytes) -> bytes:
    return (b"stream: %s\noffset: %d\ngroup: %s\ndeliveries: %d\nreason: %s\ntime_ms: %d\n\n") % (
        _line(stream.key),
        offset,
        _line(group.name),
        deliveries,
        _line(reason),
        stream.unit.now_ms,
    )


def _line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")
