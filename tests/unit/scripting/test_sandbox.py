"""Attempts to get out: to Python, to files, to other scripts, to a crash."""

from __future__ import annotations

import pytest

from penstock.errors import CommandError, ConfigError
from tests.unit.scripting.harness import Scripts

# Walks over everything that can be reached from a script and reports what has no business there.
WALK = """
local seen, found = {}, {}
local function walk(value, path)
  local kind = type(value)
  if (kind == 'userdata' and value ~= cjson.null) or kind == 'thread' then
    found[#found + 1] = path
  end
  if value == nil or seen[value] then return end
  seen[value] = true
  if kind ~= 'table' then return end
  for key, inner in pairs(value) do
    walk(key, path .. '[key]')
    walk(inner, path .. '.' .. tostring(key))
  end
  walk(getmetatable(value), path .. '[metatable]')
end
walk(_G, '_G')
walk(getmetatable(''), 'string')
walk(cjson.new(), 'cjson')
local ok, e = xpcall(function() redis.call('fail', 'ERR x') end, function(e) walk(e, 'error') return e end)
walk(e, 'caught')
walk(redis.pcall('fail', 'ERR x'), 'pcall')
walk(redis.pcall('reply', 'nested'), 'reply')
local count = 0
for _ in pairs(seen) do count = count + 1 end
return {count, found}
"""


def test_nothing_foreign_is_reachable(scripts: Scripts) -> None:
    scripts.replies[b"nested"] = [b"a", [1, None, {b"k": 1.5}]]
    count, found = scripts.run(WALK)
    assert found == []
    assert count > 120


@pytest.mark.parametrize(
    "name",
    "python debug io os package require dofile loadfile module setfenv getfenv newproxy print jit".split(),
)
def test_absent_globals(scripts: Scripts, name: str) -> None:
    expected = f"Script attempted to access nonexistent global variable '{name}'"
    assert scripts.error(f"return {name}") == f"ERR user_script:1: {expected}"
    assert scripts.run(f"return rawget(_G, '{name}')") is None
    assert expected in scripts.error(f"return loadstring('return {name}')()")
    assert expected in scripts.error(f"return coroutine.wrap(function() return {name} end)()")


@pytest.mark.parametrize(
    "change",
    [
        "x = 1",
        "_G = {}",
        "_G.x = 1",
        "KEYS = {}",
        "redis.call = nil",
        "redis[1] = 1",
        "string.rep = nil",
        "math.huge = 1",
        "getmetatable('').__index = nil",
        "getmetatable('').__index.rep = nil",
        "getmetatable(_G).__index = nil",
        "local _, t = pairs(redis) t.call = nil",
        "for name in pairs(redis) do redis[name] = nil end",
        "loadstring('x = 1')()",
        "coroutine.wrap(function() x = 1 end)()",
        "load(function() return nil end, 'x')() y = 1",
    ],
)
def test_assignments_are_refused(scripts: Scripts, change: str) -> None:
    assert scripts.error(change).endswith(": Attempt to modify a readonly table")
    assert scripts.run("return {redis.call('echo', 'x'), ('x'):rep(2), type(math.huge)}") == [
        b"x",
        b"xx",
        b"number",
    ]


@pytest.mark.parametrize(
    "change",
    [
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "rawset(getmetatable(''), '__index', 1)",
        "setmetatable(_G, {})",
        "setmetatable(redis, nil)",
        "setmetatable(getmetatable(_G), {})",
        "table.insert(redis, 1)",
        "table.insert(string, 1, 'x')",
        "local _, t = pairs(_G) rawset(t, 'x', 1)",
    ],
)
def test_raw_changes_are_refused(scripts: Scripts, change: str) -> None:
    assert scripts.error(change) == "ERR Attempt to modify a readonly table"


def test_nothing_passes_from_one_script_to_the_next(scripts: Scripts) -> None:
    scripts.run("KEYS[5] = 'left' ARGV.x = 'left' table.sort(redis) table.remove(string)", b"a", keys=(b"k",))
    assert scripts.run("return {#KEYS, #ARGV, tostring(KEYS[5]), tostring(ARGV.x)}") == [0, 0, b"nil", b"nil"]
    scripts.run("redis.setresp(3)")
    scripts.replies[b"map"] = {b"k": b"v"}
    assert scripts.run("return #redis.call('reply', 'map')") == 2


class TestBytecode:
    """Loading bytecode would be the end of every wall: it can address any memory."""

    @pytest.mark.parametrize("load", ["loadstring(code)", "loadstring(code, '=(lib)')", "load(once(code))"])
    def test_is_never_loaded(self, scripts: Scripts, load: str) -> None:
        source = f"""
        local function once(text) return function() local t = text text = nil return t end end
        local code = string.dump(function() return 1 end)
        local f, e = {load}
        return {{tostring(f), e}}
        """
        f, error = scripts.run(source)
        assert f == b"nil"
        assert error.endswith(b"unexpected symbol near 'char(27)'")

    def test_not_even_in_pieces(self, scripts: Scripts) -> None:
        source = """
        local code, i = string.dump(function() return 1 end), 0
        return tostring((load(function() i = i + 1 return i <= #code and code:sub(i, i) or nil end)))
        """
        assert scripts.run(source) == b"nil"

    def test_nor_as_a_script(self, scripts: Scripts) -> None:
        with pytest.raises(CommandError, match=r"Error compiling script \(new function\): user_script:1"):
            scripts.run(b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00")

    def test_library_functions_are_not_dumped(self, scripts: Scripts) -> None:
        for name in ("redis.call", "pcall", "cjson.encode", "string.find", "tostring"):
            assert scripts.error(f"string.dump({name})").endswith("unable to dump given function")


class TestCrashesOfLua51:
    """Each of these ends the process if it reaches the interpreter as it is."""

    @pytest.mark.parametrize(
        "arguments",
        [
            "0, 2147483647",
            "-2147483648, 2147483647",
            "-1, 2147483646",
            "'0', '2147483647'",
            "2^32, 2^33 - 1.5",
        ],
    )
    def test_unpack_overflow(self, scripts: Scripts, arguments: str) -> None:
        error = scripts.outcome(f"return unpack({{}}, {arguments})")
        assert error is None or "too many results to unpack" in str(error)

    @pytest.mark.parametrize("function", ["find", "match", "gmatch", "gsub", "gfind"])
    def test_pattern_recursion(self, scripts: Scripts, function: str) -> None:
        source = f"return string.{function}(string.rep('a', 1e6), string.rep('a?', 1e6), 'x')"
        assert "malformed pattern (longer than" in scripts.error(source)

    def test_plain_texts_may_be_long(self, scripts: Scripts) -> None:
        assert scripts.run("local t = string.rep('ab', 20000) return t:find(t, 1, true)") == 1

    def test_chunk_names_with_zero_bytes(self, scripts: Scripts) -> None:
        source = r"""
        local kept = {}
        for i = 1, 2000 do
          local text = string.rep('x', 500) .. i
          kept[i % 10] = loadstring('local t = {"' .. text .. '"} return t', 'n' .. i .. '\0tail')
          collectgarbage('step', 100)
        end
        return kept[1]()[1]:sub(-2)
        """
        assert scripts.run(source) == b"91"

    def test_nested_coroutines(self, scripts: Scripts) -> None:
        source = "local function f() return coroutine.wrap(f)() end return select(2, pcall(f)):sub(-16)"
        assert scripts.run(source) == b"C stack overflow"

    def test_deep_recursion(self, scripts: Scripts) -> None:
        source = "local function f() return 1 + f() end local ok, e = pcall(f) return e"
        assert scripts.run(source) == b"user_script:1: stack overflow"

    def test_deep_syntax(self, scripts: Scripts) -> None:
        error = scripts.error("return " + "(" * 5000 + "1" + ")" * 5000)
        assert "chunk has too many syntax levels" in error

    def test_empty_repetitions_end_at_once(self, scripts: Scripts) -> None:
        assert scripts.run("return #string.rep('', 2^31 - 1)", time_limit_s=1.0) == 0


class TestErrorHandlers:
    def test_what_a_handler_gets(self, scripts: Scripts) -> None:
        source = """
        local kinds = {}
        local function note(e) kinds[#kinds + 1] = type(e) return e end
        xpcall(function() error('x') end, note)
        xpcall(function() redis.call('fail', 'ERR x') end, note)
        xpcall(function() redis.call({}) end, note)
        xpcall(function() local x = nil + 1 end, note)
        xpcall(function() cjson.decode('x') end, note)
        return kinds
        """
        assert scripts.run(source) == [b"string", b"table", b"table", b"string", b"string"]

    def test_redis_s_own_handler_gives_away_nothing(self, scripts: Scripts) -> None:
        source = "local e = __redis__err__handler(redis) return {type(e), type(e.err), type(e.call)}"
        assert scripts.run(source) == [b"table", b"string", b"nil"]

    def test_exceptions_of_the_host_pass_by_every_handler(self, scripts: Scripts) -> None:
        scripts.exceptions[b"full"] = OSError("disk full")
        sources = [
            "return redis.call('crash', 'full')",
            "return redis.pcall('crash', 'full')",
            "return pcall(redis.call, 'crash', 'full')",
            "pcall(function() redis.call('crash', 'full') end) return 'went on'",
            "xpcall(function() redis.call('crash', 'full') end, function() return 1 end) return 'went on'",
            "coroutine.resume(coroutine.create(function() redis.call('crash', 'full') end)) return 'went on'",
            "pcall(coroutine.wrap(function() redis.call('crash', 'full') end)) return 'went on'",
        ]
        for source in sources:
            with pytest.raises(OSError, match="disk full"):
                scripts.run(source)
            assert scripts.run("return 1") == 1

    def test_an_interrupt_is_not_lost(self, scripts: Scripts) -> None:
        scripts.exceptions[b"ctrl-c"] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            scripts.run("while true do pcall(redis.call, 'crash', 'ctrl-c') end")

    def test_a_failing_log_ends_the_script(self) -> None:
        scripts = Scripts()
        scripts.runtime._log = lambda level, text: 1 / 0  # type: ignore[assignment,return-value]
        with pytest.raises(ZeroDivisionError):
            scripts.run("pcall(redis.log, redis.LOG_NOTICE, 'x') return 1")


class TestNull:
    """The one userdata that scripts have."""

    def test_can_only_be_compared(self, scripts: Scripts) -> None:
        assert scripts.run("return {type(cjson.null), tostring(cjson.null == cjson.decode('null'))}") == [
            b"userdata",
            b"true",
        ]
        for misuse in (
            "cjson.null.x",
            "cjson.null()",
            "#cjson.null",
            "cjson.null + 1",
            "cjson.null.__class__",
        ):
            assert scripts.error(f"return {misuse}").startswith("ERR user_script:1: attempt to ")
        assert scripts.run("return getmetatable(cjson.null)") is None

    def test_can_be_thrown(self, scripts: Scripts) -> None:
        assert (
            scripts.run("local ok, e = pcall(error, cjson.null) return tostring(e == cjson.null)") == b"true"
        )
        assert scripts.error("error(cjson.null)").startswith("ERR userdata: ")


def test_a_limit_of_memory_that_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="memory_limit_bytes"):
        Scripts(memory_limit_bytes=1000)
