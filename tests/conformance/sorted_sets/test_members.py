"""Sorted sets, member by member: adding, removing, looking; chance, scanning, events."""

from __future__ import annotations

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_FLOAT, NOT_INTEGER, SYNTAX, WRONGTYPE
from tests.conformance.sorted_sets.contents import INF, content, fill, letters, names, with_scores


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


# -------------------------------------------------------------------------------- removing, looking


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


# --------------------------------------------------------------------------------- chance, scanning


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


# ------------------------------------------------------------------------------------------- events


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
