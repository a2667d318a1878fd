"""Sorted sets, member by member: adding, scores, ranks, popping (waiting or not), chance, ZSCAN.

Ranges are in ``sorted_set_ranges``, unions and the like in ``sorted_set_algebra``. What they
share on the way out stands here: :func:`saved_smaller` after members were taken away,
:func:`store_result` for a set that replaces whatever a key held.

ZADD, ZINCRBY and ZPOPMIN are hot: they call the data type directly and write the head
record only when the number of members changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_ZSET
from penstock.engine.commands.arguments import (
    MAX_INT64,
    floating,
    integer_in,
    positive,
    signed_count,
    syntax_error,
    timeout_ms,
)
from penstock.engine.commands.registry import Argv, Served, attempt, command, run_blocking
from penstock.engine.commands.scanning import parse_cursor, scan_options, scan_reply
from penstock.engine.datatypes.numbers import parse_float
from penstock.engine.datatypes.sorted_set import ADDED, SAME, Entry, SortedSet, entries_of
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import ZSET, decode_score
from penstock.errors import CommandError, WrongTypeError
from penstock.protocol.encoder import format_double
from penstock.protocol.replies import NULL_ARRAY, Pairs, Reply

_NOT_A_NUMBER: Final = "ERR resulting score is not a number (NaN)"
_ZADD_OPTIONS: Final = frozenset({b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"})
_CONDITIONS: Final = frozenset({b"NX", b"XX", b"GT", b"LT"})
#: Option sets that contradict themselves.
_CLASHES: Final = ({b"NX", b"GT"}, {b"NX", b"LT"}, {b"GT", b"LT"})
#: A count doubled by WITHSCORES must still fit.
_MAX_PAIRS: Final = MAX_INT64 // 2
#: Larger scores are written as doubles even if they are whole.
_MAX_WHOLE: Final = 1 << 62
_NO_OPTIONS: Final[frozenset[bytes]] = frozenset()


# --------------------------------------------------------------------------- shared


def saved_smaller(ks: Keyspace, zset: SortedSet, event: bytes) -> None:
    """Save a set that lost members, and tell observers; the key goes with its last member."""
    zset.save()
    ks.changed(zset.key, EVENT_ZSET, event)
    if zset.size == 0:
        ks.changed(zset.key, EVENT_GENERIC, b"del")


def store_result(ks: Keyspace, key: bytes, entries: Iterable[Entry], event: bytes) -> int:
    """Make a key the sorted set of these entries, whatever it was; nothing left means no key."""
    zset = SortedSet(ks, key, None)
    zset.fill(entries)
    if zset.size:
        zset.save()
        ks.changed(key, EVENT_ZSET, event)
        ks.ready(key)
    elif ks.delete(key):
        ks.changed(key, EVENT_GENERIC, b"del")
    return zset.size


def _saved_changed(ks: Keyspace, zset: SortedSet, event: bytes) -> None:
    """Save a set that gained or moved members, and tell observers.

    Only a key that was not there can have clients waiting for it.
    """
    is_new = zset.is_new
    zset.save()
    ks.changed(zset.key, EVENT_ZSET, event)
    if is_new:
        ks.ready(zset.key)


# --------------------------------------------------------------------------- adding


@command("ZADD")
def zadd(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    if len(argv) == 4:
        text = argv[2]
        # At once for what most scores are: a few digits.
        score = float(text) if len(text) < 16 and text.isdigit() else parse_float(text)
        if score is not None:
            zset = s.ks.load_or_new(key, SortedSet)
            done = zset.put(argv[3], score)
            if done != SAME:
                _saved_changed(s.ks, zset, b"zadd")
            return 1 if done == ADDED else 0
    first = 2
    while first < len(argv) and argv[first].upper() in _ZADD_OPTIONS:
        first += 1
    options = frozenset(option.upper() for option in argv[2:first])
    scores, members = argv[first::2], argv[first + 1 :: 2]
    if len(scores) != len(members) or not scores:
        raise syntax_error()
    _check_options(options, len(scores))
    return add_members(s, key, [floating(text) for text in scores], members, options)


def _check_options(options: frozenset[bytes], pairs: int) -> None:
    if b"NX" in options and b"XX" in options:
        raise CommandError("ERR XX and NX options at the same time are not compatible")
    if any(clash <= options for clash in _CLASHES):
        raise CommandError("ERR GT, LT, and/or NX options at the same time are not compatible")
    if b"INCR" in options and pairs > 1:
        raise CommandError("ERR INCR option supports a single increment-element pair")


def add_members(
    s: Session, key: bytes, scores: list[float], members: list[bytes], options: frozenset[bytes]
) -> Reply:
    """ZADD once its arguments are read; GEOADD ends here too."""
    if b"INCR" in options:
        return _increment(s, key, scores[0], members[0], options)
    ks = s.ks
    zset = ks.load(key, SortedSet)
    if zset is None:
        if b"XX" in options:
            return 0
        zset = SortedSet(ks, key, None)
    is_conditional = not options.isdisjoint(_CONDITIONS)
    before = zset.size
    changed = 0
    for score, member in zip(scores, members, strict=True):
        if is_conditional and not _may_set(zset.score(member), score, options):
            continue
        if zset.put(member, score) != SAME:
            changed += 1
    if changed:
        _saved_changed(ks, zset, b"zadd")
    return changed if b"CH" in options else zset.size - before


def _may_set(old: float | None, new: float, options: frozenset[bytes]) -> bool:
    """Whether NX, XX, GT and LT let a member get this score."""
    if old is None:
        return b"XX" not in options
    if b"NX" in options:
        return False
    return not ((b"GT" in options and new <= old) or (b"LT" in options and new >= old))


@command("ZINCRBY")
def zincrby(s: Session, argv: Argv) -> Reply:
    return _increment(s, argv[1], floating(argv[2]), argv[3], _NO_OPTIONS)


def _increment(s: Session, key: bytes, by: float, member: bytes, options: frozenset[bytes]) -> float | None:
    zset = s.ks.load(key, SortedSet)
    old = None if zset is None else zset.score(member)
    score = by if old is None else old + by
    if math.isnan(score) and b"NX" not in options:
        raise CommandError(_NOT_A_NUMBER)
    if options and not _may_set(old, score, options):
        return None
    if zset is None:
        zset = SortedSet(s.ks, key, None)
    if zset.put(member, score) != SAME:
        _saved_changed(s.ks, zset, b"zincr")
    return score


@command("ZREM")
def zrem(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return 0
    removed = 0
    for member in argv[2:]:
        removed += zset.remove(member)
    if removed:
        saved_smaller(s.ks, zset, b"zrem")
    return removed


# -------------------------------------------------------------------------- looking


@command("ZCARD")
def zcard(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    return 0 if zset is None else zset.size


@command("ZSCORE")
def zscore(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    return None if zset is None else zset.score(argv[2])


@command("ZMSCORE")
def zmscore(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return [None] * (len(argv) - 2)
    return [zset.score(member) for member in argv[2:]]


@command("ZRANK", "ZREVRANK")
def zrank(s: Session, argv: Argv) -> Reply:
    zset = s.ks.load(argv[1], SortedSet)
    rank = None if zset is None else zset.rank(argv[2])
    if zset is None or rank is None:
        return None
    return rank if argv[0].upper() == b"ZRANK" else zset.size - 1 - rank


@command("ZRANDMEMBER")
def zrandmember(s: Session, argv: Argv) -> Reply:
    if len(argv) == 2:
        zset = s.ks.load(argv[1], SortedSet)
        return None if zset is None else zset.random_item()[0]
    count = signed_count(argv[2])
    with_scores = len(argv) > 3
    if len(argv) > 4 or (with_scores and argv[3].upper() != b"WITHSCORES"):
        raise syntax_error()
    if with_scores and abs(count) > _MAX_PAIRS:
        raise CommandError("ERR value is out of range")
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None or count == 0:
        return []
    picked = zset.sample(count) if count > 0 else zset.draw(-count)
    if with_scores:
        return Pairs((member, decode_score(place)) for member, place in picked)
    return [member for member, _ in picked]


@command("ZSCAN")
def zscan(s: Session, argv: Argv) -> Reply:
    cursor = parse_cursor(argv[2])
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return scan_reply(0, [])
    options = scan_options(argv, 3)
    match = options.match

    def pick(member: bytes, place: bytes) -> tuple[bytes, bytes] | None:
        return (member, place) if match is None or match(member) else None

    following, found = zset.scan(cursor, options.count, pick)
    flat: list[bytes] = []
    for member, place in found:
        flat += (member, _scanned_score(decode_score(place)))
    return scan_reply(following, flat)


def _scanned_score(score: float) -> bytes:
    """ZSCAN writes scores as a small set of Redis keeps them: whole numbers in all their digits."""
    if score.is_integer() and abs(score) <= _MAX_WHOLE:
        return b"%d" % score
    return format_double(score)


# -------------------------------------------------------------------------- popping


def _pop(ks: Keyspace, zset: SortedSet, highest: bool, count: int) -> list[Entry]:
    if count == 1:
        entries = [zset.pop(highest)]
    else:
        rows = zset.rows_by_rank(0, count, highest)
        entries = entries_of(rows)
        zset.remove_rows(rows)
    saved_smaller(ks, zset, b"zpopmax" if highest else b"zpopmin")
    return entries


@command("ZPOPMIN", "ZPOPMAX")
def zpop(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3:
        raise syntax_error()
    count = positive(argv[2]) if len(argv) == 3 else 1
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None or count == 0:
        return []
    entries = _pop(s.ks, zset, argv[0].upper() == b"ZPOPMAX", count)
    return Pairs(entries) if len(argv) == 3 else list(entries[0])


@dataclass(frozen=True, slots=True)
class _Pop:
    """What a pop over several keys was asked to do."""

    keys: list[bytes]
    highest: bool
    count: int


def _parse_mpop(argv: Argv, numkeys_at: int) -> _Pop:
    """``numkeys key [key …] MIN|MAX [COUNT count]`` from a position on."""
    numkeys = integer_in(argv[numkeys_at], 1, MAX_INT64, "ERR numkeys should be greater than 0")
    where = numkeys_at + 1 + numkeys
    if where >= len(argv) or (side := argv[where].upper()) not in (b"MIN", b"MAX"):
        raise syntax_error()
    rest = argv[where + 1 :]
    count = 1
    if rest:
        if rest[0].upper() != b"COUNT" or len(rest) == 1:
            raise syntax_error()
        count = integer_in(rest[1], 1, MAX_INT64, "ERR count should be greater than 0")
        if len(rest) > 2:
            raise syntax_error()
    return _Pop(argv[numkeys_at + 1 : where], side == b"MAX", count)


def _parse_bzpop(argv: Argv) -> _Pop:
    """``BZPOPMIN|BZPOPMAX key [key …] timeout``."""
    return _Pop(argv[1:-1], argv[0].upper() == b"BZPOPMAX", 1)


def _check_types(ks: Keyspace, keys: list[bytes]) -> None:
    """Refuse a key of another type that comes before the first sorted set."""
    for key in keys:
        kind = ks.type_of(key)
        if kind == ZSET:
            return
        if kind is not None:
            raise WrongTypeError


def _pop_first(ks: Keyspace, pop: _Pop) -> tuple[bytes, list[Entry]] | None:
    """Pop from the first of the keys that is a sorted set; other types are passed over."""
    for key in pop.keys:
        if ks.type_of(key) == ZSET:
            zset = ks.load(key, SortedSet)
            assert zset is not None
            return key, _pop(ks, zset, pop.highest, pop.count)
    return None


def _mpop_reply(key: bytes, entries: list[Entry]) -> Reply:
    return [key, [list(entry) for entry in entries]]


def _restore(key: bytes, entries: list[Entry]) -> Argv:
    """The command that puts popped members back."""
    argv = [b"ZADD", key]
    for member, score in entries:
        argv += (repr(score).encode(), member)
    return argv


@command("ZMPOP")
def zmpop(s: Session, argv: Argv) -> Reply:
    pop = _parse_mpop(argv, 1)
    _check_types(s.ks, pop.keys)
    popped = _pop_first(s.ks, pop)
    return NULL_ARRAY if popped is None else _mpop_reply(*popped)


@command("BZMPOP")
def bzmpop(s: Session, argv: Argv) -> Reply:
    pop = _parse_mpop(argv, 2)
    timeout = timeout_ms(argv[1])
    _check_types(s.ks, pop.keys)
    return run_blocking(s, argv, pop.keys, timeout, NULL_ARRAY)


@attempt("BZMPOP")
def try_bzmpop(ks: Keyspace, argv: Argv) -> Served | None:
    popped = _pop_first(ks, _parse_mpop(argv, 2))
    return None if popped is None else Served(_mpop_reply(*popped), (_restore(*popped),))


@command("BZPOPMIN", "BZPOPMAX")
def bzpop(s: Session, argv: Argv) -> Reply:
    timeout = timeout_ms(argv[-1])
    keys = argv[1:-1]
    _check_types(s.ks, keys)
    return run_blocking(s, argv, keys, timeout, NULL_ARRAY)


@attempt("BZPOPMIN", "BZPOPMAX")
def try_bzpop(ks: Keyspace, argv: Argv) -> Served | None:
    popped = _pop_first(ks, _parse_bzpop(argv))
    if popped is None:
        return None
    key, entries = popped
    return Served([key, *entries[0]], (_restore(key, entries),))
