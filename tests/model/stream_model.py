"""A stream as slow as it is simple: a dictionary of messages, groups that look at all they have.

It knows nothing of nodes, runs, masks, indexes and timers. Of the engine's freedom (which whole nodes
go, when compaction comes) it knows only what is allowed: see ``may_compact`` and ``must_compact``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = list[Any]


class Written(NamedTuple):
    tag: bytes
    #: None: a tombstone
    entry: bytes | None
    time_ms: int


@dataclass
class Pend:
    due_ms: int
    #: 0: never
    expires_ms: int
    first_ms: int
    deliveries: int
    consumer: bytes


class Wish(NamedTuple):
    count: int
    retry_ms: int | None
    expire_ms: int
    consumer: bytes


@dataclass
class ModelGroup:
    cursor: int
    max_pending: int = 1000
    max_deliveries: int = 0
    backoff_ms: tuple[int, ...] = ()
    pending: dict[int, Pend] = field(default_factory=dict)
    lost: int = 0
    delivered: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0

    def delay_ms(self, deliveries: int, retry_ms: int) -> int:
        backoff = self.backoff_ms
        return max(backoff[min(deliveries, len(backoff)) - 1] if backoff else retry_ms, 1)


class StreamModel:
    """What a stream should do."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.first, self.last = 1, 0
        self.log: dict[int, Written] = {}
        self.groups: dict[bytes, ModelGroup] = {}
        #: (offset, group, deliveries, reason) of what was given up
        self.letters: list[tuple[int, bytes, int, bytes]] = []
        self.node_messages = 1000
        #: where the part begins that compaction never touches
        self.open_from = 1
        #: tag → the newest of its messages that was dropped
        self.dropped: dict[bytes, int] = {}
        #: producer → number of the first message → (count, last offset)
        self.calls: dict[bytes, dict[int, tuple[int, int]]] = {}

    # ----------------------------------------------------------------------- write

    def write(self, messages: Iterable[tuple[bytes, bytes | None]]) -> int:
        batch = list(messages)
        if len(batch) >= max(self.node_messages, 2):
            self.open_from = self.last + 1 + len(batch) // self.node_messages * self.node_messages
        for tag, entry in batch:
            self.last += 1
            self.log[self.last] = Written(tag, entry, self.now_ms)
        if self.last - self.open_from + 1 >= self.node_messages:
            self.open_from = self.last + 1
        return self.last

    def evict(self, upto: int) -> int:
        gone = [offset for offset in self.log if offset <= upto]
        for offset in gone:
            del self.log[offset]
        self.first = max(self.first, min(upto, self.last) + 1)
        self.open_from = max(self.open_from, self.first)
        return len(gone)

    def drop(self, ranges: list[tuple[int, int]]) -> int:
        """What is pending stays. What is open is closed if something of it is meant to go."""
        meant = {offset for offset in self.log if any(low <= offset <= high for low, high in ranges)}
        if max((0, *meant)) >= self.open_from:
            self.open_from = self.last + 1
        gone = meant - self._pending()
        for offset in sorted(gone):
            tag = self.log.pop(offset).tag
            self.dropped[tag] = max(self.dropped.get(tag, 0), offset)
        return len(gone)

    def upto_to_keep(self, count: int) -> int:
        """The last message that goes when so many stay; 0: none."""
        return max((0, *sorted(self.log)[:-count])) if count else 0

    def upto_older(self, age_ms: int) -> int:
        """The last message that is older; 0: none."""
        return max((o for o, m in self.log.items() if m.time_ms < self.now_ms - age_ms), default=0)

    def needed_from(self) -> int:
        return min((self.ack_offset(group) for group in self.groups.values()), default=self.last + 1)

    # --------------------------------------------------------------------- compact

    def may_compact(self, tombstone_ms: int, min_lag_ms: int) -> set[int]:
        """What compaction is allowed to remove."""
        closed = self._closed()
        pending = self._pending()
        newest = {m.tag: o for o, m in closed.items() if m.tag and m.time_ms <= self.now_ms - min_lag_ms}
        superseded = {o for o, m in closed.items() if newest.get(m.tag, 0) > o} - pending
        left = {o: m for o, m in closed.items() if o not in superseded and m.tag}
        oldest: dict[bytes, int] = {}
        for offset, message in left.items():
            oldest.setdefault(message.tag, offset)
        over = {
            offset
            for offset, message in left.items()
            if message.entry is None
            and oldest[message.tag] == offset
            and self.now_ms - message.time_ms >= tombstone_ms
        }
        return superseded | (over - pending)

    def must_compact(self) -> set[int]:
        """What TCOMPACT must remove where nothing is too young.

        What was pending when a message superseded it, which was dropped since, may stay until the next one.
        """
        closed = self._closed()
        newest = {m.tag: o for o, m in closed.items() if o > self.dropped.get(m.tag, 0)}
        return {o for o, m in closed.items() if m.tag and newest.get(m.tag, 0) > o} - self._pending()

    def _closed(self) -> dict[int, Written]:
        return {offset: message for offset, message in self.log.items() if offset < self.open_from}

    def _pending(self) -> set[int]:
        return {offset for group in self.groups.values() for offset in group.pending}

    # ------------------------------------------------------------------------ read

    def row(self, offset: int) -> Row | None:
        message = self.log.get(offset)
        return None if message is None else [offset, *message]

    def read(self, offset: int, count: int, *, backward: bool, skips: bool) -> list[Row | None]:
        offset = offset or self.first
        places = range(min(offset, self.last), 0, -1) if backward else range(offset, self.last + 1)
        if skips:
            return [self.row(place) for place in places if place in self.log][:count]
        return [self.row(place) for place in places[:count]]

    # ---------------------------------------------------------------------- groups

    def ack_offset(self, group: ModelGroup) -> int:
        return min([max(group.cursor, self.first), *group.pending])

    def set_offset(self, name: bytes, offset: int | None) -> None:
        self.groups[name].cursor = self.last + 1 if offset is None else offset or self.first

    def read_for(self, name: bytes, wish: Wish) -> list[Row]:
        """Rows with time and number of deliveries."""
        group = self.groups[name]
        self.expire(name)
        rows: list[Row] = []
        if wish.retry_ms is not None:
            self._again(name, group, wish, wish.retry_ms, rows)
        if len(group.pending) < group.max_pending:
            self._new(group, wish, rows)
        return rows

    def _again(self, name: bytes, group: ModelGroup, wish: Wish, retry_ms: int, rows: list[Row]) -> None:
        for offset in self._due(group):
            if len(rows) >= wish.count:
                return
            pend = group.pending[offset]
            if self._is_worn_out(group, pend):
                self.give_up(name, offset, b"deliveries")
                continue
            rows.append([*(self.row(offset) or [offset, None, None, None]), pend.deliveries + 1])
            if offset not in self.log:
                self.give_up(name, offset, b"evicted")
                continue
            pend.deliveries += 1
            pend.consumer = wish.consumer
            pend.due_ms = self.now_ms + group.delay_ms(pend.deliveries, retry_ms)
            group.delivered += 1

    def _new(self, group: ModelGroup, wish: Wish, rows: list[Row]) -> None:
        if group.cursor < self.first:
            group.lost += self.first - group.cursor
            group.cursor = self.first
        is_kept = wish.retry_ms is not None
        while group.cursor <= self.last and len(rows) < wish.count:
            if is_kept and len(group.pending) >= group.max_pending:
                return
            offset = group.cursor
            while offset <= self.last and offset not in self.log:
                offset += 1
            group.lost += offset - group.cursor
            group.cursor = min(offset, self.last) + 1
            if offset > self.last or offset in group.pending:
                continue
            group.delivered += 1
            rows.append([*(self.row(offset) or ()), 1])
            if wish.retry_ms is not None:
                due_ms = self.now_ms + group.delay_ms(1, wish.retry_ms)
                expires_ms = self.now_ms + wish.expire_ms if wish.expire_ms else 0
                group.pending[offset] = Pend(due_ms, expires_ms, self.now_ms, 1, wish.consumer)

    def _due(self, group: ModelGroup) -> list[int]:
        due = [(pend.due_ms, offset) for offset, pend in group.pending.items() if pend.due_ms <= self.now_ms]
        return [offset for _, offset in sorted(due)]

    def _is_worn_out(self, group: ModelGroup, pend: Pend) -> bool:
        return 0 < group.max_deliveries <= pend.deliveries

    # ---------------------------------------------------------------------- settle

    def give_up(self, name: bytes, offset: int, reason: bytes) -> None:
        group = self.groups[name]
        pend = group.pending.pop(offset)
        self.letters.append((offset, name, pend.deliveries, reason))
        if reason == b"expired":
            group.expired += 1
        else:
            group.dead += 1

    def expire(self, name: bytes) -> None:
        pending = self.groups[name].pending
        for offset in [o for o, pend in pending.items() if 0 < pend.expires_ms <= self.now_ms]:
            self.give_up(name, offset, b"expired")

    def settle(self, what: str, name: bytes, ranges: list[tuple[int, int]], number: int | None) -> int:
        """TACK, TNACK, TRENEW or TDEAD; a delay of None comes from the backoff list."""
        group = self.groups[name]
        self.expire(name)
        hits = [o for o in sorted(group.pending) if any(a <= o <= b for a, b in ranges)]
        for offset in hits:
            pend = group.pending[offset]
            if what == "TACK":
                del group.pending[offset]
                group.acked += 1
            elif what == "TDEAD":
                self.give_up(name, offset, b"why")
            else:
                pend.due_ms = self.now_ms + (group.delay_ms(pend.deliveries, 0) if number is None else number)
        return len(hits)

    def tick(self) -> None:
        """What the background does for groups."""
        for name, group in self.groups.items():
            self.expire(name)
            for offset in self._due(group):
                if self._is_worn_out(group, group.pending[offset]):
                    self.give_up(name, offset, b"deliveries")

    # ------------------------------------------------------------------------ show

    def pending_rows(self, name: bytes) -> list[Row]:
        self.expire(name)
        return [
            [offset, pend.consumer, pend.deliveries, self.now_ms - pend.first_ms,
             max(pend.due_ms - self.now_ms, 0), pend.expires_ms - self.now_ms if pend.expires_ms else -1]
            for offset, pend in sorted(self.groups[name].pending.items())
        ]  # fmt: skip

    def group_info(self, name: bytes) -> dict[bytes, int]:
        self.expire(name)
        group = self.groups[name]
        cursor = max(group.cursor, self.first)
        return {
            b"cursor": cursor,
            b"ack-offset": self.ack_offset(group),
            b"pending": len(group.pending),
            b"lag": max(self.last + 1 - cursor, 0),
            b"lost": group.lost + cursor - group.cursor,
            b"delivered": group.delivered,
            b"acked": group.acked,
            b"expired": group.expired,
            b"dead": group.dead,
        }
