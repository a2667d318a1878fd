"""Valid bytes made hostile: a seed becomes another input by a few changes, of kinds that parsers fear.

    mutated(dice, seed, others, words)

``words`` are what the format is made of (delimiters, keywords, numbers): random bytes alone rarely get past
the first check of a parser. Pure: all chance comes from the dice, so that a seed repeats a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

#: No input grows beyond this: what is looked for is confusion, volume has tests of its own.
MAX_BYTES: Final = 32 * 1024

#: Where counters, lengths and offsets turn over.
NUMBERS: Final = (
    b"0", b"-0", b"00", b"1", b"-1", b"+1", b"2", b"255", b"256", b"1024", b"65535", b"65536", b"1048577",
    b"2147483647", b"2147483648", b"-2147483648", b"4294967295", b"4294967296", b"536870912", b"536870913",
    b"9007199254740993", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
    b"-9223372036854775809", b"18446744073709551615", b"18446744073709551616", b"1e400", b"-inf", b"nan",
    b"0x10", b"1.5", b"1" * 40, b" 1", b"1 ", b"",
)  # fmt: skip
_NUMBER: Final = re.compile(rb"-?\d+")

Change: TypeAlias = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]


def mutated(dice: Random, seed: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """The seed after one to five changes; often one alone, which leaves the rest valid."""
    data = seed
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
        data = dice.choice(_CHANGES)(dice, data, others, words)[:MAX_BYTES]
    return data


def _place(dice: Random, data: bytes) -> int:
    return dice.randrange(len(data) + 1)


def _slice(dice: Random, data: bytes, longest: int = 64) -> tuple[int, int]:
    start = _place(dice, data)
    return start, min(len(data), start + dice.randrange(1, longest))


def _flip(dice: Random, data: bytes, *_: object) -> bytes:
    if not data:
        return data
    at = dice.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]


def _overwrite(dice: Random, data: bytes, *_: object) -> bytes:
    start, stop = _slice(dice, data, 8)
    return data[:start] + dice.randbytes(stop - start) + data[stop:]


def _cut(dice: Random, data: bytes, *_: object) -> bytes:
    start, stop = _slice(dice, data)
    return data[:start] + data[stop:]


def _truncate(dice: Random, data: bytes, *_: object) -> bytes:
    return data[: _place(dice, data)]


def _repeat(dice: Random, data: bytes, *_: object) -> bytes:
    start, stop = _slice(dice, data)
    return data[:stop] + data[start:stop] * dice.choice((1, 2, 10, 200)) + data[stop:]


def _move(dice: Random, data: bytes, *_: object) -> bytes:
    start, stop = _slice(dice, data)
    rest = data[:start] + data[stop:]
    at = _place(dice, rest)
    return rest[:at] + data[start:stop] + rest[at:]


def _insert_word(dice: Random, data: bytes, _: object, words: Sequence[bytes]) -> bytes:
    at = _place(dice, data)
    return data[:at] + dice.choice(words or NUMBERS) + data[at:]


def _replace_number(dice: Random, data: bytes, *_: object) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = dice.choice(found)
    return data[: match.start()] + dice.choice(NUMBERS) + data[match.end() :]


def _splice(dice: Random, data: bytes, others: Sequence[bytes], _: object) -> bytes:
    other = dice.choice(others) if others else b""
    return data[: _place(dice, data)] + other[_place(dice, other) :]


def _nest(dice: Random, data: bytes, _: object, words: Sequence[bytes]) -> bytes:
    """Deeper than anybody means it: recursion is the usual victim."""
    at = _place(dice, data)
    return data[:at] + dice.choice(words or NUMBERS) * dice.choice((16, 128, 1500)) + data[at:]


_CHANGES: Final[tuple[Change, ...]] = (
    _flip, _flip, _overwrite, _cut, _truncate, _repeat, _move, _insert_word, _insert_word, _replace_number,
    _replace_number, _splice, _nest,
)  # fmt: skip
