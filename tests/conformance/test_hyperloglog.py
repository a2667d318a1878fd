"""HyperLogLog commands: replies, errors and the bytes that are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.events import announcer
from tests.conformance.refusals import WRONGTYPE

NOT_A_HYPERLOGLOG = "WRONGTYPE Key is not a valid HyperLogLog string value."
CORRUPTED = "INVALIDOBJ Corrupted HLL object detected"
EMPTY = b"HYLL\x01" + bytes(10) + b"\x80\x7f\xff"


def elements(first: int, behind: int) -> list[bytes]:
    return [b"element %d" % n for n in range(first, behind)]


def registers(db: Any, key: str) -> bytes:
    """A value without its cached count, which not everybody keeps at the same time."""
    value = db.do("GET", key)
    return value[:8] + value[16:]


def test_pfadd_answers_whether_something_changed(db):
    assert db.do("PFADD", "h", "a", "b") == 1
    assert db.do("PFADD", "h", "a") == 0
    assert db.do("PFADD", "h", "b", "c") == 1
    assert db.do("PFCOUNT", "h") == 3
    assert db.do("TYPE", "h") == b"string"


def test_pfadd_of_nothing_creates_the_key(db):
    assert db.do("PFADD", "h") == 1
    assert db.do("PFADD", "h") == 0
    assert db.do("GET", "h") == EMPTY
    assert db.do("PFCOUNT", "h") == 0


def test_pfcount_of_nothing(db):
    assert db.do("PFCOUNT", "none") == 0
    assert db.do("PFCOUNT", "none", "other") == 0
    assert db.do("EXISTS", "none") == 0


@pytest.mark.parametrize(("size", "counted"), [(1, 1), (10, 10), (100, 100), (1000, 1003), (20_000, 19_988)])
def test_pfcount_estimates_as_redis_does(db, size, counted):
    for first in range(0, size, 1000):
        db.do("PFADD", "h", *elements(first, min(first + 1000, size)))
    assert db.do("PFCOUNT", "h") == counted
    assert db.do("PFCOUNT", "h") == counted
    # Without the cached count.
    assert db.do("PFCOUNT", "h", "none") == counted


def test_pfcount_of_several_keys_is_that_of_their_union(db):
    db.do("PFADD", "one", *elements(0, 60))
    db.do("PFADD", "two", *elements(40, 100))
    assert db.do("PFCOUNT", "one", "two", "none") == 100
    assert db.do("PFCOUNT", "one", "one") == 60
    assert (db.do("PFCOUNT", "one"), db.do("PFCOUNT", "two")) == (60, 60)


def test_counting_again_after_adding(db):
    db.do("PFADD", "h", *elements(0, 50))
    assert db.do("PFCOUNT", "h") == 50
    db.do("PFADD", "h", *elements(50, 70))
    assert db.do("PFCOUNT", "h") == 70


def test_the_bytes_are_those_of_redis(db):
    """Anybody may GET a value from one store and SET it in another."""
    db.do("PFADD", "h", "a")
    assert db.do("GET", "h") == EMPTY[:16] + b"q\xa6\x84NW"
    db.do("PFADD", "h", "a", "b", "c")
    assert db.do("GET", "h") == EMPTY[:16] + b"`\xf3\x80P\xb1\x84K\xfb\x80BZ"


def test_many_elements_make_the_value_dense(db):
    for first in range(0, 5000, 1000):
        db.do("PFADD", "h", *elements(first, first + 1000))
    assert db.do("STRLEN", "h") == 12_304
    assert db.do("GETRANGE", "h", 0, 4) == b"HYLL\x00"


def test_pfmerge_into_a_new_key(db):
    db.do("PFADD", "one", *elements(0, 60))
    db.do("PFADD", "two", *elements(40, 100))
    assert db.do("PFMERGE", "target", "one", "two", "none") == b"OK"
    assert db.do("PFCOUNT", "target") == 100
    assert (db.do("PFCOUNT", "one"), db.do("PFCOUNT", "two")) == (60, 60)


def test_pfmerge_keeps_what_the_target_has(db):
    db.do("PFADD", "target", *elements(0, 30))
    db.do("EXPIRE", "target", 1000)
    db.do("PFADD", "one", *elements(20, 50))
    assert db.do("PFMERGE", "target", "one") == b"OK"
    assert db.do("PFCOUNT", "target") == 50
    assert 0 < db.do("TTL", "target") <= 1000


def test_pfmerge_of_nothing_creates_the_key(db):
    assert db.do("PFMERGE", "target") == b"OK"
    assert db.do("PFMERGE", "target", "none") == b"OK"
    assert db.do("GET", "target") == EMPTY
    assert db.do("PFCOUNT", "target") == 0


def test_pfmerge_of_dense_and_sparse(db):
    for first in range(0, 6000, 1000):
        db.do("PFADD", "dense", *elements(first, first + 1000))
    db.do("PFADD", "sparse", *elements(5900, 6100))
    assert db.do("PFMERGE", "target", "sparse", "dense") == b"OK"
    assert db.do("STRLEN", "target") == 12_304
    assert db.do("PFCOUNT", "target") == db.do("PFCOUNT", "sparse", "dense")


def test_pfadd_keeps_the_time_to_live(db):
    db.do("PFADD", "h", "a")
    db.do("EXPIRE", "h", 1000)
    db.do("PFADD", "h", "b")
    db.do("PFCOUNT", "h")
    assert 0 < db.do("TTL", "h") <= 1000


@pytest.mark.parametrize("words", ["PFADD k a", "PFCOUNT k", "PFCOUNT h k", "PFMERGE k h", "PFMERGE h k"])
def test_what_is_no_hyperloglog_is_refused(db, words):
    db.do("PFADD", "h", "a")
    before = registers(db, "h")
    for value in ("text", "HYLL", b"HYLL\x02" + bytes(13), b"HYLL\x00" + bytes(100)):
        db.do("SET", "k", value)
        assert db.error(*words.split()) == NOT_A_HYPERLOGLOG
    db.do("DEL", "k")
    db.do("RPUSH", "k", "element")
    assert db.error(*words.split()) == WRONGTYPE
    assert db.do("LRANGE", "k", 0, -1) == [b"element"]
    assert registers(db, "h") == before


def test_a_damaged_value_is_refused(db):
    db.do("PFADD", "h", *elements(0, 10))
    db.do("APPEND", "h", "hello")
    assert db.error("PFCOUNT", "h") == CORRUPTED
    assert db.error("PFMERGE", "target", "h") == CORRUPTED
    assert db.do("EXISTS", "target") == 0


def test_events(db):
    announced = announcer(db)
    assert announced("PFADD", "h", "a") == [("pfadd", "h")]
    assert announced("PFADD", "h", "a") == []
    assert announced("PFMERGE", "target", "h") == [("pfadd", "target")]
    assert announced("PFCOUNT", "h") == []
