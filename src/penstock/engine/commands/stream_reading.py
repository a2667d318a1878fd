"""TREAD: read a stream from an offset, or for a group; or wait for what is to come. TSCAN: read columns.

A plain read takes no write lock. A read for a group writes (its cursor, what is pending, who was there),
and so does whoever waits.

=====================  =============================  ==================================================
a blocked reader       is served when                 and gets
=====================  =============================  ==================================================
plain                  there is a message at or       what the same call would get then; all readers
                       above its offset               get the same
of a group             a message may be delivered:    its share: what there is, divided by those of
                       new, overdue, or its tag free  the group who wait, and at least one
=====================  =============================  ==================================================

What was handed over to a process that died before it took it is not put back: with RETRY it is
pending, and without RETRY it was delivered at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from penstock.engine.changes import EVENT_STREAM
from penstock.engine.commands.arguments import syntax_error
from penstock.engine.commands.registry import Argv, Served, attempt, command
from penstock.engine.commands.stream_arguments import (
    check_group_name,
    parse_beginning,
    parse_count,
    parse_ms,
    parse_offset,
    parse_retry_ms,
)
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.delivery import Wish, available, deliver, expire
from penstock.engine.datatypes.stream.groups import Group, Options, create_group, find_group
from penstock.engine.datatypes.stream.log import LARGEST_OFFSET
from penstock.engine.datatypes.stream.reading import MOST_MESSAGES, Reader, Row
from penstock.engine.datatypes.stream.scanning import DEFAULT_BYTES, MOST_BYTES, Scanner
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY, Reply

_Rows: TypeAlias = Sequence[Row | None]

_NEEDS_GROUP: Final = "ERR RETRY, CONSUMER and WITHCOUNT need GROUP"
_NOT_WITH_GROUP: Final = "ERR REV and SKIPNULL do not go with GROUP"


@dataclass(slots=True)
class _Read:
    """A TREAD, understood."""

    key: bytes
    #: None: ``$``
    offset: int | None
    wish: Wish
    group: bytes | None = None
    block_ms: int | None = None
    has_info: bool = False
    skips_gone: bool = False
    is_backward: bool = False


# ------------------------------------------------------------------------- parsing


def _parse(argv: Argv) -> _Read:
    read = _Read(argv[1], None, Wish(min(parse_count(argv[3]), MOST_MESSAGES)))
    at = 4
    while at < len(argv):
        at = _take_option(read, argv[at].upper(), argv, at)
    if read.group is None:
        if read.wish.retry_ms is not None or read.wish.consumer or read.wish.is_counted:
            raise CommandError(_NEEDS_GROUP)
        is_end = read.is_backward and argv[2] == b"$"
        read.offset = None if is_end else parse_offset(argv[2])
    else:
        if read.is_backward or read.skips_gone:
            raise CommandError(_NOT_WITH_GROUP)
        read.offset = parse_beginning(argv[2])
    return read


def _take_option(read: _Read, word: bytes, argv: Argv, at: int) -> int:
    """Read the option at a place; answers where the next one is."""
    values = argv[at + 1 : at + 3]
    wish = read.wish
    if word == b"WITHINFO":
        read.has_info = True
    elif word == b"SKIPNULL":
        read.skips_gone = True
    elif word == b"REV":
        read.is_backward = True
    elif word == b"WITHTIME":
        wish.is_timed = True
    elif word == b"WITHCOUNT":
        wish.is_counted = True
    elif word == b"RETRY" and len(values) == 2:
        wish.retry_ms, wish.expire_ms = parse_retry_ms(values[0]), parse_ms(values[1])
        return at + 3
    elif word == b"BLOCK" and values:
        read.block_ms = parse_ms(values[0])
        return at + 2
    elif word == b"GROUP" and values:
        read.group = check_group_name(values[0])
        return at + 2
    elif word == b"CONSUMER" and values:
        wish.consumer = values[0]
        return at + 2
    else:
        raise syntax_error()
    return at + 1


# ------------------------------------------------------------------------- reading


@command("TREAD")
def tread(s: Session, argv: Argv) -> Reply:
    read = _parse(argv)
    waits = read.block_ms is not None and read.wish.count > 0 and not s.may_not_block
    stream: Stream | None
    if read.group is None:
        stream = s.ks.load(read.key, Stream)
        rows = [] if stream is None else _rows(stream, read)
        is_ready = not waits or (stream is not None and _has_any(stream, read, rows))
    else:
        s.engine.require_write()
        stream, rows = _read_for_group(s.ks, read, read.group)
        is_ready = bool(rows)
    if waits and not is_ready:
        return s.block(argv, [read.key], read.block_ms or 0, NULL_ARRAY)
    return _answer(stream, read, rows)


class Line(NamedTuple):
    """What blocked readers have in common who compete for the same messages."""

    #: None: they read plainly, and compete for nothing
    group: bytes | None
    takes_retries: bool


def line_of(argv: Argv) -> Line:
    read = _parse(argv)
    return Line(read.group, read.wish.retry_ms is not None)


@attempt("TREAD")
def attempt_read(ks: Keyspace, argv: Argv) -> Served | None:
    return read_share(ks, argv, lambda: 1)


def read_share(ks: Keyspace, argv: Argv, count_readers: Callable[[], int]) -> Served | None:
    """What a blocked reader gets now; so many of its group wait, itself included."""
    read = _parse(argv)
    stream = ks.load(read.key, Stream)
    if stream is None:
        return None
    if read.group is None:
        rows = _rows(stream, read)
        return Served(_answer(stream, read, rows)) if _has_any(stream, read, rows) else None
    group = find_group(stream, read.group)
    if group is None:
        shown = read.group.decode("utf-8", "backslashreplace")
        return Served(CommandError(f"UNBLOCKED the group {shown} is gone"))
    shared = _deliver_share(ks, stream, group, read.wish, count_readers)
    return Served(_answer(stream, read, shared)) if shared else None


def _answer(stream: Stream | None, read: _Read, rows: _Rows) -> Reply:
    if not read.has_info:
        return rows
    return [[1, 0] if stream is None else [stream.first, stream.last], *rows]


# --------------------------------------------------------------------------- plain


def _rows(stream: Stream, read: _Read) -> _Rows:
    reader = Reader(stream, read.wish.is_timed)
    count = read.wish.count
    if read.is_backward:
        start = LARGEST_OFFSET if read.offset is None else read.offset or stream.first
        return reader.present_backward(start, count) if read.skips_gone else reader.backward(start, count)
    start = read.offset or stream.first
    return reader.present(start, count) if read.skips_gone else reader.forward(start, count)


def _has_any(stream: Stream, read: _Read, rows: _Rows) -> bool:
    """Whether there is a message at or above the offset; ``rows`` are those that were found from there."""
    if not read.is_backward and any(rows):
        return True
    return next(stream.read(read.offset or 0, 1), None) is not None


# --------------------------------------------------------------------------- group


def _read_for_group(ks: Keyspace, read: _Read, name: bytes) -> tuple[Stream, list[Row]]:
    """The first read makes the group."""
    stream = ks.load_or_new(read.key, Stream)
    group = find_group(stream, name)
    if group is None:
        group = create_group(stream, name, read.offset, Options())
        ks.changed(read.key, EVENT_STREAM, b"tgroup-create")
    return stream, _deliver(ks, stream, group, read.wish)


def _deliver_share(
    ks: Keyspace, stream: Stream, group: Group, wish: Wish, count_readers: Callable[[], int]
) -> list[Row]:
    """No more than one of so many readers may have; where nothing is to be had, nothing is written.

    They are counted only if there is something to be divided: there may be very many.
    """
    expire(ks, stream, group)
    count = available(stream, group, wish, 2)
    if count == 0:
        group.save()
        return []
    if count > 1 and wish.count > 1:
        readers = count_readers()
        count = available(stream, group, wish, wish.count * readers)
        wish.count = min(wish.count, -(-count // readers))
    return _deliver(ks, stream, group, wish)


def _deliver(ks: Keyspace, stream: Stream, group: Group, wish: Wish) -> list[Row]:
    rows = deliver(ks, stream, group, wish)
    group.save()
    stream.save()
    if rows:
        ks.changed(stream.key, EVENT_STREAM, b"tread")
    if group.is_stirred:
        ks.ready(stream.key)
    return rows


# --------------------------------------------------------------------------- TSCAN


@command("TSCAN")
def tscan(s: Session, argv: Argv) -> Reply:
    first, last = parse_offset(argv[2]), parse_offset(argv[3])
    most_bytes = _parse_bytes(argv[4:])
    stream = s.ks.load(argv[1], Stream)
    if stream is None:
        return [[1, 0], 1]
    blocks, next_offset = Scanner(stream, most_bytes).scan(first, last)
    return [[stream.first, stream.last], next_offset, *map(list, blocks)]


def _parse_bytes(options: Argv) -> int:
    most_bytes = DEFAULT_BYTES
    for at in range(0, len(options), 2):
        if options[at].upper() != b"BYTES" or at + 1 == len(options):
            raise syntax_error()
        most_bytes = min(parse_count(options[at + 1]), MOST_BYTES)
    return most_bytes
