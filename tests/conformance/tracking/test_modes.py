"""CLIENT TRACKING: what is asked for or excepted, prefixes, redirection."""

from __future__ import annotations

import pytest

from tests.conformance.tracking.trackers import (
    CHANNEL,
    Tracker,
    clients_of,
    flags,
    info,
    needs_resp3,
    needs_socket,
)


def test_optin_counts_what_is_asked_for(db):
    tracker = Tracker(db, "OPTIN")
    tracker.do("GET", "a")
    assert tracker.do("CLIENT", "CACHING", "YES") == b"OK"
    assert flags(tracker.client) == [b"on", b"optin", b"caching-yes"]
    tracker.do("GET", "b")
    assert flags(tracker.client) == [b"on", b"optin"]
    tracker.do("GET", "c")
    db.do("MSET", "a", "1", "b", "1", "c", "1")
    assert tracker.told() == [b"b"]
    assert tracker.is_told_nothing()


def test_optout_counts_all_but_what_is_excepted(db):
    tracker = Tracker(db, "OPTOUT")
    tracker.do("GET", "a")
    assert tracker.do("CLIENT", "CACHING", "NO") == b"OK"
    assert flags(tracker.client) == [b"on", b"optout", b"caching-no"]
    tracker.do("GET", "b")
    tracker.do("GET", "c")
    db.do("MSET", "a", "1", "b", "1", "c", "1")
    assert [tracker.told(), tracker.told()] == [[b"a"], [b"c"]]
    assert tracker.is_told_nothing()


def test_caching_holds_for_a_whole_transaction(db):
    tracker = Tracker(db, "OPTIN")
    tracker.do("CLIENT", "CACHING", "YES")
    tracker.do("MULTI")
    tracker.do("GET", "a")
    tracker.do("GET", "b")
    tracker.do("EXEC")
    tracker.do("GET", "c")
    db.do("MSET", "c", "1", "b", "1", "a", "1")
    assert [tracker.told(), tracker.told()] == [[b"b"], [b"a"]]
    assert tracker.is_told_nothing()


@pytest.mark.parametrize("next_command", ["NO-SUCH-COMMAND", "GET", "PING"])
def test_caching_is_spent_by_any_command(db, next_command):
    tracker = Tracker(db, "OPTIN")
    tracker.do("CLIENT", "CACHING", "YES")
    tracker.do("CLIENT", "ID")
    assert b"caching-yes" in flags(tracker.client)
    tracker.do(next_command)
    tracker.do("GET", "k")
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()


# ---------------------------------------------------------------------------------------- broadcast


def test_broadcast_tells_of_every_key(db):
    tracker = Tracker(db, "BCAST")
    db.do("SET", "k", "1")
    assert tracker.told() == [b"k"]
    db.do("SET", "k", "1")
    assert tracker.told() == [b"k"]
    assert info(tracker.client)[b"prefixes"] == [b""]


def test_broadcast_by_prefix(db):
    tracker = Tracker(db, "BCAST", "PREFIX", "cd", "PREFIX", "ab")
    assert info(tracker.client)[b"prefixes"] == [b"ab", b"cd"]
    db.do("MSET", "cd", "1", "abz", "1", "a", "1", "ab", "1", "abz", "2", "x", "1")
    assert [tracker.told(), tracker.told()] == [[b"ab", b"abz"], [b"cd"]]
    assert tracker.is_told_nothing()


def test_prefixes_add_up(db):
    tracker = Tracker(db, "BCAST", "PREFIX", "a")
    redirect = info(tracker.client)[b"redirect"]
    words = ("REDIRECT", redirect) if redirect else ()
    assert tracker.do("CLIENT", "TRACKING", "ON", *words, "BCAST", "PREFIX", "b") == b"OK"
    assert info(tracker.client)[b"prefixes"] == [b"a", b"b"]
    db.do("SET", "a1", "")
    db.do("SET", "b1", "")
    assert [tracker.told(), tracker.told()] == [[b"a1"], [b"b1"]]


def test_broadcast_and_own_changes(db):
    loud, calm = Tracker(db, "BCAST"), Tracker(db, "BCAST", "NOLOOP")
    calm.do("SET", "k", "1")
    assert loud.told() == [b"k"]
    assert calm.is_told_nothing()
    loud.do("SET", "k", "1")
    assert loud.told() == calm.told() == [b"k"]


def test_broadcast_does_not_remember_reads(db):
    tracker = Tracker(db, "BCAST", "PREFIX", "p")
    tracker.do("GET", "k")
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()


# -------------------------------------------------------------------------------------- redirection


def test_redirection_to_a_client_with_pushes(db):
    needs_resp3(db)
    ear, reader = db.client(), db.client()
    number = ear.do("CLIENT", "ID")
    assert reader.do("CLIENT", "TRACKING", "ON", "REDIRECT", number) == b"OK"
    assert reader.do("CLIENT", "GETREDIR") == number
    assert info(reader) == {b"flags": [b"on"], b"redirect": number, b"prefixes": []}
    reader.do("GET", "k")
    db.do("SET", "k", "1")
    assert ear.receive() == [b"invalidate", [b"k"]]
    assert reader.nothing_arrives()


def test_redirection_in_resp2_needs_a_subscriber(db):
    needs_socket(db)
    ear, reader = db.client(resp=2), db.client()
    reader.do("CLIENT", "TRACKING", "ON", "REDIRECT", ear.do("CLIENT", "ID"))
    reader.do("GET", "k")
    db.do("SET", "k", "1")
    assert ear.nothing_arrives()
    ear.do("SUBSCRIBE", "anything")
    reader.do("GET", "k")
    db.do("SET", "k", "1")
    assert ear.receive() == [b"message", CHANNEL, [b"k"]]
    db.do("FLUSHALL")
    assert ear.receive()[:2] == [b"message", CHANNEL]


def test_resp2_without_redirection_hears_nothing(db):
    needs_socket(db)
    reader = db.client(resp=2)
    assert reader.do("CLIENT", "TRACKING", "ON") == b"OK"
    reader.do("GET", "k")
    db.do("SET", "k", "1")
    assert reader.nothing_arrives()
    assert reader.do("PING") == b"PONG"


def test_a_broken_redirection_is_told(db):
    needs_resp3(db)
    ear, reader = db.client(), db.client()
    number = ear.do("CLIENT", "ID")
    reader.do("CLIENT", "TRACKING", "ON", "REDIRECT", number)
    ear.close()
    while str(number) in [line.split()[0][3:] for line in clients_of(db)]:
        pass
    reader.do("GET", "k")
    db.do("SET", "k", "1")
    assert reader.receive() == [b"tracking-redir-broken", number]
    assert flags(reader) == [b"on", b"broken_redirect"]
    assert reader.do("CLIENT", "TRACKING", "ON") == b"OK"
    assert flags(reader) == [b"on"]
