"""Compiling, running, and what values become on their way."""

from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError

import pytest

from penstock.engine.scripting.runtime import ScriptRuntime
from penstock.errors import CommandError
from penstock.protocol.replies import (
    NULL_ARRAY,
    OK,
    Pairs,
    Reply,
    SetReply,
    Status,
    Verbatim,
)
from tests.unit.scripting.harness import Scripts


class TestCompile:
    def test_a_script_is_its_sha1(self, scripts: Scripts) -> None:
        script = scripts.compile("return 1")
        assert script.sha1 == hashlib.sha1(b"return 1").hexdigest().encode()
        assert script is scripts.compile("return 1")
        with pytest.raises(FrozenInstanceError):
            script.sha1 = b""  # type: ignore[misc]

    def test_a_script_survives_being_forgotten(self, scripts: Scripts) -> None:
        script = scripts.compile("#!lua\nreturn KEYS[1]")
        scripts.runtime.forget()
        assert scripts.runtime.run(script, [b"k"], []) == b"k"
        assert scripts.compile("#!lua\nreturn KEYS[1]") == script

    def test_a_script_runs_in_another_runtime(self, scripts: Scripts) -> None:
        script = scripts.compile("return ARGV[1]")
        assert Scripts().runtime.run(script, [], [b"x"]) == b"x"

    def test_errors(self, scripts: Scripts) -> None:
        with pytest.raises(CommandError) as caught:
            scripts.compile("return 1\n\n)")
        assert str(caught.value) == (
            "ERR Error compiling script (new function): user_script:3: '<eof>' expected near ')'"
        )

    def test_bytes_that_are_not_text(self, scripts: Scripts) -> None:
        assert scripts.run(b"return '\xff\xfe\x80' .. ARGV[1]", b"\x00\xff") == b"\xff\xfe\x80\x00\xff"
        error = scripts.outcome(b"error('\xff')")
        assert str(error).encode("utf-8", "surrogateescape").startswith(b"ERR user_script:1: \xff script: ")

    @pytest.mark.parametrize(
        ("first_line", "flags", "has_shebang"),
        [
            ("", set(), False),
            ("#!lua\n", set(), True),
            ("#!lua flags=no-writes,allow-stale\n", {"no-writes", "allow-stale"}, True),
            ("#!lua flags=no-writes flags=allow-oom\n", {"no-writes", "allow-oom"}, True),
            ('#!lua "flags=no-cluster"\n', {"no-cluster"}, True),
        ],
    )
    def test_flags(self, scripts: Scripts, first_line: str, flags: set[str], has_shebang: bool) -> None:
        script = scripts.compile(first_line + "return 1")
        assert script.flags == flags
        assert script.has_shebang is has_shebang


class TestKeysAndArguments:
    @pytest.mark.parametrize("count", [0, 1, 5, 199, 200, 201, 20_000])
    def test_any_number(self, scripts: Scripts, count: int) -> None:
        words = tuple(b"%d" % i for i in range(count))
        source = "return {#KEYS, #ARGV, KEYS[#KEYS] or '', ARGV[1] or ''}"
        last, first = (words[-1], words[0]) if words else (b"", b"")
        assert scripts.run(source, keys=words) == [count, 0, last, b""]
        assert scripts.run(source, *words) == [0, count, b"", first]
        assert scripts.run(source, *words, keys=words) == [count, count, last, first]

    def test_empty_and_binary(self, scripts: Scripts) -> None:
        assert scripts.run("return {KEYS[1], ARGV[1]}", b"\x00\r\n\xff", keys=(b"",)) == [
            b"",
            b"\x00\r\n\xff",
        ]


class TestReplies:
    """What a script returns."""

    @pytest.mark.parametrize(
        ("source", "reply"),
        [
            ("return 1", 1),
            ("return -3.99", -3),
            ("return 2^53", 2**53),
            ("return 1e300", -(2**63)),
            ("return 0/0", -(2**63)),
            ("return 'a'", b"a"),
            ("return true", 1),
            ("return false", None),
            ("return nil", None),
            ("return {1, 2, nil, 3}", [1, 2]),
            ("return {1.5, 'a', false, true}", [1, b"a", None, 1]),
            ("return {}", []),
            ("return {{}, {{1}}}", [[], [[1]]]),
            ("return {1, {'a', 2.9, false, -1e300}}", [1, [b"a", 2, None, -(2**63)]]),
            ("return {1, {'a', {'b', false}, 'c'}}", [1, [b"a", [b"b", None], b"c"]]),
            ("redis.setresp(3) return {1, {'a', false}}", [1, [b"a", False]]),
            ("return {ok = 'fine'}", Status(b"fine")),
            ("return {double = 1.5}", 1.5),
            ("return {map = {a = 1}}", {b"a": 1}),
            ("return {map = {a = {map = {b = {1}}}}}", {b"a": {b"b": [1]}}),
            ("return {map = {[{}] = 1}}", [[], 1]),
            ("return {set = {a = true}}", SetReply([b"a"])),
            ("return {big_number = '12\\r\\n3'}", b"12  3"),
            ("return {verbatim_string = {format = 'txt', string = 'a'}}", Verbatim(b"a")),
            ("redis.setresp(3) return true", True),
            ("redis.setresp(3) return {true, false, 1}", [True, False, 1]),
            ("redis.setresp(3) return nil", None),
            ("return redis.status_reply('a\\r\\nb')", Status(b"a  b")),
            ("return function() end", None),
            ("return cjson.null", None),
        ],
    )
    def test_values(self, scripts: Scripts, source: str, reply: Reply) -> None:
        result = scripts.run(source)
        assert result == reply
        assert type(result) is type(reply)
        if isinstance(reply, list):
            assert [type(item) for item in result] == [type(item) for item in reply]

    def test_a_returned_error_is_a_reply(self, scripts: Scripts) -> None:
        # It is not raised: the script has not failed, and what it did stays done.
        reply = scripts.run("return redis.error_reply('CODE text\\r\\n')")
        assert isinstance(reply, CommandError)
        assert str(reply) == "CODE text"
        inner = scripts.run("return {1, redis.error_reply('text'), redis.pcall('fail', 'OOPS x')}")
        assert [str(item) for item in inner] == ["1", "ERR text", "OOPS x"]

    @pytest.mark.parametrize("count", [3999, 4000, 4001, 12_345])
    def test_long_arrays(self, scripts: Scripts, count: int) -> None:
        assert scripts.run(f"local t = {{}} for i = 1, {count} do t[i] = 'v' .. i end return t") == [
            b"v%d" % i for i in range(1, count + 1)
        ]
        assert scripts.run(f"local t = {{}} for i = 1, {count} do t[i] = {{i, false}} end return t") == [
            [i, None] for i in range(1, count + 1)
        ]

    def test_endless_nesting_ends(self, scripts: Scripts) -> None:
        reply = scripts.run("local t = {} t[1] = t return t")
        depth = 0
        while isinstance(reply, list):
            (reply,) = reply
            depth += 1
        assert depth == 200
        assert str(reply) == "ERR reached lua stack limit"

    def test_metamethods_do_not_run(self, scripts: Scripts) -> None:
        source = "return setmetatable({1}, {__index = function() error('ran') end})"
        assert scripts.run(source) == [1]
        assert scripts.run(source.replace("return", "return {2,") + "}") == [2, [1]]


class TestCalls:
    """What a script gets from redis.call."""

    @pytest.mark.parametrize(
        ("reply", "resp2", "resp3"),
        [
            (b"a", b'"a"', b'"a"'),
            (7, b"7", b"7"),
            (OK, b'{"ok":"OK"}', b'{"ok":"OK"}'),
            (None, b"false", b"null"),
            (NULL_ARRAY, b"false", b"null"),
            (True, b"1", b"true"),
            (False, b"0", b"false"),
            (0.1, b'"0.10000000000000001"', b'{"double":0.1}'),
            (Verbatim(b"a"), b'"a"', b'{"verbatim_string":{"string":"a","format":"txt"}}'),
            ([], b"{}", b"{}"),
            ([b"a", 1], b'["a",1]', b'["a",1]'),
            ([b"a", None], b'["a",false]', b'["a"]'),
            ([[b"a"], [1, [2]]], b'[["a"],[1,[2]]]', b'[["a"],[1,[2]]]'),
            ([OK, CommandError("ERR x")], b'[{"ok":"OK"},{"err":"ERR x"}]', b'[{"ok":"OK"},{"err":"ERR x"}]'),
            ({b"k": b"v"}, b'["k","v"]', b'{"map":{"k":"v"}}'),
            ({b"k": [1.5]}, b'["k",["1.5"]]', b'{"map":{"k":[{"double":1.5}]}}'),
            (SetReply([b"m"]), b'["m"]', b'{"set":{"m":true}}'),
            (Pairs([(b"m", 1.5)]), b'["m","1.5"]', b'[["m",{"double":1.5}]]'),
            (list(range(1, 40)), None, None),
            ([[i] for i in range(1, 40)], None, None),
        ],
    )
    def test_replies(self, scripts: Scripts, reply: Reply, resp2: bytes | None, resp3: bytes | None) -> None:
        scripts.replies[b"it"] = reply
        expected = str(reply).replace(" ", "").encode()
        assert scripts.run("return cjson.encode(redis.call('reply', 'it'))") == (resp2 or expected)
        assert scripts.run("redis.setresp(3) return cjson.encode(redis.call('reply', 'it'))") == (
            resp3 or expected
        )
        assert [resp3 for _, resp3 in scripts.calls] == [False, True]

    def test_words(self, scripts: Scripts) -> None:
        scripts.replies[b"x"] = 1
        scripts.run("redis.pcall('reply', 1, 1.5, -0, 1e20, 0.1, 2^53)")
        assert scripts.calls[-1][0] == [
            *(b"reply", b"1", b"1.5", b"-0", b"1e+20", b"0.10000000000000001", b"9007199254740992"),
        ]

    @pytest.mark.parametrize("wrong", ["nil", "true", "{}", "print"])
    @pytest.mark.parametrize("place", range(1, 9))
    def test_what_is_no_word(self, scripts: Scripts, place: int, wrong: str) -> None:
        calls = len(scripts.calls)
        wrong = wrong.replace("print", "function() end")
        for words in (["'x'"] * (place - 1) + [wrong], ["'x'"] * (place - 1) + [wrong, "'x'"]):
            error = scripts.error(f"redis.call({', '.join(words)})")
            assert error == "ERR Lua redis lib command arguments must be strings or integers"
        assert len(scripts.calls) == calls

    @pytest.mark.parametrize("count", [1, 4, 5, 6, 7, 254, 255, 256, 5000])
    def test_many_words(self, scripts: Scripts, count: int) -> None:
        source = f"""
        local t = {{}}
        for i = 1, {count} do t[i] = string.rep('x', i % 7) .. (i % 3 == 0 and '\\0\\r\\n ' or '') end
        redis.pcall('any', unpack(t))
        """
        scripts.run(source)
        expected = [b"x" * (i % 7) + (b"\0\r\n " if i % 3 == 0 else b"") for i in range(1, count + 1)]
        assert scripts.calls[-1][0] == [b"any", *expected]

    def test_integers_beyond_64_bits_become_doubles(self, scripts: Scripts) -> None:
        scripts.replies[b"big"] = 2**70
        assert scripts.run("return tostring(redis.call('reply', 'big') == 2^70)") == b"true"

    def test_in_coroutines(self, scripts: Scripts) -> None:
        source = """
        local co = coroutine.wrap(function(a)
          local b = coroutine.yield(redis.call('echo', a))
          return redis.call('echo', b) .. redis.call('echo', '!')
        end)
        return {co('x'), co('y')}
        """
        assert scripts.run(source) == [b"x", b"y!"]

    def test_what_is_no_reply_ends_the_script(self, scripts: Scripts) -> None:
        scripts.replies[b"it"] = object()
        with pytest.raises(TypeError, match="object is not a reply"):
            scripts.run("return redis.pcall('reply', 'it')")

    def test_log(self, scripts: Scripts) -> None:
        scripts.run("redis.log(redis.LOG_WARNING, 'a', 1, 'b') redis.log(redis.LOG_DEBUG, '')")
        assert scripts.logged == [(3, b"a 1 b"), (0, b"")]


class TestErrors:
    def test_places(self, scripts: Scripts) -> None:
        scripts.values[b"s"] = b"v"
        wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
        for source, line in [
            ("return redis.call('lpush', 's', 1)", 1),
            ("\n\nreturn redis.call('lpush', 's', 1)", 3),
            (
                "local call = redis.call\nlocal function f()\n return call('lpush', 's', 1)\nend\nreturn f()",
                3,
            ),
            ("local r = redis\nreturn r.call('lpush', 's', 1)", 2),
            ("#!lua\n\nredis.call('lpush', 's', 1)", 3),
        ]:
            script = scripts.compile(source)
            assert str(scripts.outcome(source)) == (
                f"{wrong} script: {script.sha1.decode()}, on @user_script:{line}."
            )

    def test_a_place_that_is_lost(self, scripts: Scripts) -> None:
        # The script has replaced its own frame by a function of ours under a name of its own.
        error = str(scripts.outcome("local t = {f = redis.call} return t.f('fail', 'ERR x')"))
        assert error.startswith("ERR x script: ")
        assert error.endswith(".")
        assert ", on" not in error

    def test_line_breaks_cannot_forge_replies(self, scripts: Scripts) -> None:
        assert scripts.error("error('a\\r\\n+OK')") == "ERR user_script:1: a  +OK"
        assert str(scripts.run("return {err = 'a\\r\\n+OK\\r\\n'}")) == "a  +OK"

    def test_repr_tells_the_state(self, scripts: Scripts) -> None:
        assert repr(scripts.runtime).startswith("<ScriptRuntime idle, ")
        assert isinstance(scripts.runtime, ScriptRuntime)
