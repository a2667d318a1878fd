"""Set commands: replies, errors and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE

NOT_POSITIVE = "ERR value is out of range, must be positive"
#: Members longer than a database key, equal in what such a key keeps of them.
LONG_ONE = b"m" * 600 + b"1"
LONG_OTHER = b"m" * 600 + b"2"


def content(db: Any, key: str = "s") -> set[bytes]:
    members = db.do("SMEMBERS", key)
    assert len(set(members)) == len(members) == db.do("SCARD", key)
    return set(members)


def fill(db: Any, key: str, *members: Any) -> None:
    db.do("DEL", key)
    assert db.do("SADD", key, *members) == len(members)


def numbered(size: int) -> set[bytes]:
    return {b"member %d" % n for n in range(size)}


# ----------------------------------------------------------------------------- members


def test_sadd_counts_new_members(db):
    assert db.do("SADD", "s", "a") == 1
    assert db.do("SADD", "s", "a") == 0
    assert db.do("SADD", "s", "a", "b", "c", "b") == 2
    assert content(db) == {b"a", b"b", b"c"}
    assert db.do("TYPE", "s") == b"set"


def test_members_are_any_bytes(db):
    members = {b"", b"\x00\r\n\xff", b"1", b"01", b"x" * 100_000}
    assert db.do("SADD", "s", *members) == 5
    assert content(db) == members
    assert db.do("SISMEMBER", "s", b"") == 1


@pytest.mark.parametrize("length", [449, 450, 451, 511, 5000])
def test_long_members(db, length):
    member = b"x" * length
    assert db.do("SADD", "s", member, "short") == 2
    assert db.do("SADD", "s", member) == 0
    assert content(db) == {member, b"short"}
    assert db.do("SMISMEMBER", "s", member, b"x" * (length + 1)) == [1, 0]
    assert db.do("SREM", "s", member) == 1
    assert content(db) == {b"short"}


def test_long_members_that_begin_alike_are_different(db):
    assert db.do("SADD", "s", LONG_ONE, LONG_OTHER) == 2
    assert db.do("SREM", "s", LONG_ONE) == 1
    assert content(db) == {LONG_OTHER}
    assert db.do("SPOP", "s") == LONG_OTHER


def test_keys_longer_than_a_database_key(db):
    key = "k" * 600
    assert db.do("SADD", key, "a") == 1
    assert content(db, key) == {b"a"}
    assert db.do("SREM", key, "a") == 1
    assert db.do("EXISTS", key) == 0


def test_srem_counts_and_removes_the_empty_set(db):
    fill(db, "s", "a", "b", "c")
    assert db.do("SREM", "s", "a", "x", "a") == 1
    assert db.do("SREM", "s", "x") == 0
    assert content(db) == {b"b", b"c"}
    assert db.do("SREM", "s", "b", "c") == 2
    assert db.do("EXISTS", "s") == 0
    assert db.do("SREM", "s", "a") == 0


def test_membership(db):
    fill(db, "s", "a", "b")
    assert db.do("SISMEMBER", "s", "a") == 1
    assert db.do("SISMEMBER", "s", "x") == 0
    assert db.do("SISMEMBER", "none", "a") == 0
    assert db.do("SMISMEMBER", "s", "x", "a", "b", "a") == [0, 1, 1, 1]
    assert db.do("SMISMEMBER", "none", "a", "b") == [0, 0]


def test_an_empty_set_is_a_missing_key(db):
    assert db.do("SCARD", "none") == 0
    assert db.do("SMEMBERS", "none") == []


def test_writing_keeps_the_time_to_live(db):
    fill(db, "s", *numbered(10))
    db.do("PEXPIRE", "s", "100000")
    db.do("SADD", "s", "a")
    db.do("SREM", "s", "a")
    db.do("SPOP", "s")
    db.do("SPOP", "s", "2")
    assert db.do("SCARD", "s") == 7
    assert 0 < db.do("PTTL", "s") <= 100_000


def test_a_deleted_set_leaves_nothing_to_the_next_one(db):
    fill(db, "s", *numbered(500))
    db.do("DEL", "s")
    fill(db, "s", "a")
    assert content(db) == {b"a"}


# ------------------------------------------------------------------------------- move


def test_smove(db):
    fill(db, "s", "a", "b")
    fill(db, "t", "b", "c")
    assert db.do("SMOVE", "s", "t", "a") == 1
    assert (content(db, "s"), content(db, "t")) == ({b"b"}, {b"a", b"b", b"c"})
    assert db.do("SMOVE", "s", "t", "x") == 0
    # There already: it only leaves, and the source is gone with its last member.
    assert db.do("SMOVE", "s", "t", "b") == 1
    assert db.do("EXISTS", "s") == 0
    assert content(db, "t") == {b"a", b"b", b"c"}


def test_smove_creates_the_target(db):
    fill(db, "s", "a")
    assert db.do("SMOVE", "s", "new", "a") == 1
    assert content(db, "new") == {b"a"}
    assert db.do("SMOVE", "s", "new", "a") == 0


def test_smove_to_itself(db):
    fill(db, "s", "a")
    assert db.do("SMOVE", "s", "s", "a") == 1
    assert db.do("SMOVE", "s", "s", "x") == 0
    assert content(db) == {b"a"}


def test_smove_looks_at_both_types_if_there_is_a_source(db):
    fill(db, "s", "a")
    db.do("SET", "k", "text")
    assert db.error("SMOVE", "s", "k", "a") == WRONGTYPE
    assert db.error("SMOVE", "s", "k", "x") == WRONGTYPE
    assert db.error("SMOVE", "k", "s", "a") == WRONGTYPE
    assert db.do("SMOVE", "none", "k", "a") == 0
    assert content(db) == {b"a"}


# ------------------------------------------------------------------------- random picks


def test_spop_takes_each_member_once(db):
    members = numbered(200)
    fill(db, "s", *members)
    popped = [db.do("SPOP", "s") for _ in range(200)]
    assert set(popped) == members
    assert db.do("EXISTS", "s") == 0
    assert db.do("SPOP", "s") is None


@pytest.mark.parametrize("size", [10, 300])
def test_spop_of_many(db, size):
    members = numbered(size)
    fill(db, "s", *members)
    popped = []
    for count in (1, 3, size // 2):
        batch = db.do("SPOP", "s", count)
        assert len(batch) == count
        popped += batch
    assert len(set(popped)) == len(popped)
    assert set(popped) | content(db) == members
    rest = db.do("SPOP", "s", size)
    assert set(popped) | set(rest) == members
    assert len(popped) + len(rest) == size
    assert db.do("EXISTS", "s") == 0


def test_spop_of_nothing(db):
    fill(db, "s", "a")
    assert db.do("SPOP", "s", 0) == []
    assert db.do("SPOP", "none", 3) == []
    assert db.do("SPOP", "none") is None
    assert content(db) == {b"a"}


def test_spop_errors(db):
    fill(db, "s", "a")
    assert db.error("SPOP", "s", "-1") == NOT_POSITIVE
    assert db.error("SPOP", "s", "x") == NOT_POSITIVE
    assert db.error("SPOP", "s", "1", "2") == SYNTAX
    assert content(db) == {b"a"}


def test_spop_is_not_always_the_same(db):
    first = set()
    for _ in range(20):
        fill(db, "s", *numbered(200))
        first.add(db.do("SPOP", "s"))
    assert len(first) > 1


def test_srandmember_leaves_the_set(db):
    fill(db, "s", "a", "b", "c")
    assert {db.do("SRANDMEMBER", "s") for _ in range(100)} == {b"a", b"b", b"c"}
    assert content(db) == {b"a", b"b", b"c"}
    assert db.do("SRANDMEMBER", "none") is None


@pytest.mark.parametrize("size", [10, 300])
def test_srandmember_of_different_members(db, size):
    members = numbered(size)
    fill(db, "s", *members)
    for count in (1, 5, size // 2, size - 1):
        picked = db.do("SRANDMEMBER", "s", count)
        assert len(picked) == len(set(picked)) == count
        assert set(picked) <= members
    assert set(db.do("SRANDMEMBER", "s", size)) == members
    assert sorted(db.do("SRANDMEMBER", "s", 10**15)) == sorted(members)


@pytest.mark.parametrize("size", [10, 300])
def test_srandmember_with_repetition(db, size):
    members = numbered(size)
    fill(db, "s", *members)
    for count in (1, 5, size * 100):  # Redis prefers some members, by the buckets of its table
        picked = db.do("SRANDMEMBER", "s", -count)
        assert len(picked) == count
        assert set(picked) <= members
    assert set(picked) == members


def test_srandmember_of_nothing(db):
    fill(db, "s", "a")
    assert db.do("SRANDMEMBER", "s", 0) == []
    assert db.do("SRANDMEMBER", "none", 3) == []
    assert db.do("SRANDMEMBER", "none", -3) == []


def test_srandmember_errors(db):
    fill(db, "s", "a")
    limit = (1 << 63) - 1
    assert db.error("SRANDMEMBER", "s", "x") == NOT_INTEGER
    assert db.error("SRANDMEMBER", "s", "1", "2") == SYNTAX
    assert (
        db.error("SRANDMEMBER", "s", -limit - 1)
        == f"ERR value is out of range, value must between {-limit} and {limit}"
    )


# ------------------------------------------------------------------------- set algebra


@pytest.fixture
def sets(db):
    fill(db, "one", "a", "b", "c", "d", LONG_ONE)
    fill(db, "two", "b", "c", LONG_ONE, LONG_OTHER)
    fill(db, "three", "c", "d", "e", LONG_ONE)
    return db


@pytest.mark.parametrize(
    ("operation", "keys", "expected"),
    [
        ("INTER", "one", {b"a", b"b", b"c", b"d", LONG_ONE}),
        ("INTER", "one two", {b"b", b"c", LONG_ONE}),
        ("INTER", "one two three", {b"c", LONG_ONE}),
        ("INTER", "one one", {b"a", b"b", b"c", b"d", LONG_ONE}),
        ("INTER", "one none", set()),
        ("INTER", "none", set()),
        ("UNION", "one", {b"a", b"b", b"c", b"d", LONG_ONE}),
        ("UNION", "two three", {b"b", b"c", b"d", b"e", LONG_ONE, LONG_OTHER}),
        ("UNION", "two none two", {b"b", b"c", LONG_ONE, LONG_OTHER}),
        ("UNION", "none other", set()),
        ("DIFF", "one", {b"a", b"b", b"c", b"d", LONG_ONE}),
        ("DIFF", "one two", {b"a", b"d"}),
        ("DIFF", "one two three", {b"a"}),
        ("DIFF", "two one none", {LONG_OTHER}),
        ("DIFF", "one one", set()),
        ("DIFF", "none one", set()),
    ],
)
def test_set_algebra(sets, operation, keys, expected):
    db = sets
    members = db.do(f"S{operation}", *keys.split())
    assert len(members) == len(expected)
    assert set(members) == expected
    # The same with its result stored, over a set that was there before.
    fill(db, "target", "old")
    assert db.do(f"S{operation}STORE", "target", *keys.split()) == len(expected)
    assert content(db, "target") == expected
    assert db.do("EXISTS", "target") == int(bool(expected))


def test_set_algebra_of_sets_of_all_sizes(db):
    """Which side is walked and which is asked depends on the sizes; the answer does not."""
    fill(db, "small", *numbered(5), "only here")
    fill(db, "large", *numbered(500))
    assert set(db.do("SINTER", "large", "small")) == set(db.do("SINTER", "small", "large")) == numbered(5)
    assert set(db.do("SDIFF", "small", "large")) == {b"only here"}
    assert set(db.do("SDIFF", "large", "small")) == numbered(500) - numbered(5)
    assert len(db.do("SUNION", "large", "small")) == 501


@pytest.mark.parametrize("operation", ["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"])
def test_storing_over_a_source(sets, operation):
    db = sets
    expected = set(db.do(operation.removesuffix("STORE"), "one", "two"))
    assert db.do(operation, "one", "one", "two") == len(expected)
    assert content(db, "one") == expected


@pytest.mark.parametrize("operation", ["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"])
def test_storing_replaces_any_type_and_its_time_to_live(sets, operation):
    db = sets
    db.do("SET", "target", "text", "EX", "1000")
    assert db.do(operation, "target", "one") == 5
    assert db.do("TTL", "target") == -1
    assert len(content(db, "target")) == 5
    db.do("SET", "target", "text")
    assert db.do(operation, "target", "none") == 0
    assert db.do("EXISTS", "target") == 0


@pytest.mark.parametrize("keys", ["one k", "k one", "none k", "k none", "k"])
@pytest.mark.parametrize("operation", ["SINTER", "SUNION", "SDIFF"])
def test_set_algebra_needs_sets_even_where_the_result_is_known(sets, operation, keys):
    db = sets
    db.do("SET", "k", "text")
    fill(db, "target", "old")
    assert db.error(operation, *keys.split()) == WRONGTYPE
    assert db.error(f"{operation}STORE", "target", *keys.split()) == WRONGTYPE
    assert content(db, "target") == {b"old"}


def test_sintercard(sets):
    db = sets
    assert db.do("SINTERCARD", 1, "one") == 5
    assert db.do("SINTERCARD", 2, "one", "two") == 3
    assert db.do("SINTERCARD", 3, "one", "two", "three") == 2
    assert db.do("SINTERCARD", 2, "one", "none") == 0
    assert db.do("SINTERCARD", 2, "one", "two", "LIMIT", 0) == 3
    assert db.do("SINTERCARD", 2, "one", "two", "limit", 2) == 2
    assert db.do("SINTERCARD", 2, "one", "two", "LIMIT", 10) == 3
    assert db.do("SINTERCARD", 2, "one", "two", "LIMIT", 10, "LIMIT", 1) == 1


def test_sintercard_errors(sets):
    db = sets
    for numkeys in ("0", "-1", "x", "1.0"):
        assert db.error("SINTERCARD", numkeys, "one") == "ERR numkeys should be greater than 0"
    assert (
        db.error("SINTERCARD", 3, "one", "two") == "ERR Number of keys can't be greater than number of args"
    )
    assert db.error("SINTERCARD", 1, "one", "LIMIT") == SYNTAX
    assert db.error("SINTERCARD", 1, "one", "two") == SYNTAX
    assert db.error("SINTERCARD", 1, "one", "two", "3") == SYNTAX
    for limit in ("-1", "x"):
        assert db.error("SINTERCARD", 1, "one", "LIMIT", limit) == "ERR LIMIT can't be negative"
    db.do("SET", "k", "text")
    assert db.error("SINTERCARD", 2, "none", "k") == WRONGTYPE


# ------------------------------------------------------------------------------- scan


def scan_all(db: Any, *options: Any, key: str = "s") -> list[bytes]:
    cursor, found = b"0", []
    while True:
        cursor, items = db.do("SSCAN", key, cursor, *options)
        found += items
        if cursor == b"0":
            return found


@pytest.mark.parametrize("options", [(), ("COUNT", 3), ("count", 5000)])
def test_sscan_gives_every_member(db, options):
    members = numbered(500) | {LONG_ONE, LONG_OTHER}
    fill(db, "s", *members)
    assert set(scan_all(db, *options)) == members


def test_sscan_of_a_set_that_changes(db):
    """What is there during the whole scan is returned, whatever comes and goes meanwhile."""
    stable = {b"stable %d" % n for n in range(300)}
    fill(db, "s", *stable, *[f"leaving {n}" for n in range(300)])
    cursor, found, step = b"0", [], 0
    while step == 0 or cursor != b"0":
        cursor, members = db.do("SSCAN", "s", cursor, "COUNT", 10)
        found += members
        db.do("SADD", "s", *[f"coming {step} {n}" for n in range(2)])
        db.do("SREM", "s", *[f"leaving {step * 10 + n}" for n in range(10)])
        step += 1
    assert stable <= set(found)


def test_sscan_match(db):
    fill(db, "s", "apple", "apricot", "banana")
    assert sorted(scan_all(db, "MATCH", "ap*")) == [b"apple", b"apricot"]
    assert sorted(scan_all(db, "match", "?a*", "COUNT", 1)) == [b"banana"]
    assert scan_all(db, "MATCH", "x*") == []


def test_sscan_of_nothing(db):
    assert db.do("SSCAN", "none", 0) == [b"0", []]


def test_sscan_errors(db):
    fill(db, "s", "a")
    assert db.error("SSCAN", "s", "x") == "ERR invalid cursor"
    assert db.error("SSCAN", "none", "x") == "ERR invalid cursor"
    assert db.error("SSCAN", "s", 0, "bad") == SYNTAX
    assert db.error("SSCAN", "s", 0, "COUNT", 0) == SYNTAX
    assert db.error("SSCAN", "s", 0, "COUNT", "x") == NOT_INTEGER
    assert db.error("SSCAN", "s", 0, "TYPE", "set") == SYNTAX


# ------------------------------------------------------------------------ other types


@pytest.mark.parametrize(
    "words",
    [
        "SADD k a",
        "SREM k a",
        "SISMEMBER k a",
        "SMISMEMBER k a b",
        "SCARD k",
        "SMEMBERS k",
        "SPOP k",
        "SPOP k 2",
        "SRANDMEMBER k",
        "SRANDMEMBER k 2",
        "SMOVE k t a",
        "SSCAN k 0",
    ],
)
def test_a_key_of_another_type_is_left_alone(db, words):
    db.do("SET", "k", "text")
    assert db.error(*words.split()) == WRONGTYPE
    assert db.do("GET", "k") == b"text"


def test_arguments_are_looked_at_before_the_type(db):
    db.do("SET", "k", "text")
    assert db.error("SPOP", "k", "x") == NOT_POSITIVE
    assert db.error("SRANDMEMBER", "k", "x") == NOT_INTEGER
    assert db.error("SSCAN", "k", "x") == "ERR invalid cursor"


# ----------------------------------------------------------------------------- events


def test_events(db):
    announced = announcer(db)
    assert announced("SADD", "s", "a", "b", "c", "d") == [("sadd", "s")]
    assert announced("SADD", "s", "a") == []
    assert announced("SREM", "s", "x") == []
    assert announced("SREM", "s", "a") == [("srem", "s")]
    assert announced("SMOVE", "s", "t", "x") == []
    assert announced("SMOVE", "s", "t", "b") == [("srem", "s"), ("sadd", "t")]
    assert announced("SADD", "s", "b") == [("sadd", "s")]
    assert announced("SMOVE", "s", "t", "b") == [("srem", "s")]
    assert announced("SPOP", "s") == [("spop", "s")]
    assert announced("SPOP", "s") == [("spop", "s"), ("del", "s")]
    assert announced("SADD", "s", "a", "b") == [("sadd", "s")]
    assert announced("SPOP", "s", 0) == []
    assert announced("SPOP", "s", 1) == [("spop", "s")]
    assert announced("SPOP", "s", 9) == [("spop", "s"), ("del", "s")]
    assert announced("SREM", "t", "b") == [("srem", "t"), ("del", "t")]


def test_events_of_stored_results(db):
    fill(db, "s", "a")
    announced = announcer(db)
    assert announced("SUNIONSTORE", "t", "s") == [("sunionstore", "t")]
    assert announced("SINTERSTORE", "t", "s") == [("sinterstore", "t")]
    assert announced("SDIFFSTORE", "t", "s") == [("sdiffstore", "t")]
    assert announced("SDIFFSTORE", "t", "s", "s") == [("del", "t")]
    assert announced("SDIFFSTORE", "t", "s", "s") == []
