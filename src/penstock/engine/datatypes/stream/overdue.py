"""What is done when the time of a timer has come: wake readers, give up messages, remove groups out of use.

Anybody may do it, whenever: it looks at what is there, and sets the next timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from penstock.engine.datatypes.stream import timers
from penstock.engine.datatypes.stream.delivery import expire, give_up_worn_out
from penstock.engine.datatypes.stream.groups import EVENT_CLASS, Group, all_groups, destroy_group, find_group
from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.datatypes.stream.timers import Timer
from penstock.errors import WrongTypeError

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace

#: Whether somebody is blocked in a group of the stream at a key.
IsAwaited: TypeAlias = Callable[[bytes, bytes], bool]


def look(ks: Keyspace, timer: Timer, is_awaited: IsAwaited) -> None:
    """Do what is due in the group, or the groups, of a timer."""
    timers.remove_timer(ks.unit, timer)
    stream = _stream_of(ks, timer)
    if stream is None:
        return
    if timer.number == 0:
        groups = all_groups(stream)
    else:
        group = find_group(stream, timer.group)
        is_stale = group is None or (group.number, group.timer_ms) != (timer.number, timer.due_ms)
        groups = [] if group is None or is_stale else [group]
    for group in groups:
        _look_at(ks, stream, group, is_awaited)
    stream.save()


def _stream_of(ks: Keyspace, timer: Timer) -> Stream | None:
    key = ks.name_at(timer.physical_key)
    if key is None:
        return None
    try:
        return ks.load(key, Stream)
    except WrongTypeError:
        return None


def _look_at(ks: Keyspace, stream: Stream, group: Group, is_awaited: IsAwaited) -> None:
    now_ms = ks.unit.now_ms
    expire(ks, stream, group)
    give_up_worn_out(ks, stream, group)
    ttl_ms = group.options.ttl_ms
    if ttl_ms and group.active_ms + ttl_ms <= now_ms:
        if not is_awaited(stream.key, group.name):
            destroy_group(stream, group)
            ks.changed(stream.key, EVENT_CLASS, b"tgroup-destroy")
            return
        group.active_ms = now_ms  # who waits is using it
    timers.set_next(stream, group)
    group.save()
    if group.is_stirred or group.runs.first_due(now_ms) is not None:
        ks.ready(stream.key)
