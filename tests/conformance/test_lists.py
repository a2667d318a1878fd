"""List commands that do not wait: replies, errors and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE

NOT_POSITIVE = "ERR value is out of range, must be positive"


def content(db: Any, key: str = "l") -> list[bytes]:
    return db.do("LRANGE", key, "0", "-1")


def fill(db: Any, *values: str, key: str = "l") -> None:
    db.do("DEL", key)
    assert db.do("RPUSH", key, *values) == len(values)


# ------------------------------------------------------------------------------ pushes


def test_lpush_puts_the_last_value_leftmost(db):
    assert db.do("LPUSH", "l", "a") == 1
    assert db.do("LPUSH", "l", "b", "c") == 3
    assert content(db) == [b"c", b"b", b"a"]


def test_rpush_keeps_the_order(db):
    assert db.do("RPUSH", "l", "a", "b") == 2
    assert db.do("RPUSH", "l", "c") == 3
    assert content(db) == [b"a", b"b", b"c"]
    assert db.do("TYPE", "l") == b"list"


def test_elements_are_any_bytes(db):
    values = [b"", b"\x00\r\n\xff", b"x" * 5000]
    assert db.do("RPUSH", "l", *values) == 3
    assert content(db) == values


def test_keys_longer_than_a_database_key(db):
    key = "k" * 600
    assert db.do("RPUSH", key, "a", "b") == 2
    assert db.do("LPOP", key) == b"a"
    assert content(db, key) == [b"b"]


def test_pushx_needs_the_list(db):
    assert db.do("LPUSHX", "l", "a") == 0
    assert db.do("RPUSHX", "l", "a", "b") == 0
    assert db.do("EXISTS", "l") == 0
    fill(db, "m")
    assert db.do("LPUSHX", "l", "a") == 2
    assert db.do("RPUSHX", "l", "y", "z") == 4
    assert content(db) == [b"a", b"m", b"y", b"z"]


# -------------------------------------------------------------------------------- pops


def test_pop_takes_one_end(db):
    fill(db, "a", "b", "c")
    assert db.do("LPOP", "l") == b"a"
    assert db.do("RPOP", "l") == b"c"
    assert content(db) == [b"b"]


def test_the_last_pop_removes_the_key(db):
    fill(db, "a")
    assert db.do("LPOP", "l") == b"a"
    assert db.do("EXISTS", "l") == 0
    assert db.do("LPOP", "l") is None
    assert db.do("RPOP", "l") is None


def test_pop_with_count(db):
    fill(db, "a", "b", "c", "d", "e")
    assert db.do("LPOP", "l", "2") == [b"a", b"b"]
    assert db.do("RPOP", "l", "2") == [b"e", b"d"]
    assert db.do("LPOP", "l", "0") == []
    assert db.do("RPOP", "l", "10") == [b"c"]
    assert db.do("EXISTS", "l") == 0
    assert db.do("LPOP", "l", "1") is None
    assert db.do("RPOP", "l", "0") is None


def test_pop_of_a_long_list_whole_and_again(db):
    values = [b"%d" % n for n in range(500)]
    for _ in range(2):
        assert db.do("RPUSH", "l", *values) == 500
        assert db.do("LPOP", "l", "500") == values
        assert db.do("EXISTS", "l") == 0


@pytest.mark.parametrize("name", ["LPOP", "RPOP"])
def test_pop_refusals(db, name):
    fill(db, "a", "b")
    assert db.error(name, "l", "-1") == NOT_POSITIVE
    assert db.error(name, "l", "x") == NOT_POSITIVE
    assert db.error(name, "l", "1", "2") == f"ERR wrong number of arguments for '{name.lower()}' command"
    assert content(db) == [b"a", b"b"]


def test_a_deadline_survives_pushes_and_pops_and_goes_with_the_key(db):
    fill(db, "a", "b")
    assert db.do("PEXPIRE", "l", "100000") == 1
    db.do("RPUSH", "l", "c")
    db.do("LPOP", "l")
    assert 0 < db.do("PTTL", "l") <= 100000
    db.do("LPOP", "l", "5")
    fill(db, "a")
    assert db.do("PTTL", "l") == -1


# -------------------------------------------------------------------------------- mpop


def test_lmpop_takes_from_the_first_list_that_has_elements(db):
    fill(db, "a", "b", "c", key="l2")
    fill(db, "x", key="l3")
    assert db.do("LMPOP", "3", "l1", "l2", "l3", "LEFT") == [b"l2", [b"a"]]
    assert db.do("LMPOP", "2", "l1", "l2", "right", "COUNT", "5") == [b"l2", [b"c", b"b"]]
    assert db.do("EXISTS", "l2") == 0
    assert db.do("LMPOP", "2", "l1", "l2", "LEFT", "count", "2") is None


def test_lmpop_stops_at_another_type_unless_served_before(db):
    db.do("SET", "s", "v")
    fill(db, "a", "b")
    assert db.do("LMPOP", "2", "l", "s", "LEFT") == [b"l", [b"a"]]
    assert db.error("LMPOP", "2", "s", "l", "LEFT") == WRONGTYPE
    assert content(db) == [b"b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0", "l", "LEFT"), "ERR numkeys should be greater than 0"),
        (("x", "l", "LEFT"), "ERR numkeys should be greater than 0"),
        (("2", "l", "LEFT"), SYNTAX),
        (("1", "l", "UP"), SYNTAX),
        (("1", "l", "LEFT", "COUNT"), SYNTAX),
        (("1", "l", "LEFT", "FOO", "1"), SYNTAX),
        (("1", "l", "LEFT", "COUNT", "0"), "ERR count should be greater than 0"),
        (("1", "l", "LEFT", "COUNT", "x"), "ERR count should be greater than 0"),
        (("1", "l", "LEFT", "COUNT", "0", "FOO"), "ERR count should be greater than 0"),
        (("1", "l", "LEFT", "COUNT", "1", "COUNT", "2"), SYNTAX),
        (("9223372036854775807", "l", "LEFT"), SYNTAX),
    ],
)
def test_lmpop_refusals(db, arguments, message):
    fill(db, "a")
    assert db.error("LMPOP", *arguments) == message
    assert content(db) == [b"a"]


# ------------------------------------------------------------------------------- moves


@pytest.mark.parametrize(
    ("source_side", "target_side", "moved", "source", "target"),
    [
        ("LEFT", "LEFT", b"a", [b"b", b"c"], [b"a", b"x"]),
        ("LEFT", "RIGHT", b"a", [b"b", b"c"], [b"x", b"a"]),
        ("RIGHT", "LEFT", b"c", [b"a", b"b"], [b"c", b"x"]),
        ("right", "right", b"c", [b"a", b"b"], [b"x", b"c"]),
    ],
)
def test_lmove(db, source_side, target_side, moved, source, target):
    fill(db, "a", "b", "c", key="from")
    fill(db, "x", key="to")
    assert db.do("LMOVE", "from", "to", source_side, target_side) == moved
    assert content(db, "from") == source
    assert content(db, "to") == target


def test_moving_the_only_element_moves_the_key(db):
    fill(db, "a", key="from")
    assert db.do("RPOPLPUSH", "from", "to") == b"a"
    assert db.do("EXISTS", "from") == 0
    assert content(db, "to") == [b"a"]


def test_a_list_rotates_onto_itself(db):
    fill(db, "a", "b", "c")
    assert db.do("RPOPLPUSH", "l", "l") == b"c"
    assert content(db) == [b"c", b"a", b"b"]
    assert db.do("LMOVE", "l", "l", "LEFT", "RIGHT") == b"c"
    assert db.do("LMOVE", "l", "l", "LEFT", "LEFT") == b"a"
    assert content(db) == [b"a", b"b", b"c"]
    fill(db, "only")
    assert db.do("RPOPLPUSH", "l", "l") == b"only"
    assert content(db) == [b"only"]


def test_moves_without_source(db):
    db.do("SET", "s", "v")
    assert db.do("LMOVE", "none", "to", "LEFT", "LEFT") is None
    assert db.do("RPOPLPUSH", "none", "s") is None
    assert db.do("EXISTS", "to") == 0


def test_move_refusals_leave_both_lists(db):
    fill(db, "a")
    db.do("SET", "s", "v")
    assert db.error("LMOVE", "l", "s", "LEFT", "LEFT") == WRONGTYPE
    assert db.error("LMOVE", "s", "l", "LEFT", "LEFT") == WRONGTYPE
    assert db.error("RPOPLPUSH", "l", "s") == WRONGTYPE
    assert db.error("LMOVE", "l", "to", "LEFT", "UP") == SYNTAX
    assert db.error("LMOVE", "s", "to", "UP", "LEFT") == SYNTAX
    assert content(db) == [b"a"]
    assert db.do("GET", "s") == b"v"


# --------------------------------------------------------------------------- positions


@pytest.mark.parametrize(
    ("position", "value"),
    [
        ("0", b"a"), ("2", b"c"), ("3", None), ("9223372036854775807", None),
        ("-1", b"c"), ("-3", b"a"), ("-4", None), ("-9223372036854775808", None),
    ],
)  # fmt: skip
def test_lindex(db, position, value):
    fill(db, "a", "b", "c")
    assert db.do("LINDEX", "l", position) == value


def test_lindex_looks_at_the_key_before_the_position(db):
    db.do("SET", "s", "v")
    fill(db, "a")
    assert db.do("LINDEX", "none", "x") is None
    assert db.error("LINDEX", "s", "x") == WRONGTYPE
    assert db.error("LINDEX", "l", "x") == NOT_INTEGER


def test_lset(db):
    fill(db, "a", "b", "c")
    assert db.do("LSET", "l", "0", "A") == b"OK"
    assert db.do("LSET", "l", "-1", "C") == b"OK"
    assert content(db) == [b"A", b"b", b"C"]


def test_lset_refusals(db):
    fill(db, "a")
    db.do("SET", "s", "v")
    assert db.error("LSET", "none", "x", "v") == "ERR no such key"
    assert db.error("LSET", "s", "x", "v") == WRONGTYPE
    assert db.error("LSET", "l", "x", "v") == NOT_INTEGER
    assert db.error("LSET", "l", "1", "v") == "ERR index out of range"
    assert db.error("LSET", "l", "-2", "v") == "ERR index out of range"
    assert content(db) == [b"a"]


RANGES = [
    (0, -1, "abcde"), (0, 0, "a"), (1, 3, "bcd"), (-2, -1, "de"), (-100, 1, "ab"), (3, 100, "de"),
    (2, 1, ""), (5, 10, ""), (-1, -2, ""), (0, -6, ""), (-100, -100, ""), (-3, 3, "cd"),
]  # fmt: skip


@pytest.mark.parametrize(("start", "stop", "expected"), RANGES)
def test_lrange(db, start, stop, expected):
    fill(db, *"abcde")
    assert db.do("LRANGE", "l", start, stop) == [letter.encode() for letter in expected]


@pytest.mark.parametrize(("start", "stop", "expected"), RANGES)
def test_ltrim_keeps_what_lrange_shows(db, start, stop, expected):
    fill(db, *"abcde")
    assert db.do("LTRIM", "l", start, stop) == b"OK"
    assert content(db) == [letter.encode() for letter in expected]
    assert db.do("EXISTS", "l") == (1 if expected else 0)
    assert db.do("RPUSH", "l", "z") == len(expected) + 1


def test_a_capped_log(db):
    for number in range(50):
        db.do("LPUSH", "l", number)
        db.do("LTRIM", "l", "0", "9")
    assert content(db) == [b"%d" % number for number in range(49, 39, -1)]


@pytest.mark.parametrize("name", ["LRANGE", "LTRIM"])
def test_ranges_look_at_numbers_before_the_key(db, name):
    db.do("SET", "s", "v")
    assert db.error(name, "s", "x", "1") == NOT_INTEGER
    assert db.error(name, "none", "0", "1.5") == NOT_INTEGER
    assert db.error(name, "s", "0", "1") == WRONGTYPE


def test_missing_lists(db):
    assert db.do("LLEN", "l") == 0
    assert db.do("LRANGE", "l", "0", "-1") == []
    assert db.do("LTRIM", "l", "0", "-1") == b"OK"
    assert db.do("LREM", "l", "0", "a") == 0
    assert db.do("LINSERT", "l", "BEFORE", "a", "b") == 0
    assert db.do("EXISTS", "l") == 0


def test_llen(db):
    fill(db, "a", "b", "c")
    assert db.do("LLEN", "l") == 3


# ------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("count", "removed", "rest"),
    [
        ("0", 3, "bcd"),
        ("1", 1, "bacad"),
        ("2", 2, "bcad"),
        ("-1", 1, "abacd"),
        ("-2", 2, "abcd"),
        ("10", 3, "bcd"),
        ("-10", 3, "bcd"),
        ("-9223372036854775807", 3, "bcd"),
    ],
)
def test_lrem(db, count, removed, rest):
    fill(db, *"abacad")
    assert db.do("LREM", "l", count, "a") == removed
    assert content(db) == [letter.encode() for letter in rest]
    assert db.do("LLEN", "l") == len(rest)


def test_lrem_of_everything_removes_the_key(db):
    fill(db, "a", "a", "a")
    assert db.do("LREM", "l", "0", "z") == 0
    assert db.do("LREM", "l", "0", "a") == 3
    assert db.do("EXISTS", "l") == 0


@pytest.mark.parametrize("doomed", ["1", "5", "50", "95", "98"])
def test_lrem_anywhere_in_a_longer_list(db, doomed):
    values = [b"%d" % number for number in range(100)]
    fill(db, *values)
    assert db.do("LREM", "l", "0", doomed) == 1
    values.remove(doomed.encode())
    assert content(db) == values
    assert db.do("LINDEX", "l", "-1") == values[-1]


@pytest.mark.parametrize(
    ("where", "pivot", "expected"),
    [("BEFORE", "a", "xabcb"), ("AFTER", "a", "axbcb"), ("before", "b", "axbcb"), ("After", "b", "abxcb")],
)
def test_linsert_at_the_first_match(db, where, pivot, expected):
    fill(db, *"abcb")
    assert db.do("LINSERT", "l", where, pivot, "x") == 5
    assert content(db) == [letter.encode() for letter in expected]


def test_linsert_without_pivot(db):
    fill(db, "a")
    assert db.do("LINSERT", "l", "AFTER", "z", "x") == -1
    assert db.do("LINSERT", "l", "AFTER", "a", "x") == 2
    assert content(db) == [b"a", b"x"]


def test_linsert_and_lrem_refusals(db):
    db.do("SET", "s", "v")
    assert db.error("LINSERT", "s", "NEXT", "a", "b") == SYNTAX
    assert db.error("LINSERT", "s", "AFTER", "a", "b") == WRONGTYPE
    assert db.error("LREM", "s", "x", "a") == NOT_INTEGER
    assert db.error("LREM", "s", "0", "a") == WRONGTYPE


# -------------------------------------------------------------------------------- lpos

LETTERS = "abcbdbeb"  # b at 1, 3, 5, 7


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), 1),
        (("RANK", "2"), 3),
        (("RANK", "5"), None),
        (("RANK", "-1"), 7),
        (("rank", "-4"), 1),
        (("RANK", "-5"), None),
        (("COUNT", "2"), [1, 3]),
        (("COUNT", "0"), [1, 3, 5, 7]),
        (("COUNT", "100"), [1, 3, 5, 7]),
        (("COUNT", "0", "RANK", "3"), [5, 7]),
        (("RANK", "-2", "COUNT", "2"), [5, 3]),
        (("COUNT", "0", "RANK", "-3"), [3, 1]),
        (("MAXLEN", "1"), None),
        (("MAXLEN", "2"), 1),
        (("MAXLEN", "0"), 1),
        (("COUNT", "0", "MAXLEN", "4"), [1, 3]),
        (("COUNT", "0", "MAXLEN", "4", "RANK", "-1"), [7, 5]),
        (("COUNT", "0", "MAXLEN", "1"), []),
        (("RANK", "1", "RANK", "2"), 3),
        (("RANK", "9223372036854775807", "COUNT", "9223372036854775807"), []),
    ],
)
def test_lpos(db, options, expected):
    fill(db, *LETTERS)
    assert db.do("LPOS", "l", "b", *options) == expected


def test_lpos_without_match(db):
    fill(db, *LETTERS)
    assert db.do("LPOS", "l", "z") is None
    assert db.do("LPOS", "l", "z", "COUNT", "1") == []
    assert db.do("LPOS", "none", "z") is None
    assert db.do("LPOS", "none", "z", "COUNT", "0") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("RANK",), SYNTAX),
        (("FIRST", "1"), SYNTAX),
        (("COUNT", "1", "RANK"), SYNTAX),
        (("RANK", "x"), NOT_INTEGER),
        (("COUNT", "-1"), "ERR COUNT can't be negative"),
        (("MAXLEN", "-1"), "ERR MAXLEN can't be negative"),
    ],
)
def test_lpos_refusals_come_before_the_type(db, options, message):
    db.do("SET", "s", "v")
    assert db.error("LPOS", "s", "a", *options) == message


def test_lpos_rank_zero(db):
    assert db.error("LPOS", "l", "a", "RANK", "0").startswith("ERR RANK can't be zero: use 1 to start from")


# ------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "words",
    [
        ("LPUSH", "s", "a"), ("RPUSH", "s", "a"), ("LPUSHX", "s", "a"), ("RPUSHX", "s", "a"),
        ("LPOP", "s"), ("RPOP", "s"), ("LPOP", "s", "0"), ("LLEN", "s"), ("LINDEX", "s", "0"),
        ("LSET", "s", "0", "a"), ("LRANGE", "s", "0", "1"), ("LTRIM", "s", "0", "1"), ("LREM", "s", "0", "a"),
        ("LINSERT", "s", "AFTER", "a", "b"), ("LPOS", "s", "a"), ("LMOVE", "s", "l", "LEFT", "LEFT"),
        ("RPOPLPUSH", "s", "l"), ("LMPOP", "1", "s", "LEFT"),
    ],
)  # fmt: skip
def test_keys_of_another_type_are_refused_and_kept(db, words):
    db.do("SET", "s", "v")
    assert db.error(*words) == WRONGTYPE
    assert db.do("GET", "s") == b"v"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("LPUSH", "l"), "lpush"), (("LLEN",), "llen"), (("LPOP",), "lpop"), (("LSET", "l", "0"), "lset"),
        (("LMOVE", "a", "b", "LEFT"), "lmove"), (("LMPOP", "1", "l"), "lmpop"),
        (("LRANGE", "l", "0"), "lrange"),
    ],
)  # fmt: skip
def test_arity(db, words, name):
    assert db.error(*words) == f"ERR wrong number of arguments for '{name}' command"


def test_a_whole_transaction(db):
    db.do("MULTI")
    for words in (
        ("RPUSH", "l", "a", "b"),
        ("LMOVE", "l", "m", "LEFT", "LEFT"),
        ("LPOP", "l", "5"),
        ("LLEN", "l"),
    ):
        assert db.do(*words) == b"QUEUED"
    assert db.do("EXEC") == [2, b"a", [b"b"], 0]


# ------------------------------------------------------------------------------ events


def test_events(db):
    db.do("CONFIG", "SET", "notify-keyspace-events", "Elg")
    listener = db.client()
    listener.do("PSUBSCRIBE", "__keyevent@0__:*")

    def events(*words: Any) -> list[tuple[str, str]]:
        """What a command announced: the end is marked by the event of a command of its own."""
        db.do(*words)
        db.do("SET", "mark", "v")
        db.do("DEL", "mark")
        seen = []
        while True:
            kind, *_, channel, key = listener.receive()
            if kind == b"psubscribe":
                continue
            if key == b"mark":
                return seen
            seen.append((channel.decode().partition(":")[2], key.decode()))

    assert events("RPUSH", "l", "a", "b", "a") == [("rpush", "l")]
    assert events("LPUSH", "l", "a") == [("lpush", "l")]
    assert events("LPUSHX", "none", "a") == []
    assert events("LPUSHX", "l", "c") == [("lpush", "l")]
    assert events("LSET", "l", "0", "d") == [("lset", "l")]
    assert events("LINSERT", "l", "AFTER", "d", "e") == [("linsert", "l")]
    assert events("LINSERT", "l", "AFTER", "z", "e") == []
    assert events("LREM", "l", "0", "z") == []
    assert events("LREM", "l", "1", "d") == [("lrem", "l")]
    assert events("LTRIM", "l", "0", "-1") == [("ltrim", "l")]
    assert events("LPOP", "l", "0") == []
    assert events("LPOP", "l", "3") == [("lpop", "l")]
    assert events("LMOVE", "l", "m", "RIGHT", "LEFT") == [("lpush", "m"), ("rpop", "l")]
    assert events("LMOVE", "l", "m", "LEFT", "RIGHT") == [("rpush", "m"), ("lpop", "l"), ("del", "l")]
    assert events("RPOPLPUSH", "m", "m") == [("lpush", "m"), ("rpop", "m")]
    assert events("RPOP", "m") == [("rpop", "m")]
    assert events("LMPOP", "1", "m", "LEFT", "COUNT", "9") == [("lpop", "m"), ("del", "m")]
    assert events("RPUSH", "l", "a") == [("rpush", "l")]
    assert events("LTRIM", "l", "1", "0") == [("ltrim", "l"), ("del", "l")]
