"""Unions, intersections and differences of sorted sets, answered and stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.sorted_sets.contents import INF, content, fill, with_scores


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
