"""Ranges of sorted sets by rank, score or member: reading, storing, counting, removing.

All the reading commands are one command with some choices made for the caller:

====================  =======  =========  =============================
command               ends     direction  options
====================  =======  =========  =============================
ZRANGE, ZRANGESTORE   rank     forward    BYSCORE BYLEX REV LIMIT
                                          WITHSCORES (not when storing)
ZREVRANGE             rank     reverse    LIMIT WITHSCORES
ZRANGEBYSCORE         score    forward    LIMIT WITHSCORES
ZREVRANGEBYSCORE      score    reverse    LIMIT WITHSCORES
ZRANGEBYLEX           member   forward    LIMIT WITHSCORES
ZREVRANGEBYLEX        member   reverse    LIMIT WITHSCORES
====================  =======  =========  =============================

An option that is understood may still be refused: LIMIT by rank, WITHSCORES by member.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.sorted_sets import saved_smaller, store_result
from penstock.engine.datatypes.numbers import parse_score_limit
from penstock.engine.datatypes.sorted_set import (
    EMPTY_LEX_RANGE,
    LexRange,
    Rows,
    ScoreRange,
    SortedSet,
    entries_of,
    members_of,
)
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import Pairs, Reply

By: TypeAlias = Literal["rank", "score", "lex"]

_LIMIT_BY_RANK: Final = (
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
)
_SCORES_BY_LEX: Final = "ERR syntax error, WITHSCORES not supported in combination with BYLEX"


# --------------------------------------------------------------------------- parsing


class RankRange(NamedTuple):
    """Ranks from one to the other, both included; negative ones count from the end."""

    first: int
    last: int

    def within(self, size: int) -> tuple[int, int]:
        """As a half-open span of ranks that exist."""
        start = max(self.first + size, 0) if self.first < 0 else self.first
        last = self.last + size if self.last < 0 else self.last
        return start, min(last + 1, size)


class _Selection(NamedTuple):
    """Which members, in which order."""

    range: RankRange | ScoreRange | LexRange
    reverse: bool
    skip: int
    limit: int | None
    with_scores: bool


def rank_range(first: bytes, last: bytes) -> RankRange:
    return RankRange(integer(first), integer(last))


def score_range(low: bytes, high: bytes) -> ScoreRange:
    """``1.5``, ``(1.5`` for an open end, ``-inf``, ``+inf``."""
    ends: list[tuple[float, bool]] = []
    for text in (low, high):
        is_open = text[:1] == b"("
        number = parse_score_limit(text[1:] if is_open else text)
        if number is None:
            raise CommandError("ERR min or max is not a float")
        ends.append((number, is_open))
    return ScoreRange(*ends[0], *ends[1])


def lex_range(low: bytes, high: bytes) -> LexRange:
    """``[a`` with ``a``, ``(a`` without it, ``-`` and ``+`` for before and after everything."""
    for text in (low, high):
        if text[:1] not in (b"[", b"(") and text not in (b"-", b"+"):
            raise CommandError("ERR min or max not valid string range item")
    if low == b"+" or high == b"-":
        return EMPTY_LEX_RANGE
    start, start_open = (b"", False) if low == b"-" else (low[1:], low[:1] == b"(")
    if high == b"+":
        return LexRange(start, start_open, None, True)
    return LexRange(start, start_open, high[1:], high[:1] == b"(")


def _parse_ends(by: By, low: bytes, high: bytes) -> RankRange | ScoreRange | LexRange:
    if by == "rank":
        return rank_range(low, high)
    return score_range(low, high) if by == "score" else lex_range(low, high)


def _parse_selection(argv: Argv, key_at: int, by: By | None, reverse: bool | None, store: bool) -> _Selection:
    """``key low high [options]`` from a position on; what is None is for options to say."""
    with_scores = False
    skip, limit = 0, -1
    options = iter(argv[key_at + 3 :])
    left = len(argv) - key_at - 3
    for argument in options:
        option = argument.upper()
        left -= 1
        if option == b"WITHSCORES" and not store:
            with_scores = True
        elif option == b"LIMIT" and left >= 2:
            skip, limit = integer(next(options)), integer(next(options))
            left -= 2
        elif option == b"REV" and reverse is None:
            reverse = True
        elif option == b"BYLEX" and by is None:
            by = "lex"
        elif option == b"BYSCORE" and by is None:
            by = "score"
        else:
            raise syntax_error()
    by = by or "rank"
    if limit != -1 and by == "rank":
        raise CommandError(_LIMIT_BY_RANK)
    if with_scores and by == "lex":
        raise CommandError(_SCORES_BY_LEX)
    low, high = argv[key_at + 1 : key_at + 3]
    if reverse and by != "rank":
        low, high = high, low
    # A negative offset skips everything, a negative limit is none.
    if skip < 0:
        skip, limit = 0, 0
    ends = _parse_ends(by, low, high)
    return _Selection(ends, bool(reverse), skip, None if limit < 0 else limit, with_scores)


def _select(zset: SortedSet, selection: _Selection) -> Rows:
    ends, reverse, skip, limit, _ = selection
    if isinstance(ends, RankRange):
        return zset.rows_by_rank(*ends.within(zset.size), reverse)
    if isinstance(ends, ScoreRange):
        return zset.rows_by_score(ends, reverse, skip, limit)
    return zset.rows_by_lex(ends, reverse, skip, limit)


# --------------------------------------------------------------------------- reading


def _range(s: Session, argv: Argv, by: By | None, reverse: bool | None) -> Reply:
    selection = _parse_selection(argv, 1, by, reverse, store=False)
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return []
    rows = _select(zset, selection)
    return Pairs(entries_of(rows)) if selection.with_scores else members_of(rows)


@command("ZRANGE")
def zrange(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, None, None)


@command("ZREVRANGE")
def zrevrange(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, "rank", True)


@command("ZRANGEBYSCORE")
def zrangebyscore(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, "score", False)


@command("ZREVRANGEBYSCORE")
def zrevrangebyscore(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, "score", True)


@command("ZRANGEBYLEX")
def zrangebylex(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, "lex", False)


@command("ZREVRANGEBYLEX")
def zrevrangebylex(s: Session, argv: Argv) -> Reply:
    return _range(s, argv, "lex", True)


@command("ZRANGESTORE")
def zrangestore(s: Session, argv: Argv) -> Reply:
    selection = _parse_selection(argv, 2, None, None, store=True)
    zset = s.ks.load(argv[2], SortedSet)
    entries = [] if zset is None else entries_of(_select(zset, selection))
    return store_result(s.ks, argv[1], entries, b"zrangestore")


# -------------------------------------------------------------------------- counting


@command("ZCOUNT")
def zcount(s: Session, argv: Argv) -> Reply:
    within = score_range(argv[2], argv[3])
    zset = s.ks.load(argv[1], SortedSet)
    return 0 if zset is None else zset.count_by_score(within)


@command("ZLEXCOUNT")
def zlexcount(s: Session, argv: Argv) -> Reply:
    within = lex_range(argv[2], argv[3])
    zset = s.ks.load(argv[1], SortedSet)
    return 0 if zset is None else zset.count_by_lex(within)


# -------------------------------------------------------------------------- removing


def _remove_range(s: Session, argv: Argv, by: By, event: bytes) -> int:
    selection = _Selection(_parse_ends(by, argv[2], argv[3]), False, 0, None, False)
    zset = s.ks.load(argv[1], SortedSet)
    if zset is None:
        return 0
    rows = _select(zset, selection)
    if rows:
        zset.remove_rows(rows)
        saved_smaller(s.ks, zset, event)
    return len(rows)


@command("ZREMRANGEBYRANK")
def zremrangebyrank(s: Session, argv: Argv) -> Reply:
    return _remove_range(s, argv, "rank", b"zremrangebyrank")


@command("ZREMRANGEBYSCORE")
def zremrangebyscore(s: Session, argv: Argv) -> Reply:
    return _remove_range(s, argv, "score", b"zremrangebyscore")


@command("ZREMRANGEBYLEX")
def zremrangebylex(s: Session, argv: Argv) -> Reply:
    return _remove_range(s, argv, "lex", b"zremrangebylex")
