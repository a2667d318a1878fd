"""The scripts as texts: joined from their parts, with a header each, and without globals of their own."""

from __future__ import annotations

import struct
from importlib import resources
from typing import Any

import pytest
from lupa import lua51

from penstock.client.scripts import ScriptLibrary

#: Packages with scripts, and the files among them that are parts of others.
PARTS = {
    "penstock.streams": {"common", "groups", "line", "retention", "compaction", "producers"},
    "penstock.channels": {"common"},
    "penstock.webhooks": {"common"},
}
STREAM_COMMANDS = (
    "tack tcompact tdead tdrop tevict texport tgroup timport tinfo tnack tpending tpolicy tread trenew"
    " twrite".split()
)
#: What Redis gives to scripts.
GLOBALS = set(
    "KEYS ARGV redis cjson cmsgpack struct string table math error pcall ipairs pairs select tonumber"
    " tostring type unpack".split()
)

CLIENT: Any = None  # nothing is sent
LIBRARIES = {package: ScriptLibrary(CLIENT, package) for package in PARTS}
SCRIPTS = [
    (package, name) for package, parts in PARTS.items() for name in LIBRARIES[package] if name not in parts
]


def text_of(package: str, name: str) -> str:
    return (resources.files(package) / "lua" / f"{name}.lua").read_text("utf-8")


def test_there_is_a_script_for_every_command_of_streams() -> None:
    assert sorted(name for package, name in SCRIPTS if package == "penstock.streams") == STREAM_COMMANDS


@pytest.mark.parametrize("package", PARTS)
def test_every_part_is_used(package: str) -> None:
    sources = [LIBRARIES[package][name].source for owner, name in SCRIPTS if owner == package]
    used = {part for part in PARTS[package] for source in sources if text_of(package, part) in source}
    assert used == PARTS[package]


@pytest.mark.parametrize(("package", "name"), SCRIPTS)
def test_the_header_tells_keys_arguments_and_reply(package: str, name: str) -> None:
    header = text_of(package, name).partition("\n\n")[0]
    for word in ("KEYS", "ARGV", "Reply"):
        assert f"\n-- {word}" in header


@pytest.mark.parametrize(("package", "name"), SCRIPTS)
def test_scripts_set_no_globals_and_read_those_of_redis(package: str, name: str) -> None:
    read, written = globals_of(LIBRARIES[package][name].source)
    assert written == set()
    assert read <= GLOBALS


def test_a_global_would_be_found() -> None:
    assert globals_of("local function f() oops = print end return f") == ({"print"}, {"oops"})


# ------------------------------------------------------------------ a look into compiled Lua 5.1

_GETGLOBAL, _SETGLOBAL = 5, 7


class _Dump:
    """The dump format of PUC-Rio Lua 5.1, as far as names of globals need it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 12  # behind the header
        self.read: set[str] = set()
        self.written: set[str] = set()
        self._function()

    def _take(self, layout: str) -> Any:
        [value] = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return value

    def _string(self) -> bytes:
        size = self._take("Q")
        self._at += size
        return self._data[self._at - size : self._at - 1] if size else b""

    def _constant(self) -> bytes | None:
        match self._take("B"):
            case 1:
                self._take("B")
            case 3:
                self._take("d")
            case 4:
                return self._string()
        return None

    def _function(self) -> None:
        self._string()
        self._at += 4 + 4 + 4
        code = [self._take("I") for _ in range(self._take("I"))]
        constants = [self._constant() for _ in range(self._take("I"))]
        for _ in range(self._take("I")):
            self._function()
        lines = self._take("I")
        self._at += 4 * lines
        for _ in range(self._take("I")):  # locals
            self._string()
            self._at += 8
        for _ in range(self._take("I")):  # upvalues
            self._string()
        for instruction in code:
            name = constants[instruction >> 14] if instruction & 63 in (_GETGLOBAL, _SETGLOBAL) else None
            if name is not None:
                (self.read if instruction & 63 == _GETGLOBAL else self.written).add(name.decode())


def globals_of(source: str) -> tuple[set[str], set[str]]:
    """The globals that a chunk reads, and those that it sets."""
    runtime = lua51.LuaRuntime(encoding=None)
    dump = _Dump(
        runtime.eval(b"function(text) return string.dump(assert(loadstring(text))) end")(source.encode())
    )
    return dump.read, dump.written
