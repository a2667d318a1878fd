"""SORT and SORT_RO: weights, patterns, limits, storing."""

from __future__ import annotations

import pytest

from tests.conformance.events import Listener
from tests.conformance.refusals import SYNTAX, WRONGTYPE

NOT_NUMBERS = "ERR One or more scores can't be converted into double"


@pytest.fixture(autouse=True)
def no_stale_errno(db):
    """Redis 7.0 looks at errno without clearing it: a range error in some command before, such as a SCAN
    with a huge cursor, makes SORT refuse good numbers. A good SCAN clears it."""
    db.do("SCAN", "0")


@pytest.fixture(params=["SORT", "SORT_RO"])
def sort(request):
    """The command; what does not store is the same in both."""
    return request.param


@pytest.fixture(params=["RPUSH", "SADD", "ZADD"])
def numbers(request, db):
    """The numbers 10, 9, 2 and -1.5 under key "n", in one of the three types."""
    words = ["10", "9", "2", "-1.5"]
    db.do(
        request.param,
        "n",
        *(w for word in words for w in (["0", word] if request.param == "ZADD" else [word])),
    )


@pytest.mark.usefixtures("numbers")
def test_sorts_by_number_or_by_bytes(db, sort):
    assert db.do(sort, "n") == [b"-1.5", b"2", b"9", b"10"]
    assert db.do(sort, "n", "ASC") == [b"-1.5", b"2", b"9", b"10"]
    assert db.do(sort, "n", "desc") == [b"10", b"9", b"2", b"-1.5"]
    assert db.do(sort, "n", "ALPHA") == [b"-1.5", b"10", b"2", b"9"]
    assert db.do(sort, "n", "alpha", "DESC") == [b"9", b"2", b"10", b"-1.5"]


def test_a_missing_key_is_empty(db, sort):
    assert db.do(sort, "nothing") == []
    assert db.do(sort, "nothing", "BY", "w_*", "GET", "#", "LIMIT", "0", "1") == []


def test_equal_elements_all_appear(db, sort):
    db.do("RPUSH", "l", "2", "1", "2", "1")
    assert db.do(sort, "l") == [b"1", b"1", b"2", b"2"]


def test_equal_weights_are_ordered_by_element(db, sort):
    db.do("RPUSH", "l", "1.0", "01", "1", "2")
    assert db.do(sort, "l") == [b"01", b"1", b"1.0", b"2"]
    assert db.do(sort, "l", "DESC") == [b"2", b"1.0", b"1", b"01"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (("0", "2"), [b"1", b"2"]),
        (("1", "2"), [b"2", b"3"]),
        (("3", "10"), [b"4"]),
        (("4", "1"), []),
        (("100", "1"), []),
        (("0", "0"), []),
        (("1", "-1"), [b"2", b"3", b"4"]),
        (("-5", "2"), [b"1", b"2"]),
        (("0", "9223372036854775807"), [b"1", b"2", b"3", b"4"]),
    ],
)
def test_limit(db, sort, limits, expected):
    db.do("RPUSH", "l", "3", "1", "4", "2")
    assert db.do(sort, "l", "LIMIT", *limits) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [("0x10", 16), ("1e1", 10), (" 5", 5), ("-inf", -1e9), ("", 0), ("+7", 7), ("3.25", 3.25)],
)
def test_what_counts_as_a_number(db, sort, text, place):
    if db.kind == "valkey" and text in ("0x10", " 5", ""):
        pytest.skip("numbers follow Redis 7.0")
    probes = [-5, 1, 4, 6, 8, 12, 20]
    db.do("RPUSH", "l", *probes, text)
    expected = [b"%d" % probe for probe in probes]
    expected.insert(sum(probe < place for probe in probes), text.encode())
    assert db.do(sort, "l") == expected


@pytest.mark.parametrize("text", ["abc", "nan", "1 ", "1x", " ", "--1"])
def test_what_does_not_count_as_a_number(db, sort, text):
    db.do("RPUSH", "l", "1", text)
    assert db.error(sort, "l") == NOT_NUMBERS
    assert db.error(sort, "l", "LIMIT", "0", "0") == NOT_NUMBERS


# -------------------------------------------------------------------------------- patterns


@pytest.fixture
def people(db):
    """Ids 1 to 3 under "ids", with weights, names and hashes beside; 3 has neither weight nor hash."""
    db.do("RPUSH", "ids", "1", "2", "3")
    db.do("MSET", "weight:1", "30", "weight:2", "10", "name:1", "Ada", "name:2", "Bo", "name:3", "Cy")
    db.do("HSET", "person:1", "age", "20", "town", "Aix")
    db.do("HSET", "person:2", "age", "40", "town", "Brno")


@pytest.mark.usefixtures("people")
def test_by_and_get(db, sort):
    assert db.do(sort, "ids", "BY", "weight:*") == [b"3", b"2", b"1"]
    assert db.do(sort, "ids", "BY", "weight:*", "DESC", "GET", "name:*") == [b"Ada", b"Bo", b"Cy"]
    assert db.do(sort, "ids", "GET", "#", "GET", "weight:*") == [b"1", b"30", b"2", b"10", b"3", None]
    assert db.do(sort, "ids", "BY", "name:*", "ALPHA", "DESC", "GET", "name:*") == [b"Cy", b"Bo", b"Ada"]


@pytest.mark.usefixtures("people")
def test_fields_of_hashes(db, sort):
    assert db.do(sort, "ids", "BY", "person:*->age", "DESC") == [b"2", b"1", b"3"]
    assert db.do(sort, "ids", "GET", "person:*->town") == [b"Aix", b"Brno", None]
    assert db.do(sort, "ids", "GET", "person:*->nothing", "LIMIT", "0", "1") == [None]
    assert db.do(sort, "ids", "BY", "person:*->town", "ALPHA") == [b"3", b"1", b"2"]


@pytest.mark.usefixtures("people")
def test_patterns_that_find_nothing(db, sort):
    assert db.do(sort, "ids", "GET", "person:*") == [None, None, None], "a hash is no string"
    assert db.do(sort, "ids", "GET", "name:*->field") == [None, None, None], "a string is no hash"
    assert db.do(sort, "ids", "GET", "name:1") == [None, None, None], "a pattern without a star"


def test_an_arrow_without_a_field_belongs_to_the_key(db, sort):
    db.do("RPUSH", "l", "1")
    db.do("SET", "k1->", "value")
    assert db.do(sort, "l", "GET", "k*->") == [b"value"]


def test_only_the_first_star_is_replaced(db, sort):
    db.do("RPUSH", "l", "1")
    db.do("SET", "1*", "value")
    assert db.do(sort, "l", "GET", "**") == [b"value"]


def test_weights_must_be_numbers_too(db, sort):
    db.do("RPUSH", "l", "a", "b")
    db.do("MSET", "w_a", "2", "w_b", "heavy")
    assert db.error(sort, "l", "BY", "w_*") == NOT_NUMBERS
    db.do("SET", "w_b", "1")
    assert db.do(sort, "l", "BY", "w_*") == [b"b", b"a"]


def test_expired_weights_are_missing(db, sort):
    db.do("RPUSH", "l", "1", "2")
    db.do("MSET", "w_1", "9", "w_2", "5")
    db.do("PEXPIRE", "w_1", "1")
    while db.do("EXISTS", "w_1"):
        pass
    assert db.do(sort, "l", "BY", "w_*", "GET", "w_*") == [None, b"5"]


# ------------------------------------------------------------------------- not sorting at all


def test_a_list_in_its_own_order(db, sort):
    db.do("RPUSH", "l", "c", "a", "b")
    assert db.do(sort, "l", "BY", "nosort") == [b"c", b"a", b"b"]
    assert db.do(sort, "l", "BY", "nosort", "DESC") == [b"b", b"a", b"c"]
    assert db.do(sort, "l", "BY", "nosort", "LIMIT", "1", "1") == [b"a"]
    assert db.do(sort, "l", "BY", "nosort", "DESC", "LIMIT", "0", "2") == [b"b", b"a"]


def test_a_sorted_set_in_its_own_order(db, sort):
    db.do("ZADD", "z", "3", "c", "1", "a", "2", "b")
    assert db.do(sort, "z", "BY", "nosort") == [b"a", b"b", b"c"]
    assert db.do(sort, "z", "BY", "nosort", "DESC", "LIMIT", "0", "2") == [b"c", b"b"]
    assert db.do(sort, "z", "BY", "nosort", "LIMIT", "1", "-1") == [b"b", b"c"]
    assert db.do(sort, "z", "BY", "nosort", "LIMIT", "5", "1") == []


def test_a_set_in_any_order(db, sort):
    db.do("SADD", "s", "c", "a", "b")
    assert sorted(db.do(sort, "s", "BY", "nosort")) == [b"a", b"b", b"c"]


def test_a_set_is_stored_in_a_defined_order(db):
    db.do("SADD", "s", "c", "a", "b")
    assert db.do("SORT", "s", "BY", "nosort", "STORE", "out") == 3
    assert db.do("LRANGE", "out", "0", "-1") == [b"a", b"b", b"c"]


# --------------------------------------------------------------------------------- storing


@pytest.mark.usefixtures("people")
def test_store(db):
    db.do("SET", "out", "a string that lives for some time", "EX", "1000")
    assert db.do("SORT", "ids", "DESC", "STORE", "out") == 3
    assert db.do("LRANGE", "out", "0", "-1") == [b"3", b"2", b"1"]
    assert db.do("TTL", "out") == -1
    assert db.do("SORT", "ids", "GET", "weight:*", "GET", "#", "STORE", "out") == 6
    assert db.do("LRANGE", "out", "0", "-1") == [b"30", b"1", b"10", b"2", b"", b"3"]


def test_store_over_the_source(db):
    db.do("RPUSH", "l", *range(100, 0, -1))
    assert db.do("SORT", "l", "STORE", "l") == 100
    assert db.do("LRANGE", "l", "0", "-1") == [b"%d" % number for number in range(1, 101)]


def test_storing_nothing_deletes(db):
    db.do("SET", "out", "old")
    assert db.do("SORT", "nothing", "STORE", "out") == 0
    assert db.do("EXISTS", "out") == 0


def test_a_stored_list_serves_who_waits_for_it(db):
    db.do("RPUSH", "l", "2", "1")
    waiter = db.client()
    waiter.send("BLPOP", "out", "0")
    assert waiter.nothing_arrives()
    assert db.do("SORT", "l", "STORE", "out") == 2
    assert waiter.receive() == [b"out", b"1"]
    assert db.do("LRANGE", "out", "0", "-1") == [b"2"]


def test_events(db):
    db.do("RPUSH", "l", "2", "1")
    listener = Listener(db)
    db.do("SORT", "l")
    db.do("SORT", "l", "STORE", "out")
    db.do("SORT", "nothing", "STORE", "out")
    db.do("SORT", "nothing", "STORE", "out")
    assert listener.take() == [(0, "sortstore", b"out"), (0, "del", b"out")]


# ----------------------------------------------------------------------------- bad arguments


def test_wrong_types(db, sort):
    db.do("SET", "string", "1")
    db.do("HSET", "hash", "f", "1")
    for key in ("string", "hash"):
        assert db.error(sort, key) == WRONGTYPE
        assert db.error(sort, key, "BY", "nosort") == WRONGTYPE
        assert db.error(sort, key, "BOGUS") == SYNTAX


@pytest.mark.parametrize("options", ["BOGUS", "BY", "GET", "LIMIT 1", "STORE", "ASC BOGUS"])
def test_syntax(db, sort, options):
    db.do("RPUSH", "l", "1")
    assert db.error(sort, "l", *options.split()) == SYNTAX


def test_limits_must_be_integers(db, sort):
    assert db.error(sort, "l", "LIMIT", "x", "1") == "ERR value is not an integer or out of range"
    assert db.error(sort, "l", "LIMIT", "1", "x") == "ERR value is not an integer or out of range"


def test_sort_ro_does_not_store(db):
    db.do("RPUSH", "l", "1")
    assert db.error("SORT_RO", "l", "STORE", "out") == SYNTAX
    assert db.do("EXISTS", "out") == 0


def test_an_error_stores_nothing(db):
    db.do("RPUSH", "l", "1", "abc")
    db.do("SET", "out", "old")
    assert db.error("SORT", "l", "STORE", "out") == NOT_NUMBERS
    assert db.do("GET", "out") == b"old"
