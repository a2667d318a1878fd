"""What groups are told and asked: TACK, TNACK, TRENEW, TDEAD, TGROUP, TPENDING, TINFO GROUPS and CONSUMERS.

Where there is no stream, or no group of that name, there is nothing to find, which is no error.

Commands that only ask show nothing that is past its time: they turn to writing if something has to
be given up first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.engine.changes import EVENT_STREAM
from penstock.engine.commands.arguments import NOT_INTEGER, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.stream_arguments import (
    check_group_name,
    parse_beginning,
    parse_count,
    parse_items,
    parse_ms,
    parse_offset,
    parse_retry_ms,
)
from penstock.engine.datatypes.stream import Stream, ordering, settling, timers
from penstock.engine.datatypes.stream.consumers import all_consumers, name_of
from penstock.engine.datatypes.stream.delivery import expire
from penstock.engine.datatypes.stream.groups import (
    Group,
    Options,
    all_groups,
    create_group,
    cursor_at,
    destroy_group,
    find_group,
)
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

_NEVER: Final = -1


class _Place(NamedTuple):
    """A group, and where it is."""

    ks: Keyspace
    stream: Stream
    group: Group


def _find(s: Session, key: bytes, name: bytes) -> _Place | None:
    stream = s.ks.load(key, Stream)
    group = None if stream is None else find_group(stream, name)
    return None if stream is None or group is None else _Place(s.ks, stream, group)


def _save(place: _Place, event: bytes) -> None:
    ks, stream, group = place
    group.save()
    stream.save()
    ks.changed(stream.key, EVENT_STREAM, event)
    if group.is_stirred:
        ks.ready(stream.key)


# --------------------------------------------------------- TACK, TNACK, TRENEW, TDEAD


@command("TACK")
def tack(s: Session, argv: Argv) -> Reply:
    ranges = parse_items(argv[3:])
    return _settle(s, argv, lambda place: settling.acknowledge(*place, ranges))


@command("TNACK")
def tnack(s: Session, argv: Argv) -> Reply:
    delay_ms = None if argv[3] == b"*" else parse_ms(argv[3])
    ranges = parse_items(argv[4:])

    def send_back(place: _Place) -> int:
        if delay_ms is None and not place.group.options.backoff_ms:
            raise CommandError(NOT_INTEGER)
        return settling.send_back(*place, ranges, delay_ms)

    return _settle(s, argv, send_back)


@command("TRENEW")
def trenew(s: Session, argv: Argv) -> Reply:
    retry_ms = parse_retry_ms(argv[3])
    ranges = parse_items(argv[4:])
    return _settle(s, argv, lambda place: settling.renew(*place, ranges, retry_ms))


@command("TDEAD")
def tdead(s: Session, argv: Argv) -> Reply:
    ranges = parse_items(argv[4:])
    return _settle(s, argv, lambda place: settling.bury(*place, ranges, argv[3]))


def _settle(s: Session, argv: Argv, work: Callable[[_Place], int]) -> int:
    place = _find(s, argv[1], argv[2])
    if place is None:
        return 0
    count = work(place)
    _save(place, argv[0].lower())
    return count


# -------------------------------------------------------------------------- TGROUP


@command("TGROUP|CREATE")
def tgroup_create(s: Session, argv: Argv) -> Reply:
    ks, key, name = s.ks, argv[2], check_group_name(argv[3])
    beginning = parse_beginning(argv[4])
    options = Options(**_parse_options(argv[5:]))
    stream = ks.load_or_new(key, Stream)
    if find_group(stream, name) is not None:
        return 0
    group = create_group(stream, name, beginning, options)
    timers.set_next(stream, group)
    _save(_Place(ks, stream, group), b"tgroup-create")
    return 1


@command("TGROUP|SET")
def tgroup_set(s: Session, argv: Argv) -> Reply:
    words = argv[4:]
    has_offset = len(words) > 1 and words[0].upper() == b"OFFSET"
    beginning = parse_beginning(words[1]) if has_offset else None
    given = _parse_options(words[2 * has_offset :])
    place = _find(s, argv[2], argv[3])
    if place is None:
        return 0
    _, stream, group = place
    if has_offset:
        ordering.forget_passed(group)
        group.cursor = cursor_at(stream, beginning)
    before, group.options = group.options, replace(group.options, **given)
    if before.ordered != group.options.ordered:
        if group.options.ordered:
            ordering.begin_order(stream, group)
        else:
            ordering.end_order(group)
    group.active_ms = stream.unit.now_ms
    if group.options.ttl_ms:
        timers.be_due_by(stream, group, group.active_ms + group.options.ttl_ms)
    group.is_stirred = True
    _save(place, b"tgroup-set")
    return 1


@command("TGROUP|DESTROY")
def tgroup_destroy(s: Session, argv: Argv) -> Reply:
    place = _find(s, argv[2], argv[3])
    if place is None:
        return 0
    ks, stream, group = place
    destroy_group(stream, group)
    stream.save()
    ks.changed(stream.key, EVENT_STREAM, b"tgroup-destroy")
    ks.ready(stream.key)  # whoever waits in it has to learn
    return 1


@command("TGROUP|LIST")
def tgroup_list(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[2], Stream)
    return [] if stream is None else [group.name for group in all_groups(stream)]


def _parse_options(words: Argv) -> dict[str, Any]:
    """Values by the names of their fields in ``Options``."""
    if len(words) % 2:
        raise syntax_error()
    given: dict[str, Any] = {}
    for word, value in zip(words[::2], words[1::2], strict=True):
        option = _OPTIONS.get(word.upper())
        if option is None:
            raise syntax_error()
        given[option.name] = option.parse(value)
    return given


class _Option(NamedTuple):
    name: str
    parse: Callable[[bytes], Any]
    show: Callable[[Any], Reply]


def _parse_switch(value: bytes) -> bool:
    word = value.upper()
    if word not in (b"YES", b"NO"):
        raise syntax_error()
    return word == b"YES"


def _parse_delays(value: bytes) -> tuple[int, ...]:
    delays = tuple(map(parse_ms, value.split(b","))) if value else ()
    if len(delays) > _MOST_DELAYS:
        raise CommandError(NOT_INTEGER)
    return delays


def _same(value: Any) -> Any:
    return value


_MOST_DELAYS: Final = 1_000
_OPTIONS: Final = {
    b"MAXPENDING": _Option("max_pending", parse_count, _same),
    b"TTL": _Option("ttl_ms", parse_ms, _same),
    b"ORDERED": _Option("ordered", _parse_switch, lambda value: b"yes" if value else b"no"),
    b"MAXDELIVERIES": _Option("max_deliveries", parse_count, _same),
    b"BACKOFF": _Option("backoff_ms", _parse_delays, lambda value: b",".join(b"%d" % ms for ms in value)),
    b"DEADLETTER": _Option("dead_letter", _same, _same),
}


# ------------------------------------------------------------------------ TPENDING


@command("TPENDING")
def tpending(s: Session, argv: Argv) -> Reply:
    words = argv[3:]
    consumer: bytes | None = None
    if len(words) == 5 and words[3].upper() == b"CONSUMER":
        consumer = words[4]
    elif len(words) not in (0, 3):
        raise syntax_error()
    if words:
        first, last, count = parse_offset(words[0]), parse_offset(words[1]), parse_count(words[2])
    place = _find_settled(s, argv[1], argv[2])
    if not words:
        return [0, 0, 0, _NEVER] if place is None else _pending_summary(place)
    if place is None or count == 0:
        return []
    return _pending_list(place, first, last, count, consumer)


def _find_settled(s: Session, key: bytes, name: bytes) -> _Place | None:
    """As ``_find``; what is past its time is given up before."""
    place = _find(s, key, name)
    if place is not None:
        _give_up_expired(s, place)
    return place


def _give_up_expired(s: Session, place: _Place) -> None:
    if place.group.runs.first_expired(s.ks.unit.now_ms) is not None:
        s.engine.require_write()
        expire(*place)
        _save(place, b"tdead")


def _pending_summary(place: _Place) -> Reply:
    runs = place.group.runs
    due_ms = runs.next_due_ms()
    return [
        place.group.pending,
        runs.first_offset() or 0,
        runs.last_offset() or 0,
        _NEVER if due_ms is None else max(due_ms - place.ks.unit.now_ms, 0),
    ]


def _pending_list(place: _Place, first: int, last: int, count: int, consumer: bytes | None) -> Reply:
    group, now_ms = place.group, place.ks.unit.now_ms
    names = {0: b""}
    reply: list[list[Any]] = []
    for run in group.runs.overlapping(first, last):
        name = names.get(run.consumer)
        if name is None:
            name = names[run.consumer] = name_of(group, run.consumer)
        if consumer is not None and name != consumer:
            continue
        facts = [
            name,
            run.deliveries,
            now_ms - run.first_ms,
            max(run.due_ms - now_ms, 0),
            run.expires_ms - now_ms if run.expires_ms else _NEVER,
        ]
        reply += ([offset, *facts] for offset in run.offsets(run.between(first, last)))
        if len(reply) >= count:
            break
    return reply[:count]


# --------------------------------------------------------------------------- TINFO


@command("TINFO|GROUPS")
def tinfo_groups(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[2], Stream)
    if stream is None:
        return []
    groups = all_groups(stream)
    for group in groups:
        _give_up_expired(s, _Place(s.ks, stream, group))
    return [_group_info(stream, group) for group in groups]


def _group_info(stream: Stream, group: Group) -> dict[bytes, Any]:
    cursor = max(group.cursor, stream.first)
    info: dict[bytes, Any] = {
        b"name": group.name,
        b"cursor": cursor,
        b"ack-offset": group.ack_offset(stream.first),
        b"pending": group.pending,
        b"lag": max(stream.last + 1 - cursor, 0) + group.passed,
        b"lost": group.lost + cursor - group.cursor,
        b"delivered": group.delivered,
        b"acked": group.acked,
        b"expired": group.expired,
        b"dead": group.dead,
        b"idle-ms": stream.unit.now_ms - group.active_ms,
        b"last-active-ms": group.active_ms,
    }
    for word, option in _OPTIONS.items():
        info[word.lower()] = option.show(getattr(group.options, option.name))
    return info


@command("TINFO|CONSUMERS")
def tinfo_consumers(s: Session, argv: Argv) -> Reply:
    place = _find_settled(s, argv[2], argv[3])
    if place is None:
        return []
    group = place.group
    pending: dict[int, int] = {}
    for run in group.runs.all():
        pending[run.consumer] = pending.get(run.consumer, 0) + run.count
    return [
        {
            b"name": consumer.name,
            b"pending": pending.get(consumer.number, 0),
            b"idle-ms": group.unit.now_ms - consumer.last_ms,
            b"delivered": consumer.delivered,
        }
        for consumer in all_consumers(group)
    ]
