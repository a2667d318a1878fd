"""Writing to streams and looking after them: TWRITE, TEVICT, TDROP, TPOLICY, TCOMPACT, TINFO.

Reading and groups are in ``stream_reading`` and ``stream_groups``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from penstock.engine.changes import EVENT_STREAM
from penstock.engine.commands.arguments import NO_SUCH_KEY, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.stream_arguments import parse_count, parse_items, parse_offset
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.compaction import Run
from penstock.engine.datatypes.stream.dropping import drop
from penstock.engine.datatypes.stream.groups import needed_from, pending_between
from penstock.engine.datatypes.stream.policies import Policy, load_policy, store_policy, tend
from penstock.engine.datatypes.stream.producers import (
    count_producers,
    find_producer,
    offset_of_repeated,
    remember,
)
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.catalogue import arity_error
from penstock.protocol.replies import Reply

# ------------------------------------------------------------------------- TWRITE


@dataclass(slots=True)
class _Write:
    """A TWRITE, understood."""

    tags: Sequence[bytes]
    entries: Sequence[bytes | None]
    backlog: int | None = None
    is_exact: bool = False
    expected_last: int | None = None
    producer: bytes | None = None
    number: int = 0
    is_kept: bool = False


@command("TWRITE")
def twrite(s: Session, argv: Argv) -> Reply:
    ks, key = s.ks, argv[1]
    if len(argv) == 4:
        stream = ks.load_or_new(key, Stream)
        last = stream.append_one(argv[2], argv[3])
        return _written(ks, stream, last)
    write = _parse_write(argv)
    stream = ks.load_or_new(key, Stream)
    if write.producer is not None:
        # First: a repeated write must be answered as it was, although the stream has gone on.
        repeated = offset_of_repeated(stream, write.producer, write.number, len(write.tags), write.is_kept)
        if repeated is not None:
            return repeated
    if write.expected_last is not None and write.expected_last != stream.last:
        raise CommandError(f"MISMATCH the last offset is {stream.last}")
    last = stream.append(write.tags, write.entries)
    if write.producer is not None:
        remember(stream, write.producer, write.number, len(write.tags), last, write.is_kept)
        tend(stream)
    if write.backlog is not None:
        (stream.keep_exactly if write.is_exact else stream.keep_at_least)(write.backlog)
    return _written(ks, stream, last)


def _written(ks: Keyspace, stream: Stream, last: int) -> int:
    stream.save()
    changes = ks.changes
    if changes.observed:
        ks.changed(stream.key, EVENT_STREAM, b"twrite")
    if changes.awaited:
        ks.ready(stream.key)
    return last


def _parse_write(argv: Argv) -> _Write:
    write = _Write((), ())
    at = 2
    while at < len(argv):
        word = argv[at].upper()
        if word in (b"ENTRIES", b"TOMBSTONES"):
            _take_messages(write, argv, at)
            return write
        at = _take_option(write, word, argv, at)
    raise syntax_error()


def _take_messages(write: _Write, argv: Argv, at: int) -> None:
    words = argv[at + 1 :]
    if argv[at].upper() == b"TOMBSTONES":
        write.tags, write.entries = words, [None] * len(words)
    else:
        write.tags, write.entries = words[::2], words[1::2]
    if not words or len(write.tags) != len(write.entries):
        raise arity_error(b"twrite")


def _take_option(write: _Write, word: bytes, argv: Argv, at: int) -> int:
    """Read the option at a place; answers where the next one is."""
    values = argv[at + 1 :]
    if word == b"BACKLOG" and values:
        write.is_exact = values[0] == b"="
        if write.is_exact and len(values) < 2:
            raise syntax_error()
        write.backlog = parse_count(values[write.is_exact])
        return at + 2 + write.is_exact
    if word == b"IF" and values:
        write.expected_last = parse_offset(values[0])
        return at + 2
    if word == b"PRODUCER" and len(values) >= 2:
        write.producer, write.number = values[0], parse_count(values[1])
        write.is_kept = len(values) > 2 and values[2].upper() == b"KEEP"
        return at + 3 + write.is_kept
    raise syntax_error()


# ------------------------------------------------------------------------- TEVICT


@command("TEVICT")
def tevict(s: Session, argv: Argv) -> Reply:
    ks, key = s.ks, argv[1]
    words = argv[2:]
    spares = len(words) > 1 and words[-1].upper() == b"ACKED"
    if spares:
        words = words[:-1]
    is_age = words[0].upper() == b"AGE"
    if len(words) != 1 + is_age:
        raise syntax_error()
    keeps = words[0].startswith(b"-")
    number = parse_count(words[1] if is_age else words[0][1:]) if is_age or keeps else parse_offset(words[0])
    stream = ks.load(key, Stream)
    if stream is None:
        return 0
    if is_age:
        upto = stream.offset_before(ks.unit.now_ms - number)
    elif keeps:
        upto = _offset_to_keep(stream, number)
    else:
        upto = number
    if spares:
        upto = min(upto, needed_from(stream) - 1)
    return _evict(ks, stream, upto)


def _offset_to_keep(stream: Stream, count: int) -> int:
    """Up to where everything goes when so many shall stay; 0 keeps all, as it always did."""
    if count == 0 or count >= stream.size:
        return 0
    oldest_kept = list(stream.read_back(stream.last, count))[-1]
    return oldest_kept.offset - 1


def _evict(ks: Keyspace, stream: Stream, upto: int) -> int:
    removed = stream.evict_to(upto)
    stream.save()  # its first offset moves although there may have been only holes
    if removed:
        ks.changed(stream.key, EVENT_STREAM, b"tevict")
        ks.ready(stream.key)
    return removed


# -------------------------------------------------------------------------- TDROP


@command("TDROP")
def tdrop(s: Session, argv: Argv) -> Reply:
    ranges = parse_items(argv[2:])
    stream = s.ks.load(argv[1], Stream)
    if stream is None:
        return 0
    removed = drop(stream, ranges)
    stream.save()
    if removed:
        s.ks.changed(argv[1], EVENT_STREAM, b"tdrop")
    return removed


# -------------------------------------------------------------------------- TINFO


@command("TINFO|STREAM")
def tinfo_stream(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[2], Stream)
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    first = next(stream.read(stream.first, 1), None)
    return {
        b"first": stream.first,
        b"last": stream.last,
        b"length": stream.size,
        b"bytes": stream.bytes,
        b"raw-bytes": stream.raw_bytes,
        b"nodes": stream.count_nodes(),
        b"groups": stream.groups,
        b"first-ms": 0 if first is None else first.time_ms,
        b"last-ms": stream.last_ms,
        b"compacted-to": stream.compacted_to,
        b"dirty-bytes": stream.dirty_bytes,
        b"producers": count_producers(stream),
    }


@command("TINFO|PRODUCER")
def tinfo_producer(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[2], Stream)
    known = None if stream is None else find_producer(stream, argv[3])
    if known is None:
        return None
    _, number, offset = known.calls[-1]
    return {
        b"sequence": number,
        b"last": offset,
        b"kept": (b"no", b"yes")[known.is_kept],
        b"idle-ms": max(s.ks.unit.now_ms - known.last_ms, 0),
    }


# ------------------------------------------------------------------------ TPOLICY

_YES_OR_NO: Final = {b"YES": 1, b"NO": 0}
_SWITCHES: Final = ("retain_acked", "compact")
_LARGEST_NODE: Final = {"node_messages": 1 << 20, "node_bytes": 1 << 30}
_OPTIONS: Final = {
    name.replace("_", "-").upper().encode(): name
    for name in (*(item.name for item in fields(Policy)), *_LARGEST_NODE)
}


@command("TPOLICY")
def tpolicy(s: Session, argv: Argv) -> Reply:
    ks, key = s.ks, argv[1]
    given = _parse_policy(argv[2:])
    if not given:
        stream = ks.load(key, Stream)
        if stream is None:
            raise CommandError(NO_SUCH_KEY)
        return _policy_reply(stream)
    stream = ks.load_or_new(key, Stream)
    stream.node_messages = given.pop("node_messages", stream.node_messages)
    stream.node_bytes = given.pop("node_bytes", stream.node_bytes)
    stream.save()  # the rows below belong to a stream that is there
    store_policy(stream, replace(load_policy(stream), **given))
    stream.save()
    ks.changed(key, EVENT_STREAM, b"tpolicy")
    return _policy_reply(stream)


def _parse_policy(words: Argv) -> dict[str, int]:
    if len(words) % 2:
        raise syntax_error()
    given: dict[str, int] = {}
    for word, value in zip(words[::2], words[1::2], strict=True):
        name = _OPTIONS.get(word.upper())
        if name is None:
            raise CommandError(f"ERR unknown option '{word.decode('utf-8', 'backslashreplace')}' of TPOLICY")
        given[name] = _policy_value(name, value)
    return given


def _policy_value(name: str, value: bytes) -> int:
    if name in _SWITCHES:
        if value.upper() not in _YES_OR_NO:
            raise CommandError(f"ERR {name.replace('_', '-').upper()} must be yes or no")
        return _YES_OR_NO[value.upper()]
    number = parse_count(value)
    if name in _LARGEST_NODE and not 1 <= number <= _LARGEST_NODE[name]:
        raise CommandError(f"ERR {name.replace('_', '-').upper()} must be from 1 to {_LARGEST_NODE[name]}")
    if name == "dirty_ratio" and number > 100:
        raise CommandError("ERR DIRTY-RATIO must be from 0 to 100")
    return number


def _policy_reply(stream: Stream) -> dict[bytes, object]:
    policy = load_policy(stream)
    reply: dict[bytes, object] = {}
    for word, name in _OPTIONS.items():
        value = getattr(stream if name in _LARGEST_NODE else policy, name)
        reply[word.lower()] = (b"no", b"yes")[value] if name in _SWITCHES else value
    return reply


# ----------------------------------------------------------------------- TCOMPACT


@command("TCOMPACT")
def tcompact(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[1], Stream)
    if stream is None:
        return 0
    policy = load_policy(stream)
    dropped, before = 0, -1
    while stream.compacted_to > before:  # a run may stop at as many tags as it can remember
        before = stream.compacted_to
        run = Run(policy, pending_between)
        while run.step(stream):
            pass
        dropped += run.dropped
    if dropped:
        s.ks.changed(argv[1], EVENT_STREAM, b"tcompact")
    stream.save()
    return dropped
