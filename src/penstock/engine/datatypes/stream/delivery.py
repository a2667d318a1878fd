"""Who reads for a group gets what: overdue messages, then those that waited for their tag, then new ones.

    a read                        in this order
    ───────                       ───────────────────────────────────────────────────────────────
    1 ``expire``                  whatever is past its time is given up, whoever reads
    2 ``_deliver_again``          due messages, the longest due first   (readers with RETRY only)
    3 ``_deliver_passed``         were passed over, and their tag is free        (unless full)
    4 ``_deliver_new``            from the cursor on                              (unless full)

What a reader without RETRY gets is done with; what one with RETRY gets is pending until ``settle`` hears
of it. Everything here is one change of one group: the caller saves group and stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.datatypes.stream import consumers, dead_letters, ordering, timers
from penstock.engine.datatypes.stream.groups import EVENT_CLASS, Group, offsets_pending
from penstock.engine.datatypes.stream.pending import Run, masks_of
from penstock.engine.datatypes.stream.reading import Reader, Row

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.keyspace import Keyspace


@dataclass(slots=True)
class Wish:
    """What a reader of a group wants."""

    count: int
    consumer: bytes = b""
    #: None: what is read is done with
    retry_ms: int | None = None
    #: 0: never
    expire_ms: int = 0
    is_timed: bool = False
    is_counted: bool = False


def deliver(ks: Keyspace, stream: Stream, group: Group, wish: Wish) -> list[Row]:
    """Give a reader up to as many messages as it wants; group and stream have to be saved."""
    expire(ks, stream, group)
    return _Delivery(ks, stream, group, wish).run()


def available(stream: Stream, group: Group, wish: Wish, enough: int) -> int:
    """How many messages such a reader could get, up to ``enough``. Where tags are taken it may be fewer."""
    count = 0
    if wish.retry_ms is not None and group.pending:
        count = group.runs.count_due(stream.unit.now_ms, enough)
    if count < enough and not group.is_full:
        new = max(stream.last + 1 - max(group.cursor, stream.first), 0)
        if group.passed:
            new += ordering.count_ready(group, enough)
        if wish.retry_ms is not None:
            new = min(new, group.options.max_pending - group.pending)
        count += new
    return min(count, enough)


class _Delivery:
    """One read under way."""

    def __init__(self, ks: Keyspace, stream: Stream, group: Group, wish: Wish) -> None:
        self._ks = ks
        self._stream = stream
        self._group = group
        self._wish = wish
        self._now_ms = stream.unit.now_ms
        self._reader = Reader(stream, wish.is_timed)
        self._consumer = consumers.enter(group, wish.consumer)
        self._rows: list[Row] = []
        #: how many of them are messages, and not places of what is gone
        self._delivered = 0

    def run(self) -> list[Row]:
        group, wish = self._group, self._wish
        if wish.retry_ms is not None and group.pending:
            self._deliver_again(wish.retry_ms)
        if not group.is_full:
            if group.passed:
                self._deliver_passed()
            self._deliver_new()
        group.active_ms = self._now_ms
        if group.options.ttl_ms:
            timers.be_due_by(self._stream, group, self._now_ms + group.options.ttl_ms)
        group.delivered += self._delivered
        consumers.leave(group, self._consumer, self._delivered)
        return self._rows

    @property
    def _wanted(self) -> int:
        return 0 if self._reader.is_full else self._wish.count - len(self._rows)

    @property
    def _room(self) -> int:
        """How many new messages may be delivered."""
        if self._wish.retry_ms is None:
            return self._wanted
        return min(self._wanted, self._group.options.max_pending - self._group.pending)

    # --------------------------------------------------------------------- again

    def _deliver_again(self, retry_ms: int) -> None:
        group = self._group
        while self._wanted > 0 and (run := group.runs.first_due(self._now_ms)) is not None:
            if is_worn_out(group, run):
                give_up(self._ks, self._stream, group, run, run.mask, dead_letters.DELIVERIES)
                continue
            mask = _lowest(run.mask, self._wanted)
            found, gone = self._read(run, mask)
            self._delivered += found.bit_count()
            if found:
                due_ms = self._now_ms + group.delay_ms(run.deliveries + 1, retry_ms)
                timers.be_due_by(self._stream, group, due_ms)
            # What is left of the run afterwards has other rows: so the gone ones go first.
            if gone:
                give_up(self._ks, self._stream, group, run, gone, dead_letters.EVICTED)
            if found:
                group.runs.redeliver(run, found, due_ms, self._consumer.number)
            if not found and not gone:
                break  # the limit of bytes

    def _read(self, run: Run, mask: int) -> tuple[int, int]:
        """Answer messages of a run; the masks of those that were there, and of those that are gone."""
        offsets = run.offsets(mask)
        places = self._reader.forward(offsets[0], offsets[-1] - offsets[0] + 1)
        found = gone = 0
        for offset in offsets:
            place = offset - offsets[0]
            if place >= len(places):
                break  # the limit of bytes
            row = places[place]
            if row is None:
                row = [offset, None, None, None] if self._wish.is_timed else [offset, None, None]
                gone |= 1 << (offset - run.base)
            else:
                found |= 1 << (offset - run.base)
            if self._wish.is_counted:
                row.append(run.deliveries + 1)
            self._rows.append(row)
        return found, gone

    # ----------------------------------------------------------------------- new

    def _deliver_passed(self) -> None:
        group = self._group
        is_kept = self._wish.retry_ms is not None
        rows: list[Row] = []
        while self._room > len(rows) and (ready := ordering.first_ready(group)) is not None:
            offset, name = ready
            place = self._reader.forward(offset, 1)
            if not place and self._reader.is_full:
                break
            row = place[0] if place else None
            ordering.take_ready(group, offset, name, is_kept and row is not None)
            if row is None:
                group.lost += 1
            else:
                rows.append(row)
        # In the order of offsets, since what becomes ready on the way comes after what freed its tag.
        self._hand_out(rows, is_apart=True)

    def _deliver_new(self) -> None:
        stream, group = self._stream, self._group
        if group.cursor < stream.first:
            group.lost += stream.first - group.cursor
            group.cursor = stream.first
        while group.cursor <= stream.last and (room := self._room) > 0:
            if group.options.ordered:
                room = min(room, ordering.room_to_pass(group))
            rows = self._reader.present(group.cursor, room) if room > 0 else []
            if not rows:
                if room > 0 and not self._reader.is_full:  # only holes are left
                    group.lost += stream.last + 1 - group.cursor
                    group.cursor = stream.last + 1
                break
            start, group.cursor = group.cursor, rows[-1][0] + 1
            group.lost += group.cursor - start - len(rows)
            self._hand_out(self._deliverable(start, rows), is_apart=start < group.reached)
        group.reached = max(group.reached, group.cursor)

    def _deliverable(self, start: int, rows: list[Row]) -> list[Row]:
        """Those that are not pending already, and whose tag is free."""
        group = self._group
        if start < group.reached and group.pending:
            pending = offsets_pending(group, start, rows[-1][0])
            rows = [row for row in rows if row[0] not in pending]
        if group.options.ordered:
            is_kept = self._wish.retry_ms is not None
            rows = [row for row in rows if ordering.take_or_pass(group, row[0], row[1], is_kept)]
        return rows

    def _hand_out(self, rows: list[Row], *, is_apart: bool) -> None:
        """Answer messages that are not pending, by offset; ``is_apart``: others around them may be."""
        if not rows:
            return
        self._rows += rows
        self._delivered += len(rows)
        if self._wish.retry_ms is not None:
            self._keep(rows, self._wish.retry_ms, is_apart)
        if self._wish.is_counted:
            for row in rows:
                row.append(1)

    def _keep(self, rows: list[Row], retry_ms: int, is_apart: bool) -> None:
        group, now_ms = self._group, self._now_ms
        due_ms = now_ms + group.delay_ms(1, retry_ms)
        expires_ms = now_ms + self._wish.expire_ms if self._wish.expire_ms else 0
        keep = group.runs.insert if is_apart else group.runs.add
        for base, mask in masks_of([row[0] for row in rows], has_gaps=not is_apart):
            keep(Run(base, mask, due_ms, expires_ms, now_ms, 1, self._consumer.number))
        group.pending += len(rows)
        timers.be_due_by(self._stream, group, min(due_ms, expires_ms or due_ms))


# --------------------------------------------------------------------- giving up


def expire(ks: Keyspace, stream: Stream, group: Group) -> None:
    """Give up what is past its time."""
    while group.pending and (run := group.runs.first_expired(stream.unit.now_ms)) is not None:
        group.expired += run.count
        _end(ks, stream, group, run, run.mask, dead_letters.EXPIRED)


def give_up_worn_out(ks: Keyspace, stream: Stream, group: Group) -> None:
    """Give up what would be due for once too often."""
    if group.options.max_deliveries:
        due = list(group.runs.due(stream.unit.now_ms))
        for run in due:
            if is_worn_out(group, run):
                give_up(ks, stream, group, run, run.mask, dead_letters.DELIVERIES)


def is_worn_out(group: Group, run: Run) -> bool:
    return 0 < group.options.max_deliveries <= run.deliveries


def give_up(ks: Keyspace, stream: Stream, group: Group, run: Run, mask: int, reason: bytes) -> None:
    """Messages are not delivered any more, and end as dead letters."""
    group.dead += mask.bit_count()
    _end(ks, stream, group, run, mask, reason)


def _end(ks: Keyspace, stream: Stream, group: Group, run: Run, mask: int, reason: bytes) -> None:
    let_go(group, run, mask)
    ks.changed(stream.key, EVENT_CLASS, b"tdead")
    dead_letters.write_letters(ks, stream, group, run.offsets(mask), run.deliveries, reason)


def let_go(group: Group, run: Run, mask: int) -> None:
    """Messages are pending no longer."""
    if group.is_full:
        group.is_stirred = True
    group.runs.drop(run, mask)
    group.pending -= mask.bit_count()
    if group.options.ordered:
        for offset in run.offsets(mask):
            ordering.release(group, offset)


def _lowest(mask: int, count: int) -> int:
    """The lowest ``count`` bits that are set."""
    if mask.bit_count() <= count:
        return mask
    if mask & (mask + 1) == 0:
        return (1 << count) - 1
    chosen = 0
    for _ in range(count):
        low = mask & -mask
        chosen |= low
        mask ^= low
    return chosen
