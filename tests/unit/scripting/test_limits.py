"""Scripts that do not end by themselves, and scripts that want too much memory."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.engine.scripting.runtime import ScriptTimeoutError
from penstock.errors import CommandError
from tests.unit.scripting.harness import Scripts

# None of them can be ended by an error that the script could catch.
ENDLESS = {
    "loop": "while true do end",
    "pcall": "while true do pcall(function() while true do end end) end",
    "nested pcall": "local function f() pcall(f) end while true do f() end",
    "xpcall": "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "coroutine": "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
    "short coroutines": """
        while true do coroutine.resume(coroutine.create(function() for i = 1, 10 do end end)) end
    """,
    "pcall in coroutine": """
        while true do coroutine.wrap(function() pcall(function() while true do end end) end)() end
    """,
    "yields": """
        local co = coroutine.create(function() while true do coroutine.yield() end end)
        while true do coroutine.resume(co) end
    """,
    "reader": "while true do load(function() while true do end end) end",
    "comparison": "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
    "replacement": "while true do pcall(string.gsub, 'a', '.', function() while true do end end) end",
    "metamethod": """
        local t = setmetatable({}, {__index = function() while true do end end})
        while true do pcall(function() return t.x end) end
    """,
    "error with metamethod": """
        local e = setmetatable({}, {__index = function() while true do end end})
        while true do pcall(error, e) end
    """,
    "tostring": """
        local t = setmetatable({}, {__tostring = function() while true do end end})
        while true do pcall(tostring, t) end
    """,
    "collector": "while true do collectgarbage() end",
    "calls": "while true do redis.pcall('echo', 'x') end",
    "tail calls": "local function f() return f() end f()",
    "a chunk that calls itself ours": """
        loadstring('while true do pcall(function() while true do end end) end', '=(lib)')()
    """,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_instructions(scripts: Scripts, name: str) -> None:
    with pytest.raises(ScriptTimeoutError, match=r"^ERR Script used up its instructions script: \w{40}"):
        scripts.run(ENDLESS[name], instruction_limit=1_000_000)
    assert scripts.run("return 1") == 1


@pytest.mark.parametrize("name", ENDLESS)
def test_kill(scripts: Scripts, name: str) -> None:
    script = scripts.compile(ENDLESS[name])
    # A timer is the other thread; should it come before the script, it comes again.
    stop = threading.Event()
    killer = threading.Thread(target=_kill_until, args=(scripts.runtime.kill, stop))
    killer.start()
    try:
        with pytest.raises(CommandError, match=r"^ERR Script killed by user with SCRIPT KILL\.\.\. script: "):
            scripts.runtime.run(script, [], [])
    finally:
        stop.set()
        killer.join()
    assert scripts.run("return 1") == 1


def _kill_until(kill: Callable[[], None], stop: threading.Event) -> None:
    while not stop.wait(0.01):
        kill()


def test_a_kill_names_the_line(scripts: Scripts) -> None:
    with pytest.raises(ScriptTimeoutError, match=r", on @user_script:3\.$"):
        scripts.run("local x = 1\n\nwhile true do x = x + 1 end", instruction_limit=200_000)


def test_time() -> None:
    now = [0.0]

    def monotonic_s() -> float:
        now[0] += 0.25
        return now[0]

    scripts = Scripts(monotonic_s)
    with pytest.raises(ScriptTimeoutError, match="ERR Script used up its time"):
        scripts.run("while true do end", time_limit_s=2.0)
    assert now[0] == 2.25
    # Slow commands count as well, however few instructions stand between them.
    with pytest.raises(ScriptTimeoutError):
        scripts.run("for i = 1, 1000 do redis.pcall('echo', 'x') end", time_limit_s=2.0)
    assert scripts.run("return 1", time_limit_s=2.0) == 1


def test_enough_is_enough(scripts: Scripts) -> None:
    assert scripts.run("for i = 1, 1000 do end return 1", instruction_limit=100_000) == 1
    with pytest.raises(ScriptTimeoutError):
        scripts.run("for i = 1, 1000 do end return 1", instruction_limit=500)
    assert scripts.run("for i = 1, 1e6 do end return 1") == 1


def test_state_while_running(scripts: Scripts) -> None:
    runtime = scripts.runtime
    states: list[tuple[bool, bool]] = []

    class Probe(dict[bytes, object]):
        def __missing__(self, key: bytes) -> object:
            states.append((runtime.is_running, runtime.running_since is not None))
            return 1

    scripts.replies = Probe()
    scripts.run("redis.call('reply', 'a') redis.call('reply', 'b')")
    assert states == [(True, True), (True, True)]
    assert not runtime.is_running


def test_scripts_do_not_nest(scripts: Scripts) -> None:
    class Nested(dict[bytes, object]):
        def __missing__(self, key: bytes) -> object:
            return scripts.run("return 1")

    scripts.replies = Nested()
    with pytest.raises(RuntimeError, match="do not nest"):
        scripts.run("redis.call('reply', 'x')")
    assert scripts.run("return 1") == 1


def test_a_kill_without_a_script_is_forgotten(scripts: Scripts) -> None:
    scripts.runtime.kill()
    assert scripts.run("for i = 1, 1e6 do end return 1") == 1


# ---------------------------------------------------------------- memory

LIMIT = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def small_memory() -> Scripts:
    return Scripts(memory_limit_bytes=LIMIT)


HUNGRY = {
    "repetition": "return string.rep('x', 1e9)",
    "table": "local t = {} for i = 1, 1e9 do t[i] = i end",
    "doubling": "local s = 'x' while true do s = s .. s end",
    "nested tables": "local t = {} while true do t = {t} end",
    "joining": "return table.concat({string.rep('x', 4e6), string.rep('y', 4e6)})",
    "replacing": "return (string.rep('ab', 2e6):gsub('a', 'xxxx'))",
    "coroutines": "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end",
    "encoding": "local t = {} for i = 1, 1e5 do t[i] = {i} end return cjson.encode(t)",
    "decoding": "return cjson.decode('[' .. string.rep('{},', 1e6) .. '1]')",
    "packing": "return cmsgpack.pack(string.rep('x', 3e6), string.rep('y', 3e6))",
    "endless reply": "local t = {} t[1], t[2] = t, t return t",
    "endless chunk": "load(function() return 'local x = 1 ' end)",
    "big replies": "local t = {} for i = 1, 1e9 do t[i] = redis.call('reply', 'big') .. i end",
    "many replies": "local t = {} for i = 1, 1e9 do t[i] = redis.call('reply', 'list') end",
    "nested replies": "local t = {} for i = 1, 1e9 do t[i] = redis.call('reply', 'nested') end",
    "one huge reply": "return redis.call('reply', 'huge')",
}


@pytest.mark.parametrize("name", HUNGRY)
def test_memory(small_memory: Scripts, name: str) -> None:
    small_memory.replies = {
        b"big": b"x" * 100_000,
        b"huge": b"x" * 10_000_000,
        b"list": [b"abc"] * 100,
        b"nested": [[b"abc", [1, None]]] * 20,
    }
    assert small_memory.error(HUNGRY[name]) == "ERR not enough memory"
    assert small_memory.run("return string.rep('x', 1e6)") == b"x" * 1_000_000
    assert small_memory.runtime.memory_used_bytes < LIMIT


def test_memory_errors_can_be_caught(small_memory: Scripts) -> None:
    assert small_memory.run("local ok, e = pcall(string.rep, 'x', 1e9) return e") == b"not enough memory"
    source = "local ok, e = pcall(function() local s = 'x' while true do s = s .. s end end) return e"
    assert small_memory.run(source) == b"not enough memory"


def test_too_many_arguments(small_memory: Scripts) -> None:
    assert str(small_memory.outcome("return #ARGV", *[b"x" * 1000] * 10_000)).startswith(
        "ERR not enough memory"
    )
    assert small_memory.run("return #ARGV", *[b"x"] * 10_000) == 10_000


def test_a_source_too_long(small_memory: Scripts) -> None:
    assert small_memory.error("return '" + "x" * 2_000_000 + "'") == "ERR not enough memory"


# Fills memory to the last bytes, and calls what crosses the border to Python all the way.
BRINK = """
local kept, n = {}, 0
local function cross()
  pcall(redis.call, 'echo', 'x')
  pcall(redis.call, 'reply', 'medium')
  pcall(redis.call, 'reply', 'short')
  pcall(redis.call, 'reply', 'list')
  pcall(redis.call, 'reply', 'nested')
  pcall(redis.call, 'fail', 'ERR text')
  pcall(redis.sha1hex, 'x')
  pcall(redis.log, 1, 'x')
  pcall(redis.setresp, 2)
  pcall(bit.tohex, 5)
  pcall(struct.pack, '>I4', 5)
  pcall(struct.unpack, string.rep('b', 20), string.rep('x', 20))
  pcall(cmsgpack.pack, 1.5)
  pcall(loadstring, 'return redis.call(1)')
end
for _, size in ipairs({50000, 5000, 500, 50, 1}) do
  repeat
    local ok = pcall(function()
      n = n + 1
      kept[n] = string.rep('x', size) .. n
    end)
    if n % 20 == 0 then cross() end
  until not ok or n > 20000
  cross()
end
return n
"""


def test_at_the_brink(small_memory: Scripts) -> None:
    # Without a reserve the interpreter would jump over Python's frames here, and hang.
    small_memory.replies = {
        b"medium": b"x" * 60_000,
        b"short": [b"abc"] * 5,
        b"list": [b"abc"] * 50,
        b"nested": [[b"abc", [1, None]]] * 3,
    }
    for _ in range(3):
        outcome = small_memory.outcome(BRINK)
        assert (isinstance(outcome, int) and outcome > 100) or "not enough memory" in str(outcome)
        assert small_memory.run("return 1") == 1


def test_garbage_does_not_pile_up(scripts: Scripts) -> None:
    source = "for i = 1, 20000 do redis.call('echo', 'x' .. i) coroutine.wrap(function() end)() end"
    for _ in range(3):
        scripts.run(source)
    before = scripts.runtime.memory_used_bytes
    for _ in range(5):
        scripts.run(source)
    assert scripts.runtime.memory_used_bytes < before + 2_000_000
