"""A line that somebody typed, as the words of a command: the quoting rules of redis-cli.

=====================  ==============================================================
written                means
=====================  ==============================================================
``set k "two words"``  three words; between double quotes ``\\n \\r \\t \\b \\a`` and
                       ``\\xff`` are what they are in C, and ``\\"`` is a quote
``'it\\'s'``            everything as it stands, but for ``\\'``
``"a"b``               refused: something follows a quote at once
=====================  ==============================================================

Rules: words are bytes. What cannot be split is None, and nothing is sent. Nothing here knows commands.
"""

from __future__ import annotations

from typing import Final

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "b": b"\b", "a": b"\a"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def split_line(line: str) -> list[bytes] | None:
    """The words; None if quotes do not pair, or something follows one at once."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line):
            return words
        found = _word(line, at)
        if found is None:
            return None
        word, at = found
        words.append(word)


def _word(line: str, at: int) -> tuple[bytes, int] | None:
    """The word that begins there, and where it ends."""
    word = bytearray()
    while at < len(line) and not line[at].isspace():
        if line[at] in "\"'":
            found = _quoted(line, at)
            if found is None:
                return None
            part, at = found
            word += part
            if at < len(line) and not line[at].isspace():
                return None
        else:
            word += line[at].encode("utf-8", "surrogateescape")
            at += 1
    return bytes(word), at


def _quoted(line: str, at: int) -> tuple[bytes, int] | None:
    """What stands between quotes, and where the text goes on."""
    quote, at = line[at], at + 1
    part = bytearray()
    while at < len(line):
        if line[at] == quote:
            return bytes(part), at + 1
        if line[at] == "\\" and at + 1 < len(line):
            meant, at = _escaped(line, at, quote)
            part += meant
        else:
            part += line[at].encode("utf-8", "surrogateescape")
            at += 1
    return None


def _escaped(line: str, at: int, quote: str) -> tuple[bytes, int]:
    """What a backslash means, and where the text goes on."""
    following = line[at + 1]
    if quote == "'":
        return (b"'", at + 2) if following == "'" else (b"\\", at + 1)
    digits = line[at + 2 : at + 4]
    if following == "x" and len(digits) == 2 and _HEX.issuperset(digits):
        return bytes([int(digits, 16)]), at + 4
    return _ESCAPES.get(following, following.encode("utf-8", "surrogateescape")), at + 2
