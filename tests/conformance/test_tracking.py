"""CLIENT TRACKING on every backend: who read a key, or asked for a prefix, is told when it changes.

In RESP2 a connection cannot be told anything beside its replies: there another one, which
has subscribed, is told instead (REDIRECT). ``Tracker`` hides that, so that one test serves
both. Redis 7.0 remembers the declared keys of a script, its successors those that it read:
the scripts here read what they declare.
"""

from __future__ import annotations

from typing import Any

import pytest

SYNTAX = "ERR syntax error"
CHANNEL = b"__redis__:invalidate"


class Tracker:
    """A client that tracks, and what it is told."""

    def __init__(self, db: Any, *options: Any) -> None:
        self._db = db
        self.client = db.client()
        self._ear = self.client
        redirect: tuple[Any, ...] = ()
        if db.resp == 2:
            self._ear = db.client()
            redirect = ("REDIRECT", self._ear.do("CLIENT", "ID"))
            assert self._ear.do("SUBSCRIBE", CHANNEL)[0] == b"subscribe"
        assert self.client.do("CLIENT", "TRACKING", "ON", *redirect, *options) == b"OK"

    def do(self, *words: Any) -> Any:
        return self.client.do(*words)

    def told(self) -> Any:
        """The keys of the next message, None for all."""
        message = self._ear.receive()
        assert message[:-1] == ([b"message", CHANNEL] if self._db.resp == 2 else [b"invalidate"])
        return message[-1]

    def is_told_nothing(self) -> bool:
        return self._ear.nothing_arrives()


def needs_socket(db: Any) -> None:
    if db.kind == "engine":
        pytest.skip("in process, replies and pushes are taken separately")


def needs_resp3(db: Any) -> None:
    if db.resp == 2:
        pytest.skip("RESP2 has no pushes")


def info(client: Any) -> dict[bytes, Any]:
    reply = client.do("CLIENT", "TRACKINGINFO")
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def flags(client: Any) -> list[bytes]:
    return list(info(client)[b"flags"])


# ----------------------------------------------------------------------- what was read


def test_who_read_a_key_is_told_once(db):
    tracker = Tracker(db)
    db.do("SET", "k", "1")
    assert tracker.is_told_nothing()
    assert tracker.do("GET", "k") == b"1"
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]
    db.do("SET", "k", "3")
    assert tracker.is_told_nothing()
    assert tracker.do("GET", "k") == b"3"
    db.do("DEL", "k")
    assert tracker.told() == [b"k"]


def test_every_tracker_is_told(db):
    one, other, idle = Tracker(db), Tracker(db), Tracker(db)
    one.do("GET", "k")
    other.do("GET", "k")
    idle.do("GET", "another")
    db.do("SET", "k", "1")
    assert one.told() == other.told() == [b"k"]
    assert idle.is_told_nothing()


def test_each_key_of_a_command_counts_alone(db):
    tracker = Tracker(db)
    tracker.do("MGET", "a", "b", "c", "a")
    db.do("MSET", "b", "1", "d", "1", "a", "1")
    assert [tracker.told(), tracker.told()] == [[b"b"], [b"a"]]
    assert tracker.is_told_nothing()


@pytest.mark.parametrize(
    "read", ["EXISTS k", "TYPE k", "TTL k", "STRLEN k", "GETRANGE k 0 1", "OBJECT ENCODING k", "DUMP k"]
)
def test_what_only_reads_is_remembered(db, read):
    db.do("SET", "k", "1")
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do("APPEND", "k", "2")
    assert tracker.told() == [b"k"]


@pytest.mark.parametrize("read", ["GETDEL k", "GETEX k", "APPEND k x", "KEYS *", "SCAN 0", "PING k"])
def test_what_also_writes_or_names_no_key_is_not(db, read):
    db.do("SET", "k", "1")
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do("SET", "k", "2")
    assert tracker.is_told_nothing()


def test_refused_reads_and_missing_keys_count(db):
    tracker = Tracker(db)
    db.do("RPUSH", "l", "x")
    assert tracker.do("GET", "nothing") is None
    assert "WRONGTYPE" in tracker.client.error("GET", "l")
    db.do("SET", "nothing", "1")
    db.do("RPUSH", "l", "y")
    assert [tracker.told(), tracker.told()] == [[b"nothing"], [b"l"]]


def test_what_changed_nothing_tells_nobody(db):
    tracker = Tracker(db)
    db.do("SET", "k", "1")
    tracker.do("MGET", "k", "missing")
    db.do("SETNX", "k", "2")
    db.do("DEL", "missing")
    db.do("SREM", "missing", "x")
    assert tracker.is_told_nothing()


@pytest.mark.parametrize(
    "change",
    ["SET k 1", "EXPIRE k 100", "RENAME other k", "RENAME k other", "COPY other k REPLACE", "MOVE k 1",
     "SETRANGE k 0 z", "GETDEL k", "SET other 2 EX 100"],
)  # fmt: skip
def test_changes_of_all_kinds(db, change):
    db.do("MSET", "k", "0", "other", "1")
    tracker = Tracker(db)
    tracker.do("GET", "k" if " k" in change else "other")
    db.do(*change.split())
    assert tracker.told() == [b"k" if " k" in change else b"other"]


@pytest.mark.parametrize(
    ("write", "read", "change"),
    [
        ("RPUSH k a b", "LRANGE k 0 -1", "LPOP k"),
        ("SADD k a b", "SMEMBERS k", "SREM k a"),
        ("HSET k f v", "HGET k f", "HINCRBY k n 1"),
        ("ZADD k 1 a", "ZRANGE k 0 -1", "ZINCRBY k 1 a"),
        ("SETBIT k 7 1", "BITCOUNT k", "SETBIT k 3 1"),
        ("PFADD k a", "PFCOUNT k", "PFADD k b c d"),
        ("RPUSH k a b", "LLEN k", "LMOVE k other LEFT LEFT"),
        ("SADD k a", "SCARD k", "SINTERSTORE k k other"),
        ("RPUSH k 2 1", "LINDEX k 0", "SORT k STORE k"),
    ],
)
def test_every_type(db, write, read, change):
    db.do(*write.split())
    tracker = Tracker(db)
    tracker.do(*read.split())
    db.do(*change.split())
    assert tracker.told() == [b"k"]


def test_a_key_is_a_name_in_any_database(db):
    tracker = Tracker(db)
    tracker.do("GET", "k")
    db.do("SELECT", 3)
    db.do("SET", "k", "1")
    assert tracker.told() == [b"k"]


def test_a_key_that_expires(db):
    db.do("SET", "k", "1", "PX", "50")
    tracker = Tracker(db)
    tracker.do("GET", "k")
    while db.do("GET", "k") is not None:
        pass
    if db.kind == "engine":  # nobody does the duties of an idle engine
        db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


@pytest.mark.parametrize("flush", ["FLUSHALL", "FLUSHDB"])
def test_a_flush_is_one_message_for_all_keys(db, flush):
    tracker, broadcaster = Tracker(db), Tracker(db, "BCAST", "PREFIX", "p")
    tracker.do("MGET", "a", "b")
    db.do(flush)
    assert tracker.told() is None
    assert broadcaster.told() is None
    db.do("SET", "a", "1")
    assert tracker.is_told_nothing()
    assert broadcaster.is_told_nothing()


def test_scripts_read_and_write_for_their_caller(db):
    tracker = Tracker(db)
    tracker.do("EVAL", "return redis.call('GET', KEYS[1])", 1, "k")
    db.do("EVAL", "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[1], 2)", 1, "k")
    assert tracker.told() == [b"k"]
    tracker.do("EVAL", "return 1", 1, "k")
    db.do("SET", "k", "3")
    assert tracker.is_told_nothing()


def test_transactions_read_and_write(db):
    tracker = Tracker(db)
    tracker.do("MULTI")
    tracker.do("GET", "k")
    tracker.do("EXEC")
    db.do("MULTI")
    db.do("SET", "k", "1")
    db.do("SET", "k", "2")
    db.do("EXEC")
    assert tracker.told() == [b"k"]
    assert tracker.is_told_nothing()


# ----------------------------------------------------------------- its own changes, order


def test_own_changes_are_told_too(db):
    tracker = Tracker(db)
    tracker.do("GET", "k")
    tracker.do("SET", "k", "1")
    assert tracker.told() == [b"k"]


def test_own_changes_follow_the_reply(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    for words in (("SET", "k", "1"), ("GET", "k"), ("SET", "k", "2"), ("GET", "k"), ("FLUSHALL",), ("PING",)):
        client.send(*words)
    replies = [client.receive() for _ in range(8)]
    assert replies == [
        b"OK", b"1", b"OK", [b"invalidate", [b"k"]], b"2", b"OK", [b"invalidate", None], b"PONG",
    ]  # fmt: skip


def test_own_changes_follow_the_whole_transaction(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    client.do("GET", "k")
    for words in (("MULTI",), ("SET", "k", "1"), ("GET", "k"), ("SET", "k", "2"), ("EXEC",), ("PING",)):
        client.send(*words)
    replies = [client.receive() for _ in range(8)]
    told = [b"invalidate", [b"k"]]
    assert replies[4:] == [[b"OK", b"1", b"OK"], told, told, b"PONG"]


def test_noloop_spares_own_changes(db):
    tracker = Tracker(db, "NOLOOP")
    tracker.do("MGET", "k", "l")
    tracker.do("SET", "k", "1")
    db.do("SET", "l", "1")
    assert tracker.told() == [b"l"]
    assert tracker.is_told_nothing()
    tracker.do("GET", "k")
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


def test_noloop_what_is_read_again_in_the_same_transaction_counts(db):
    tracker = Tracker(db, "NOLOOP")
    tracker.do("MULTI")
    tracker.do("SET", "k", "1")
    tracker.do("GET", "k")
    tracker.do("EXEC")
    db.do("SET", "k", "2")
    assert tracker.told() == [b"k"]


def test_a_blocked_client_is_told_before_it_is_served(db):
    needs_socket(db)
    needs_resp3(db)
    client = Tracker(db).client
    client.do("LRANGE", "l", "0", "-1")
    client.send("BLPOP", "l", "0")
    assert client.nothing_arrives()
    db.do("RPUSH", "l", "x")
    assert client.receive() == [b"invalidate", [b"l"]]
    assert client.receive() == [b"l", b"x"]


# ---------------------------------------------------------------------- OPTIN, OPTOUT


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


# -------------------------------------------------------------------------- broadcast


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


# -------------------------------------------------------------------------- redirection


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


def clients_of(db: Any) -> list[str]:
    return db.do("CLIENT", "LIST").decode().splitlines()


# ----------------------------------------------------------------------------- state


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


# ---------------------------------------------------------------------------- refusals

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
