"""What random command sequences found (see tests/model), one case a bug."""

from __future__ import annotations

import pytest

CORRUPT = "INVALIDOBJ Corrupted HLL object detected"


def test_coordinates_near_zero_are_cut_to_17_decimals_in_both_protocols(db):
    if db.kind == "valkey":
        pytest.skip("prints all digits of a double")
    db.do("GEOADD", "places", "0.0001", "-0.0002", "null")
    coordinates = db.do("GEOPOS", "places", "null")[0]
    assert [float(each) for each in coordinates] == [9.924173355103e-05, -0.00019897561100635]


# ------------------------------------------------------------------------------ HyperLogLog


@pytest.fixture
def corrupt(db):
    """A sparse value with the first half of an opcode of two bytes at its end."""
    db.do("PFADD", "corrupt", "a")
    db.do("APPEND", "corrupt", "a")


@pytest.mark.usefixtures("corrupt")
def test_half_an_opcode_at_the_end_is_corrupt(db):
    assert db.error("PFCOUNT", "corrupt") == CORRUPT
    assert db.error("PFMERGE", "target", "corrupt") == CORRUPT


@pytest.mark.usefixtures("corrupt")
@pytest.mark.parametrize("command", [("PFCOUNT",), ("PFMERGE", "target")])
def test_the_first_bad_key_decides_the_error(db, command):
    db.do("SET", "text", "abc")
    db.do("RPUSH", "list", "a")
    assert db.error(*command, "corrupt", "text") == CORRUPT
    assert db.error(*command, "corrupt", "list") == CORRUPT
    assert db.error(*command, "text", "corrupt") == "WRONGTYPE Key is not a valid HyperLogLog string value."


def test_the_kept_count_of_one_key_says_nothing_about_several(db):
    db.do("PFADD", "h", "a", "b")
    assert db.do("PFCOUNT", "h") == 2
    db.do("SETRANGE", "h", "8", "\x07")  # the lowest byte of the kept count
    assert db.do("PFCOUNT", "h") in (2, 7)  # the engine keeps it only beside a write
    assert db.do("PFCOUNT", "h", "missing") == 2


# ------------------------------------------------------------------------------- BITFIELD


def test_a_field_that_is_changed_and_changed_back_has_changed(db):
    db.do("SET", "k", "abc")
    db.do("WATCH", "k")
    assert db.do("BITFIELD", "k", "SET", "u8", "0", "97") == [97]
    db.do("MULTI")
    assert db.do("EXEC") == []
    db.do("WATCH", "k")
    assert db.do("BITFIELD", "k", "SET", "u8", "0", "98", "SET", "u8", "0", "97") == [97, 98]
    db.do("MULTI")
    assert db.do("EXEC") is None


# ------------------------------------------------------------------------- blocked clients


def test_who_waited_longer_for_a_key_comes_before_who_waits_for_another_ready_key_too(db):
    first, second, third = db.client(), db.client(), db.client()
    first.send("BLPOP", "list", "0")
    assert first.nothing_arrives()
    second.send("BZPOPMAX", "scores", "0")
    assert second.nothing_arrives()
    third.send("BZPOPMIN", "scores", "list", "0")
    assert third.nothing_arrives()
    db.do("MULTI")
    db.do("RPUSH", "list", "a", "b")
    db.do("ZADD", "scores", "1", "x")
    db.do("EXEC")
    assert first.receive() == [b"list", b"a"]
    assert second.receive() == [b"scores", b"x", db.double(1.0)]
    assert third.nothing_arrives()
    db.do("ZADD", "scores", "2", "y")
    assert third.receive() == [b"scores", b"y", db.double(2.0)]


def test_a_key_of_another_type_does_not_let_a_client_jump_the_queue_of_a_second_key(db):
    if db.kind == "valkey":
        pytest.skip("runs the whole command again for each ready key")
    first, second = db.client(), db.client()
    first.send("BLMOVE", "list", "target", "RIGHT", "RIGHT", "0")
    assert first.nothing_arrives()
    second.send("BLMPOP", "0", "2", "other", "list", "LEFT", "COUNT", "5")
    assert second.nothing_arrives()
    db.do("MULTI")
    db.do("ZADD", "other", "1", "x")
    db.do("RPUSH", "list", "a", "b", "c")
    db.do("EXEC")
    assert first.receive() == b"c"
    assert second.receive() == [b"list", [b"a", b"b"]]
