"""Taking the least and the most: at once, or when there is something."""

from __future__ import annotations

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.commands.registry import ATTEMPTS, Served
from tests.conformance.blocking import blocked
from tests.conformance.refusals import SYNTAX
from tests.conformance.sorted_sets.contents import fill, letters, names, with_scores


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


# ------------------------------------------------------------------------------------------ waiting


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
