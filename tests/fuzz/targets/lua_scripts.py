"""Scripts that try to get out of the sandbox, or to take all time and memory.

The seeds are known tricks (``tricks.lua``): one that works answers ``escaped``, and none does. Whatever is
made of them: a script ends, in a reply or an error of ours, within its limits, and the next script finds
everything as it was.

Not tried: patterns that explode (``a*a*a*a*b``, or a long one over a long text). Lua matches them in C, where
nothing can stop it, here as in Redis (``docs/security.md``). So of those that are made, scripts that match
against something repeated are passed over; the tricks themselves are all tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.errors import CommandError
from tests.fuzz.running import Target
from tests.unit.scripting.harness import Scripts

_MEMORY_BYTES: Final = 16 << 20
_INSTRUCTIONS: Final = 2_000_000
_TIME_S: Final = 1.0

_EXPLOSIVE: Final = re.compile(rb"(?=[\s\S]*(?:match|find|gsub))[\s\S]*rep")

#: What a script sees of its world, as one line.
_LOOK: Final = b"""
local seen = {}
for _, name in ipairs({'os', 'io', 'debug', 'package', 'require', 'dofile', 'loadfile', 'module', 'python',
    'newproxy', 'getfenv', 'setfenv', 'string', 'table', 'redis', 'cjson', 'pcall', 'escaped'}) do
  seen[#seen + 1] = name .. '=' .. type(rawget(_G, name))
end
seen[#seen + 1] = tostring(#string.rep('a', 10)) .. tostring(redis.sha1hex('')) .. cjson.encode({1, 2})
seen[#seen + 1] = tostring(getmetatable('')) .. string.format('%d', 7) .. tostring(pcall(error, 'x'))
return table.concat(seen, ' ')
"""

TRICKS: Final = tuple(
    line
    for line in (Path(__file__).parent / "tricks.lua").read_text().splitlines()
    if not line.startswith("--")
)
_WORDS: Final = (
    b"pcall(", b"coroutine.wrap(", b"string.rep(", b"setmetatable(", b"function()", b" end ", b" return ",
    b"(", b")", b"{", b"}", b"[[", b"]]", b"..", b"...", b"#", b"%", b"\\0", b"'", b'"', b"_G",
    b"redis.call(", b"unpack(", b"while true do ", b"error(", b"tostring(", b"loadstring(",
    b"collectgarbage(", b"rawset(", b"select(", b"2^31", b"1e309", b"0/0", b"nil", b"--", b"\x1b",
    b"cjson.decode(", b"cmsgpack.unpack(", b"struct.unpack(", b"string.format(", b"table.concat(", b"xpcall(",
    b"#!lua ",
)  # fmt: skip


class LuaScripts(Target):
    name = "lua_scripts"
    tries = 400

    def __init__(self) -> None:
        self._scripts = Scripts(memory_limit_bytes=_MEMORY_BYTES)
        self._world = self._scripts.run(_LOOK)
        self._tricks = frozenset(self.seeds())

    def seeds(self) -> Sequence[bytes]:
        return [trick.encode("latin-1") for trick in TRICKS]

    def words(self) -> Sequence[bytes]:
        return _WORDS

    def check(self, data: bytes) -> None:
        if data not in self._tricks and _EXPLOSIVE.match(data):
            return
        try:
            reply = self._scripts.run(data, instruction_limit=_INSTRUCTIONS, time_limit_s=_TIME_S)
        except CommandError:
            reply = None
        # What is made of a trick may say so without having done it.
        assert reply != b"escaped" or data not in self._tricks, "it has got out"
        used = self._scripts.runtime.memory_used_bytes
        assert used <= _MEMORY_BYTES, f"{used} bytes are in use"
        self._scripts.runtime.forget()
        assert self._scripts.run(_LOOK) == self._world, "the next script sees another world"
