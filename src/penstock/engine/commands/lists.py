"""List commands that never wait; the blocking ones are in ``blocking`` and share what is public here.

A push makes its key *ready* only when it created the key: nobody can be waiting for a
list that has elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_LIST
from penstock.engine.commands.arguments import (
    MAX_INT64,
    NO_SUCH_KEY,
    integer,
    integer_in,
    positive,
    syntax_error,
)
from penstock.engine.commands.registry import Argv, command
from penstock.engine.datatypes.list import List
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import LIST
from penstock.errors import CommandError
from penstock.protocol.catalogue import arity_error
from penstock.protocol.replies import NULL_ARRAY, OK, Reply

_ZERO_RANK: Final = (
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second"
    " ... or use negative to start from the end of the list"
)

# --------------------------------------------------------- shared with ``blocking``


def is_left(word: bytes) -> bool:
    """Which end LEFT or RIGHT names."""
    word = word.upper()
    if word == b"LEFT":
        return True
    if word == b"RIGHT":
        return False
    raise syntax_error()


def parse_mpop(argv: Argv, at: int) -> tuple[list[bytes], bool, int]:
    """``numkeys key … LEFT|RIGHT [COUNT count]`` from ``argv[at]`` on: keys, whether left, count."""
    numkeys = integer_in(argv[at], 1, MAX_INT64, "ERR numkeys should be greater than 0")
    where = at + numkeys + 1
    if where >= len(argv):
        raise syntax_error()
    left = is_left(argv[where])
    options = argv[where + 1 :]
    count = 1
    if options:
        if len(options) == 1 or options[0].upper() != b"COUNT":
            raise syntax_error()
        count = integer_in(options[1], 1, MAX_INT64, "ERR count should be greater than 0")
        if len(options) > 2:
            raise syntax_error()
    return argv[at + 1 : where], left, count


def pop_first(
    ks: Keyspace, keys: Sequence[bytes], left: bool, count: int, *, skip_others: bool
) -> tuple[bytes, list[bytes]] | None:
    """Take up to ``count`` elements from the first list that has any; answers its key and them.

    A key of another type on the way is passed over with ``skip_others``, else refused.
    """
    for key in keys:
        if skip_others and ks.type_of(key) != LIST:
            continue
        items = ks.load(key, List)
        if items is not None:
            return key, _take(ks, items, left, count)
    return None


def move(ks: Keyspace, source_key: bytes, target_key: bytes, from_left: bool, to_left: bool) -> bytes | None:
    """Move one element; None if there is no source. Both types are checked before anything changes."""
    source = ks.load(source_key, List)
    if source is None:
        return None
    target = source if target_key == source_key else ks.load_or_new(target_key, List)
    is_new = target.is_new
    value = source.pop_left() if from_left else source.pop_right()
    if to_left:
        target.push_left((value,))
    else:
        target.push_right((value,))
    target.save()
    ks.changed(target_key, EVENT_LIST, b"lpush" if to_left else b"rpush")
    if source is not target:
        source.save()
    _tell_removed(ks, source, b"lpop" if from_left else b"rpop")
    if is_new:
        ks.ready(target_key)
    return value


def _take(ks: Keyspace, items: List, left: bool, count: int) -> list[bytes]:
    values = items.take_left(count) if left else items.take_right(count)
    items.save()
    _tell_removed(ks, items, b"lpop" if left else b"rpop")
    return values


def _tell_removed(ks: Keyspace, items: List, event: bytes) -> None:
    """Elements went away, and with the last one the key."""
    ks.changed(items.key, EVENT_LIST, event)
    if not items.size:
        ks.changed(items.key, EVENT_GENERIC, b"del")


# ------------------------------------------------------------------ push and pop


@command("LPUSH")
def lpush(s: Session, argv: Argv) -> Reply:
    ks = s.ks
    key = argv[1]
    items = ks.load_or_new(key, List)
    if items.size == 0:
        ks.ready(key)
    items.push_left(argv[2:])
    items.save()
    if ks.changes.observed:
        ks.changed(key, EVENT_LIST, b"lpush")
    return items.size


@command("RPUSH")
def rpush(s: Session, argv: Argv) -> Reply:
    ks = s.ks
    key = argv[1]
    items = ks.load_or_new(key, List)
    if items.size == 0:
        ks.ready(key)
    items.push_right(argv[2:])
    items.save()
    if ks.changes.observed:
        ks.changed(key, EVENT_LIST, b"rpush")
    return items.size


@command("LPUSHX")
def lpushx(s: Session, argv: Argv) -> Reply:
    return 0 if s.ks.load(argv[1], List) is None else lpush(s, argv)


@command("RPUSHX")
def rpushx(s: Session, argv: Argv) -> Reply:
    return 0 if s.ks.load(argv[1], List) is None else rpush(s, argv)


@command("LPOP")
def lpop(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2:
        return _pop_many(s, argv, left=True)
    ks = s.ks
    items = ks.load(argv[1], List)
    if items is None:
        return None
    value = items.pop_left()
    items.save()
    if ks.changes.observed:
        _tell_removed(ks, items, b"lpop")
    return value


@command("RPOP")
def rpop(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2:
        return _pop_many(s, argv, left=False)
    ks = s.ks
    items = ks.load(argv[1], List)
    if items is None:
        return None
    value = items.pop_right()
    items.save()
    if ks.changes.observed:
        _tell_removed(ks, items, b"rpop")
    return value


def _pop_many(s: Session, argv: Argv, *, left: bool) -> Reply:
    if len(argv) > 3:
        raise arity_error(argv[0])
    count = positive(argv[2])
    items = s.ks.load(argv[1], List)
    if items is None:
        return NULL_ARRAY
    return _take(s.ks, items, left, count) if count else []


@command("LMPOP")
def lmpop(s: Session, argv: Argv) -> Reply:
    keys, left, count = parse_mpop(argv, 1)
    popped = pop_first(s.ks, keys, left, count, skip_others=False)
    return NULL_ARRAY if popped is None else list(popped)


@command("LMOVE")
def lmove(s: Session, argv: Argv) -> Reply:
    from_left, to_left = is_left(argv[3]), is_left(argv[4])
    return move(s.ks, argv[1], argv[2], from_left, to_left)


@command("RPOPLPUSH")
def rpoplpush(s: Session, argv: Argv) -> Reply:
    return move(s.ks, argv[1], argv[2], from_left=False, to_left=True)


# ---------------------------------------------------------------------- positions


def _range(start: int, stop: int, size: int) -> tuple[int, int]:
    """From Redis's inclusive range with negative positions to a half-open one inside the list."""
    if start < 0:
        start = max(start + size, 0)
    if stop < 0:
        stop += size
    return start, min(stop + 1, size)


@command("LLEN")
def llen(s: Session, argv: Argv) -> Reply:
    items = s.ks.load(argv[1], List)
    return 0 if items is None else items.size


@command("LINDEX")
def lindex(s: Session, argv: Argv) -> Reply:
    items = s.ks.load(argv[1], List)
    if items is None:
        return None
    position = integer(argv[2])
    if position < 0:
        position += items.size
    return items[position] if 0 <= position < items.size else None


@command("LSET")
def lset(s: Session, argv: Argv) -> Reply:
    items = s.ks.load(argv[1], List)
    if items is None:
        raise CommandError(NO_SUCH_KEY)
    position = integer(argv[2])
    if position < 0:
        position += items.size
    if not 0 <= position < items.size:
        raise CommandError("ERR index out of range")
    items[position] = argv[3]
    s.ks.changed(argv[1], EVENT_LIST, b"lset")
    return OK


@command("LRANGE")
def lrange(s: Session, argv: Argv) -> Reply:
    start, stop = integer(argv[2]), integer(argv[3])
    items = s.ks.load(argv[1], List)
    return [] if items is None else items.slice(*_range(start, stop, items.size))


@command("LTRIM")
def ltrim(s: Session, argv: Argv) -> Reply:
    start, stop = integer(argv[2]), integer(argv[3])
    items = s.ks.load(argv[1], List)
    if items is not None:
        items.keep(*_range(start, stop, items.size))
        items.save()
        _tell_removed(s.ks, items, b"ltrim")
    return OK


# ------------------------------------------------------------------------- values


@command("LREM")
def lrem(s: Session, argv: Argv) -> Reply:
    count = integer(argv[2])
    items = s.ks.load(argv[1], List)
    if items is None:
        return 0
    positions = items.find(argv[3], backwards=count < 0, limit=abs(count))
    if not positions:
        return 0
    positions.sort()
    items.remove(positions)
    items.save()
    _tell_removed(s.ks, items, b"lrem")
    return len(positions)


@command("LINSERT")
def linsert(s: Session, argv: Argv) -> Reply:
    where = argv[2].upper()
    if where not in (b"BEFORE", b"AFTER"):
        raise syntax_error()
    items = s.ks.load(argv[1], List)
    if items is None:
        return 0
    found = items.find(argv[3], limit=1)
    if not found:
        return -1
    items.insert(found[0] + (where == b"AFTER"), argv[4])
    items.save()
    s.ks.changed(argv[1], EVENT_LIST, b"linsert")
    return items.size


@command("LPOS")
def lpos(s: Session, argv: Argv) -> Reply:
    rank, count, window = _parse_lpos(argv)
    items = s.ks.load(argv[1], List)
    if items is None:
        return None if count is None else []
    limit = 1 if count is None else count
    found = items.find(argv[2], backwards=rank < 0, skip=abs(rank) - 1, limit=limit, window=window)
    if count is not None:
        return found
    return found[0] if found else None


def _parse_lpos(argv: Argv) -> tuple[int, int | None, int]:
    """RANK, COUNT (None if not given) and MAXLEN; the last of several counts."""
    rank, count, window = 1, None, 0
    for at in range(3, len(argv), 2):
        option = argv[at].upper()
        if at + 1 == len(argv):
            raise syntax_error()
        if option == b"RANK":
            rank = integer(argv[at + 1])
            if rank == 0:
                raise CommandError(_ZERO_RANK)
        elif option == b"COUNT":
            count = positive(argv[at + 1], "ERR COUNT can't be negative")
        elif option == b"MAXLEN":
            window = positive(argv[at + 1], "ERR MAXLEN can't be negative")
        else:
            raise syntax_error()
    return rank, count, window
