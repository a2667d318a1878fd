"""Cursor and options of SCAN, HSCAN, SSCAN and ZSCAN, and the shape of their reply.

Errors are Redis's. Note when it looks at what: the cursor comes before the key, the
options after it, so that a missing key answers an empty scan whatever the options say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.registry import Argv
from penstock.engine.datatypes.glob import Matcher, matcher
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

DEFAULT_COUNT: Final = 10

_CURSOR_TEXT: Final = re.compile(rb"([+-]?)([0-9]+)")
_CURSORS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """``match`` is None where everything matches; ``type`` is lower case, None for any."""

    match: Matcher | None
    count: int
    type: bytes | None


def parse_cursor(text: bytes) -> int:
    """A cursor as C's strtoul reads it: a sign is allowed (minus wraps around), nothing at all is 0."""
    text = text.partition(b"\0")[0]
    if not text:
        return 0
    found = _CURSOR_TEXT.fullmatch(text)
    # Longer ones cannot fit, and Python would refuse to convert very long ones.
    digits = found[2].lstrip(b"0") if found else b""
    if found is None or len(digits) > 20 or (number := int(digits or b"0")) >= _CURSORS:
        raise CommandError("ERR invalid cursor")
    return -number % _CURSORS if found[1] == b"-" else number


def scan_options(argv: Argv, start: int, allow_type: bool = False) -> ScanOptions:
    """The options from argument ``start`` on."""
    match: Matcher | None = None
    count = DEFAULT_COUNT
    type_: bytes | None = None
    for at in range(start, len(argv), 2):
        word = argv[at].upper()
        if at + 1 == len(argv):
            raise syntax_error()
        value = argv[at + 1]
        if word == b"COUNT":
            count = integer(value)
            if count < 1:
                raise syntax_error()
        elif word == b"MATCH":
            match = None if value == b"*" else matcher(value)
        elif word == b"TYPE" and allow_type:
            type_ = value.lower()
        else:
            raise syntax_error()
    return ScanOptions(match, count, type_)


def scan_reply(cursor: int, elements: list[bytes]) -> Reply:
    """The cursor of the next call (0 = done) and what this one found."""
    return [b"%d" % cursor, elements]
