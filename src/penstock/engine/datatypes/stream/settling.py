"""What becomes of pending messages: acknowledged, sent back, kept for longer, given up.

Each function takes ranges of offsets, answers how many pending messages were among them, and leaves it
to the caller to save group and stream. What is past its time is given up before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.engine.datatypes.stream import timers
from penstock.engine.datatypes.stream.delivery import expire, give_up, let_go
from penstock.engine.datatypes.stream.pending import Range, Run

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.groups import Group
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.keyspace import Keyspace


def acknowledge(ks: Keyspace, stream: Stream, group: Group, ranges: Sequence[Range]) -> int:
    """They are done with."""
    hits = _find(ks, stream, group, ranges)
    for run, mask in hits:
        let_go(group, run, mask)
    count = _count(hits)
    group.acked += count
    return count


def send_back(
    ks: Keyspace, stream: Stream, group: Group, ranges: Sequence[Range], delay_ms: int | None
) -> int:
    """Deliver them again after a delay; None: the one that the group's backoff list says."""
    hits = _find(ks, stream, group, ranges)
    for run, mask in hits:
        after_ms = group.delay_ms(run.deliveries, 0) if delay_ms is None else delay_ms
        _redate(stream, group, run, mask, after_ms)
    return _count(hits)


def renew(ks: Keyspace, stream: Stream, group: Group, ranges: Sequence[Range], retry_ms: int) -> int:
    """Somebody is still at work on them."""
    hits = _find(ks, stream, group, ranges)
    for run, mask in hits:
        _redate(stream, group, run, mask, retry_ms)
    return _count(hits)


def bury(ks: Keyspace, stream: Stream, group: Group, ranges: Sequence[Range], reason: bytes) -> int:
    """Somebody gives them up."""
    hits = _find(ks, stream, group, ranges)
    for run, mask in hits:
        give_up(ks, stream, group, run, mask, reason)
    return _count(hits)


def _find(ks: Keyspace, stream: Stream, group: Group, ranges: Sequence[Range]) -> list[tuple[Run, int]]:
    expire(ks, stream, group)
    group.active_ms = stream.unit.now_ms
    return group.runs.find(ranges)


def _count(hits: Sequence[tuple[Run, int]]) -> int:
    return sum(mask.bit_count() for _, mask in hits)


def _redate(stream: Stream, group: Group, run: Run, mask: int, after_ms: int) -> None:
    due_ms = stream.unit.now_ms + after_ms
    group.runs.redate(run, mask, due_ms)
    timers.be_due_by(stream, group, due_ms)
    if after_ms == 0:
        group.is_stirred = True
