"""What the client knows of commands: kinds, waits, keys, and what may run twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import facts
from penstock.client.facts import (
    Kind,
    blocking_timeout_ms,
    exclusive_hint,
    is_idempotent,
    is_readonly,
    is_repeatable,
    key_positions,
    keys_of,
    kind_of,
    suits_replicas,
    to_bytes,
)
from penstock.protocol.catalogue import CATALOGUE, every_command, find_keys, find_subcommand


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# ------------------------------------------------------------------- kinds

EXCLUSIVE = words(
    "AUTH HELLO SELECT QUIT RESET SHUTDOWN MULTI EXEC DISCARD WATCH UNWATCH MONITOR SYNC PSYNC REPLCONF"
    " ASKING READONLY READWRITE CLIENT SCRIPT"
)
BLOCKING = words(
    "BLPOP BRPOP BRPOPLPUSH BLMOVE BLMPOP BZPOPMIN BZPOPMAX BZMPOP WAIT WAITAOF XREAD XREADGROUP TREAD"
)
SUBSCRIBE = words("SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE")


def test_every_command_of_the_catalogue_has_its_kind():
    special = {
        **dict.fromkeys(EXCLUSIVE, Kind.EXCLUSIVE),
        **dict.fromkeys(BLOCKING, Kind.BLOCKING),
        **dict.fromkeys(SUBSCRIBE, Kind.SUBSCRIBE),
    }
    for name, spec in CATALOGUE.items():
        kind = kind_of(name)
        assert kind is special.get(name.decode(), Kind.PLAIN), name
        assert kind is kind_of(name.decode()) is kind_of(name.lower())
        if spec.is_blocking:
            assert kind is Kind.BLOCKING, name
    for name, kind in special.items():
        assert kind_of(name) is kind, name


@pytest.mark.parametrize(
    "name", ["BLPOP", "blpop", "BlPoP", b"BLPOP", b"blpop", b"bLpOp", memoryview(b"Blpop")]
)
def test_any_spelling(name):
    assert kind_of(name) is kind_of(name) is Kind.BLOCKING


@pytest.mark.parametrize("name", ["", "NOSUCH", b"\xff", "JSON.SET", "ſubscribe", "GET ", "CLIENT ID", 7])
def test_unknown_commands_are_plain(name):
    assert kind_of(name) is Kind.PLAIN


def test_made_up_names_do_not_fill_the_memory():
    spellings = facts._Spellings[str]()
    for number in range(2 * spellings.LIMIT):
        assert spellings[f"made-up-{number}"] is facts._UNKNOWN
    assert len(spellings) == spellings.LIMIT
    assert spellings["bLMove"].kind is Kind.BLOCKING


def test_exclusive_commands_say_what_to_use_instead():
    for name in EXCLUSIVE:
        if name not in ("CLIENT", "SCRIPT"):
            assert exclusive_hint((name, "x")), name
    assert "db" in (exclusive_hint(("select", 3)) or "")
    assert "transaction" in (exclusive_hint((b"Multi",)) or "")
    assert "close" in (exclusive_hint(("QUIT",)) or "")


@pytest.mark.parametrize(
    "text", ["CLIENT REPLY OFF", "client tracking on", "CLIENT SETNAME x", "SCRIPT DEBUG YES"]
)
def test_exclusive_subcommands(text):
    assert exclusive_hint(words(text))


@pytest.mark.parametrize(
    "text",
    ["CLIENT ID", "client list", "CLIENT", "CLIENT NOSUCH", "SCRIPT LOAD x", "GET k", "NOSUCH", "BLPOP k 0"],
)
def test_what_may_be_shared_after_all(text):
    assert exclusive_hint(words(text)) is None


# ------------------------------------------------------------------- waiting


@pytest.mark.parametrize(
    ("args", "timeout_ms"),
    [
        (("BLPOP", "k", 0), 0),
        (("BLPOP", "k", 5), 5_000),
        ((b"brpop", b"k1", b"k2", b"0.25"), 250),
        (("BZPOPMIN", "k", 0.0001), 1),
        (("BZPOPMAX", "k", "1e3"), 1_000_000),
        (("BRPOPLPUSH", "a", "b", "2"), 2_000),
        (("BLMOVE", "a", "b", "LEFT", "RIGHT", "1.5"), 1_500),
        (("BLMPOP", "3", 1, "k", "LEFT"), 3_000),
        (("BZMPOP", "0.5", 1, "k", "MIN"), 500),
        (("WAIT", 1, 250), 250),
        (("WAIT", 1, 0), 0),
        (("WAITAOF", 1, 0, "70"), 70),
        (("XREAD", "COUNT", 2, "BLOCK", 100, "STREAMS", "s", "$"), 100),
        (("XREAD", "block", "0", "STREAMS", "s", "0"), 0),
        (("XREADGROUP", "GROUP", "g", "c", "BLOCK", b"50", "STREAMS", "s", ">"), 50),
        (("XREADGROUP", "BLOCK", "60", "GROUP", "g", "c", "STREAMS", "s", ">"), 60),
        (("TREAD", "s", 0, 10, "BLOCK", 100), 100),
        (("TREAD", "s", 0, 10, "GROUP", "g", "RETRY", 1, 2, "block", "7", "WITHINFO"), 7),
        # What cannot be read waits for ever, as far as we know.
        (("BLPOP", "k", "0x10"), 0),
        (("BLPOP", "k", "soon"), 0),
        (("BLPOP", "k", -1), 0),
        (("BLPOP", "k", "nan"), 0),
        (("BLPOP", "k", "inf"), 0),
        (("BLPOP", "k", 1e300), 0),
        (("XREAD", "BLOCK", "soon", "STREAMS", "s", "0"), 0),
        (("XREAD", "BLOCK", -5, "STREAMS", "s", "0"), 0),
        (("WAIT", 1, "soon"), 0),
        # These do not wait.
        (("XREAD", "COUNT", 2, "STREAMS", "s", "0"), None),
        (("XREAD", "STREAMS", "BLOCK", "5"), None),
        (("XREAD", "STREAMS", "block", "x", "5", "5"), None),
        (("XREADGROUP", "GROUP", "BLOCK", "5", "STREAMS", "s", ">"), None),
        (("XREADGROUP", "GROUP", "g", "block", "COUNT", "1", "STREAMS", "s", ">"), None),
        (("TREAD", "BLOCK", 5, 10), None),
        (("TREAD", "s", 0, 10, "GROUP", "BLOCK"), None),
        (("XREAD", "BLOCK"), None),
        (("BLPOP",), None),
        (("BLMPOP",), None),
        (("WAIT", 1), None),
        (("GET", "BLOCK"), None),
        (("NOSUCH", "k", 0), None),
    ],
)
def test_blocking_timeouts(args, timeout_ms):
    assert blocking_timeout_ms(args) == timeout_ms


def test_every_blocking_command_has_a_rule_for_its_timeout():
    for spec in every_command():
        if spec.is_blocking:
            assert spec.name.decode() in facts._TIMEOUTS, spec


# ------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("GET k", "k"),
        ("set k v", "k"),
        ("MGET a b c", "a b c"),
        ("MSET a 1 b 2", "a b"),
        ("DEL a b", "a b"),
        ("BLPOP a b 0", "a b"),
        ("BLMPOP 0 2 a b LEFT", "a b"),
        ("BITOP AND d a b", "d a b"),
        ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
        ("ZUNION 2 a b WEIGHTS 1 2", "a b"),
        ("SORT k BY x STORE d", "k d"),
        ("GEORADIUS k 1 1 1 m STORE d", "k d"),
        ("OBJECT ENCODING k", "k"),
        ("memory usage k", "k"),
        ("EVAL s 2 a b c", "a b"),
        ("EVALSHA s 0 c", ""),
        ("EVALSHA_RO s 1 a", "a"),
        ("EVAL s 3 a", ""),
        ("EVAL s -1 a", ""),
        ("EVAL s x a", ""),
        ("EVAL s", ""),
        ("FCALL f 2 a b c", "a b"),
        ("FCALL_RO f 1 a", "a"),
        ("WATCH a b", "a b"),
        ("SPUBLISH shard message", "shard"),
        ("SSUBSCRIBE a b", "a b"),
        ("SUNSUBSCRIBE", ""),
        ("PUBLISH channel message", ""),
        ("SUBSCRIBE channel", ""),
        ("XADD k * f v", "k"),
        ("xlen k", "k"),
        ("XACK k g 1-1", "k"),
        ("XGROUP CREATE k g $", "k"),
        ("XGROUP HELP", ""),
        ("XINFO STREAM k FULL", "k"),
        ("XREAD COUNT 1 BLOCK 5 STREAMS a b 0 0", "a b"),
        ("XREAD STREAMS streams 0", "streams"),
        ("XREADGROUP GROUP block streams COUNT 1 streams a b > >", "a b"),
        ("XREADGROUP GROUP g c NOACK STREAMS a >", "a"),
        ("XREAD COUNT 1", ""),
        ("TREAD k 0 10 BLOCK 5", "k"),
        ("TWRITE k ENTRIES t e", "k"),
        ("JSON.GET k $", "k"),
        ("JSON.MGET a b $.x", "a b"),
        ("JSON.MSET a $ 1 b $ 2", "a b"),
        ("JSON.DEBUG MEMORY k", "k"),
        ("TS.MRANGE - + FILTER a=b", ""),
        ("HEXPIRE k 5 FIELDS 1 f", "k"),
        ("MIGRATE h 6379 k 0 5", "k"),
        ("NOSUCH k v", "k"),
        ("NOSUCH", ""),
        ("FUNCTION LOAD x", ""),
        ("FUNCTION LIST", ""),
        ("CLUSTER SLOTS", ""),
        ("CLUSTER FORGET x", ""),
        ("CLUSTER KEYSLOT k", ""),
        ("SENTINEL MASTERS", ""),
        ("CONFIG GET x", ""),
        ("INFO server", ""),
        ("PING", ""),
        ("WAIT 1 0", ""),
        ("GET", ""),
    ],
)
def test_keys(text, keys):
    args = words(text)
    expected = [key.encode() for key in keys.split()]
    assert keys_of(args) == expected
    assert keys_of(tuple(word.encode() for word in args)) == expected
    assert [to_bytes(args[position]) for position in key_positions(args)] == expected


def test_keys_of_any_type():
    assert keys_of(("GET", 7)) == [b"7"]
    assert keys_of(("MGET", 1.5, memoryview(b"k"), "ü", b"\xff", "\udcff")) == [
        b"1.5",
        b"k",
        b"\xc3\xbc",
        b"\xff",
        b"\xff",
    ]
    assert keys_of(("EVALSHA", "sha", 2, "a", 3, 4)) == [b"a", b"3"]
    assert keys_of((memoryview(b"get"), "k")) == [b"k"]


fillers = st.sampled_from(
    [b"0", b"1", b"2", b"3", b"-1", b"k", b"STORE", b"store", b"BY", b"STREAMS", b"", b"1x"]
)


@given(st.sampled_from(list(every_command())), st.lists(fillers, max_size=9))
def test_keys_agree_with_the_catalogue(spec, rest):
    args = (*spec.full_name.upper().split(b"|"), *rest)
    assert find_subcommand(args) is spec or spec.subcommands
    ruling = find_subcommand(args)
    if ruling is not None:
        assert list(key_positions(args)) == find_keys(ruling, args, channels=True)
        assert keys_of(args) == [args[position] for position in key_positions(args)]


def test_extra_commands_are_none_of_the_catalogue():
    """The catalogue is the place for facts: what it has must not be repeated here."""
    known = {spec.full_name.decode().upper() for spec in every_command()}
    extra = {name for names, _, _ in facts._EXTRA for name in names.split()}
    assert not known & extra


# ------------------------------------------------------------------- what may run twice


def test_reading_is_what_the_catalogue_says():
    for spec in every_command():
        assert is_readonly(*spec.full_name.split(b"|")) is spec.is_readonly, spec


@pytest.mark.parametrize(
    "text",
    ["GET k", "xread STREAMS s 0", "XINFO STREAM k", "FCALL_RO f 0", "OBJECT FREQ k", "JSON.GET k", "HTTL k"],
)
def test_reads(text):
    args = words(text)
    assert is_readonly(*args)
    assert is_repeatable(args)
    assert is_idempotent(args)


@pytest.mark.parametrize(
    "text",
    [
        "PING",
        "echo x",
        "TIME",
        "INFO server",
        "COMMAND",
        "COMMAND COUNT",
        "CLIENT ID",
        "CLUSTER SLOTS",
        "CONFIG GET x",
        "PUBSUB NUMSUB c",
        "SCRIPT LOAD x",
        "script exists x",
        "FUNCTION LIST",
        "MEMORY STATS",
        "XINFO HELP",
    ],
)
def test_questions_may_be_asked_again_but_not_of_a_replica(text):
    args = words(text)
    assert not is_readonly(*args)
    assert is_repeatable(args)
    assert is_idempotent(args)


@pytest.mark.parametrize(
    "text",
    [
        "SET k v",
        "set k v XX",
        "SET k v KEEPTTL",
        "SET k v EXAT 9 XX",
        "SET k v pxat 9",
        "SET k nx",
        "MSET a 1",
        "DEL k",
        "UNLINK k",
        "EXPIREAT k 9",
        "PEXPIREAT k 9",
        "PERSIST k",
        "SADD k m",
        "SREM k m",
        "HSET k f v",
        "HDEL k f",
        "ZADD k 1 m",
        "ZADD k XX CH 1 m",
        "ZADD k GT 1 nx",
        "GEOADD k 1 2 m",
        "ZREM k m",
        "LSET k 0 v",
        "PFADD k x",
        "SUNIONSTORE d a d",
        "XACK k g 1-1",
        "TACK k g 1",
    ],
)
def test_writes_that_may_be_repeated_if_the_user_wants(text):
    args = words(text)
    assert is_idempotent(args)
    assert is_idempotent(tuple(word.encode() for word in args))
    assert not is_repeatable(args)
    assert not is_readonly(*args)


@pytest.mark.parametrize(
    "text",
    [
        "SET k v NX",
        "SET k v GET",
        "SET k v EX 5",
        "SET k v PX 5",
        "SET k v EXAT 9 nx",
        "SET k v IFEQ x",
        "SET",
        "SETNX k v",
        "SETEX k 5 v",
        "GETSET k v",
        "GETDEL k",
        "GETEX k",
        "INCR k",
        "APPEND k v",
        "EXPIRE k 5",
        "EXPIREAT k 9 NX",
        "LPUSH k v",
        "LPOP k",
        "LTRIM k 1 -1",
        "LREM k 1 v",
        "SPOP k",
        "SDIFFSTORE d a d",
        "ZUNIONSTORE d 2 a d",
        "BITOP XOR d a d",
        "SETBIT k 0 1",
        "HINCRBY k f 1",
        "HSETNX k f v",
        "ZADD k INCR 1 m",
        "ZADD k nx 1 m",
        "ZADD k CH CH CH CH INCR 1 m",
        "ZINCRBY k 1 m",
        "ZREMRANGEBYRANK k 0 0",
        "GEOADD k NX 1 2 m",
        "RENAME a b",
        "XADD k * f v",
        "XREADGROUP GROUP g c STREAMS s >",
        "EVAL s 0",
        "FCALL f 0",
        "PUBLISH c m",
        "FLUSHALL",
        "CONFIG SET a b",
        "CLIENT KILL x",
        "SCRIPT FLUSH",
        "BLPOP k 0",
        "NOSUCH k",
    ],
)
def test_nothing_else_may_be_repeated(text):
    args = words(text)
    assert not is_idempotent(args)
    assert not is_repeatable(args)


def test_a_read_of_what_comes_next_is_not_repeated():
    assert is_repeatable(("XREAD", "BLOCK", 0, "STREAMS", "a", "b", "0", "5-0"))
    assert not is_repeatable(("XREAD", "BLOCK", 0, "STREAMS", "a", "b", "0", b"$"))
    assert not is_idempotent(("XREAD", "BLOCK", 0, "STREAMS", "a", "$"))


def test_no_write_of_the_catalogue_is_taken_for_harmless():
    for spec in every_command():
        if spec.is_write:
            assert not is_repeatable((*spec.full_name.split(b"|"), b"x")), spec


@given(st.lists(st.one_of(st.text(), st.binary(), st.integers(), st.floats()), min_size=1).map(tuple))
def test_any_arguments_have_an_answer(args):
    kind_of(args[0])
    exclusive_hint(args)
    blocking_timeout_ms(args)
    keys_of(args)
    is_readonly(*args)
    is_idempotent(args)


@given(
    st.sampled_from(sorted(facts._TABLE)),
    st.lists(st.one_of(fillers, st.integers(), st.just(b"BLOCK")), max_size=8),
)
def test_known_commands_have_an_answer_whatever_follows(name, rest):
    args = (name, *rest)
    assert all(0 < position < len(args) for position in key_positions(args))
    timeout_ms = blocking_timeout_ms(args)
    assert timeout_ms is None or timeout_ms >= 0
    is_idempotent(args)
    is_repeatable(args)
    exclusive_hint(args)


def test_cursors_belong_to_one_server() -> None:
    assert suits_replicas(("GET", "k"))
    assert suits_replicas(("OBJECT", "ENCODING", "k"))
    for args in (("hscan", "k", 0), ("SCAN", 0), (b"ZSCAN", "k", 0), ("SET", "k", "v")):
        assert not suits_replicas(args)
