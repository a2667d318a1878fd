"""Commands on keys whatever they hold: DEL, EXISTS, SCAN, RENAME, COPY, MOVE, FLUSHALL and relatives.

Observers learn what Redis tells them, in its order. A key that is replaced by RENAME or
COPY is deleted first, without an event of its own, so that the new one counts as new.
"""

from __future__ import annotations

from typing import Final

from penstock.engine import databases
from penstock.engine.changes import EVENT_GENERIC
from penstock.engine.commands.arguments import NO_SUCH_KEY, integer, integer_in, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.scanning import parse_cursor, scan_options, scan_reply
from penstock.engine.datatypes.glob import matcher
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import DATABASES, TYPE_NAMES
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply, Status

_NO_SUCH_DATABASE: Final = "ERR DB index is out of range"
_SAME_OBJECT: Final = "ERR source and destination objects are the same"
_MAX_INT32: Final = (1 << 31) - 1
_MIN_INT32: Final = -(1 << 31)

_NO_TYPE: Final = Status(b"none")
_TYPE_REPLIES: Final = {number: Status(name) for number, name in TYPE_NAMES.items()}
_TYPE_NUMBERS: Final = {name: number for number, name in TYPE_NAMES.items()}


# --------------------------------------------------------------------- a few keys


@command("DEL", "UNLINK")
def delete(s: Session, argv: Argv) -> Reply:
    ks = s.ks
    removed = 0
    for key in argv[1:]:
        if ks.delete(key):
            ks.changed(key, EVENT_GENERIC, b"del")
            removed += 1
    return removed


@command("EXISTS", "TOUCH")
def exists(s: Session, argv: Argv) -> Reply:
    """How many of the keys exist, repetitions counted. TOUCH has no more to do: use is not recorded."""
    if len(argv) == 2:
        return 1 if s.ks.find(argv[1]) is not None else 0
    return sum(map(s.ks.exists, argv[1:]))


@command("TYPE")
def type_(s: Session, argv: Argv) -> Reply:
    number = s.ks.type_of(argv[1])
    return _NO_TYPE if number is None else _TYPE_REPLIES[number]


# ---------------------------------------------------------------- a whole database


@command("KEYS")
def keys(s: Session, argv: Argv) -> Reply:
    if argv[1] == b"*":
        return list(s.ks.keys())
    return list(filter(matcher(argv[1]), s.ks.keys()))


@command("SCAN")
def scan(s: Session, argv: Argv) -> Reply:
    cursor = parse_cursor(argv[1])
    options = scan_options(argv, 2, allow_type=True)
    match = options.match
    cursor, found = s.ks.scan(cursor, options.count)
    if options.type is not None:
        # A type that does not exist is the type of no key.
        wanted = _TYPE_NUMBERS.get(options.type)
        found = [item for item in found if item[1] == wanted]
    return scan_reply(cursor, [key for key, _ in found if match is None or match(key)])


@command("RANDOMKEY")
def randomkey(s: Session, argv: Argv) -> Reply:
    return s.ks.random_key()


@command("DBSIZE")
def dbsize(s: Session, argv: Argv) -> Reply:
    return s.ks.size()


@command("FLUSHDB")
def flushdb(s: Session, argv: Argv) -> Reply:
    _check_flush(argv)
    databases.clear(s.ks)
    return OK


@command("FLUSHALL")
def flushall(s: Session, argv: Argv) -> Reply:
    _check_flush(argv)
    for keyspace in s.engine.keyspaces:
        databases.clear(keyspace)
    return OK


def _check_flush(argv: Argv) -> None:
    """ASYNC and SYNC are the same here: pages are given back, no memory has to be walked."""
    if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"ASYNC", b"SYNC")):
        raise syntax_error()


@command("SWAPDB")
def swapdb(s: Session, argv: Argv) -> Reply:
    one = integer_in(argv[1], _MIN_INT32, _MAX_INT32, "ERR invalid first DB index")
    other = integer_in(argv[2], _MIN_INT32, _MAX_INT32, "ERR invalid second DB index")
    first, second = _keyspace(s, one), _keyspace(s, other)
    if first is not second:
        databases.swap(first, second)
    return OK


@command("WAIT")
def wait(s: Session, argv: Argv) -> Reply:
    """There are no replicas to wait for."""
    integer(argv[1])
    if integer(argv[2], "ERR timeout is not an integer or out of range") < 0:
        raise CommandError("ERR timeout is negative")
    return 0


# ------------------------------------------------------------------ to another place


@command("RENAME")
def rename(s: Session, argv: Argv) -> Reply:
    _rename(s.ks, argv[1], argv[2], replace=True)
    return OK


@command("RENAMENX")
def renamenx(s: Session, argv: Argv) -> Reply:
    return int(_rename(s.ks, argv[1], argv[2], replace=False))


def _rename(ks: Keyspace, old: bytes, new: bytes, *, replace: bool) -> bool:
    if not ks.exists(old):
        raise CommandError(NO_SUCH_KEY)
    if not replace and ks.exists(new):
        return False
    if old != new:
        ks.delete(new)
        ks.rename(old, new)
        ks.changed(old, EVENT_GENERIC, b"rename_from")
        ks.changed(new, EVENT_GENERIC, b"rename_to")
        ks.ready(new)
    return True


@command("MOVE")
def move(s: Session, argv: Argv) -> Reply:
    key, ks = argv[1], s.ks
    target = _keyspace(s, _database_number(argv[2]))
    if target is ks:
        raise CommandError(_SAME_OBJECT)
    if not ks.exists(key) or target.exists(key):
        return 0
    ks.move_record(key, target, key)
    ks.changed(key, EVENT_GENERIC, b"move_from")
    target.changed(key, EVENT_GENERIC, b"move_to")
    target.ready(key)
    return 1


@command("COPY")
def copy(s: Session, argv: Argv) -> Reply:
    old, new = argv[1], argv[2]
    target, replace = _parse_copy(s, argv)
    if target is s.ks and old == new:
        raise CommandError(_SAME_OBJECT)
    if not s.ks.exists(old) or (not replace and target.exists(new)):
        return 0
    target.delete(new)
    s.ks.copy_record(old, target, new)
    target.changed(new, EVENT_GENERIC, b"copy_to")
    target.ready(new)
    return 1


def _parse_copy(s: Session, argv: Argv) -> tuple[Keyspace, bool]:
    """Where to, and whether to replace what is there."""
    target, replace = s.ks, False
    at = 3
    while at < len(argv):
        word = argv[at].upper()
        if word == b"REPLACE":
            replace = True
        elif word == b"DB" and at + 1 < len(argv):
            at += 1
            target = _keyspace(s, _database_number(argv[at]))
        else:
            raise syntax_error()
        at += 1
    return target, replace


def _database_number(value: bytes) -> int:
    number = integer(value)
    if not _MIN_INT32 <= number <= _MAX_INT32:
        raise CommandError(f"ERR value is out of range, value must between {_MIN_INT32} and {_MAX_INT32}")
    return number


def _keyspace(s: Session, number: int) -> Keyspace:
    if not 0 <= number < DATABASES:
        raise CommandError(_NO_SUCH_DATABASE)
    return s.engine.keyspaces[number]
