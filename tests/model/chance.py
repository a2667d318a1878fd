"""Commands whose outcome is a matter of chance, and what is sent instead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.model.templates import Argv

SCANS: Final = frozenset((b"SCAN", b"HSCAN", b"SSCAN", b"ZSCAN"))
CHOICES: Final = frozenset((b"SRANDMEMBER", b"HRANDFIELD", b"ZRANDMEMBER"))
#: More than any collection has: who chooses so many has no choice.
ALL: Final = b"100000"

#: A key that lives for less might expire on one side before the other is asked.
_SHORTEST_LIFE_MS: Final = 60_000
#: A time in the past, whether it counts seconds or milliseconds.
_LONG_AGO: Final = 1_000_000_000
#: Commands and options that set a time to live, and their unit in milliseconds.
_UNITS: Final = {b"EXPIRE": 1000, b"SETEX": 1000, b"EX": 1000, b"PEXPIRE": 1, b"PSETEX": 1, b"PX": 1}


def leaves_chance(argv: Argv) -> bool:
    """Whether it depends on chance what a command stores, or for how long."""
    words = [word.upper() for word in argv]
    if words[0] == b"SORT":
        # Elements of equal weight are stored in whatever order sorting leaves them.
        return b"BY" in words and b"ALPHA" in words and b"STORE" in words
    return any(0 < time_ms < _SHORTEST_LIFE_MS for time_ms in _times_ms(words))


def _times_ms(words: Argv) -> Iterator[int]:
    """The times to live that a command sets, measured from now."""
    if words[0] in _UNITS and len(words) > 2:
        yield _UNITS[words[0]] * whole_number(words[2])
    elif words[0] in (b"SET", b"GETEX"):
        for option, time in pairwise(words):
            if option in _UNITS:
                yield _UNITS[option] * whole_number(time)
    elif words[0] == b"@TRANSFER" and len(words) > 4:
        yield whole_number(words[4])


def is_born_expired(argv: Argv) -> bool:
    """Whether a command may make a key whose deadline is past: there, yet gone, until somebody looks."""
    words = [word.upper() for word in argv]
    return any(
        option in (b"EXAT", b"PXAT") and 0 < whole_number(time) < _LONG_AGO
        for option, time in pairwise(words)
    )


def whole_number(word: bytes) -> int:
    """A whole number that is not negative, as commands take it; -1 for anything else."""
    return int(word) if word.isdigit() and b"%d" % int(word) == word else -1


def without_chance(argv: Argv) -> Argv:
    """The command, or one like it, for where it is not alone: inside EXEC or a script."""
    name = argv[0].upper()
    if name in CHOICES or name == b"SPOP":
        return [name, argv[1] if len(argv) > 1 else b"k", ALL]
    if name in SCANS or name in (b"RANDOMKEY", b"DBSIZE", b"SORT", b"SORT_RO") or name.startswith(b"@"):
        return [b"EXISTS", argv[1] if len(argv) > 1 else b"k"]
    return counting_twice(argv) if name == b"PFCOUNT" else argv


def counting_twice(argv: Argv) -> Argv:
    """PFCOUNT of one key as one of several, whose count nobody keeps."""
    return [*argv, argv[1]] if len(argv) == 2 else argv
