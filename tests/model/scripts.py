"""Random commands inside Lua scripts.

A script gets its commands through ARGV, so that there are few scripts and many calls. How
replies compare is decided by the commands inside: :func:`inner_calls` finds them again.

Scripts here never fail after they have written, since then both sides rightly differ: we
take back what a failed script did, Redis leaves it. ``@UNDONE`` (see ``pair``) is about that.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Final

from tests.model.chance import leaves_chance, without_chance
from tests.model.templates import Argv, Chooser, Source, pick

_CALL: Final = b"return redis.call(unpack(ARGV))"
_TRY: Final = b"return redis.pcall(unpack(ARGV))"
_TRY_RESP3: Final = b"redis.setresp(3) return redis.pcall(unpack(ARGV))"
_DESCRIBE: Final = b"""
local reply = redis.pcall(unpack(ARGV))
if type(reply) ~= 'table' then return {type(reply), tostring(reply)} end
return {reply.err or reply.ok or '', #reply, type(reply[1])}
"""
_DESCRIBE_RESP3: Final = b"redis.setresp(3)" + _DESCRIBE
_MEASURE_JSON: Final = b"""
local reply = redis.pcall(unpack(ARGV))
if type(reply) == 'table' and reply.err then return reply end
return #cjson.encode(reply)
"""
_PACK: Final = b"""
local reply = redis.pcall(unpack(ARGV))
if type(reply) == 'table' and reply.err then return reply end
return cmsgpack.unpack(cmsgpack.pack(reply))
"""
_EACH: Final = b"""
local at, replies = 1, {}
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + size))
  at = at + size + 1
end
return replies
"""
#: Runs its commands like ``_EACH`` and fails.
UNDONE: Final = _EACH.replace(b"return replies", b"error('undo all of it')")

#: Scripts that answer what their one command answered.
_TRANSPARENT: Final = frozenset((_CALL, _TRY, _TRY_RESP3, _PACK))
_OF_ONE: Final = (_CALL, _TRY, _TRY_RESP3, _DESCRIBE, _DESCRIBE_RESP3, _MEASURE_JSON, _PACK)
#: All that random calls use, by what EVALSHA calls them.
BY_DIGEST: Final = {sha1(script).hexdigest().encode(): script for script in (*_OF_ONE, _EACH)}
_DIGESTS: Final = {script: digest for digest, script in BY_DIGEST.items()}

_NAMES: Final = (b"EVAL", b"EVAL", b"EVALSHA", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO")
SCRIPT_CALLS: Final = frozenset(_NAMES)
_MOST_INSIDE: Final = 4
#: Lua's ``unpack`` has a limit.
_MOST_WORDS: Final = 500
#: Commands whose replies agree without being equal; what a script tells about them differs.
_INEXACT: Final = frozenset(
    b"TTL PTTL EXPIRETIME PEXPIRETIME MEMORY OBJECT DUMP LPOS BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP".split()
)


class Scripted:
    """Commands of another source, mostly inside scripts."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def command(self, chooser: Chooser) -> Argv:
        kind = chooser.below(6)
        if kind < 2:
            return self._source.command(chooser)
        if kind < 4:
            script = pick(chooser, _OF_ONE)
            return _call(chooser, script, self._inside(chooser, script in _TRANSPARENT))
        words: Argv = []
        for _ in range(1 + chooser.below(_MOST_INSIDE)):
            argv = self._inside(chooser, True)
            words += [b"%d" % len(argv), *argv]
        if kind == 5 and chooser.below(2):
            return [b"@UNDONE", *words]
        return _call(chooser, _EACH, words)

    def _inside(self, chooser: Chooser, is_transparent: bool) -> Argv:
        argv = without_chance(self._source.command(chooser))
        if argv[0].upper() == b"EXEC":
            # What is wrong first, its being here or its arguments, is told in another order.
            return argv[:1]
        name = argv[0].upper()
        is_exact = is_transparent or not (name.startswith((b"Z", b"BZ")) or name in _INEXACT)
        return argv if is_exact and len(argv) < _MOST_WORDS and not leaves_chance(argv) else [b"PING"]


def _call(chooser: Chooser, script: bytes, words: Argv) -> Argv:
    name = pick(chooser, _NAMES)
    return [name, _DIGESTS[script] if name.startswith(b"EVALSHA") else script, b"0", *words]


def inner_calls(argv: Argv) -> list[Argv] | None:
    """The commands inside a script; None for other commands. One answers by itself, several an array."""
    if argv[0].upper() not in SCRIPT_CALLS or len(argv) < 4:
        return None
    script = _script_of(argv)
    if script in _OF_ONE:
        return [argv[3:]]
    return split(argv[3:]) if script == _EACH else None


def answers_array(argv: Argv) -> bool:
    return _script_of(argv) == _EACH


def _script_of(argv: Argv) -> bytes:
    return BY_DIGEST.get(argv[1], argv[1])


def split(words: Argv) -> list[Argv]:
    """Commands that follow one another, each after its length."""
    calls = []
    at = 0
    while at < len(words):
        size = int(words[at])
        calls.append(words[at + 1 : at + 1 + size])
        at += size + 1
    return calls
