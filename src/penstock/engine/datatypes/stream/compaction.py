"""Log compaction: of each tag the newest message stays, older ones become holes.

    first ········· compacted_to ········· limit ······ open_from ··· last
    └ clean ───────┘└ dirty: looked at now ─┘└ too young ┘└ never touched ┘

One run looks at the dirty part, notes the newest offset of each of its tags, then goes through all
nodes up to ``limit`` and drops what one of these has superseded. It is done in steps, each
a unit of work of its own, which anybody may interrupt for ever: a message is dropped only after
the one that supersedes it is on disk, and ``compacted_to`` moves at the end. A run in whose midst
something was dropped (``dropping``) begins anew.

Rules
-----
P1  Offsets and order never change. Nodes keep their base and span.
P2  An empty tag is never superseded. Neither is a message that a group has pending.
P3  A tombstone supersedes like any message, and goes itself ``tombstone_ms`` after it was
    written, once everything older of its tag is gone (which the same run sees to, unless
    it is pending: it goes upwards).
P4  Messages younger than ``min_lag_ms``, and the open end, are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock.engine.datatypes.stream.dropping import count_drops
from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.datatypes.stream.nodes import Message, Node
from penstock.engine.datatypes.stream.policies import Policy

#: Dirty nodes of one run: their tags are held in memory meanwhile.
_MOST_DIRTY_NODES: Final = 1_000
#: Nodes that one step rewrites, or looks at.
_NODES_A_STEP: Final = 64

#: Which offsets between two (both included) some group has pending.
Pending = Callable[[Stream, int, int], set[int]]


def is_due(stream: Stream, policy: Policy) -> bool:
    """Whether enough is dirty, or old enough."""
    if not policy.compact or not stream.dirty_bytes:
        return False
    now_ms = stream.unit.now_ms
    if now_ms - stream.dirty_since_ms < policy.min_lag_ms:
        return False
    if policy.max_lag_ms and now_ms - stream.dirty_since_ms >= policy.max_lag_ms:
        return True
    closed_bytes = stream.bytes - stream.open_bytes
    return stream.dirty_bytes * 100 > closed_bytes * policy.dirty_ratio


@dataclass
class Run:
    """One compaction under way. Belongs to one incarnation of a stream."""

    policy: Policy
    pending: Pending
    #: messages that were dropped
    dropped: int = 0
    #: the newest offset of each tag of the dirty part
    _newest: dict[bytes, int] = field(default_factory=dict)
    _limit: int = 0
    _cursor: int = 0
    _looked_to: int = 0
    _has_looked: bool = False
    #: as ``count_drops`` told when it began
    _drops: int = -1
    #: tags of messages that were superseded, but are pending
    _spared: set[bytes] = field(default_factory=set)

    def step(self, stream: Stream) -> bool:
        """Go on; the caller saves the stream. False when it is done."""
        drops = count_drops(stream)
        if drops != self._drops:
            self._begin(drops)
        if not self._has_looked:
            return self._look(stream)
        return self._drop_superseded(stream)

    def _begin(self, drops: int) -> None:
        self._drops = drops
        self._newest.clear()
        self._spared.clear()
        self._limit = self._cursor = self._looked_to = 0
        self._has_looked = False

    # -------------------------------------------------------------------- looking

    def _look(self, stream: Stream) -> bool:
        """Note the newest offsets of the dirty part, a step at a time."""
        start = max(self._looked_to, stream.compacted_to, stream.first - 1) + 1
        horizon_ms = stream.unit.now_ms - self.policy.min_lag_ms
        for looked, node in enumerate(stream.covering(start, stream.open_from - 1)):
            end = node.base + node.span
            is_enough = len(self._newest) >= _MOST_DIRTY_NODES * stream.node_messages
            if end > stream.open_from or node.times_ms[-1] > horizon_ms or is_enough:
                break
            if looked >= _NODES_A_STEP:
                return True
            for message in node.messages(node.index_from(start)):
                if message.tag:
                    self._newest[message.tag] = message.offset
            self._looked_to = self._limit = end - 1
        self._has_looked = True
        self._cursor = stream.first
        return self._limit > stream.compacted_to

    # ------------------------------------------------------------------- dropping

    def _drop_superseded(self, stream: Stream) -> bool:
        done = 0
        start = max(self._cursor, stream.first)
        bases = [base for base, _ in islice(stream.heads(start), _NODES_A_STEP)]
        for base in bases:
            if base > self._limit:
                break
            node = next(stream.covering(base, base))
            self._rewrite(stream, node)
            self._cursor = base + node.span
            done += 1
        if done == _NODES_A_STEP and self._cursor <= self._limit:
            return True
        self._finish(stream)
        return False

    def _rewrite(self, stream: Stream, node: Node) -> None:
        pending = self.pending(stream, node.base, node.base + node.span - 1)
        kept = [not self._goes(stream, message, pending) for message in node.messages()]
        if not all(kept):
            self.dropped += stream.thin_out(node, kept)

    def _goes(self, stream: Stream, message: Message, pending: set[int]) -> bool:
        if message.offset in pending:
            if self._is_superseded(message):
                self._spared.add(message.tag)
            return False
        return self._is_superseded(message) or self._is_over(stream, message)

    def _is_superseded(self, message: Message) -> bool:
        return bool(message.tag) and self._newest.get(message.tag, 0) > message.offset

    def _is_over(self, stream: Stream, message: Message) -> bool:
        is_old = stream.unit.now_ms - message.time_ms >= self.policy.tombstone_ms
        is_tombstone = message.entry is None and bool(message.tag) and message.tag not in self._spared
        return is_tombstone and is_old and message.offset <= self._limit

    def _finish(self, stream: Stream) -> None:
        # What was spared is looked for again when the message that supersedes it is looked at again.
        limit = min([self._limit, *(self._newest[tag] - 1 for tag in self._spared)])
        stream.compacted_to = max(stream.compacted_to, limit)
        dirty = [
            (head.first_ms, size)
            for base, head, size in stream.sealed_sizes(stream.compacted_to + 1)
            if base > stream.compacted_to
        ]
        stream.dirty_bytes = sum(size for _, size in dirty)
        stream.dirty_since_ms = dirty[0][0] if dirty else 0
