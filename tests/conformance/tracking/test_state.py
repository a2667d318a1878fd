"""CLIENT TRACKING: how it is turned on and off, what is told of it, what is refused."""

from __future__ import annotations

import pytest

from tests.conformance.refusals import SYNTAX
from tests.conformance.tracking.trackers import Tracker, clients_of, flags, info


def test_tracking_is_off(db):
    assert info(db) == {b"flags": [b"off"], b"redirect": -1, b"prefixes": []}
    assert db.do("CLIENT", "GETREDIR") == -1
    assert db.do("CLIENT", "TRACKING", "OFF") == b"OK"
    assert db.error("CLIENT", "CACHING", "YES") == (
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT"
        " mode enabled"
    )


def test_turned_off(db):
    tracker = Tracker(db)
    tracker.do("GET", "k")
    assert tracker.do("CLIENT", "TRACKING", "OFF", "NOLOOP") == b"OK"
    assert flags(tracker.client) == [b"off"]
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()


def test_reset_turns_it_off(db):
    tracker = Tracker(db, "BCAST")
    assert tracker.do("RESET") == b"RESET"
    assert tracker.do("CLIENT", "GETREDIR") == -1
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()


def test_client_list_and_info_show_it(db):
    plain, broadcast = Tracker(db), Tracker(db, "BCAST", "PREFIX", "p")
    lines = {line.split()[0][3:]: line.split() for line in clients_of(db)}
    numbers = [str(tracker.do("CLIENT", "ID")) for tracker in (plain, broadcast)]
    assert ["flags=t" in lines[numbers[0]], "flags=tB" in lines[numbers[1]]] == [True, True]
    assert "redir=-1" in lines[str(db.do("CLIENT", "ID"))]
    assert f"redir={plain.do('CLIENT', 'GETREDIR')}" in lines[numbers[0]]
    plain.do("MGET", "a", "b")
    text = db.do("INFO").decode()
    for line in ("tracking_clients:2", "tracking_total_prefixes:1"):
        assert f"{line}\r\n" in text


def test_the_memory_is_bounded(db):
    before = db.do("CONFIG", "GET", "tracking-table-max-keys")
    assert db.map({b"tracking-table-max-keys": b"1000000"}) == before
    tracker = Tracker(db)
    try:
        assert db.do("CONFIG", "SET", "tracking-table-max-keys", "2") == b"OK"
        keys = [b"a", b"b", b"c", b"d", b"e"]
        tracker.do("MGET", *keys)
        lost = [tracker.told() for _ in range(3)]
        db.do("MSET", *(word for key in keys for word in (key, "1")))
        left = [tracker.told() for _ in range(2)]
        assert sorted(lost + left) == [[key] for key in keys]
        assert tracker.is_told_nothing()
    finally:
        db.do("CONFIG", "SET", "tracking-table-max-keys", "1000000")


# ----------------------------------------------------------------------------------------- refusals


SWITCH_BCAST = (
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling"
    " it with a different mode."
)
SWITCH_OPT = (
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling"
    " it with a different mode."
)
OVERLAP = "ERR Prefix '{}' overlaps with {} prefix '{}'. Prefixes for a single client must not overlap."
UNKNOWN_CLIENT = "ERR The client ID you want redirect to does not exist"
PREFIX_ALONE = "ERR PREFIX option requires BCAST mode to be enabled"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("maybe", SYNTAX),
        ("ON NONSENSE", SYNTAX),
        ("ON PREFIX", SYNTAX),
        ("ON REDIRECT", SYNTAX),
        ("OFF NONSENSE", SYNTAX),
        ("maybe REDIRECT 123456789", UNKNOWN_CLIENT),
        ("ON REDIRECT 123456789", UNKNOWN_CLIENT),
        ("ON REDIRECT 0", UNKNOWN_CLIENT),
        ("ON REDIRECT x", "ERR value is not an integer or out of range"),
        ("ON PREFIX p", PREFIX_ALONE),
        ("ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("ON BCAST OPTOUT", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode"),
        ("ON BCAST PREFIX ab PREFIX abc", OVERLAP.format("ab", "another provided", "abc")),
        ("ON BCAST PREFIX a PREFIX a", OVERLAP.format("a", "another provided", "a")),
        ("", "ERR wrong number of arguments for 'client|tracking' command"),
    ],
)
def test_refused(db, words, error):
    assert db.error("CLIENT", "TRACKING", *words.split()) == error
    assert db.do("CLIENT", "GETREDIR") == -1


@pytest.mark.parametrize(
    ("first", "then", "error"),
    [
        ("", "BCAST", SWITCH_BCAST),
        ("BCAST", "", SWITCH_BCAST),
        ("BCAST", "OPTIN", SWITCH_BCAST),
        ("OPTIN", "OPTOUT", SWITCH_OPT),
        ("OPTOUT", "OPTIN", SWITCH_OPT),
        ("BCAST PREFIX ab", "BCAST PREFIX abc", OVERLAP.format("abc", "an existing", "ab")),
        ("BCAST PREFIX ab", "BCAST PREFIX a", OVERLAP.format("a", "an existing", "ab")),
        ("BCAST", "BCAST PREFIX a", OVERLAP.format("a", "an existing", "")),
    ],
)
def test_refused_afterwards(db, first, then, error):
    assert db.do("CLIENT", "TRACKING", "ON", *first.split()) == b"OK"
    before = info(db)
    assert db.error("CLIENT", "TRACKING", "ON", *then.split()) == error
    assert info(db) == before


def test_two_redirections(db):
    number = db.do("CLIENT", "ID")
    words = ("CLIENT", "TRACKING", "ON", "REDIRECT", number, "REDIRECT", number)
    assert db.error(*words) == "ERR A client can only redirect to a single other client"


def test_options_can_be_set_anew(db):
    for options, shown in (("NOLOOP", [b"on", b"noloop"]), ("OPTIN", [b"on", b"optin"]), ("", [b"on"])):
        assert db.do("CLIENT", "TRACKING", "ON", *options.split()) == b"OK"
        assert flags(db) == shown


@pytest.mark.parametrize(
    ("mode", "word", "error"),
    [
        ("OPTOUT", "YES", "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        ("OPTIN", "NO", "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("NOLOOP", "NO", "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        ("OPTIN", "maybe", SYNTAX),
    ],
)
def test_refused_caching(db, mode, word, error):
    db.do("CLIENT", "TRACKING", "ON", mode)
    assert db.error("CLIENT", "CACHING", word) == error
