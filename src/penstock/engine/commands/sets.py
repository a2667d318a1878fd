"""Set commands. Argument checks, replies, events and set algebra; members are ``datatypes.set``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from penstock.engine.changes import EVENT_GENERIC, EVENT_SET
from penstock.engine.commands.arguments import (
    MAX_INT64,
    integer_in,
    positive,
    signed_count,
    syntax_error,
)
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.scanning import parse_cursor, scan_options, scan_reply
from penstock.engine.datatypes.set import Set
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import Reply, SetReply

_NO_LIMIT: Final = 0


# -------------------------------------------------------------------------- members


@command("SADD")
def sadd(s: Session, argv: Argv) -> Reply:
    key = argv[1]
    members = s.ks.load_or_new(key, Set)
    if len(argv) == 3:
        added = int(members.add(argv[2]))
    else:
        added = members.add_all(argv[2:])
    if added:
        members.save()
        s.ks.changed(key, EVENT_SET, b"sadd")
    return added


@command("SREM")
def srem(s: Session, argv: Argv) -> Reply:
    members = s.ks.load(argv[1], Set)
    if members is None:
        return 0
    removed = members.remove_all(argv[2:])
    if removed:
        _save_smaller(s, members, b"srem")
    return removed


def _save_smaller(s: Session, members: Set, event: bytes) -> None:
    """Save a set that lost members, perhaps all of them."""
    members.save()
    s.ks.changed(members.key, EVENT_SET, event)
    if members.size == 0:
        s.ks.changed(members.key, EVENT_GENERIC, b"del")


@command("SMOVE")
def smove(s: Session, argv: Argv) -> Reply:
    _, source_key, target_key, member = argv
    source = s.ks.load(source_key, Set)
    if source is None:
        # Redis does not look at the target's type then.
        return 0
    target = s.ks.load_or_new(target_key, Set)
    if source_key == target_key:
        return int(member in source)
    if not source.remove(member):
        return 0
    _save_smaller(s, source, b"srem")
    if target.add(member):
        target.save()
        s.ks.changed(target_key, EVENT_SET, b"sadd")
    return 1


@command("SISMEMBER")
def sismember(s: Session, argv: Argv) -> Reply:
    members = s.ks.load(argv[1], Set)
    return int(members is not None and argv[2] in members)


@command("SMISMEMBER")
def smismember(s: Session, argv: Argv) -> Reply:
    members = s.ks.load(argv[1], Set)
    if members is None:
        return [0] * (len(argv) - 2)
    return [int(member in members) for member in argv[2:]]


@command("SCARD")
def scard(s: Session, argv: Argv) -> Reply:
    members = s.ks.load(argv[1], Set)
    return 0 if members is None else members.size


@command("SMEMBERS")
def smembers(s: Session, argv: Argv) -> Reply:
    members = s.ks.load(argv[1], Set)
    return SetReply() if members is None else SetReply(members.names())


@command("SSCAN")
def sscan(s: Session, argv: Argv) -> Reply:
    cursor = parse_cursor(argv[2])
    members = s.ks.load(argv[1], Set)
    if members is None:
        return scan_reply(0, [])
    options = scan_options(argv, 3)
    match = options.match

    def pick(member: bytes, _: bytes) -> bytes | None:
        return member if match is None or match(member) else None

    return scan_reply(*members.scan(cursor, options.count, pick))


# ---------------------------------------------------------------------- random picks


@command("SPOP")
def spop(s: Session, argv: Argv) -> Reply:
    if len(argv) > 2:
        return _pop_many(s, argv)
    members = s.ks.load(argv[1], Set)
    if members is None:
        return None
    member = members.pop_random()[0]
    _save_smaller(s, members, b"spop")
    return member


def _pop_many(s: Session, argv: Argv) -> Reply:
    if len(argv) > 3:
        raise syntax_error()
    count = positive(argv[2])
    members = s.ks.load(argv[1], Set)
    if members is None or count == 0:
        return SetReply()
    popped = SetReply(member for member, _ in members.sample(count))
    if len(popped) < members.size:
        members.remove_all(popped)
        members.save()
        s.ks.changed(argv[1], EVENT_SET, b"spop")
        return popped
    # Everything goes: the key is deleted, which costs less than its members one by one.
    s.ks.delete(argv[1])
    s.ks.changed(argv[1], EVENT_SET, b"spop")
    s.ks.changed(argv[1], EVENT_GENERIC, b"del")
    return popped


@command("SRANDMEMBER")
def srandmember(s: Session, argv: Argv) -> Reply:
    if len(argv) == 2:
        members = s.ks.load(argv[1], Set)
        return None if members is None else members.random_item()[0]
    if len(argv) > 3:
        raise syntax_error()
    count = signed_count(argv[2])
    members = s.ks.load(argv[1], Set)
    if members is None or count == 0:
        return []
    picked = members.sample(count) if count > 0 else members.draw(-count)
    return [member for member, _ in picked]


# ------------------------------------------------------------------------ set algebra


def _load_all(s: Session, keys: list[bytes]) -> list[Set | None]:
    """The sets at these keys; one of another type spoils all, even if the result is known before."""
    return [s.ks.load(key, Set) for key in keys]


def _intersection(sets: list[Set | None], limit: int = _NO_LIMIT) -> list[bytes]:
    """Members of all sets: walks the smallest, asks the others, the smaller ones first."""
    present = [members for members in sets if members is not None]
    if len(present) < len(sets):
        return []
    smallest, *others = sorted(present, key=lambda members: members.size)
    shared: Iterable[bytes] = (name for name, _ in smallest.items())
    if others:
        shared = (name for name in shared if all(name in other for other in others))
    return list(islice(shared, limit) if limit else shared)


def _union(sets: list[Set | None]) -> list[bytes]:
    # A dict and not a set: the order is that of the first set, the same in every process.
    seen: dict[bytes, None] = {}
    for members in sets:
        if members is not None:
            seen.update(dict.fromkeys(members.names()))
    return list(seen)


def _difference(sets: list[Set | None]) -> list[bytes]:
    """Members of the first set that are in no other.

    Each other set is either asked for every member that is left or read as a whole,
    whichever touches fewer rows.
    """
    first, *others = sets
    if first is None:
        return []
    left = dict.fromkeys(first.names())
    for other in others:
        if other is None:
            continue
        if other.size < len(left):
            for name in other.names():
                left.pop(name, None)
        else:
            left = {name: None for name in left if name not in other}
    return list(left)


def _store(s: Session, key: bytes, members: list[bytes], event: bytes) -> int:
    """Make the key a set of these members, whatever it was; nothing at all deletes it."""
    if not members:
        if s.ks.delete(key):
            s.ks.changed(key, EVENT_GENERIC, b"del")
        return 0
    result = Set(s.ks, key, None)
    result.add_all(members)
    result.save()
    s.ks.changed(key, EVENT_SET, event)
    return result.size


@command("SINTER")
def sinter(s: Session, argv: Argv) -> Reply:
    return SetReply(_intersection(_load_all(s, argv[1:])))


@command("SINTERSTORE")
def sinterstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv[1], _intersection(_load_all(s, argv[2:])), b"sinterstore")


@command("SINTERCARD")
def sintercard(s: Session, argv: Argv) -> Reply:
    numkeys = integer_in(argv[1], 1, MAX_INT64, "ERR numkeys should be greater than 0")
    if numkeys > len(argv) - 2:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    limit = _NO_LIMIT
    for at in range(2 + numkeys, len(argv), 2):
        if argv[at].upper() != b"LIMIT" or at + 1 == len(argv):
            raise syntax_error()
        limit = positive(argv[at + 1], "ERR LIMIT can't be negative")
    return len(_intersection(_load_all(s, argv[2 : 2 + numkeys]), limit))


@command("SUNION")
def sunion(s: Session, argv: Argv) -> Reply:
    return SetReply(_union(_load_all(s, argv[1:])))


@command("SUNIONSTORE")
def sunionstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv[1], _union(_load_all(s, argv[2:])), b"sunionstore")


@command("SDIFF")
def sdiff(s: Session, argv: Argv) -> Reply:
    return SetReply(_difference(_load_all(s, argv[1:])))


@command("SDIFFSTORE")
def sdiffstore(s: Session, argv: Argv) -> Reply:
    return _store(s, argv[1], _difference(_load_all(s, argv[2:])), b"sdiffstore")
