"""The first line of a script: ``#!lua flags=no-writes,allow-stale``.

A script that has such a line promises something by its flags and is held to it; one
without is run as Redis ran scripts before there were flags. The line is not Lua and
does not reach the compiler, but it is line 1 of the script.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import CommandError

FLAGS: Final = frozenset({"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"})

# A word is quoted or plain; a closing quote is followed by a blank or the end.
_WORD: Final = re.compile(
    rb"""\s*(?:"((?:[^"\\]|\\.)*)"(?=\s|\Z)|'((?:[^'\\]|\\.)*)'(?=\s|\Z)|([^\s"']+))""", re.S
)


def parse_shebang(source: bytes) -> tuple[bytes, frozenset[str] | None]:
    """What is to be compiled, and the flags; None for flags if there is no such line."""
    if not source.startswith(b"#!"):
        return source, None
    line, newline, body = source.partition(b"\n")
    if not newline:
        raise CommandError("ERR Invalid script shebang")
    words = _split(line)
    if not words:
        raise CommandError("ERR Invalid engine in script shebang")
    if words[0] != b"#!lua":
        raise _error("Unexpected engine in script shebang: ", words[0])
    flags: set[str] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise _error("Unknown lua shebang option: ", word)
        names = word[len(b"flags=") :]
        for name in names.split(b",") if names else ():
            flag = name.decode("latin-1")
            if flag not in FLAGS:
                raise _error("Unexpected flag in script shebang: ", name)
            flags.add(flag)
    return newline + body, frozenset(flags)


def _split(line: bytes) -> list[bytes]:
    """The words of the line; none if its quotes are unbalanced."""
    words: list[bytes] = []
    line = line.strip()
    at = 0
    while at < len(line):
        match = _WORD.match(line, at)
        if match is None:
            return []
        words.append(match[match.lastindex or 0])
        at = match.end()
    return words


def _error(text: str, word: bytes) -> CommandError:
    return CommandError("ERR " + text + word.decode("utf-8", "surrogateescape"))
