"""Sorted sets by range: rank, score and member; counting, storing, removing."""

from __future__ import annotations

import pytest

from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.sorted_sets.contents import (
    NOT_A_LEX_RANGE,
    NOT_A_RANGE,
    content,
    fill,
    letters,
    names,
    with_scores,
)


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
