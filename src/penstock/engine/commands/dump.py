"""DUMP and RESTORE: a value as bytes that we, Redis and Valkey can read.

The format is in ``datatypes.dump``; here a value becomes content, and content a value.
A payload is read to its end before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.changes import EVENT_GENERIC
from penstock.engine.commands.arguments import MAX_INT64, integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.dump import (
    Content,
    DamagedError,
    HashContent,
    ListContent,
    SetContent,
    SortedSetContent,
    StreamContent,
    StringContent,
    decode,
    encode,
    is_intact,
)
from penstock.engine.datatypes.hash import Hash
from penstock.engine.datatypes.list import List
from penstock.engine.datatypes.set import Set
from penstock.engine.datatypes.sorted_set import SortedSet
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.log import check_export
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import (
    HASH,
    LIST,
    SET,
    STREAM,
    STRING,
    TYPE_MASK,
    TYPE_NAMES,
    ZSET,
    decode_head,
)
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply


@command("DUMP")
def dump(s: Session, argv: Argv) -> Reply:
    record = s.ks.find(argv[1])
    return None if record is None else encode(_read(s.ks, argv[1], record))


def _read(ks: Keyspace, key: bytes, record: bytes) -> Content:
    kind = record[0] & TYPE_MASK
    if kind == STRING:
        return StringContent(record[decode_head(record).body :])
    if kind == LIST:
        items = List(ks, key, record)
        return ListContent(items.slice(0, items.size))
    if kind == SET:
        return SetContent(Set(ks, key, record).names())
    if kind == ZSET:
        return SortedSetContent(SortedSet(ks, key, record).entries())
    if kind == HASH:
        return HashContent(list(Hash(ks, key, record).items()))
    assert kind == STREAM, TYPE_NAMES[kind]
    return StreamContent(*Stream(ks, key, record).export())


@dataclass(slots=True)
class _Options:
    replace: bool = False
    is_absolute: bool = False


@command("RESTORE")
def restore(s: Session, argv: Argv) -> Reply:
    key, ks = argv[1], s.ks
    options = _parse(argv)
    if not options.replace and ks.exists(key):
        raise CommandError("BUSYKEY Target key name already exists.")
    time_ms = integer(argv[2])
    if time_ms < 0:
        raise CommandError("ERR Invalid TTL value, must be >= 0")
    content = _decode(argv[3])
    was_there = ks.delete(key)
    deadline_ms: int | None = None
    if time_ms:
        deadline_ms = min(time_ms if options.is_absolute else time_ms + ks.unit.now_ms, MAX_INT64)
        if deadline_ms <= ks.unit.now_ms:
            if was_there:
                ks.changed(key, EVENT_GENERIC, b"del")
            return OK
    _write(ks, key, content)
    if deadline_ms is not None:
        ks.set_deadline(key, deadline_ms)
    ks.changed(key, EVENT_GENERIC, b"restore")
    ks.ready(key)
    return OK


def _parse(argv: Argv) -> _Options:
    """IDLETIME and FREQ are checked and forgotten: use of keys is not recorded."""
    options = _Options()
    seen: bytes | None = None
    at = 4
    while at < len(argv):
        word = argv[at].upper()
        has_value = at + 1 < len(argv)
        if word == b"REPLACE":
            options.replace = True
        elif word == b"ABSTTL":
            options.is_absolute = True
        elif word == b"IDLETIME" and has_value and seen != b"FREQ":
            at += 1
            if integer(argv[at]) < 0:
                raise CommandError("ERR Invalid IDLETIME value, must be >= 0")
            seen = word
        elif word == b"FREQ" and has_value and seen != b"IDLETIME":
            at += 1
            if not 0 <= integer(argv[at]) <= 255:
                raise CommandError("ERR Invalid FREQ value, must be >= 0 and <= 255")
            seen = word
        else:
            raise syntax_error()
        at += 1
    return options


def _decode(payload: bytes) -> Content:
    if not is_intact(payload):
        raise CommandError("ERR DUMP payload version or checksum are wrong")
    try:
        content = decode(payload)
        if isinstance(content, StreamContent):
            check_export(content.head, content.rows)
        return content
    except DamagedError:
        raise CommandError("ERR Bad data format") from None


def _write(ks: Keyspace, key: bytes, content: Content) -> None:
    """Create a key that does not exist."""
    match content:
        case StringContent(value):
            ks.set_string(key, value)
        case ListContent(items):
            values = List(ks, key, None)
            values.push_right(items)
            values.save()
        case SetContent(names):
            members = Set(ks, key, None)
            members.add_all(names)
            members.save()
        case SortedSetContent(entries):
            ranked = SortedSet(ks, key, None)
            ranked.fill(entries)
            ranked.save()
        case HashContent(pairs):
            fields = Hash(ks, key, None)
            for field, value in pairs:
                fields.put(field, value)
            fields.save()
        case StreamContent(head, rows):
            Stream(ks, key, None).take_in(head, rows)
