"""Hash commands. Argument checks, replies and events; the fields themselves are ``datatypes.hash``."""

from __future__ import annotations

from itertools import chain
from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_HASH
from penstock.engine.commands.arguments import (
    MAX_INT64,
    MIN_INT64,
    NOT_FLOAT,
    integer,
    signed_count,
    syntax_error,
)
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.scanning import parse_cursor, scan_options, scan_reply
from penstock.engine.datatypes.hash import Hash
from penstock.engine.datatypes.numbers import (
    LongDouble,
    add_long_doubles,
    format_long_double,
    parse_int,
    parse_long_double,
)
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Pairs, Reply

_ZERO: Final = LongDouble(0, 0)
#: A count doubled by WITHVALUES must still fit.
_MAX_PAIRS: Final = MAX_INT64 // 2


# ---------------------------------------------------------------------------- write


@command("HSET")
def hset(s: Session, argv: Argv) -> Reply:
    return _set_fields(s, argv)


@command("HMSET")
def hmset(s: Session, argv: Argv) -> Reply:
    _set_fields(s, argv)
    return OK


def _set_fields(s: Session, argv: Argv) -> int:
    """Set all fields; answers how many are new."""
    count = len(argv)
    if count & 1:
        raise CommandError(f"ERR wrong number of arguments for '{argv[0].decode().lower()}' command")
    ks, key = s.ks, argv[1]
    hash_ = ks.load_or_new(key, Hash)
    before = hash_.size
    if count == 4:
        hash_.put(argv[2], argv[3])
    else:
        for at in range(2, count, 2):
            hash_.put(argv[at], argv[at + 1])
    hash_.save()
    if ks.changes.observed:
        ks.changed(key, EVENT_HASH, b"hset")
    return hash_.size - before


@command("HSETNX")
def hsetnx(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load_or_new(argv[1], Hash)
    if not hash_.put_new(argv[2], argv[3]):
        return 0
    hash_.save()
    s.ks.changed(argv[1], EVENT_HASH, b"hset")
    return 1


@command("HDEL")
def hdel(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    hash_ = s.ks.load(key, Hash)
    if hash_ is None:
        return 0
    before = hash_.size
    for field in argv[2:]:
        hash_.remove(field)
    removed = before - hash_.size
    if removed:
        hash_.save()
        s.ks.changed(key, EVENT_HASH, b"hdel")
        if hash_.size == 0:
            s.ks.changed(key, EVENT_GENERIC, b"del")
    return removed


@command("HINCRBY")
def hincrby(s: Session, argv: Argv) -> Reply:
    amount = integer(argv[3])
    hash_ = s.ks.load_or_new(argv[1], Hash)
    stored = hash_.get(argv[2])
    current = 0 if stored is None else parse_int(stored)
    if current is None:
        raise CommandError("ERR hash value is not an integer")
    total = current + amount
    if not MIN_INT64 <= total <= MAX_INT64:
        raise CommandError("ERR increment or decrement would overflow")
    _store_number(s, hash_, argv[2], b"%d" % total, b"hincrby")
    return total


@command("HINCRBYFLOAT")
def hincrbyfloat(s: Session, argv: Argv) -> Reply:
    amount = parse_long_double(argv[3])
    if amount is None:
        raise CommandError(NOT_FLOAT)
    if not amount.is_finite:
        raise CommandError("ERR value is NaN or Infinity")
    hash_ = s.ks.load_or_new(argv[1], Hash)
    stored = hash_.get(argv[2])
    current = _ZERO if stored is None else parse_long_double(stored)
    if current is None:
        raise CommandError("ERR hash value is not a float")
    total = add_long_doubles(current, amount)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    text = format_long_double(total)
    _store_number(s, hash_, argv[2], text, b"hincrbyfloat")
    return text


def _store_number(s: Session, hash_: Hash, field: bytes, text: bytes, event: bytes) -> None:
    hash_.put(field, text)
    hash_.save()
    s.ks.changed(hash_.key, EVENT_HASH, event)


# ----------------------------------------------------------------------------- read


@command("HGET")
def hget(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return None if hash_ is None else hash_.get(argv[2])


@command("HMGET")
def hmget(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    if hash_ is None:
        return [None] * (len(argv) - 2)
    return [hash_.get(field) for field in argv[2:]]


@command("HGETALL")
def hgetall(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return {} if hash_ is None else dict(hash_.items())


@command("HKEYS")
def hkeys(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return [] if hash_ is None else hash_.names()


@command("HVALS")
def hvals(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return [] if hash_ is None else hash_.values()


@command("HLEN")
def hlen(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return 0 if hash_ is None else hash_.size


@command("HEXISTS")
def hexists(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    return int(hash_ is not None and argv[2] in hash_)


@command("HSTRLEN")
def hstrlen(s: Session, argv: Argv) -> Reply:
    hash_ = s.ks.load(argv[1], Hash)
    value = None if hash_ is None else hash_.get(argv[2])
    return 0 if value is None else len(value)


@command("HRANDFIELD")
def hrandfield(s: Session, argv: Argv) -> Reply:
    if len(argv) == 2:
        hash_ = s.ks.load(argv[1], Hash)
        return None if hash_ is None else hash_.random_item()[0]
    count = signed_count(argv[2])
    with_values = len(argv) > 3
    if len(argv) > 4 or (with_values and argv[3].upper() != b"WITHVALUES"):
        raise syntax_error()
    if with_values and abs(count) > _MAX_PAIRS:
        raise CommandError("ERR value is out of range")
    hash_ = s.ks.load(argv[1], Hash)
    if hash_ is None or count == 0:
        return []
    picked = hash_.sample(count) if count > 0 else hash_.draw(-count)
    return Pairs(picked) if with_values else [field for field, _ in picked]


@command("HSCAN")
def hscan(s: Session, argv: Argv) -> Reply:
    cursor = parse_cursor(argv[2])
    hash_ = s.ks.load(argv[1], Hash)
    if hash_ is None:
        return scan_reply(0, [])
    options = scan_options(argv, 3)
    match = options.match

    def pick(field: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        return (field, value) if match is None or match(field) else None

    following, found = hash_.scan(cursor, options.count, pick)
    return scan_reply(following, list(chain.from_iterable(found)))
