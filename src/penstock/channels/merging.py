"""What several stores say, made into one answer. Pure: no I/O, no time.

Rules
-----
1. The order is that of every store, as far as they agree. Two messages that two stores have in opposite order
   (their publishers ran at the same time) stand as in the store that is named first.
2. What one store knows to be acknowledged is old, and old messages are given by nobody.
3. A store may be moved only over messages that are given or old: from the front of what it gave, up to the
   first that is neither. (Not up to the last that was given: where orders differ, others may lie before it,
   and a message that one store has passed counts as old everywhere. It would be lost.)
4. The first message is always the first of some store, so that whatever is given can be acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import NamedTuple

from penstock.channels.model import Batch, ChannelInfo, Message


class Merged(NamedTuple):
    """One batch of several, and how far it allows each store to be moved."""

    messages: tuple[Message, ...]
    more: bool
    #: store -> how many messages from the front of its batch are given or old, among them one that is given
    reached: Mapping[str, int]
    #: store -> how many messages from the front of its batch are old, where nothing behind them is reached
    lagging: Mapping[str, int]


def merge(batches: Mapping[str, Batch], old: AbstractSet[str], limit: int) -> Merged:
    """One batch of at most ``limit`` messages. ``batches`` are in the order of the stores."""
    rows = [[each for each in batch.messages if each.id not in old] for batch in batches.values()]
    order = interleave(rows)
    given = order[:limit]
    given_ids = {message.id for message in given}
    done = given_ids | old
    reached: dict[str, int] = {}
    lagging: dict[str, int] = {}
    for name, batch in batches.items():
        passed = list(takewhile(lambda message: message.id in done, batch.messages))
        if any(message.id in given_ids for message in passed):
            reached[name] = len(passed)
        elif passed:
            lagging[name] = len(passed)
    more = len(order) > limit or any(batch.more for batch in batches.values())
    return Merged(tuple(given), more, reached, lagging)


def interleave(rows: Sequence[Sequence[Message]]) -> list[Message]:
    """Every message once, by id, in an order that all rows agree with if there is one."""
    if len(rows) == 1 or all(_ids(row) == _ids(rows[0]) for row in rows[1:]):
        return list(rows[0]) if rows else []
    left = [list(reversed(row)) for row in rows]
    #: id -> in how many rows it is still to come
    owed = Counter(message.id for row in rows for message in row)
    order: list[Message] = []
    emitted: set[str] = set()
    while heads := _heads(left, emitted):
        at_head = Counter(message.id for message in heads)
        # Free: nobody has it further back. If everyone waits for another, the first store is right.
        chosen = next((each for each in heads if at_head[each.id] == owed[each.id]), heads[0])
        order.append(chosen)
        emitted.add(chosen.id)
    return order


def _heads(left: Sequence[list[Message]], emitted: AbstractSet[str]) -> list[Message]:
    """The first message of each row (kept backwards) that has not gone yet."""
    for row in left:
        while row and row[-1].id in emitted:
            row.pop()
    return [row[-1] for row in left if row]


def _ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def unseen(batches: Mapping[str, Batch]) -> dict[str, list[str]]:
    """For each store the ids that others gave and it did not; stores that gave all are left out."""
    every = dict.fromkeys(message.id for batch in batches.values() for message in batch.messages)
    found = {}
    for name, batch in batches.items():
        seen = {message.id for message in batch.messages}
        if len(seen) < len(every):
            found[name] = [each for each in every if each not in seen]
    return found


def is_thin(batches: Mapping[str, Batch], quorum: int) -> bool:
    """Whether fewer than a quorum gave some message."""
    if quorum == 1:
        return False
    copies = Counter(message.id for batch in batches.values() for message in batch.messages)
    return any(count < quorum for count in copies.values())


def is_known(having: int, lacking: int, quorum: int) -> bool:
    """Whether a subscriber exists that some stores have and others lack.

    Enough have it, or not enough say that there is none: where it is open, whoever has it is right, since
    a subscriber that comes back costs less than messages that do not.
    """
    return having >= quorum or (having > 0 and lacking < quorum)


def merge_infos(infos: Sequence[ChannelInfo]) -> ChannelInfo | None:
    """The longest life, and for each subscriber the store that has got furthest."""
    if not infos:
        return None
    unread: dict[str, int] = {}
    for info in infos:
        for subscriber, count in info.unread.items():
            unread[subscriber] = min(count, unread.get(subscriber, count))
    newest = max(infos, key=lambda info: info.clock)
    ttl_ms = max(info.ttl_ms for info in infos)
    return ChannelInfo(newest.name, newest.clock, ttl_ms, dict(sorted(unread.items())))
