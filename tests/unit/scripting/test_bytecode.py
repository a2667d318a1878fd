"""Tail calls that keep their frame, and tail calls that stay tail calls."""

from __future__ import annotations

import pytest
from lupa import lua51

from penstock.engine.scripting.bytecode import keep_all_frames, keep_frames
from tests.unit.scripting.harness import Scripts

LUA = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
DUMP = LUA.eval(b"function(source) return string.dump(assert(loadstring(source))) end")
CALL, TAILCALL = 28, 29


def opcodes(dump: bytes) -> list[int]:
    """Calls and tail calls of a chunk's main function, in order."""
    name_size = int.from_bytes(dump[12:20], "little")
    at = 20 + name_size + 12
    count = int.from_bytes(dump[at : at + 4], "little")
    words = [int.from_bytes(dump[i : i + 4], "little") for i in range(at + 4, at + 4 + 4 * count, 4)]
    return [word & 63 for word in words if word & 63 in (CALL, TAILCALL)]


@pytest.mark.parametrize(
    "source",
    [
        "return f(1)",
        "return f(g(1), h(2))",
        "return redis.call('x', KEYS[1], ARGV[1] or 'y')",
        "local call = redis.call return call('x')",
        "local a, b = redis.call, redis.pcall return a('x')",
        "local a, b = redis.call, redis.pcall return b('x')",
        "local f = function() end local call = redis.call return call(function() return f end)",
        "local text = '' return text:find('x')",
        "local c = cjson.new() return c.encode({})",
        "local r = redis return r.call('x')",
        "if f then return f() else return g() end",
    ],
)
def test_library_calls_keep_their_frame(source: str) -> None:
    kept = keep_frames(DUMP(source.encode()))
    assert kept is not None
    assert TAILCALL not in opcodes(kept)


@pytest.mark.parametrize(
    "source",
    [
        "local function f() end return f()",
        "local t = {} return t.method()",
        "local t = {} return t:method()",
        "local t = {} return t[1]()",
        "return (function() end)()",
        "local f = KEYS return f.x.y()",
        "return f",
        "",
    ],
)
def test_other_calls_stay(source: str) -> None:
    assert keep_frames(DUMP(source.encode())) is None


def test_all_frames() -> None:
    dump = DUMP(b"local function f() end return f()")
    assert TAILCALL in opcodes(dump)
    assert TAILCALL not in opcodes(keep_all_frames(dump))


def test_foreign_formats_are_left_alone() -> None:
    assert keep_frames(b"\x1bLuaR\x00") is None
    assert keep_all_frames(b"\x1bLuaR\x00") == b"\x1bLuaR\x00"


def test_all_results_are_returned(scripts: Scripts) -> None:
    assert scripts.run("local function f() return unpack({1, 2, 3}) end return {f()}") == [1, 2, 3]
    assert scripts.run("local function f() return select(2, 'a') end return {f(), (f())}") == []
    assert scripts.run("local function f() return pcall(error, nil) end return select('#', f())") == 2


@pytest.mark.parametrize(
    "source",
    [
        "local function f(n) if n == 0 then return 'done' end return f(n - 1) end return f(1e5)",
        "local m = {} function m.f(n) if n == 0 then return 'done' end return m.f(n - 1) end return m.f(1e5)",
        "local m = {} function m:f(n) if n == 0 then return 'done' end return m:f(n - 1) end return m:f(1e5)",
    ],
)
def test_tail_recursion_has_no_limit(scripts: Scripts, source: str) -> None:
    assert scripts.run(source) == b"done"
