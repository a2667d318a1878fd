"""Turning tail calls of library functions into plain calls, in compiled Lua chunks.

Redis's libraries are C functions, and ``return redis.call(...)`` keeps the frame
of a caller whose callee is in C: errors can name the script's line. Ours are Lua
functions, for which a tail call drops the caller's frame and with it the line.
``keep_frames`` rewrites ``TAILCALL`` to ``CALL`` (the ``RETURN`` of all results
that follows makes both mean the same) where the callee is

=============================  ===============================================
``return name(…)``             a global: scripts cannot define any, so a library
``return lib.name(…)``         a field of a global
``return alias(…)``            a local or upvalue initialised by one of the above
``return x.name(…)``           a field or method by the name of one of our functions,
``return x:name(…)``           whatever x is: an instance of cjson, a string
=============================  ===============================================

All other tail calls stay, so that tail recursion of a script costs no stack. Of our
own chunks every tail call is made plain: an error names the function that the script
called, and its frame must still be there.

Layout read here: the dump format of PUC-Rio Lua 5.1 (``ldump.c``). A chunk whose
header says other sizes is left alone. The input must come from Lua's own
compiler: nothing here could make foreign bytecode safe.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

# Signature, version 5.1, format 0, little endian, sizes of int, size_t,
# Instruction and lua_Number, and "numbers are floating point".
_HEADER: Final = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"

# An instruction: opcode in bits 0-5, A in 6-13, C in 14-22, B in 23-31.
_MOVE, _GETUPVAL, _GETGLOBAL, _GETTABLE = 0, 4, 5, 6
_SELF, _CALL, _TAILCALL, _CLOSURE = 11, 28, 29, 36
#: Constants are numbered from here on where an operand is a register or a constant.
_FIRST_CONSTANT: Final = 256
#: Opcodes whose A is a register they write.
_WRITES_A: Final = frozenset({0, 1, 2, 3, 4, 5, 6, *range(10, 22), 27, 28, 36, 37})
#: The functions that are ours in the tables of the libraries.
_LIBRARY_NAMES: Final = frozenset(
    b"""
    acl_check_cmd call error_reply log pcall set_repl setresp sha1hex status_reply
    decode decode_invalid_numbers decode_max_depth encode encode_invalid_numbers encode_keep_buffer
    encode_max_depth encode_number_precision encode_sparse_array
    pack size unpack unpack_limit unpack_one
    arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex
    create resume wrap random randomseed foreach insert dump find gfind gmatch gsub match rep
    """.split()
)


@dataclass
class _Function:
    """One function prototype: its instructions and what is known of its variables."""

    code_at: int
    code: tuple[int, ...]
    upvalue_count: int
    #: Strings; other constants are None.
    constants: list[bytes | None] = field(default_factory=list)
    nested: list[_Function] = field(default_factory=list)
    #: Name, first and last instruction of each local, in order of declaration.
    local_names: list[tuple[bytes, int, int]] = field(default_factory=list)
    upvalue_names: list[bytes] = field(default_factory=list)

    def local_name(self, register: int, at: int) -> bytes:
        """Name of the local in ``register`` at instruction ``at``, or nothing."""
        for name, start, end in self.local_names:
            if start <= at < end:
                if register == 0:
                    return name
                register -= 1
        return b""

    def captures(self) -> set[int]:
        """Positions of the words after ``CLOSURE`` that name captured variables."""
        found: set[int] = set()
        for at, word in enumerate(self.code):
            if word & 63 == _CLOSURE and at not in found:
                found.update(range(at + 1, at + 1 + self.nested[word >> 14].upvalue_count))
        return found


class _Reader:
    """Reads a dump from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(_HEADER)

    def function(self) -> _Function:
        self._string()
        self._at += 8  # first and last line
        upvalue_count = self._data[self._at]
        self._at += 4  # upvalues, parameters, vararg flag, stack size
        size = self._int()
        function = _Function(self._at, struct.unpack_from(f"<{size}I", self._data, self._at), upvalue_count)
        self._at += 4 * size
        function.constants = [self._constant() for _ in range(self._int())]
        function.nested = [self.function() for _ in range(self._int())]
        line_count = self._int()
        self._at += 4 * line_count
        function.local_names = [(self._string(), self._int(), self._int()) for _ in range(self._int())]
        function.upvalue_names = [self._string() for _ in range(self._int())]
        return function

    def _int(self) -> int:
        value: int = struct.unpack_from("<i", self._data, self._at)[0]
        self._at += 4
        return value

    def _string(self) -> bytes:
        size: int = struct.unpack_from("<Q", self._data, self._at)[0]
        text = self._data[self._at + 8 : self._at + 8 + max(size - 1, 0)]
        self._at += 8 + size
        return text

    def _constant(self) -> bytes | None:
        kind = self._data[self._at]
        self._at += 1
        if kind == 4:  # string
            return self._string()
        self._at += {0: 0, 1: 1, 3: 8}[kind]  # nil, boolean, number
        return None


def keep_frames(dump: bytes) -> bytes | None:
    """The chunk with its library tail calls made plain, or nothing if there are none."""
    if not dump.startswith(_HEADER):
        return None
    main = _Reader(dump).function()
    aliases: set[bytes] = set()
    _collect_aliases(main, aliases)
    patched = bytearray(dump)
    return bytes(patched) if _patch(main, aliases, patched) else None


def keep_all_frames(dump: bytes) -> bytes:
    """The chunk with all its tail calls made plain."""
    if not dump.startswith(_HEADER):
        return dump
    patched = bytearray(dump)
    _patch(_Reader(dump).function(), None, patched)
    return bytes(patched)


def _library_load_length(code: tuple[int, ...], at: int) -> int:
    """How many instructions ending at ``at`` load a global or a field of one; 0 if they do not."""
    if at < 0:
        return 0
    word = code[at]
    if word & 63 == _GETGLOBAL:
        return 1
    # GETTABLE A B C right after GETGLOBAL into B.
    if word & 63 == _GETTABLE and at > 0:
        before = code[at - 1]
        if before & 63 == _GETGLOBAL and before >> 6 & 255 == word >> 23:
            return 2
    return 0


def _collect_aliases(function: _Function, aliases: set[bytes]) -> None:
    starts: dict[int, list[bytes]] = {}
    for name, start, _ in function.local_names:
        starts.setdefault(start, []).append(name)
    for start, names in starts.items():
        at = start - 1
        for name in reversed(names):
            length = _library_load_length(function.code, at)
            if not length:
                break
            aliases.add(name)
            at -= length
    for nested in function.nested:
        _collect_aliases(nested, aliases)


def _patch(function: _Function, aliases: set[bytes] | None, out: bytearray) -> bool:
    """Make tail calls plain: those of libraries and their aliases, or all if no aliases are given."""
    changed = False
    captures = function.captures()
    for at, word in enumerate(function.code):
        if word & 63 != _TAILCALL or at in captures:
            continue
        if aliases is None or _calls_library(function, at, captures, aliases):
            struct.pack_into("<I", out, function.code_at + 4 * at, word & ~63 | _CALL)
            changed = True
    for nested in function.nested:
        changed |= _patch(nested, aliases, out)
    return changed


def _calls_library(function: _Function, at: int, captures: set[int], aliases: set[bytes]) -> bool:
    code = function.code
    register = code[at] >> 6 & 255
    # The callee is loaded first, its arguments into higher registers: the last
    # write to the callee's register is the load.
    for load in range(at - 1, -1, -1):
        word = code[load]
        if load in captures or word & 63 not in _WRITES_A or word >> 6 & 255 != register:
            continue
        if _library_load_length(code, load):
            return True
        if word & 63 == _MOVE:
            return function.local_name(word >> 23, load) in aliases
        if word & 63 == _GETUPVAL:
            index = word >> 23
            return index < len(function.upvalue_names) and function.upvalue_names[index] in aliases
        if word & 63 in (_GETTABLE, _SELF):
            name = (word >> 14 & 511) - _FIRST_CONSTANT
            return name >= 0 and function.constants[name] in _LIBRARY_NAMES
        return False
    return False
