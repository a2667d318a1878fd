"""How values are kept: OBJECT and MEMORY USAGE.

We have one encoding a type. OBJECT ENCODING names the one that Redis 7.0 with its default
limits would give the present content, since programs and tests ask for it:

===========  ============================================================================
string       ``int`` if it is the text of a 64-bit integer, ``embstr`` up to 44 bytes, ``raw``
list         ``quicklist``
set          ``intset`` up to 512 members that are all integers, else ``hashtable``
hash         ``listpack`` up to 128 fields, no field or value above 64 bytes, else ``hashtable``
sorted set   ``listpack`` up to 128 members, none above 64 bytes, else ``skiplist``
===========  ============================================================================

Redis never goes back from a large encoding to a small one; we look at the content alone.
Use of keys is not recorded (a read would have to write): every key counts as just used.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.hash import Hash
from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.datatypes.set import Set
from penstock.engine.datatypes.sorted_set import SortedSet
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
    physical,
)
from penstock.errors import CommandError
from penstock.protocol.replies import Reply, Status

_EMBEDDED_STRING_BYTES: Final = 44
_INTSET_SIZE: Final = 512
_LISTPACK_SIZE: Final = 128
_LISTPACK_ELEMENT_BYTES: Final = 64

#: Redis keeps one object for each of these integers and calls its count of references infinite.
_SHARED_INTEGERS: Final = range(10_000)
_INFINITE_REFERENCES: Final = (1 << 31) - 1

_DEFAULT_SAMPLES: Final = 5

_NOT_LFU: Final = (
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when"
    " switching between policies at runtime LRU and LFU data will take some time to adjust."
)

_OBJECT_HELP: Final = """\
OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
ENCODING <key>
    Name the encoding that Redis would keep the value of <key> in.
FREQ <key>
    Refused: how often keys are used is not recorded.
IDLETIME <key>
    Seconds since <key> was last used; always 0, since use is not recorded.
REFCOUNT <key>
    How many references the value of <key> would have in Redis.
HELP
    Print this help."""


# --------------------------------------------------------------------------- OBJECT


@command("OBJECT|HELP")
def object_help(s: Session, argv: Argv) -> Reply:
    return [Status(line.encode()) for line in _OBJECT_HELP.split("\n")]


@command("OBJECT|ENCODING")
def object_encoding(s: Session, argv: Argv) -> Reply:
    return _encoding(s.ks, argv[2])


@command("OBJECT|REFCOUNT")
def object_refcount(s: Session, argv: Argv) -> Reply:
    encoding = _encoding(s.ks, argv[2])
    if encoding is None:
        return None
    is_shared = encoding == b"int" and int(s.ks.get_string(argv[2]) or b"-1") in _SHARED_INTEGERS
    return _INFINITE_REFERENCES if is_shared else 1


@command("OBJECT|IDLETIME")
def object_idletime(s: Session, argv: Argv) -> Reply:
    return 0 if s.ks.exists(argv[2]) else None


@command("OBJECT|FREQ")
def object_freq(s: Session, argv: Argv) -> Reply:
    if not s.ks.exists(argv[2]):
        return None
    raise CommandError(_NOT_LFU)


def _encoding(ks: Keyspace, key: bytes) -> bytes | None:
    record = ks.find(key)
    if record is None:
        return None
    encoding = _ENCODINGS.get(record[0] & TYPE_MASK)
    if encoding is None:
        return TYPE_NAMES[record[0] & TYPE_MASK]
    return encoding(ks, key, record)


def _string_encoding(ks: Keyspace, key: bytes, record: bytes) -> bytes:
    value = record[decode_head(record).body :]
    if parse_int(value) is not None:
        return b"int"
    return b"embstr" if len(value) <= _EMBEDDED_STRING_BYTES else b"raw"


def _list_encoding(ks: Keyspace, key: bytes, record: bytes) -> bytes:
    return b"quicklist"


def _set_encoding(ks: Keyspace, key: bytes, record: bytes) -> bytes:
    members = Set(ks, key, record)
    if members.size <= _INTSET_SIZE and all(parse_int(member) is not None for member in members.names()):
        return b"intset"
    return b"hashtable"


def _hash_encoding(ks: Keyspace, key: bytes, record: bytes) -> bytes:
    fields = Hash(ks, key, record)
    if fields.size <= _LISTPACK_SIZE and all(
        len(field) <= _LISTPACK_ELEMENT_BYTES and len(value) <= _LISTPACK_ELEMENT_BYTES
        for field, value in fields.items()
    ):
        return b"listpack"
    return b"hashtable"


def _sorted_set_encoding(ks: Keyspace, key: bytes, record: bytes) -> bytes:
    members = SortedSet(ks, key, record)
    if members.size <= _LISTPACK_SIZE and all(
        len(member) <= _LISTPACK_ELEMENT_BYTES for member in members.names()
    ):
        return b"listpack"
    return b"skiplist"


_ENCODINGS: Final[dict[int, Callable[[Keyspace, bytes, bytes], bytes]]] = {
    STRING: _string_encoding,
    LIST: _list_encoding,
    SET: _set_encoding,
    HASH: _hash_encoding,
    ZSET: _sorted_set_encoding,
    STREAM: lambda ks, key, record: b"stream",
}


# --------------------------------------------------------------------------- MEMORY


@command("MEMORY|USAGE")
def memory_usage(s: Session, argv: Argv) -> Reply:
    """Bytes of the rows on disk. Without SAMPLES 0 a large collection is estimated from a few rows."""
    samples = _DEFAULT_SAMPLES
    for at in range(3, len(argv), 2):
        if argv[at].upper() != b"SAMPLES" or at + 1 == len(argv):
            raise syntax_error()
        samples = integer(argv[at + 1])
        if samples < 0:
            raise syntax_error()
    return _memory_bytes(s.ks, argv[2], samples)


def _memory_bytes(ks: Keyspace, key: bytes, samples: int) -> int | None:
    """Bytes of all rows of a key, estimated from ``samples`` element rows (0 = counted)."""
    record = ks.find(key)
    if record is None:
        return None
    name = physical(key)
    head = decode_head(record)
    total = len(name) + len(record)
    if head.deadline_ms is not None:
        total += 8 + len(name)
    if head.type == STRING:
        return total
    version = record[head.body : head.body + 8]
    size = int.from_bytes(record[head.body + 8 : head.body + 16], "big")
    if head.type == STREAM:
        samples = 0  # its messages share rows: they are counted
    rows = islice(ks.unit.rows(ks.data, version), samples or None)
    lengths = [len(row) + len(value) for row, value in rows]
    if not lengths:
        return total
    # A sorted set keeps each member twice.
    count = size * (2 if head.type == ZSET else 1) if samples else len(lengths)
    return total + sum(lengths) * count // len(lengths)
