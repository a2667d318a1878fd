"""Sorted sets: replies, errors, events and what is left behind. Scores are exact in binary, so that
every backend writes them alike."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.commands.registry import ATTEMPTS, Served
from tests.conformance.events import announcer

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = "ERR value is not an integer or out of range"
NOT_FLOAT = "ERR value is not a valid float"
NOT_A_RANGE = "ERR min or max is not a float"
NOT_A_LEX_RANGE = "ERR min or max not valid string range item"
SYNTAX = "ERR syntax error"
INF = float("inf")


def fill(db: Any, key: str = "z", **scores: float) -> None:
    db.do("DEL", key)
    words = [word for member, score in scores.items() for word in (repr(score), member)]
    assert db.do("ZADD", key, *words) == len(scores)


def letters(db: Any, key: str = "z") -> None:
    """a to e, scoring 1 to 5."""
    fill(db, key, a=1, b=2, c=3, d=4, e=5)


def names(db: Any, key: str = "z") -> str:
    """The members in order, as one word."""
    return b"".join(db.do("ZRANGE", key, "0", "-1")).decode()


def with_scores(db: Any, **scores: float) -> Any:
    return db.pairs([(member.encode(), db.double(float(score))) for member, score in scores.items()])


def content(db: Any, key: str = "z") -> Any:
    return db.do("ZRANGE", key, "0", "-1", "WITHSCORES")


# ----------------------------------------------------------------------------- adding


def test_zadd_counts_what_is_new(db):
    assert db.do("ZADD", "z", "1", "a") == 1
    assert db.do("ZADD", "z", "2", "a") == 0
    assert db.do("ZADD", "z", "3", "b", "2.5", "c", "2", "a") == 2
    assert content(db) == with_scores(db, a=2, c=2.5, b=3)
    assert db.do("TYPE", "z") == b"zset"


def test_zadd_takes_the_last_of_equal_members(db):
    assert db.do("ZADD", "z", "1", "a", "3", "a", "2", "a") == 1
    assert content(db) == with_scores(db, a=2)


def test_zadd_ch_counts_what_changed(db):
    fill(db, a=1, b=2)
    assert db.do("ZADD", "z", "CH", "1", "a", "5", "b", "6", "c") == 2
    assert db.do("zadd", "z", "ch", "1", "a") == 0


def test_zadd_nx_and_xx(db):
    fill(db, a=1)
    assert db.do("ZADD", "z", "NX", "9", "a", "2", "b") == 1
    assert db.do("ZADD", "z", "XX", "CH", "7", "a", "2", "c") == 1
    assert content(db) == with_scores(db, b=2, a=7)
    assert db.do("ZADD", "none", "XX", "1", "a") == 0
    assert db.do("EXISTS", "none") == 0


def test_zadd_gt_and_lt(db):
    fill(db, a=5, b=5)
    assert db.do("ZADD", "z", "GT", "CH", "4", "a", "6", "b", "1", "c") == 2
    assert content(db) == with_scores(db, c=1, a=5, b=6)
    assert db.do("ZADD", "z", "LT", "XX", "CH", "4", "a", "9", "b", "0", "d") == 1
    assert content(db) == with_scores(db, c=1, a=4, b=6)


def test_zadd_incr(db):
    assert db.do("ZADD", "z", "INCR", "1.5", "a") == db.double(1.5)
    assert db.do("ZADD", "z", "INCR", "2", "a") == db.double(3.5)
    assert db.do("ZADD", "z", "NX", "INCR", "2", "a") is None
    assert db.do("ZADD", "z", "XX", "INCR", "2", "b") is None
    assert db.do("ZADD", "z", "GT", "INCR", "-1", "a") is None
    assert db.do("ZADD", "z", "LT", "INCR", "-1", "a") == db.double(2.5)
    assert db.do("ZADD", "none", "XX", "INCR", "2", "b") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1", "b", "2"), SYNTAX),
        (("NX", "1"), SYNTAX),
        (("XX", "CH"), SYNTAX),
        (("nan", "b"), NOT_FLOAT),
        (("1", "b", "x", "c"), NOT_FLOAT),
        (("1e400", "b"), NOT_FLOAT),
        (("NX", "XX", "2", "b"), "ERR XX and NX options at the same time are not compatible"),
        (("GT", "LT", "2", "b"), "ERR GT, LT, and/or NX options at the same time are not compatible"),
        (("NX", "GT", "2", "b"), "ERR GT, LT, and/or NX options at the same time are not compatible"),
        (("INCR", "1", "b", "2", "c"), "ERR INCR option supports a single increment-element pair"),
    ],
)
def test_zadd_refusals_change_nothing(db, words, message):
    fill(db, a=1)
    assert db.error("ZADD", "z", *words) == message
    assert db.error("ZADD", "none", *words) == message
    assert content(db) == with_scores(db, a=1)
    assert db.do("EXISTS", "none") == 0


def test_scores_are_read_before_the_type_is_looked_at(db):
    db.do("SET", "s", "v")
    assert db.error("ZADD", "s", "x", "a") == NOT_FLOAT
    assert db.error("ZADD", "s", "1", "a") == WRONGTYPE
    assert db.error("ZINCRBY", "s", "x", "a") == NOT_FLOAT
    assert db.error("ZINCRBY", "s", "1", "a") == WRONGTYPE


def test_infinities_and_the_number_that_is_none(db):
    assert db.do("ZADD", "z", "inf", "up", "-inf", "down", "+Infinity", "top") == 3
    assert db.do("ZSCORE", "z", "up") == db.double(INF)
    assert names(db) == "downtopup"
    assert db.error("ZINCRBY", "z", "-inf", "up") == "ERR resulting score is not a number (NaN)"
    assert db.error("ZADD", "z", "INCR", "inf", "down") == "ERR resulting score is not a number (NaN)"
    assert db.do("ZSCORE", "z", "up") == db.double(INF)


def test_minus_zero_is_zero(db):
    assert db.do("ZADD", "z", "-0", "b", "0", "a") == 2
    assert db.do("ZADD", "z", "CH", "0", "b", "-0", "a") == 0
    assert content(db) == with_scores(db, a=0, b=0)


def test_zincrby(db):
    assert db.do("ZINCRBY", "z", "2", "a") == db.double(2.0)
    assert db.do("ZINCRBY", "z", "-0.5", "a") == db.double(1.5)
    assert db.do("ZINCRBY", "z", "1", "b") == db.double(1.0)
    assert content(db) == with_scores(db, b=1, a=1.5)


def test_members_are_any_bytes_of_any_length(db):
    members = [b"", b"\0\r\n\xff", b"x" * 449, b"x" * 450, b"x" * 451, b"y" * 5000]
    words = [word for number, member in enumerate(members) for word in (str(number), member)]
    assert db.do("ZADD", "z", *words) == 6
    assert db.do("ZRANGE", "z", "0", "-1") == members
    assert [db.do("ZRANK", "z", member) for member in members] == list(range(6))
    assert db.do("ZADD", "z", "10", b"x" * 450) == 0
    assert db.do("ZSCORE", "z", b"x" * 450) == db.double(10.0)
    assert db.do("ZREM", "z", b"x" * 451, b"y" * 5000, b"x" * 452) == 2
    assert db.do("ZPOPMAX", "z") == [b"x" * 450, db.double(10.0)]
    assert db.do("ZRANGE", "z", "0", "-1") == members[:3]


# ------------------------------------------------------------------- removing, looking


def test_zrem(db):
    letters(db)
    assert db.do("ZREM", "z", "a", "x", "c", "a") == 2
    assert names(db) == "bde"
    assert db.do("ZREM", "z", "b", "d", "e") == 3
    assert db.do("EXISTS", "z") == 0
    assert db.do("ZREM", "none", "a") == 0


def test_zcard_zscore_and_zmscore(db):
    letters(db)
    assert db.do("ZCARD", "z") == 5
    assert db.do("ZCARD", "none") == 0
    assert db.do("ZSCORE", "z", "b") == db.double(2.0)
    assert db.do("ZSCORE", "z", "x") is None
    assert db.do("ZSCORE", "none", "x") is None
    assert db.do("ZMSCORE", "z", "e", "x", "a") == [db.double(5.0), None, db.double(1.0)]
    assert db.do("ZMSCORE", "none", "e", "x") == [None, None]


def test_ranks(db):
    letters(db)
    assert [db.do("ZRANK", "z", member) for member in "abcdex"] == [0, 1, 2, 3, 4, None]
    assert [db.do("ZREVRANK", "z", member) for member in "abcdex"] == [4, 3, 2, 1, 0, None]
    assert db.do("ZRANK", "none", "a") is None


def test_ranks_of_many_members(db):
    words = [word for number in range(1000) for word in (str(number % 7), f"{number:04}")]
    db.do("ZADD", "z", *words)
    ordered = db.do("ZRANGE", "z", "0", "-1")
    assert ordered == [f"{n:04}".encode() for n in sorted(range(1000), key=lambda n: (n % 7, n))]
    for rank in (0, 1, 127, 128, 129, 499, 500, 871, 872, 998, 999):
        assert db.do("ZRANK", "z", ordered[rank]) == rank
        assert db.do("ZREVRANK", "z", ordered[rank]) == 999 - rank
        assert db.do("ZRANGE", "z", str(rank), str(rank)) == [ordered[rank]]
        assert db.do("ZREVRANGE", "z", str(rank), str(rank)) == [ordered[999 - rank]]
    assert db.do("ZCOUNT", "z", "2", "4") == sum(2 <= n % 7 <= 4 for n in range(1000))


@pytest.mark.parametrize(
    "words",
    [
        ("ZADD", "s", "1", "a"),
        ("ZADD", "s", "NX", "1", "a"),
        ("ZADD", "s", "INCR", "1", "a"),
        ("ZINCRBY", "s", "1", "a"),
        ("ZREM", "s", "a"),
        ("ZSCORE", "s", "a"),
        ("ZMSCORE", "s", "a"),
        ("ZCARD", "s"),
        ("ZCOUNT", "s", "0", "1"),
        ("ZLEXCOUNT", "s", "-", "+"),
        ("ZRANK", "s", "a"),
        ("ZREVRANK", "s", "a"),
        ("ZRANGE", "s", "0", "-1"),
        ("ZRANGESTORE", "to", "s", "0", "-1"),
        ("ZREVRANGE", "s", "0", "-1"),
        ("ZRANGEBYSCORE", "s", "0", "1"),
        ("ZREVRANGEBYSCORE", "s", "1", "0"),
        ("ZRANGEBYLEX", "s", "-", "+"),
        ("ZREVRANGEBYLEX", "s", "+", "-"),
        ("ZREMRANGEBYRANK", "s", "0", "1"),
        ("ZREMRANGEBYSCORE", "s", "0", "1"),
        ("ZREMRANGEBYLEX", "s", "-", "+"),
        ("ZPOPMIN", "s"),
        ("ZPOPMAX", "s", "2"),
        ("ZMPOP", "2", "none", "s", "MIN"),
        ("BZPOPMIN", "none", "s", "0"),
        ("BZPOPMAX", "s", "0"),
        ("BZMPOP", "0", "1", "s", "MAX"),
        ("ZRANDMEMBER", "s"),
        ("ZRANDMEMBER", "s", "2"),
        ("ZSCAN", "s", "0"),
        ("ZUNION", "2", "z", "s"),
        ("ZINTER", "2", "none", "s"),
        ("ZDIFF", "2", "z", "s"),
        ("ZUNIONSTORE", "to", "2", "z", "s"),
        ("ZINTERSTORE", "to", "2", "none", "s"),
        ("ZDIFFSTORE", "to", "2", "z", "s"),
        ("ZINTERCARD", "2", "none", "s"),
    ],
)
def test_other_types_are_refused(db, words):
    db.do("SET", "s", "v")
    fill(db, a=1)
    assert db.error(*words) == WRONGTYPE
    assert db.do("GET", "s") == b"v"
    assert db.do("EXISTS", "to") == 0


# ----------------------------------------------------------------------------- ranges


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ZRANGE", "z", "0", "-1"), "abcde"),
        (("ZRANGE", "z", "1", "2"), "bc"),
        (("ZRANGE", "z", "-2", "-1"), "de"),
        (("ZRANGE", "z", "-100", "100"), "abcde"),
        (("ZRANGE", "z", "3", "1"), ""),
        (("ZRANGE", "z", "5", "9"), ""),
        (("ZRANGE", "z", "0", "-6"), ""),
        (("ZRANGE", "z", "0", "1", "REV"), "ed"),
        (("ZREVRANGE", "z", "0", "1"), "ed"),
        (("ZREVRANGE", "z", "3", "-1"), "ba"),
        (("ZRANGE", "z", "2", "4", "BYSCORE"), "bcd"),
        (("ZRANGE", "z", "(2", "(5", "byscore"), "cd"),
        (("ZRANGE", "z", "4", "2", "BYSCORE", "REV"), "dcb"),
        (("ZRANGE", "z", "2", "4", "BYSCORE", "REV"), ""),
        (("ZRANGE", "z", "-inf", "+inf", "BYSCORE", "LIMIT", "1", "2"), "bc"),
        (("ZRANGE", "z", "+inf", "(1", "BYSCORE", "REV", "LIMIT", "1", "2"), "dc"),
        (("ZRANGEBYSCORE", "z", "2", "3.5"), "bc"),
        (("ZRANGEBYSCORE", "z", "(5", "(5"), ""),
        (("ZRANGEBYSCORE", "z", "5", "5"), "e"),
        (("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "3", "-1"), "de"),
        (("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "-1", "2"), ""),
        (("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "9", "2"), ""),
        (("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "0", "0"), ""),
        (("ZREVRANGEBYSCORE", "z", "(4", "2"), "cb"),
        (("ZREVRANGEBYSCORE", "z", "+inf", "-inf", "limit", "1", "1"), "d"),
        (("ZRANGE", "none", "0", "-1"), ""),
        (("ZRANGEBYSCORE", "none", "0", "1", "WITHSCORES"), ""),
    ],
)
def test_ranges_by_rank_and_score(db, words, expected):
    letters(db)
    assert db.do(*words) == [member.encode() for member in expected]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("-", "+", "abcde"),
        ("[b", "[d", "bcd"),
        ("(b", "(d", "c"),
        ("[b", "(c", "b"),
        ("[bb", "+", "cde"),
        ("-", "(c", "ab"),
        ("[", "[a", "a"),
        ("+", "-", ""),
        ("+", "[z", ""),
        ("[a", "-", ""),
        ("[c", "[b", ""),
        ("(c", "[c", ""),
        ("[" + "b" * 500, "[d", "cd"),
        ("[b", "[" + "c" * 500, "bc"),
    ],
)
def test_ranges_by_member(db, low, high, expected):
    fill(db, a=0, b=0, c=0, d=0, e=0)
    members = [member.encode() for member in expected]
    assert db.do("ZRANGEBYLEX", "z", low, high) == members
    assert db.do("ZRANGE", "z", low, high, "BYLEX") == members
    assert db.do("ZREVRANGEBYLEX", "z", high, low) == members[::-1]
    assert db.do("ZRANGE", "z", high, low, "BYLEX", "REV") == members[::-1]
    assert db.do("ZLEXCOUNT", "z", low, high) == len(members)
    assert db.do("ZRANGEBYLEX", "z", low, high, "LIMIT", "1", "2") == members[1:3]
    assert db.do("ZREMRANGEBYLEX", "z", low, high) == len(members)
    assert names(db) == "".join(member for member in "abcde" if member not in expected)


def test_ranges_with_scores(db):
    letters(db)
    assert db.do("ZRANGE", "z", "0", "1", "WITHSCORES") == with_scores(db, a=1, b=2)
    assert db.do("ZREVRANGE", "z", "0", "1", "withscores") == with_scores(db, e=5, d=4)
    expected = with_scores(db, c=3, d=4)
    assert db.do("ZRANGEBYSCORE", "z", "2", "4", "WITHSCORES", "LIMIT", "1", "5") == expected
    assert db.do("ZRANGEBYSCORE", "z", "2", "4", "LIMIT", "1", "5", "WITHSCORES") == expected
    assert db.do("ZRANGE", "z", "9", "9", "WITHSCORES") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ZRANGE", "z", "a", "1"), NOT_INTEGER),
        (("ZRANGE", "z", "0", "1.5"), NOT_INTEGER),
        (("ZRANGE", "z", "0", "1", "foo"), SYNTAX),
        (("ZRANGE", "z", "0", "1", "LIMIT", "1"), SYNTAX),
        (("ZRANGE", "z", "0", "1", "REV", "REV"), SYNTAX),
        (("ZREVRANGE", "z", "0", "1", "REV"), SYNTAX),
        (("ZREVRANGE", "z", "0", "1", "BYSCORE"), SYNTAX),
        (("ZRANGE", "z", "0", "1", "BYSCORE", "BYLEX"), SYNTAX),
        (
            ("ZRANGE", "z", "0", "1", "LIMIT", "0", "1"),
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        (
            ("ZRANGE", "z", "-", "+", "BYLEX", "WITHSCORES"),
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        (("ZRANGE", "z", "0", "x", "BYSCORE"), NOT_A_RANGE),
        (("ZRANGE", "z", "a", "[b", "BYLEX"), NOT_A_LEX_RANGE),
        (("ZRANGESTORE", "to", "z", "0", "1", "WITHSCORES"), SYNTAX),
        (("ZRANGEBYSCORE", "z", "((1", "2"), NOT_A_RANGE),
        (("ZRANGEBYSCORE", "z", "1", "nan"), NOT_A_RANGE),
        (("ZRANGEBYSCORE", "z", "1", "2", "LIMIT", "x", "1"), NOT_INTEGER),
        (("ZREVRANGEBYSCORE", "z", "1", "2", "LIMIT", "0"), SYNTAX),
        (("ZRANGEBYLEX", "z", "", "+"), NOT_A_LEX_RANGE),
        (("ZREVRANGEBYLEX", "z", "+x", "-"), NOT_A_LEX_RANGE),
        (("ZCOUNT", "z", "a", "b"), NOT_A_RANGE),
        (("ZLEXCOUNT", "z", "a", "b"), NOT_A_LEX_RANGE),
        (("ZREMRANGEBYRANK", "z", "a", "b"), NOT_INTEGER),
        (("ZREMRANGEBYSCORE", "z", "a", "b"), NOT_A_RANGE),
        (("ZREMRANGEBYLEX", "z", "a", "b"), NOT_A_LEX_RANGE),
    ],
)
def test_refused_ranges(db, words, message):
    letters(db)
    assert db.error(*words) == message
    assert names(db) == "abcde"


def test_zrangestore(db):
    letters(db)
    db.do("SET", "to", "x", "EX", "100")
    assert db.do("ZRANGESTORE", "to", "z", "1", "3") == 3
    assert content(db, "to") == with_scores(db, b=2, c=3, d=4)
    assert db.do("TTL", "to") == -1
    assert db.do("ZRANGESTORE", "to", "z", "5", "(3", "BYSCORE", "REV", "LIMIT", "0", "1") == 1
    assert content(db, "to") == with_scores(db, e=5)
    assert db.do("ZRANGESTORE", "z", "z", "0", "0") == 1
    assert names(db) == "a"
    assert db.do("ZRANGESTORE", "z", "none", "0", "-1") == 0
    assert db.do("EXISTS", "z") == 0


def test_counting(db):
    letters(db)
    assert db.do("ZCOUNT", "z", "-inf", "+inf") == 5
    assert db.do("ZCOUNT", "z", "2", "(4") == 2
    assert db.do("ZCOUNT", "z", "4", "2") == 0
    assert db.do("ZCOUNT", "none", "0", "1") == 0
    assert db.do("ZLEXCOUNT", "none", "-", "+") == 0


def test_removing_ranges(db):
    letters(db)
    assert db.do("ZREMRANGEBYRANK", "z", "-2", "-1") == 2
    assert names(db) == "abc"
    assert db.do("ZREMRANGEBYSCORE", "z", "(1", "2") == 1
    assert names(db) == "ac"
    assert db.do("ZREMRANGEBYSCORE", "z", "7", "8") == 0
    assert db.do("ZREMRANGEBYRANK", "z", "0", "-1") == 2
    assert db.do("EXISTS", "z") == 0
    assert db.do("ZREMRANGEBYRANK", "z", "0", "-1") == 0


# ---------------------------------------------------------------------------- popping


def test_zpopmin_and_zpopmax(db):
    letters(db)
    assert db.do("ZPOPMIN", "z") == [b"a", db.double(1.0)]
    assert db.do("ZPOPMAX", "z") == [b"e", db.double(5.0)]
    assert db.do("ZPOPMIN", "z", "1") == with_scores(db, b=2)
    assert db.do("ZPOPMAX", "z", "0") == []
    assert db.do("ZPOPMAX", "z", "9") == with_scores(db, d=4, c=3)
    assert db.do("EXISTS", "z") == 0
    assert db.do("ZPOPMIN", "z") == []
    assert db.do("ZPOPMIN", "z", "3") == []


def test_zmpop(db):
    letters(db)
    assert db.do("ZMPOP", "2", "none", "z", "MIN") == [b"z", [[b"a", db.double(1.0)]]]
    expected = [[b"e", db.double(5.0)], [b"d", db.double(4.0)]]
    assert db.do("zmpop", "1", "z", "max", "count", "2") == [b"z", expected]
    assert db.do("ZMPOP", "1", "none", "MIN") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ZPOPMIN", "z", "-1"), "ERR value is out of range, must be positive"),
        (("ZPOPMIN", "z", "x"), "ERR value is out of range, must be positive"),
        (("ZPOPMAX", "z", "1", "2"), SYNTAX),
        (("ZMPOP", "0", "z", "MIN"), "ERR numkeys should be greater than 0"),
        (("ZMPOP", "x", "z", "MIN"), "ERR numkeys should be greater than 0"),
        (("ZMPOP", "1", "z", "UP"), SYNTAX),
        (("ZMPOP", "3", "z", "MIN"), SYNTAX),
        (("ZMPOP", "1", "z", "MIN", "COUNT"), SYNTAX),
        (("ZMPOP", "1", "z", "MIN", "COUNT", "0"), "ERR count should be greater than 0"),
        (("ZMPOP", "1", "z", "MIN", "COUNT", "1", "COUNT", "1"), SYNTAX),
        (("BZPOPMIN", "z", "x"), "ERR timeout is not a float or out of range"),
        (("BZPOPMAX", "z", "-1"), "ERR timeout is negative"),
        (("BZMPOP", "x", "1", "z", "MIN"), "ERR timeout is not a float or out of range"),
        (("BZMPOP", "x", "1", "z", "UP"), SYNTAX),
        (("BZMPOP", "0", "0", "z", "MIN"), "ERR numkeys should be greater than 0"),
        (("BZPOPMIN", "z"), "ERR wrong number of arguments for 'bzpopmin' command"),
    ],
)
def test_refused_pops(db, words, message):
    letters(db)
    assert db.error(*words) == message
    assert names(db) == "abcde"


# ----------------------------------------------------------------------------- waiting


def blocked(db: Any, *words: Any) -> Any:
    """A new client that waits in this command."""
    client = db.client()
    client.send(*words)
    assert client.nothing_arrives(), f"{words!r} did not wait"
    return client


def test_members_that_are_there_are_taken_at_once(db):
    letters(db)
    assert db.do("BZPOPMIN", "none", "z", "0") == [b"z", b"a", db.double(1.0)]
    assert db.do("BZPOPMAX", "z", "0") == [b"z", b"e", db.double(5.0)]
    expected = [[b"b", db.double(2.0)], [b"c", db.double(3.0)]]
    assert db.do("BZMPOP", "0", "1", "z", "MIN", "COUNT", "2") == [b"z", expected]
    assert names(db) == "d"


def test_time_runs_out(db):
    assert db.do("BZPOPMIN", "z", "y", "0.01") is None
    assert db.do("BZPOPMAX", "z", "0.01") is None
    assert db.do("BZMPOP", "0.01", "2", "z", "y", "MAX") is None
    # Who gave up takes nothing any more.
    fill(db, a=1)
    assert names(db) == "a"


@pytest.mark.parametrize(
    ("words", "taken", "left"),
    [
        (("BZPOPMIN", "z", "0"), "a", "bc"),
        (("BZPOPMAX", "none", "z", "20"), "c", "ab"),
        (("bzpopmax", "z", "z", "0"), "c", "ab"),
        (("BZMPOP", "0", "1", "z", "MIN"), ["a"], "bc"),
        (("BZMPOP", "20", "2", "none", "z", "MAX", "COUNT", "2"), ["c", "b"], "a"),
        (("BZMPOP", "0", "1", "z", "MIN", "COUNT", "9"), ["a", "b", "c"], ""),
    ],
)
def test_zadd_serves_who_waits(db, words, taken, left):
    scores = {"a": 1.0, "b": 2.0, "c": 3.0}
    client = blocked(db, *words)
    assert db.do("ZADD", "z", "1", "a", "2", "b", "3", "c") == 3
    if isinstance(taken, str):
        assert client.receive() == [b"z", taken.encode(), db.double(scores[taken])]
    else:
        assert client.receive() == [b"z", [[name.encode(), db.double(scores[name])] for name in taken]]
    assert names(db) == left
    assert client.do("PING") == b"PONG"


@pytest.mark.parametrize(
    "words",
    [
        ("ZINCRBY", "z", "1", "a"),
        ("GEOADD", "z", "0", "0", "a"),
        ("ZUNIONSTORE", "z", "1", "from"),
        ("ZINTERSTORE", "z", "1", "from"),
        ("ZDIFFSTORE", "z", "1", "from"),
        ("ZRANGESTORE", "z", "from", "0", "-1"),
        ("GEOSEARCHSTORE", "z", "from", "FROMMEMBER", "a", "BYRADIUS", "1", "m"),
        ("RENAME", "from", "z"),
        ("COPY", "from", "z"),
    ],
)
def test_whatever_makes_a_sorted_set_serves_who_waits(db, words):
    db.do("ZADD", "from", "1", "a")
    client = blocked(db, "BZPOPMIN", "z", "0")
    db.do(*words)
    assert client.receive()[:2] == [b"z", b"a"]
    assert db.do("EXISTS", "z") == 0


def test_clients_are_served_in_order_of_arrival(db):
    first = blocked(db, "BZPOPMIN", "z", "0")
    second = blocked(db, "BZPOPMAX", "z", "0")
    third = blocked(db, "BZMPOP", "0", "1", "z", "MIN", "COUNT", "5")
    db.do("ZADD", "z", "1", "a", "2", "b")
    assert first.receive() == [b"z", b"a", db.double(1.0)]
    assert second.receive() == [b"z", b"b", db.double(2.0)]
    assert third.nothing_arrives()
    db.do("ZADD", "z", "3", "c")
    assert third.receive() == [b"z", [[b"c", db.double(3.0)]]]


def test_a_key_of_another_type_does_not_end_the_wait(db):
    if db.kind == "valkey":
        pytest.skip("Valkey runs the command again, and refuses the type")
    client = blocked(db, "BZPOPMIN", "list", "z", "0")
    db.do("RPUSH", "list", "x")
    assert client.nothing_arrives()
    db.do("ZADD", "z", "1", "a")
    assert client.receive() == [b"z", b"a", db.double(1.0)]
    assert db.do("LLEN", "list") == 1


def test_nobody_waits_inside_a_transaction(db):
    db.do("MULTI")
    db.do("BZPOPMIN", "z", "0")
    db.do("BZMPOP", "0", "1", "z", "MIN")
    db.do("ZADD", "z", "1", "a")
    db.do("BZPOPMAX", "z", "0")
    assert db.do("EXEC") == [None, None, 1, [b"z", b"a", db.double(1.0)]]


@pytest.mark.parametrize(
    "words",
    [
        [b"BZPOPMIN", b"z", b"0"],
        [b"bzpopmax", b"none", b"z", b"0"],
        [b"BZMPOP", b"0", b"1", b"z", b"MAX", b"COUNT", b"3"],
        [b"BZMPOP", b"0", b"1", b"z", b"MIN", b"COUNT", b"9"],
    ],
)
def test_what_a_dead_client_did_not_take_can_be_put_back(tmp_path, words):
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine:
        session = LocalSession(engine)
        session.execute("ZADD", "z", "-inf", "a", "-1.1", "b", "0.1", "c", "1e300", "d", "inf", "e")
        before = session.execute("ZRANGE", "z", "0", "-1", "WITHSCORES")
        served: list[Served | None] = []
        attempt = ATTEMPTS[words[0].upper()]
        engine.run_task(lambda: served.append(attempt(engine.keyspaces[0], words)))
        assert served[0] is not None
        assert session.execute("ZCARD", "z") < 5
        for command in served[0].restore:
            session.execute(*command)
        assert session.execute("ZRANGE", "z", "0", "-1", "WITHSCORES") == before


# ------------------------------------------------------------------- chance, scanning


def test_zrandmember(db):
    letters(db)
    assert db.do("ZRANDMEMBER", "z") in (b"a", b"b", b"c", b"d", b"e")
    assert sorted(db.do("ZRANDMEMBER", "z", "9")) == [b"a", b"b", b"c", b"d", b"e"]
    assert len(set(db.do("ZRANDMEMBER", "z", "3"))) == 3
    assert len(db.do("ZRANDMEMBER", "z", "-20")) == 20
    assert set(db.do("ZRANDMEMBER", "z", "-20")) <= {b"a", b"b", b"c", b"d", b"e"}
    assert db.do("ZRANDMEMBER", "z", "0") == []
    assert db.do("ZRANDMEMBER", "none") is None
    assert db.do("ZRANDMEMBER", "none", "3") == []


def test_zrandmember_with_scores(db):
    fill(db, a=1.5)
    assert db.do("ZRANDMEMBER", "z", "5", "WITHSCORES") == with_scores(db, a=1.5)
    assert db.do("ZRANDMEMBER", "z", "-2", "withscores") == db.pairs([(b"a", db.double(1.5))] * 2)
    assert db.error("ZRANDMEMBER", "z", "x") == NOT_INTEGER
    assert db.error("ZRANDMEMBER", "z", "1", "foo") == SYNTAX
    assert db.error("ZRANDMEMBER", "z", "1", "WITHSCORES", "x") == SYNTAX
    assert db.error("ZRANDMEMBER", "z", str(1 << 62), "WITHSCORES") == "ERR value is out of range"


def test_zscan_visits_every_member(db):
    model = {f"m{number}".encode(): f"{number}.5".encode() for number in range(400)}
    db.do("ZADD", "z", *(word for member, score in model.items() for word in (score, member)))
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        cursor, step = db.do("ZSCAN", "z", cursor, "COUNT", "50")
        found |= dict(zip(step[::2], step[1::2], strict=True))
        if cursor == b"0":
            break
    assert found == model


def test_zscan_options(db):
    fill(db, a=1, ab=-2.5, b=float("inf"))
    cursor, step = db.do("ZSCAN", "z", "0", "MATCH", "a*", "COUNT", "100")
    assert cursor == b"0"
    assert dict(zip(step[::2], step[1::2], strict=True)) == {b"a": b"1", b"ab": b"-2.5"}
    assert db.do("ZSCAN", "none", "0", "foo") == [b"0", []]
    assert db.error("ZSCAN", "z", "x") == "ERR invalid cursor"
    assert db.error("ZSCAN", "z", "0", "COUNT", "0") == SYNTAX
    assert db.error("ZSCAN", "z", "0", "MATCH") == SYNTAX


# ----------------------------------------------------------------------------- algebra


def two_sets(db: Any) -> None:
    fill(db, "one", a=1, b=2, c=3)
    fill(db, "two", b=10, c=20, d=30)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ZUNION", "2", "one", "two"), {"a": 1, "b": 12, "c": 23, "d": 30}),
        (("ZUNION", "2", "one", "none"), {"a": 1, "b": 2, "c": 3}),
        (("ZUNION", "2", "one", "one"), {"a": 2, "b": 4, "c": 6}),
        (("ZUNION", "2", "one", "two", "WEIGHTS", "2", "-1"), {"d": -30, "c": -14, "b": -6, "a": 2}),
        (("ZUNION", "2", "one", "two", "AGGREGATE", "MIN"), {"a": 1, "b": 2, "c": 3, "d": 30}),
        (("zunion", "2", "one", "two", "aggregate", "max"), {"a": 1, "b": 10, "c": 20, "d": 30}),
        (("ZINTER", "2", "one", "two"), {"b": 12, "c": 23}),
        (("ZINTER", "2", "one", "none"), {}),
        (("ZINTER", "2", "two", "one", "WEIGHTS", "0.5", "1", "AGGREGATE", "MAX"), {"b": 5, "c": 10}),
        (("ZDIFF", "2", "one", "two"), {"a": 1}),
        (("ZDIFF", "3", "two", "none", "one"), {"d": 30}),
        (("ZDIFF", "1", "one"), {"a": 1, "b": 2, "c": 3}),
        (("ZDIFF", "2", "one", "one"), {}),
        (("ZDIFF", "2", "none", "one"), {}),
    ],
)
def test_algebra(db, words, expected):
    two_sets(db)
    members = [member.encode() for member in expected]
    assert db.do(*words) == members
    assert db.do(*words, "WITHSCORES") == with_scores(db, **expected)
    assert db.do(f"{words[0]}STORE", "to", *words[1:]) == len(expected)
    assert content(db, "to") == with_scores(db, **expected)
    if words[0] == "ZINTER" and len(words) == 4:
        assert db.do("ZINTERCARD", *words[1:]) == len(expected)


def test_plain_sets_take_part_with_score_one(db):
    db.do("SADD", "set", "b", "c", "x")
    fill(db, "one", a=1, b=2, c=3)
    assert db.do("ZUNION", "2", "set", "one", "WITHSCORES") == with_scores(db, a=1, x=1, b=3, c=4)
    expected = with_scores(db, b=12, c=13)
    assert db.do("ZINTER", "2", "one", "set", "WEIGHTS", "1", "10", "WITHSCORES") == expected
    assert db.do("ZDIFF", "2", "set", "one", "WITHSCORES") == with_scores(db, x=1)
    assert db.do("ZINTERCARD", "2", "set", "one") == 2


def test_what_is_not_a_number_counts_as_zero(db):
    fill(db, "one", a=INF)
    fill(db, "two", a=-INF)
    assert db.do("ZUNION", "2", "one", "two", "WITHSCORES") == with_scores(db, a=0)
    assert db.do("ZUNION", "1", "one", "WEIGHTS", "0", "WITHSCORES") == with_scores(db, a=0)
    assert db.do("ZINTER", "2", "one", "two", "WITHSCORES") == with_scores(db, a=0)


def test_a_stored_result_replaces_what_was_there(db):
    two_sets(db)
    db.do("SET", "to", "x", "EX", "100")
    assert db.do("ZUNIONSTORE", "to", "2", "one", "two") == 4
    assert db.do("TTL", "to") == -1
    assert db.do("ZINTERSTORE", "one", "2", "one", "two") == 2
    assert content(db, "one") == with_scores(db, b=12, c=23)
    assert db.do("ZINTERSTORE", "to", "2", "one", "none") == 0
    assert db.do("EXISTS", "to") == 0


def test_zintercard_limit(db):
    two_sets(db)
    assert db.do("ZINTERCARD", "2", "one", "two", "LIMIT", "1") == 1
    assert db.do("ZINTERCARD", "2", "one", "two", "LIMIT", "0") == 2
    assert db.do("ZINTERCARD", "2", "one", "two", "limit", "9") == 2
    assert db.error("ZINTERCARD", "2", "one", "two", "LIMIT", "-1") == "ERR LIMIT can't be negative"
    assert db.error("ZINTERCARD", "2", "one", "two", "LIMIT") == SYNTAX


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ZUNION", "x", "one"), NOT_INTEGER),
        (("ZUNION", "0", "one"), "ERR at least 1 input key is needed for 'zunion' command"),
        (("ZINTERSTORE", "to", "0", "one"), "ERR at least 1 input key is needed for 'zinterstore' command"),
        (("ZUNION", "2", "one"), SYNTAX),
        (("ZUNION", "1", "one", "foo"), SYNTAX),
        (("ZUNION", "2", "one", "two", "WEIGHTS", "1"), SYNTAX),
        (("ZUNION", "2", "one", "two", "WEIGHTS", "1", "x"), "ERR weight value is not a float"),
        (("ZUNION", "1", "one", "AGGREGATE", "AVG"), SYNTAX),
        (("ZDIFF", "1", "one", "WEIGHTS", "1"), SYNTAX),
        (("ZDIFFSTORE", "to", "1", "one", "AGGREGATE", "MIN"), SYNTAX),
        (("ZUNIONSTORE", "to", "1", "one", "WITHSCORES"), SYNTAX),
    ],
)
def test_refused_algebra(db, words, message):
    two_sets(db)
    assert db.error(*words) == message
    assert db.do("EXISTS", "to") == 0


# ------------------------------------------------------------------------------ events


def test_events(db):
    letters(db)
    announced = announcer(db)
    assert announced("ZADD", "z", "1", "a") == []
    assert announced("ZADD", "z", "7", "a", "8", "f") == [("zadd", "z")]
    assert announced("ZADD", "z", "INCR", "1", "a") == [("zincr", "z")]
    assert announced("ZINCRBY", "z", "0", "a") == []
    assert announced("ZREM", "z", "x") == []
    assert announced("ZREM", "z", "f") == [("zrem", "z")]
    assert announced("ZPOPMIN", "z", "2") == [("zpopmin", "z")]
    assert announced("ZRANGESTORE", "to", "z", "0", "0") == [("zrangestore", "to")]
    assert announced("BZPOPMAX", "to", "0") == [("zpopmax", "to"), ("del", "to")]
    assert announced("ZREMRANGEBYRANK", "z", "0", "0") == [("zremrangebyrank", "z")]
    assert announced("ZREMRANGEBYSCORE", "z", "0", "1") == []
    assert announced("ZUNIONSTORE", "to", "1", "z") == [("zunionstore", "to")]
    assert announced("ZINTERSTORE", "to", "2", "z", "none") == [("del", "to")]
    assert announced("ZDIFFSTORE", "to", "2", "z", "none") == [("zdiffstore", "to")]
    assert announced("ZREMRANGEBYLEX", "z", "-", "+") == [("zremrangebylex", "z"), ("del", "z")]
