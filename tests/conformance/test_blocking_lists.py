"""List commands that wait: who is served, in which order, with what, and when nobody is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.commands.registry import ATTEMPTS, Served
from tests.conformance.blocking import blocked
from tests.conformance.refusals import SYNTAX, WRONGTYPE

BAD_TIMEOUT = "ERR timeout is not a float or out of range"


def content(db: Any, key: str) -> list[bytes]:
    return db.do("LRANGE", key, "0", "-1")


# ----------------------------------------------------------------------- without a wait


def test_an_element_that_is_there_is_taken_at_once(db):
    db.do("RPUSH", "l", "a", "b", "c", "d")
    assert db.do("BLPOP", "l", "0") == [b"l", b"a"]
    assert db.do("BRPOP", "l", "0") == [b"l", b"d"]
    assert db.do("blmpop", "0", "1", "l", "RIGHT", "COUNT", "5") == [b"l", [b"c", b"b"]]
    assert db.do("EXISTS", "l") == 0


def test_keys_are_tried_in_their_order(db):
    db.do("RPUSH", "second", "2")
    db.do("RPUSH", "third", "3")
    assert db.do("BLPOP", "first", "second", "third", "0") == [b"second", b"2"]
    assert db.do("BRPOP", "first", "second", "third", "0") == [b"third", b"3"]


def test_moves_at_once(db):
    db.do("RPUSH", "from", "a", "b", "c")
    assert db.do("BLMOVE", "from", "to", "LEFT", "RIGHT", "0") == b"a"
    assert db.do("BRPOPLPUSH", "from", "to", "0") == b"c"
    assert content(db, "from") == [b"b"]
    assert content(db, "to") == [b"c", b"a"]


def test_time_runs_out(db):
    assert db.do("BLPOP", "l", "m", "0.01") is None
    assert db.do("BRPOP", "l", "0.01") is None
    assert db.do("BLMOVE", "l", "m", "LEFT", "LEFT", "0.01") is None
    assert db.do("BRPOPLPUSH", "l", "m", "0.01") is None
    assert db.do("BLMPOP", "0.01", "2", "l", "m", "LEFT") is None
    # Who gave up takes nothing any more.
    db.do("RPUSH", "l", "a")
    assert content(db, "l") == [b"a"]


def test_other_types_are_refused_at_the_call(db):
    db.do("SET", "s", "v")
    db.do("RPUSH", "l", "a")
    assert db.error("BLPOP", "none", "s", "l", "0") == WRONGTYPE
    assert db.error("BLMPOP", "0", "2", "s", "l", "LEFT") == WRONGTYPE
    assert db.error("BLMOVE", "s", "l", "LEFT", "LEFT", "0") == WRONGTYPE
    assert db.error("BLMOVE", "l", "s", "LEFT", "LEFT", "0") == WRONGTYPE
    assert db.error("BRPOPLPUSH", "l", "s", "0") == WRONGTYPE
    assert db.do("BRPOP", "l", "s", "0") == [b"l", b"a"]
    assert db.do("GET", "s") == b"v"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("BLPOP", "l", "x"), BAD_TIMEOUT),
        (("BRPOP", "l", "nan"), BAD_TIMEOUT),
        (("BLPOP", "l", "-1"), "ERR timeout is negative"),
        (("BLMOVE", "l", "m", "UP", "LEFT", "x"), SYNTAX),
        (("BLMOVE", "l", "m", "LEFT", "LEFT", "x"), BAD_TIMEOUT),
        (("BRPOPLPUSH", "l", "m", "-0.5"), "ERR timeout is negative"),
        (("BLMPOP", "x", "1", "l", "LEFT"), BAD_TIMEOUT),
        (("BLMPOP", "x", "1", "l", "UP"), SYNTAX),
        (("BLMPOP", "0", "0", "l", "LEFT"), "ERR numkeys should be greater than 0"),
        (("BLMPOP", "x", "1", "l", "LEFT", "COUNT", "0"), "ERR count should be greater than 0"),
        (("BLPOP", "l"), "ERR wrong number of arguments for 'blpop' command"),
        (("BLMOVE", "l", "m", "LEFT", "LEFT"), "ERR wrong number of arguments for 'blmove' command"),
    ],
)
def test_refusals(db, words, message):
    db.do("RPUSH", "l", "a")
    assert db.error(*words) == message
    assert content(db, "l") == [b"a"]


def test_nobody_waits_inside_a_transaction(db):
    db.do("MULTI")
    db.do("BLPOP", "l", "0")
    db.do("BLMOVE", "l", "m", "LEFT", "LEFT", "0")
    db.do("BRPOPLPUSH", "l", "m", "0")
    db.do("BLMPOP", "0", "1", "l", "LEFT")
    db.do("RPUSH", "l", "a", "b")
    db.do("BRPOP", "l", "0")
    assert db.do("EXEC") == [None, None, None, None, 2, [b"l", b"b"]]
    assert content(db, "l") == [b"a"]


# ----------------------------------------------------------------------------- waiting


@pytest.mark.parametrize(
    ("words", "reply", "left"),
    [
        (("BLPOP", "l", "0"), [b"l", b"a"], [b"b", b"c"]),
        (("BRPOP", "l", "0"), [b"l", b"c"], [b"a", b"b"]),
        (("BLPOP", "none", "l", "l", "20"), [b"l", b"a"], [b"b", b"c"]),
        (("BLMPOP", "0", "1", "l", "LEFT"), [b"l", [b"a"]], [b"b", b"c"]),
        (("BLMPOP", "0", "2", "none", "l", "RIGHT", "COUNT", "2"), [b"l", [b"c", b"b"]], [b"a"]),
        (("BLMPOP", "0", "1", "l", "LEFT", "COUNT", "9"), [b"l", [b"a", b"b", b"c"]], []),
        (("BLMOVE", "l", "to", "LEFT", "LEFT", "0"), b"a", [b"b", b"c"]),
        (("BRPOPLPUSH", "l", "to", "0"), b"c", [b"a", b"b"]),
        (("brpoplpush", "l", "l", "0"), b"c", [b"c", b"a", b"b"]),
    ],
)
def test_a_push_serves_who_waits(db, words, reply, left):
    client = blocked(db, *words)
    assert db.do("RPUSH", "l", "a", "b", "c") == 3
    assert client.receive() == reply
    assert content(db, "l") == left
    # The client is free again, and waits for nothing.
    assert client.do("PING") == b"PONG"
    db.do("DEL", "l")
    db.do("RPUSH", "l", "later")
    assert content(db, "l") == [b"later"]


def test_the_pusher_counts_before_anyone_is_served(db):
    client = blocked(db, "BLPOP", "l", "0")
    assert db.do("LPUSH", "l", "a", "b") == 2
    assert client.receive() == [b"l", b"b"]
    assert content(db, "l") == [b"a"]


def test_first_come_first_served(db):
    clients = [blocked(db, "BLPOP", "l", "0") for _ in range(4)]
    assert db.do("RPUSH", "l", "1", "2", "3") == 3
    assert [client.receive() for client in clients[:3]] == [[b"l", b"1"], [b"l", b"2"], [b"l", b"3"]]
    assert clients[3].nothing_arrives()
    db.do("RPUSH", "l", "4", "5")
    assert clients[3].receive() == [b"l", b"4"]
    assert content(db, "l") == [b"5"]


def test_different_commands_share_one_queue(db):
    head = blocked(db, "BLPOP", "l", "0")
    move = blocked(db, "BLMOVE", "l", "to", "RIGHT", "LEFT", "0")
    many = blocked(db, "BLMPOP", "0", "1", "l", "LEFT", "COUNT", "2")
    tail = blocked(db, "BRPOP", "l", "0")
    db.do("RPUSH", "l", "1", "2", "3", "4", "5")
    assert head.receive() == [b"l", b"1"]
    assert move.receive() == b"5"
    assert many.receive() == [b"l", [b"2", b"3"]]
    assert tail.receive() == [b"l", b"4"]
    assert content(db, "to") == [b"5"]
    assert db.do("EXISTS", "l") == 0


def test_one_client_on_two_keys_is_served_once(db):
    client = blocked(db, "BLPOP", "a", "b", "0")
    db.do("RPUSH", "b", "x")
    db.do("RPUSH", "a", "y")
    assert client.receive() == [b"b", b"x"]
    assert content(db, "a") == [b"y"]


def test_a_chain_of_moves(db):
    last = blocked(db, "BLPOP", "c", "0")
    middle = blocked(db, "BLMOVE", "b", "c", "LEFT", "LEFT", "0")
    first = blocked(db, "BRPOPLPUSH", "a", "b", "0")
    assert db.do("LPUSH", "a", "x") == 1
    assert first.receive() == b"x"
    assert middle.receive() == b"x"
    assert last.receive() == [b"c", b"x"]
    assert db.do("EXISTS", "a", "b", "c") == 0


def test_two_who_move_to_each_other(db):
    one = blocked(db, "BRPOPLPUSH", "a", "b", "0")
    two = blocked(db, "BRPOPLPUSH", "b", "a", "0")
    db.do("RPUSH", "a", "x")
    assert one.receive() == b"x"
    assert two.receive() == b"x"
    assert content(db, "a") == [b"x"]
    assert db.do("EXISTS", "b") == 0


def test_a_move_makes_its_target_ready(db):
    client = blocked(db, "BLPOP", "to", "0")
    db.do("RPUSH", "from", "x")
    assert db.do("LMOVE", "from", "to", "LEFT", "LEFT") == b"x"
    assert client.receive() == [b"to", b"x"]


def test_a_transaction_serves_at_its_end(db):
    client = blocked(db, "BLPOP", "l", "0")
    db.do("MULTI")
    db.do("RPUSH", "l", "gone")
    db.do("DEL", "l")
    db.do("RPUSH", "l", "a", "b")
    db.do("LPOP", "l")
    assert db.do("EXEC") == [1, 1, 2, b"a"]
    assert client.receive() == [b"l", b"b"]


def test_a_transaction_that_takes_its_own_push_back_serves_nobody(db):
    client = blocked(db, "BLPOP", "l", "0")
    db.do("MULTI")
    db.do("RPUSH", "l", "a")
    db.do("DEL", "l")
    assert db.do("EXEC") == [1, 1]
    assert client.nothing_arrives()
    db.do("RPUSH", "l", "b")
    assert client.receive() == [b"l", b"b"]


def test_other_ways_to_make_a_list(db):
    client = blocked(db, "BLPOP", "l", "0")
    db.do("RPUSH", "other", "a", "b")
    db.do("RENAME", "other", "l")
    assert client.receive() == [b"l", b"a"]
    client = blocked(db, "BLPOP", "copy", "0")
    assert db.do("COPY", "l", "copy") == 1
    assert client.receive() == [b"copy", b"b"]


def test_waiting_is_for_one_database(db):
    client = blocked(db, "BLPOP", "l", "0")
    db.do("SELECT", "1")
    db.do("DEL", "l")
    db.do("RPUSH", "l", "other")
    assert client.nothing_arrives()
    db.do("SELECT", "0")
    db.do("RPUSH", "l", "mine")
    assert client.receive() == [b"l", b"mine"]


# ---------------------------------------------------------------- other types meanwhile


def test_a_key_of_another_type_does_not_end_the_wait(db):
    client = blocked(db, "BLPOP", "l", "0")
    db.do("SET", "l", "text")
    db.do("DEL", "l")
    db.do("SADD", "l", "member")
    db.do("DEL", "l")
    assert client.nothing_arrives()
    db.do("RPUSH", "l", "a")
    assert client.receive() == [b"l", b"a"]


def test_one_key_of_another_type_does_not_keep_from_the_others(db):
    if db.kind == "valkey":
        pytest.skip("calls the whole command again, hence answers WRONGTYPE; Redis 7.0 serves")
    client = blocked(db, "BLPOP", "first", "second", "0")
    db.do("SET", "first", "text")
    db.do("RPUSH", "second", "a")
    assert client.receive() == [b"second", b"a"]


def test_a_move_whose_target_is_of_another_type_ends_with_an_error(db):
    client = blocked(db, "BLMOVE", "l", "s", "LEFT", "LEFT", "0")
    db.do("SET", "s", "v")
    assert db.do("RPUSH", "l", "a") == 1
    assert str(client.receive()) == WRONGTYPE
    assert content(db, "l") == [b"a"]
    assert db.do("GET", "s") == b"v"


# ------------------------------------------------------------------- beside the replies


@pytest.mark.parametrize(
    "words",
    [
        [b"BLPOP", b"none", b"l", b"0"],
        [b"BRPOP", b"l", b"0"],
        [b"BLMPOP", b"0", b"1", b"l", b"LEFT", b"COUNT", b"3"],
        [b"BLMPOP", b"0", b"1", b"l", b"RIGHT", b"COUNT", b"3"],
        [b"BLMPOP", b"0", b"1", b"l", b"RIGHT", b"COUNT", b"9"],
    ],
)
def test_what_a_dead_process_never_took_goes_back_to_its_place(tmp_path, words):
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine:
        session = LocalSession(engine)
        session.execute("RPUSH", "l", "a", "b", "c", "d")
        served: list[Served | None] = []
        engine.run_task(lambda: served.append(ATTEMPTS[words[0]](engine.keyspaces[0], words)))
        assert served[0] is not None
        assert session.execute("LLEN", "l") < 4
        for command in served[0].restore:
            session.execute(*command)
        assert session.execute("LRANGE", "l", "0", "-1") == [b"a", b"b", b"c", b"d"]


def test_events_of_served_clients(db):
    db.do("CONFIG", "SET", "notify-keyspace-events", "Elg")
    listener = db.client()
    listener.do("PSUBSCRIBE", "__keyevent@0__:*")
    pop = blocked(db, "BLPOP", "a", "0")
    move = blocked(db, "BLMOVE", "b", "c", "LEFT", "RIGHT", "0")
    db.do("RPUSH", "a", "x")
    db.do("RPUSH", "b", "y")
    assert pop.receive() == [b"a", b"x"]
    assert move.receive() == b"y"
    expected = [("rpush", "a"), ("lpop", "a"), ("del", "a")]
    expected += [("rpush", "b"), ("rpush", "c"), ("lpop", "b"), ("del", "b")]
    seen: list[tuple[str, str]] = []
    while len(seen) < len(expected):
        kind, *_, channel, key = listener.receive()
        if kind == b"pmessage":
            seen.append((channel.decode().partition(":")[2], key.decode()))
    assert seen == expected
