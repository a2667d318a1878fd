"""List commands that wait: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP.

Each has two sides, which differ in what they make of a key of another type:

=======================  ====================  ==========================================
key of another type      handler, at the call  attempt, for a client that waits already
=======================  ====================  ==========================================
a list to pop from       WRONGTYPE             passed over, the wait goes on
the target of a move     WRONGTYPE             ends the wait with WRONGTYPE
=======================  ====================  ==========================================

What an attempt popped and the waiting process never took is put back at the same end.
A move needs no putting back: its element lives on in the target.
"""

from __future__ import annotations

from penstock.engine.commands.arguments import timeout_ms
from penstock.engine.commands.lists import is_left, move, parse_mpop, pop_first
from penstock.engine.commands.registry import Argv, Served, attempt, command
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import LIST
from penstock.errors import WrongTypeError
from penstock.protocol.replies import NULL_ARRAY, Reply


def _back(key: bytes, values: list[bytes], left: bool) -> tuple[Argv, ...]:
    """The command that undoes a pop: the last one popped goes back first."""
    return ([b"LPUSH" if left else b"RPUSH", key, *reversed(values)],)


# ------------------------------------------------------------------ BLPOP, BRPOP


@command("BLPOP", "BRPOP")
def bpop(s: Session, argv: Argv) -> Reply:
    timeout = timeout_ms(argv[-1])
    keys = argv[1:-1]
    popped = pop_first(s.ks, keys, _pops_left(argv), 1, skip_others=False)
    if popped is not None:
        return [popped[0], popped[1][0]]
    if s.may_not_block:
        return NULL_ARRAY
    return s.block(argv, keys, timeout, NULL_ARRAY)


@attempt("BLPOP", "BRPOP")
def attempt_bpop(ks: Keyspace, argv: Argv) -> Served | None:
    left = _pops_left(argv)
    popped = pop_first(ks, argv[1:-1], left, 1, skip_others=True)
    if popped is None:
        return None
    key, values = popped
    return Served([key, values[0]], _back(key, values, left))


def _pops_left(argv: Argv) -> bool:
    return argv[0].upper() == b"BLPOP"


# ------------------------------------------------------------------------ BLMPOP


@command("BLMPOP")
def blmpop(s: Session, argv: Argv) -> Reply:
    keys, left, count = parse_mpop(argv, 2)
    timeout = timeout_ms(argv[1])
    popped = pop_first(s.ks, keys, left, count, skip_others=False)
    if popped is not None:
        return list(popped)
    if s.may_not_block:
        return NULL_ARRAY
    return s.block(argv, keys, timeout, NULL_ARRAY)


@attempt("BLMPOP")
def attempt_blmpop(ks: Keyspace, argv: Argv) -> Served | None:
    keys, left, count = parse_mpop(argv, 2)
    popped = pop_first(ks, keys, left, count, skip_others=True)
    if popped is None:
        return None
    key, values = popped
    return Served([key, values], _back(key, values, left))


# ------------------------------------------------------------ BLMOVE, BRPOPLPUSH


@command("BLMOVE")
def blmove(s: Session, argv: Argv) -> Reply:
    from_left, to_left = is_left(argv[3]), is_left(argv[4])
    return _move_or_wait(s, argv, from_left, to_left, timeout_ms(argv[5]))


@attempt("BLMOVE")
def attempt_blmove(ks: Keyspace, argv: Argv) -> Served | None:
    return _attempt_move(ks, argv, is_left(argv[3]), is_left(argv[4]))


@command("BRPOPLPUSH")
def brpoplpush(s: Session, argv: Argv) -> Reply:
    return _move_or_wait(s, argv, False, True, timeout_ms(argv[3]))


@attempt("BRPOPLPUSH")
def attempt_brpoplpush(ks: Keyspace, argv: Argv) -> Served | None:
    return _attempt_move(ks, argv, False, True)


def _move_or_wait(s: Session, argv: Argv, from_left: bool, to_left: bool, timeout: int) -> Reply:
    value = move(s.ks, argv[1], argv[2], from_left, to_left)
    if value is not None or s.may_not_block:
        return value
    # Redis answers a null string where it may not wait, but a null array when time is up.
    return s.block(argv, [argv[1]], timeout, NULL_ARRAY)


def _attempt_move(ks: Keyspace, argv: Argv, from_left: bool, to_left: bool) -> Served | None:
    if ks.type_of(argv[1]) != LIST:
        return None
    try:
        return Served(move(ks, argv[1], argv[2], from_left, to_left))
    except WrongTypeError as error:
        return Served(error)
