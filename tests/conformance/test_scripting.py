"""EVAL and its relatives: arguments, conversions, errors, what scripts may do and what others see of it.

What only our engine promises of scripts that fail is in ``test_script_rollback``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.blocking import blocked
from tests.conformance.refusals import NOT_INTEGER, WRONGTYPE

UNKNOWN = "ERR Unknown Redis command called from script"
WRONG_ARITY = "ERR Wrong number of args calling Redis command from script"
NOT_ALLOWED = "ERR This Redis command is not allowed from script"
READ_ONLY = "ERR Write commands are not allowed from read-only scripts."
NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL."

#: What Valkey calls things that Redis calls by its own name.
_VALKEY_SAYS = {
    "Unknown Redis command": "Unknown command",
    "calling Redis command": "calling command",
    "This Redis command": "This Valkey command",
    "this redis lib call": "this call",
    "Lua redis lib command arguments": "Command arguments",
    "Invalid debug level": "Invalid log level",
    " Please use EVAL.": "",
}


def sha1(source: str) -> str:
    return hashlib.sha1(source.encode()).hexdigest()


def said(db: Any, text: str) -> str:
    """An error text of Redis as this backend words it."""
    if db.kind == "valkey":
        for redis, valkey in _VALKEY_SAYS.items():
            text = text.replace(redis, valkey)
    return text


def raised(db: Any, text: str, source: str, line: int = 1) -> str:
    """An error text with the place where a script raised it."""
    place = "" if db.kind == "valkey" else f"{sha1(source)}, "
    return f"{said(db, text)} script: {place}on @user_script:{line}."


def run(db: Any, source: str, *args: str) -> Any:
    return db.do("EVAL", source, "0", *args)


def listening(db: Any, *patterns: str) -> Callable[[], list[tuple[bytes, bytes]]]:
    """A new subscriber; answers (channel, message) of what came since the last time."""
    client = db.client()
    client.do("PSUBSCRIBE", *patterns, "end-of-messages")

    def heard() -> list[tuple[bytes, bytes]]:
        db.do("PUBLISH", "end-of-messages", "")
        messages = []
        while (message := client.receive())[-2] != b"end-of-messages" or message[0] != b"pmessage":
            if message[0] == b"pmessage":
                messages.append((message[2], message[3]))
        return messages

    return heard


# --------------------------------------------------------------------- arguments and cache


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("EVAL",), "ERR wrong number of arguments for 'eval' command"),
        (("EVAL", "return 1"), "ERR wrong number of arguments for 'eval' command"),
        (("EVAL_RO", "return 1"), "ERR wrong number of arguments for 'eval_ro' command"),
        (("EVALSHA", "f" * 40), "ERR wrong number of arguments for 'evalsha' command"),
        (("EVALSHA_RO",), "ERR wrong number of arguments for 'evalsha_ro' command"),
        (("EVAL", "return 1", "x"), NOT_INTEGER),
        (("EVAL", "return 1", "1.5"), NOT_INTEGER),
        (("EVAL", "return 1", " 1", "k"), NOT_INTEGER),
        (("EVAL", "return 1", "01", "k"), NOT_INTEGER),
        (("EVAL", "return 1", "9223372036854775808"), NOT_INTEGER),
        (("EVAL", "return 1", "-1"), "ERR Number of keys can't be negative"),
        (("EVAL", "return 1", "1"), "ERR Number of keys can't be greater than number of args"),
        (("EVAL_RO", "return 1", "12", "a"), "ERR Number of keys can't be greater than number of args"),
        (("EVALSHA", "f" * 40, "x"), NOT_INTEGER),
        (("EVALSHA", "f" * 40, "0"), NO_SCRIPT),
        (("EVALSHA", "f" * 39, "x"), NO_SCRIPT),
        (("EVALSHA", "", "0"), NO_SCRIPT),
        (("EVALSHA", "f" * 1000, "0"), NO_SCRIPT),
        (("EVALSHA_RO", b"\xff" * 40, "0"), NO_SCRIPT),
        (("EVAL", "return (", "0"), "ERR Error compiling script (new function): user_script:1: "
         "unexpected symbol near '<eof>'"),
        (("SCRIPT", "LOAD", "for"), "ERR Error compiling script (new function): user_script:1: "
         "'<name>' expected near '<eof>'"),
        (("SCRIPT", "LOAD"), "ERR wrong number of arguments for 'script|load' command"),
        (("SCRIPT", "EXISTS"), "ERR wrong number of arguments for 'script|exists' command"),
        (("SCRIPT", "FLUSH", "NOW"), "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (("SCRIPT", "FLUSH", "SYNC", "x"), "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (("SCRIPT", "KILL"), "NOTBUSY No scripts in execution right now."),
        (("SCRIPT", "DEBUG", "maybe"), "ERR Use SCRIPT DEBUG YES/SYNC/NO"),
        (("SCRIPT", "NOSUCH"), "ERR unknown subcommand 'NOSUCH'. Try SCRIPT HELP."),
    ],
)  # fmt: skip
def test_refusals(db, words, error):
    assert db.error(*words) == said(db, error)


def test_keys_and_arguments(db):
    source = "return {KEYS, ARGV, #KEYS, #ARGV}"
    assert db.do("EVAL", source, "2", "a", "b", "c") == [[b"a", b"b"], [b"c"], 2, 1]
    assert db.do("EVAL", source, "0") == [[], [], 0, 0]
    assert db.do("eval", source, "1", b"\0\xff", "", "\r\n") == [[b"\0\xff"], [b"", b"\r\n"], 1, 2]
    many = [b"%d" % number for number in range(1000)]
    assert db.do("EVAL", source, "300", *many) == [many[:300], many[300:], 300, 700]


def test_a_script_sees_nothing_of_the_one_before(db):
    assert db.do("EVAL", "KEYS[1] = 'other' return KEYS[1]", "1", "k") == b"other"
    assert db.do("EVAL", "return {KEYS[1] or 'none', ARGV[1] or 'none'}", "0") == [b"none", b"none"]
    assert db.do("EVAL", "redis.setresp(3) return 1", "0") == 1
    assert db.do("EVAL", "return type(redis.call('hgetall', 'none').map)", "0") == b"nil"


def test_load_and_call_by_digest(db):
    source = "return ARGV[1]"
    digest = db.do("SCRIPT", "LOAD", source)
    assert digest == sha1(source).encode()
    assert db.do("EVALSHA", digest, "0", "x") == b"x"
    assert db.do("EVALSHA", digest.upper(), "0", "y") == b"y"
    assert db.do("EVALSHA_RO", digest, "0", "z") == b"z"
    assert db.client().do("EVALSHA", digest, "0", "w") == b"w"
    assert db.do("SCRIPT", "EXISTS", digest, "f" * 40, digest.upper(), "", "x" * 600) == [1, 0, 1, 0, 0]


def test_whatever_was_run_is_known_by_its_digest(db):
    assert run(db, "return 5") == 5
    assert db.do("EVAL_RO", "return 6", "0") == 6
    db.error("EVAL", "error('seven')", "0")
    db.error("EVAL", "return 8 8", "0")
    digests = [sha1(source) for source in ("return 5", "return 6", "error('seven')", "return 8 8")]
    assert db.do("SCRIPT", "EXISTS", *digests) == [1, 1, 1, 0]
    assert db.do("EVALSHA_RO", digests[1], "0") == 6


@pytest.mark.parametrize("option", [(), ("SYNC",), ("async",)])
def test_flush(db, option):
    digest = db.do("SCRIPT", "LOAD", "return 1")
    assert db.do("SCRIPT", "FLUSH", *option) == b"OK"
    assert db.do("SCRIPT", "EXISTS", digest) == [0]
    assert db.error("EVALSHA", digest, "0") == said(db, NO_SCRIPT)
    assert run(db, "return 1") == 1
    assert db.do("EVALSHA", digest, "0") == 1


def test_emptying_the_store_keeps_scripts(db):
    digest = db.do("SCRIPT", "LOAD", "return 1")
    db.do("FLUSHALL")
    assert db.do("EVALSHA", digest, "0") == 1


# --------------------------------------------------------------------------- conversions


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", None), ("return", None), ("return nil", None), ("return false", None), ("return true", 1),
        ("return 3.99", 3), ("return -3.99", -3), ("return 2^53", 2**53), ("return 'text'", b"text"),
        ("return ''", b""), ("return 'a\\0b'", b"a\0b"), ("return function() end", None),
        ("return {}", []), ("return {1, 2, nil, 3}", [1, 2]), ("return {a = 1}", []),
        ("return {1, false, true, 'a', {2, {3, {}}}}", [1, None, 1, b"a", [2, [3, []]]]),
        ("return {ok = 'fine'}", b"fine"), ("return {{ok = 'fine'}, 1}", [b"fine", 1]),
        ("return {ok = 1}", []), ("return {ok = 'two\\r\\nlines'}", b"two  lines"),
        ("return redis.status_reply('fine')", b"fine"),
        ("local t = {} for i = 1, 20000 do t[i] = i end return t", list(range(1, 20001))),
    ],
)  # fmt: skip
def test_what_lua_values_become(db, source, expected):
    assert run(db, source) == expected


def test_what_lua_values_become_in_resp3(db):
    assert run(db, "return {double = 3.5}") == db.double(3.5)
    assert run(db, "return {map = {field = 'value'}}") == db.map({b"field": b"value"})
    assert run(db, "return {set = {member = true}}") == [b"member"]
    assert run(db, "return {1, {map = {a = {double = -0.5}}}}") == [1, db.map({b"a": db.double(-0.5)})]
    assert run(db, "return {verbatim_string = {format = 'txt', string = 'plain'}}") == b"plain"
    true, false = (True, False) if db.resp == 3 else (1, 0)
    assert run(db, "redis.setresp(3) return true") == true
    assert run(db, "redis.setresp(3) return {true, false}") == [true, false]
    assert run(db, "redis.setresp(3) return nil") is None


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("return {err = 'MY words'}", "MY words"),
        ("return {err = 'two\\r\\nlines'}", "two  lines"),
        ("return redis.error_reply('MY words')", "MY words"),
        ("return redis.error_reply('-MY words')", "MY words"),
        ("return redis.error_reply('word')", "ERR word"),
        ("return redis.error_reply()", "ERR wrong number or type of arguments"),
        ("return redis.status_reply(1, 2)", "ERR wrong number or type of arguments"),
    ],
)
def test_errors_that_are_returned(db, source, error):
    assert db.error("EVAL", source, "0") == error


def test_an_error_inside_an_array(db):
    number, error = run(db, "return {1, redis.error_reply('MY words')}")
    assert number == 1
    assert str(error) == "MY words"


def fill(db: Any) -> None:
    db.do("FLUSHALL")
    db.do("SET", "s", "v")
    db.do("RPUSH", "l", "a", "b")
    db.do("HSET", "h", "f", "1")
    db.do("SADD", "set", "m")
    db.do("ZADD", "z", "1.5", "m")


@pytest.mark.parametrize(
    ("words", "shown", "with_resp2", "with_resp3"),
    [
        ("'GET', 's'", "{type(r), r}", [b"string", b"v"], [b"string", b"v"]),
        ("'GET', 'none'", "type(r)", b"boolean", b"nil"),
        ("'LPOP', 'none', 2", "type(r)", b"boolean", b"nil"),
        ("'INCR', 'n'", "{type(r), r}", [b"number", 1], [b"number", 1]),
        ("'SET', 's', 'v'", "{type(r), r.ok}", [b"table", b"OK"], [b"table", b"OK"]),
        ("'LRANGE', 'l', 0, -1", "{#r, r[1], r[2]}", [2, b"a", b"b"], [2, b"a", b"b"]),
        ("'MGET', 's', 'none', 's'", "{type(r[2]), r[3]}", [b"boolean", b"v"], [b"nil", b"v"]),
        ("'HGETALL', 'h'", "r[1] or r.map.f", b"f", b"1"),
        ("'SMEMBERS', 'set'", "r[1] or {r.set.m and 1}", b"m", [1]),
        ("'ZSCORE', 'z', 'm'", "{type(r), r.double and 2 * r.double}", [b"string"], [b"table", 3]),
        ("'ZRANGE', 'z', 0, -1, 'WITHSCORES'", "{r[2] or r[1][2].double * 2}", [b"1.5"], [3]),
        ("'ZPOPMIN', 'z'", "{#r, r[1]}", [2, b"m"], [2, b"m"]),
        ("'HRANDFIELD', 'h', 1, 'WITHVALUES'", "{#r, r[1]}", [2, b"f"], [1, [b"f", b"1"]]),
    ],
)  # fmt: skip
def test_what_replies_become(db, words, shown, with_resp2, with_resp3):
    source = f"local r = redis.call({words}) return {shown}"
    for prefix, expected in (("", with_resp2), ("redis.setresp(3) ", with_resp3)):
        fill(db)
        assert run(db, prefix + source) == expected


def test_a_reply_of_resp3_passes_through_a_script(db):
    fill(db)
    assert run(db, "redis.setresp(3) return redis.call('HGETALL', 'h')") == db.map({b"f": b"1"})
    assert run(db, "redis.setresp(3) return redis.call('SMEMBERS', 'set')") == [b"m"]
    assert run(db, "redis.setresp(3) return redis.call('ZSCORE', 'z', 'm')") == db.double(1.5)
    assert run(db, "return redis.call('ZSCORE', 'z', 'm')") == b"1.5"
    assert run(db, "redis.setresp(3) return {redis.call('GET', 'none'), 1}") == []


def test_numbers_as_words_of_a_command(db):
    assert run(db, "return redis.call('SET', 1, 2.5)") == b"OK"
    assert db.do("GET", "1") == b"2.5"
    assert run(db, "redis.call('SET', 'k', 2^53) return redis.call('GET', 'k')") == b"9007199254740992"
    assert run(db, "redis.call('SET', 'k', 0.1) return redis.call('GET', 'k')") == (
        b"0.1" if db.kind == "valkey" else b"0.10000000000000001"
    )


# -------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("'NOSUCH', 'a'", UNKNOWN),
        ("'GET'", WRONG_ARITY),
        ("'GET', 'a', 'b'", WRONG_ARITY),
        ("'OBJECT'", WRONG_ARITY),
        ("'LPUSH', 's', 'x'", WRONGTYPE),
        ("'INCR', 's'", NOT_INTEGER),
        ("'SELECT', 99", "ERR DB index is out of range"),
        ("", "ERR Please specify at least one argument for this redis lib call"),
        ("'GET', true", "ERR Lua redis lib command arguments must be strings or integers"),
        ("'GET', {}", "ERR Lua redis lib command arguments must be strings or integers"),
    ],
)
def test_call_raises_and_pcall_returns(db, words, error):
    db.do("SET", "s", "v")
    source = f"return redis.call({words})"
    assert db.error("EVAL", source, "0") == raised(db, error, source)
    assert db.error("EVAL", f"return redis.pcall({words})", "0") == said(db, error)
    text = said(db, error).encode()
    assert run(db, f"return {{'caught', redis.pcall({words}).err}}") == [b"caught", text]
    caught = run(db, f"local ok, e = pcall(redis.call{words and ', '}{words}) return {{type(ok), e}}")
    assert caught == [b"boolean", text]


@pytest.mark.parametrize(
    ("source", "error", "line"),
    [
        ("error('oops')", "ERR user_script:1: oops", 1),
        ("\n\nerror('oops')", "ERR user_script:3: oops", 3),
        ("error('oops', 0)", "ERR oops", 1),
        ("error({err = 'MY words'})", "MY words", 1),
        ("error(redis.error_reply('MY words'))", "MY words", 1),
        ("error()", "ERR nil", 1),
        ("local function f() error('deep') end\nf()", "ERR user_script:1: deep", 1),
        ("local t = redis.pcall('GET')\nerror(t)", WRONG_ARITY, 2),
        ("assert(false, 'no')", "ERR user_script:1: no", 1),
        ("return nil .. 'x'", "ERR user_script:1: attempt to concatenate a nil value", 1),
        ("return redis.nosuch()", "ERR user_script:1: attempt to call field 'nosuch' (a nil value)", 1),
        ("return odd", "ERR user_script:1: Script attempted to access nonexistent global variable 'odd'", 1),
        ("global = 1", "ERR user_script:1: Attempt to modify a readonly table", 1),
        ("redis.call = nil", "ERR user_script:1: Attempt to modify a readonly table", 1),
        ("redis.setresp(4)", "ERR RESP version must be 2 or 3.", 1),
        ("redis.sha1hex()", "ERR wrong number of arguments", 1),
        ("redis.log(9, 'x')", "ERR Invalid debug level.", 1),
    ],
)  # fmt: skip
def test_errors_that_are_raised(db, source, error, line):
    assert db.error("EVAL", source, "0") == raised(db, error, source, line)


def test_a_script_may_catch_its_own_errors(db):
    assert run(db, "return {pcall(error, 'x')}") == [None, b"x"]
    assert run(db, "local ok, e = pcall(error, {err = 'MY words'}) return {e}") == [b"MY words"]


# ---------------------------------------------------------------------- what is not allowed


@pytest.mark.parametrize(
    "words",
    [
        "'MULTI'", "'EXEC'", "'DISCARD'", "'WATCH', 'k'", "'UNWATCH'", "'EVAL', 'return 1', 0",
        "'EVALSHA', 'x', 0", "'SCRIPT', 'FLUSH'", "'SUBSCRIBE', 'c'", "'PUNSUBSCRIBE'", "'MONITOR'",
        "'AUTH', 'x'", "'HELLO'", "'RESET'", "'QUIT'", "'CLIENT', 'ID'", "'CONFIG', 'GET', 'save'",
        "'SAVE'", "'BGSAVE'", "'SHUTDOWN'", "'DEBUG', 'OBJECT', 'k'",
    ],
)  # fmt: skip
def test_commands_that_scripts_may_not_call(db, words):
    source = f"return redis.call({words})"
    assert db.error("EVAL", source, "0") == raised(db, NOT_ALLOWED, source)
    assert db.error("EVAL", f"return redis.pcall({words})", "0") == said(db, NOT_ALLOWED)


def test_scripts_do_not_wait(db):
    source = "return redis.call('BLPOP', 'none', 0)"
    if db.kind == "valkey":
        assert run(db, source) is None
    else:
        assert db.error("EVAL", source, "0") == raised(db, NOT_ALLOWED, source)


@pytest.mark.parametrize(
    "words",
    [
        "'SET', 'k', 'v'", "'GETEX', 'k'", "'EXPIRE', 'k', 1", "'SORT', 'k'", "'FLUSHALL'",
        "'PUBLISH', 'c', 'm'", "'PFCOUNT', 'k'",
    ],
)  # fmt: skip
def test_read_only_scripts_do_not_write(db, words):
    source = f"return redis.call({words})"
    assert db.error("EVAL_RO", source, "0") == raised(db, READ_ONLY, source)
    assert db.error("EVALSHA_RO", sha1(source), "0") == raised(db, READ_ONLY, source)
    flagged = "#!lua flags=no-writes\n" + source
    assert db.error("EVAL", flagged, "0") == raised(db, READ_ONLY, flagged, 2)
    assert db.error("EVAL_RO", f"return redis.pcall({words})", "0") == READ_ONLY
    assert db.do("DBSIZE") == 0


def test_read_only_scripts_read(db):
    db.do("SET", "k", "v")
    db.do("SADD", "s", "2", "1")
    assert db.do("EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k") == b"v"
    assert db.do("EVAL_RO", "return redis.call('SORT_RO', 's')", "0") == [b"1", b"2"]
    assert run(db, "#!lua flags=no-writes\nreturn redis.call('GET', 'k')") == b"v"


def test_the_first_line_of_a_script(db):
    assert run(db, "#!lua\nreturn redis.call('SET', 'k', 'v')") == b"OK"
    assert run(db, "#!lua flags=\nreturn 5") == 5
    assert run(db, "#!lua flags=allow-stale,allow-oom,no-cluster,allow-cross-slot-keys\nreturn 5") == 5
    without_no_writes = "ERR Can not execute a script with write flag using *_ro command."
    assert db.error("EVAL_RO", "#!lua\nreturn 1", "0") == without_no_writes
    assert db.error("EVAL_RO", "#!lua flags=allow-oom\nreturn 1", "0") == without_no_writes
    assert db.do("EVAL_RO", "#!lua flags=no-writes\nreturn redis.call('GET', 'k')", "0") == b"v"
    assert db.error("EVAL", "#!lua flags=nosuch\nreturn 1", "0") == (
        "ERR Unexpected flag in script shebang: nosuch"
    )
    assert db.error("EVAL", "#!lua name=x\nreturn 1", "0") == "ERR Unknown lua shebang option: name=x"
    assert db.error("EVAL", "#!lua", "0") == "ERR Invalid script shebang"


# ----------------------------------------------------------------------------- libraries


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return cjson.encode({1, 'a', {x = true}})", b'[1,"a",{"x":true}]'),
        ("local t = cjson.decode('[null, {\"a\": 2}]') return {#t, t[1] == cjson.null, t[2].a}", [2, 1, 2]),
        ("return cjson.encode({})", b"{}"),
        ("return cmsgpack.unpack(cmsgpack.pack({1, 'two', {3}}))", [1, b"two", [3]]),
        ("return cmsgpack.pack(1, 'a')", b"\x01\xa1a"),
        ("return {struct.unpack('>Hs', struct.pack('>Hs', 258, 'end'))}", [258, b"end", 7]),
        ("return struct.size('>I2I4')", 6),
        ("return {bit.band(6, 3), bit.bor(6, 3), bit.bxor(6, 3), bit.lshift(1, 4)}", [2, 7, 5, 16]),
        ("return bit.tohex(255, 4)", b"00ff"),
        ("return redis.sha1hex('')", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("return redis.sha1hex(1)", b"356a192b7913b04c54574d18c28d46e6395428ab"),
        ("return redis.log(redis.LOG_NOTICE, 'from a test')", None),
        ("return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}", [0, 1, 2, 3]),
        ("return {string.upper('a'), math.floor(2.7), table.concat({1, 2}, '-')}", [b"A", 2, b"1-2"]),
        ("return loadstring('return 7')()", 7),
    ],
)  # fmt: skip
def test_libraries(db, source, expected):
    assert run(db, source) == expected


# ---------------------------------------------------------------- databases, time, expiry


def test_select_inside_a_script_ends_with_it(db):
    assert run(db, "redis.call('SELECT', 3) return redis.call('SET', 'k', 'three')") == b"OK"
    assert db.do("EXISTS", "k") == 0
    db.error("EVAL", "redis.call('SELECT', 3) error('x')", "0")
    assert db.do("EXISTS", "k") == 0
    db.do("SELECT", "3")
    assert db.do("GET", "k") == b"three"
    assert run(db, "return redis.call('GET', 'k')") == b"three"
    assert run(db, "redis.call('SELECT', 0) return redis.call('GET', 'k')") is None
    assert db.do("GET", "k") == b"three"


def test_time(db):
    seconds, microseconds = run(db, "return redis.call('TIME')")
    now_s = int(db.do("TIME")[0])
    assert 0 <= now_s - int(seconds) <= 1
    assert 0 <= int(microseconds) < 1_000_000


def test_nothing_expires_while_a_script_runs(db):
    source = """
        redis.call('SET', 'k', 'v', 'PX', 1)
        local before = redis.call('GET', 'k')
        for i = 1, 3000000 do end
        return {before, redis.call('GET', 'k'), redis.call('EXISTS', 'k')}
    """
    assert run(db, source) == [b"v", b"v", 1]
    assert db.do("GET", "k") is None


def test_deadlines_from_scripts(db):
    db.do("SET", "k", "v")
    assert run(db, "return {redis.call('PEXPIRE', 'k', -1), redis.call('EXISTS', 'k')}") == [1, 0]
    assert 0 < run(db, "redis.call('SET', 'k', 'v', 'EX', 100) return redis.call('TTL', 'k')") <= 100
    assert 0 < db.do("TTL", "k") <= 100


# ------------------------------------------------------------------- what others see of it


def test_scripts_in_a_transaction(db):
    failing = "return redis.call('GET')"
    db.do("MULTI")
    assert run(db, "return redis.call('INCR', 'n')") == b"QUEUED"
    run(db, failing)
    db.do("EVALSHA", "f" * 40, "0")
    run(db, "redis.call('SELECT', 5)")
    db.do("INCR", "n")
    run(db, "return {ARGV[1], redis.call('GET', 'n')}", "x")
    replies = db.do("EXEC")
    assert [replies[0], *replies[3:]] == [1, None, 2, [b"x", b"2"]]
    assert [str(reply) for reply in replies[1:3]] == [raised(db, WRONG_ARITY, failing), said(db, NO_SCRIPT)]


def test_the_cache_inside_a_transaction(db):
    digest = sha1("return 1")
    db.do("MULTI")
    for words in (("LOAD", "return 1"), ("EXISTS", digest), ("FLUSH",), ("EXISTS", digest)):
        db.do("SCRIPT", *words)
    assert db.do("EXEC") == [digest.encode(), [1], b"OK", [0]]


def test_publishing(db):
    heard = listening(db, "news")
    assert run(db, "redis.call('PUBLISH', 'news', 1) return redis.call('PUBLISH', 'news', 2)") == 1
    assert heard() == [(b"news", b"1"), (b"news", b"2")]


def test_publishing_to_oneself(db):
    if db.resp == 2:
        pytest.skip("a subscriber cannot call scripts in RESP2")
    source = "redis.call('PUBLISH', 'news', 1) return redis.call('PUBLISH', 'news', 2)"
    replies: list[Any] = []
    if db.kind == "engine":
        db.do("SUBSCRIBE", "news")
        replies += [db.do("EVAL", source, "0"), db.receive(), db.receive(), db.receive()]
    else:
        db.send("SUBSCRIBE", "news")
        db.send("EVAL", source, "0")
        replies += [db.receive() for _ in range(4)]
    # Valkey sends messages to oneself after the reply, Redis 7.0 before it.
    pushes = [reply for reply in replies if reply != 1]
    assert pushes == [[b"subscribe", b"news", 1], [b"message", b"news", b"1"], [b"message", b"news", b"2"]]
    assert replies.count(1) == 1


def test_keyspace_events(db):
    db.do("CONFIG", "SET", "notify-keyspace-events", "EA")
    heard = listening(db, "__keyevent@*")
    run(db, "redis.call('SET', 'k', 1) redis.call('INCR', 'k') redis.call('SELECT', 2)"
            " redis.call('RPUSH', 'l', 'a') redis.call('LPOP', 'l')")  # fmt: skip
    assert heard() == [
        (b"__keyevent@0__:set", b"k"),
        (b"__keyevent@0__:incrby", b"k"),
        (b"__keyevent@2__:rpush", b"l"),
        (b"__keyevent@2__:lpop", b"l"),
        (b"__keyevent@2__:del", b"l"),
    ]


def test_waiting_clients_are_served_after_the_whole_script(db):
    waiters = [blocked(db, command, "l", "0") for command in ("BLPOP", "BRPOP", "BLPOP")]
    source = """
        redis.call('RPUSH', 'l', 'a')
        local between = redis.call('LLEN', 'l')
        redis.call('RPUSH', 'l', 'b', 'c')
        return {between, redis.call('LLEN', 'l'), redis.call('LPOP', 'l')}
    """
    assert run(db, source) == [1, 3, b"a"]
    assert waiters[0].receive() == [b"l", b"b"]
    assert waiters[1].receive() == [b"l", b"c"]
    assert waiters[2].nothing_arrives()
    db.do("RPUSH", "l", "d")
    assert waiters[2].receive() == [b"l", b"d"]


def test_nobody_is_served_what_a_script_took_back(db):
    waiter = blocked(db, "BZPOPMIN", "z", "0")
    run(db, "redis.call('ZADD', 'z', 1, 'm') redis.call('DEL', 'z')")
    assert waiter.nothing_arrives()
    run(db, "redis.call('SET', 'z', 'v') redis.call('DEL', 'z') redis.call('ZADD', 'z', 2, 'n')")
    assert waiter.receive() == [b"z", b"n", db.double(2.0)]


def test_a_script_touches_watched_keys(db):
    other = db.client()
    db.do("SET", "k", "1")
    for client, source, expected in (
        (db, "return redis.call('GET', 'k')", [b"PONG"]),
        (db, "return redis.call('SET', 'k', '1')", None),
        (other, "return redis.call('INCR', 'k')", None),
        (other, "return redis.call('INCR', 'other')", [b"PONG"]),
    ):
        db.do("WATCH", "k")
        run(client, source)
        db.do("MULTI")
        db.do("PING")
        assert db.do("EXEC") == expected
