"""String commands: GET, SET and relatives, counters, ranges, LCS."""

from __future__ import annotations

from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_STRING
from penstock.engine.commands.arguments import (
    MAX_INT64,
    MIN_INT64,
    NOT_FLOAT,
    NOT_INTEGER,
    integer,
    syntax_error,
)
from penstock.engine.commands.expiry_options import EXPIRE_OPTIONS, deadline
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes import lcs
from penstock.engine.datatypes.counter import Counter
from penstock.engine.datatypes.numbers import (
    LongDouble,
    add_long_doubles,
    format_long_double,
    parse_int,
    parse_long_double,
)
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import STRING, TYPE_MASK, decode_head
from penstock.errors import CommandError, WrongTypeError
from penstock.protocol.replies import OK, Reply

_MAX_STRING_BYTES: Final = 512 * 1024 * 1024
_TOO_LONG: Final = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
_ZERO: Final = LongDouble(0, 0)
_OVERFLOW: Final = "ERR increment or decrement would overflow"
_NO_OPTION: Final = (b"", b"")


# ------------------------------------------------------------------------- get, set


@command("GET")
def get(s: Session, argv: Argv) -> Reply:
    return s.ks.get_string(argv[1])


@command("SET")
def set_(s: Session, argv: Argv) -> Reply:
    words = len(argv)
    deadline_ms: int | None = None
    if words > 3:
        # EX and the like alone: nearly every SET that has an option.
        lifetime = EXPIRE_OPTIONS.get(argv[3].upper()) if words == 5 else None
        if lifetime is None:
            return _set_with_options(s, argv)
        deadline_ms = deadline(argv[4], *lifetime, s.ks.unit.now_ms, "set")
    ks = s.ks
    ks.set_string(argv[1], argv[2], deadline_ms)
    if ks.changes.observed:
        _tell_set(ks, argv[1], deadline_ms)
    return OK


#: Options of SET and GETEX by what they are about; two that differ exclude each other.
_CONDITION, _LIFETIME, _OLD_VALUE = "condition", "lifetime", "old value"
_SET_OPTIONS: Final = {
    b"NX": _CONDITION,
    b"XX": _CONDITION,
    b"GET": _OLD_VALUE,
    b"KEEPTTL": _LIFETIME,
    **dict.fromkeys(EXPIRE_OPTIONS, _LIFETIME),
}
_GETEX_OPTIONS: Final = {b"PERSIST": _LIFETIME, **dict.fromkeys(EXPIRE_OPTIONS, _LIFETIME)}


def _parse_options(words: Argv, known: dict[bytes, str]) -> dict[str, tuple[bytes, bytes]]:
    """What was chosen about each subject: an option and its argument. The last one counts."""
    chosen: dict[str, tuple[bytes, bytes]] = {}
    rest = iter(words)
    for word in rest:
        option = word.upper()
        subject = known.get(option)
        if subject is None or chosen.get(subject, (option,))[0] != option:
            raise syntax_error()
        argument = next(rest, None) if option in EXPIRE_OPTIONS else b""
        if argument is None:
            raise syntax_error()
        chosen[subject] = (option, argument)
    return chosen


def _set_with_options(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    options = _parse_options(argv[3:], _SET_OPTIONS)
    condition = options.get(_CONDITION, _NO_OPTION)[0]
    lifetime, amount = options.get(_LIFETIME, _NO_OPTION)
    deadline_ms: int | None = None
    if lifetime in EXPIRE_OPTIONS:
        deadline_ms = deadline(amount, *EXPIRE_OPTIONS[lifetime], s.ks.unit.now_ms, "set")
    old: Reply = s.ks.get_string(key) if _OLD_VALUE in options else None
    if condition and s.ks.exists(key) != (condition == b"XX"):
        return old
    if lifetime == b"KEEPTTL":
        s.ks.set_string(key, argv[2], s.ks.deadline_of(key))
        s.ks.changed(key, EVENT_STRING, b"set")
    else:
        set_with_deadline(s, key, argv[2], deadline_ms)
    return old if _OLD_VALUE in options else OK


def set_with_deadline(s: Session, key: bytes, value: bytes, deadline_ms: int | None) -> None:
    """Set a key. A deadline that has passed is no exception: the key expires at its next use."""
    s.ks.set_string(key, value, deadline_ms)
    if s.ks.changes.observed:
        _tell_set(s.ks, key, deadline_ms)


def _tell_set(ks: Keyspace, key: bytes, deadline_ms: int | None) -> None:
    ks.changed(key, EVENT_STRING, b"set")
    if deadline_ms is not None:
        ks.changed(key, EVENT_GENERIC, b"expire")


@command("SETNX")
def setnx(s: Session, argv: Argv) -> Reply:
    if s.ks.exists(argv[1]):
        return 0
    set_with_deadline(s, argv[1], argv[2], None)
    return 1


@command("SETEX")
def setex(s: Session, argv: Argv) -> Reply:
    set_with_deadline(s, argv[1], argv[3], deadline(argv[2], 1000, True, s.ks.unit.now_ms, "setex"))
    return OK


@command("PSETEX")
def psetex(s: Session, argv: Argv) -> Reply:
    set_with_deadline(s, argv[1], argv[3], deadline(argv[2], 1, True, s.ks.unit.now_ms, "psetex"))
    return OK


@command("GETSET")
def getset(s: Session, argv: Argv) -> Reply:
    old = s.ks.get_string(argv[1])
    set_with_deadline(s, argv[1], argv[2], None)
    return old


@command("GETDEL")
def getdel(s: Session, argv: Argv) -> Reply:
    value = s.ks.get_string(argv[1])
    if value is not None:
        s.ks.delete(argv[1])
        s.ks.changed(argv[1], EVENT_GENERIC, b"del")
    return value


@command("GETEX")
def getex(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    lifetime, amount = _parse_options(argv[2:], _GETEX_OPTIONS).get(_LIFETIME, _NO_OPTION)
    value = s.ks.get_string(key)
    if value is None or not lifetime:
        return value
    if lifetime == b"PERSIST":
        if s.ks.deadline_of(key) is not None:
            s.ks.set_deadline(key, None)
            s.ks.changed(key, EVENT_GENERIC, b"persist")
        return value
    deadline_ms = deadline(amount, *EXPIRE_OPTIONS[lifetime], s.ks.unit.now_ms, "getex")
    if deadline_ms <= s.ks.unit.now_ms:
        s.ks.delete(key)
        s.ks.changed(key, EVENT_GENERIC, b"del")
    else:
        s.ks.set_deadline(key, deadline_ms)
        s.ks.changed(key, EVENT_GENERIC, b"expire")
    return value


@command("MGET")
def mget(s: Session, argv: Argv) -> Reply:
    return s.ks.get_strings(argv[1:])


@command("MSET")
def mset(s: Session, argv: Argv) -> Reply:
    _check_pairs(argv)
    for index in range(1, len(argv), 2):
        set_with_deadline(s, argv[index], argv[index + 1], None)
    return OK


@command("MSETNX")
def msetnx(s: Session, argv: Argv) -> Reply:
    _check_pairs(argv)
    if any(s.ks.exists(key) for key in argv[1::2]):
        return 0
    for index in range(1, len(argv), 2):
        set_with_deadline(s, argv[index], argv[index + 1], None)
    return 1


def _check_pairs(argv: Argv) -> None:
    if len(argv) % 2 == 0:
        raise CommandError(f"ERR wrong number of arguments for '{argv[0].decode().lower()}' command")


# ---------------------------------------------------------------------- parts of it


@command("STRLEN")
def strlen(s: Session, argv: Argv) -> Reply:
    value = s.ks.get_string(argv[1])
    return 0 if value is None else len(value)


@command("APPEND")
def append(s: Session, argv: Argv) -> Reply:
    value = (s.ks.get_string(argv[1]) or b"") + argv[2]
    _check_length(len(value))
    s.ks.update_string(argv[1], value)
    s.ks.changed(argv[1], EVENT_STRING, b"append")
    return len(value)


@command("GETRANGE", "SUBSTR")
def getrange(s: Session, argv: Argv) -> Reply:
    start, end = integer(argv[2]), integer(argv[3])
    value = s.ks.get_string(argv[1]) or b""
    length = len(value)
    if start < 0 and end < 0 and start > end:
        return b""
    start = max(start + length, 0) if start < 0 else start
    end = max(end + length, 0) if end < 0 else min(end, length - 1)
    return value[start : end + 1] if start <= end else b""


@command("SETRANGE")
def setrange(s: Session, argv: Argv) -> Reply:
    key, patch = argv[1], argv[3]
    offset = integer(argv[2])
    if offset < 0:
        raise CommandError("ERR offset is out of range")
    value = s.ks.get_string(key)
    if not patch:
        return 0 if value is None else len(value)
    _check_length(offset + len(patch))
    old = (value or b"").ljust(offset, b"\0")
    new = old[:offset] + patch + old[offset + len(patch) :]
    s.ks.update_string(key, new)
    s.ks.changed(key, EVENT_STRING, b"setrange")
    return len(new)


def _check_length(length: int) -> None:
    if length > _MAX_STRING_BYTES:
        raise CommandError(_TOO_LONG)


# -------------------------------------------------------------------------- counters


def _add(s: Session, key: bytes, delta: int) -> int:
    ks = s.ks
    counter = ks.load(key, Counter) if ks.comes_again(key) else None
    if counter is None:
        number = _add_once(ks, key, delta)
    else:
        number = counter.number = _sum(counter.number, delta)
        counter.save()
    if ks.changes.observed:
        ks.changed(key, EVENT_STRING, b"incrby")
    return number


def _add_once(ks: Keyspace, key: bytes, delta: int) -> int:
    """For a key that nobody used just now, which is not worth keeping at hand; it may be missing."""
    record = ks.find(key)
    if record is None:
        ks.set_string(key, b"%d" % delta)
        return delta
    if record[0] & TYPE_MASK != STRING:
        raise WrongTypeError
    body = 1 if record[0] == STRING else decode_head(record).body
    number = _sum(parse_int(record[body:]), delta)
    ks.store(key, record[:body] + b"%d" % number)
    return number


def _sum(number: int | None, delta: int) -> int:
    if number is None:
        raise CommandError(NOT_INTEGER)
    number += delta
    if not MIN_INT64 <= number <= MAX_INT64:
        raise CommandError(_OVERFLOW)
    return number


@command("INCR")
def incr(s: Session, argv: Argv) -> Reply:
    return _add(s, argv[1], 1)


@command("DECR")
def decr(s: Session, argv: Argv) -> Reply:
    return _add(s, argv[1], -1)


@command("INCRBY")
def incrby(s: Session, argv: Argv) -> Reply:
    return _add(s, argv[1], integer(argv[2]))


@command("DECRBY")
def decrby(s: Session, argv: Argv) -> Reply:
    amount = integer(argv[2])
    if amount == MIN_INT64:
        raise CommandError("ERR decrement would overflow")
    return _add(s, argv[1], -amount)


@command("INCRBYFLOAT")
def incrbyfloat(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    value = s.ks.get_string(key)
    current = _ZERO if value is None else parse_long_double(value)
    amount = parse_long_double(argv[2])
    if current is None or amount is None:
        raise CommandError(NOT_FLOAT)
    total = add_long_doubles(current, amount)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    text = format_long_double(total)
    s.ks.update_string(key, text)
    s.ks.changed(key, EVENT_STRING, b"incrbyfloat")
    return text


# ------------------------------------------------------------------------------- LCS


@command("LCS")
def lcs_(s: Session, argv: Argv) -> Reply:
    try:
        one, other = (s.ks.get_string(key) or b"" for key in argv[1:3])
    except WrongTypeError:
        raise CommandError("ERR The specified keys must contain string values") from None
    words = [word.upper() for word in argv[3:]]
    wants_length = wants_index = with_lengths = False
    min_length = 0
    index = 0
    while index < len(words):
        if words[index] == b"LEN":
            wants_length = True
        elif words[index] == b"IDX":
            wants_index = True
        elif words[index] == b"WITHMATCHLEN":
            with_lengths = True
        elif words[index] == b"MINMATCHLEN" and index + 1 < len(words):
            index += 1
            min_length = max(integer(words[index]), 0)
        else:
            raise syntax_error()
        index += 1
    if wants_length and wants_index:
        raise CommandError("ERR If you want both the length and indexes, please just use IDX.")
    if wants_length:
        return lcs.length(one, other)
    if not wants_index:
        return lcs.subsequence(one, other)
    runs, total = lcs.matches(one, other, min_length)
    return {b"matches": [_run_reply(run, with_lengths) for run in runs], b"len": total}


def _run_reply(run: lcs.Match, with_length: bool) -> Reply:
    places: list[Reply] = [[run.a_first, run.a_last], [run.b_first, run.b_last]]
    return [*places, run.length] if with_length else places
