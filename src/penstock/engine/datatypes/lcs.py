"""Longest common subsequence of two strings, as the LCS command answers it.

The table L(i, j) of the textbook (the answer for the first i bytes of ``a`` and the
first j of ``b``) grows by 0 or 1 from one cell to the next, so a whole row is a big
integer of differences, and the next row costs a few operations on it instead of one
per cell. The bits lie along the longer string, one row for each byte of the shorter.

There are many longest subsequences; Redis's is the one found going back from the end:
take a byte wherever both strings agree, else leave a byte of ``a`` if
L(i-1, j) > L(i, j-1), else one of ``b``. That test is a difference again:

==================  ======================================  =============================
bits lie along      we go left along the row, past bits     because the test reads
==================  ======================================  =============================
``b`` (rows: a)     where L(i, j) = L(i, j-1)               leave ``b`` while no growth
``a`` (rows: b)     where L(i, j) > L(i, j-1)               leave ``a`` while growth
==================  ======================================  =============================

Cost and memory are those of len(a) × len(b) bits; like Redis, strings whose table of
32-bit cells would exceed the longest string allowed are refused. Knows nothing of keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.errors import CommandError

_CELL_BYTES: Final = 4
_DEFAULT_LIMIT_BYTES: Final = 512 * 1024 * 1024
TOO_LARGE: Final = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"


class Match(NamedTuple):
    """A run of common bytes: first and last index in both strings."""

    a_first: int
    a_last: int
    b_first: int
    b_last: int

    @property
    def length(self) -> int:
        return self.a_last - self.a_first + 1


def length(a: bytes, b: bytes, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> int:
    """How long the longest common subsequence is (LCS … LEN)."""
    _check_size(a, b, limit_bytes)
    along, across = (b, a) if len(a) <= len(b) else (a, b)
    last_row = deque(_rows(along, across), maxlen=1)
    return last_row[0][1].bit_count() if last_row else 0


def subsequence(a: bytes, b: bytes, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> bytes:
    """The bytes of Redis's longest common subsequence (LCS without options)."""
    _check_size(a, b, limit_bytes)
    return bytes(a[i] for i, _ in _common_places(a, b))[::-1]


def matches(
    a: bytes, b: bytes, min_length: int = 0, limit_bytes: int = _DEFAULT_LIMIT_BYTES
) -> tuple[list[Match], int]:
    """The runs the subsequence consists of, last run first, and its length (LCS … IDX).

    Runs shorter than ``min_length`` are left out; the length counts them all the same.
    """
    _check_size(a, b, limit_bytes)
    runs: list[Match] = []
    total = 0
    a_first = b_first = a_last = b_last = -2
    for i, j in _common_places(a, b):
        total += 1
        if (i, j) != (a_first - 1, b_first - 1):
            if a_last >= 0:
                runs.append(Match(a_first, a_last, b_first, b_last))
            a_last, b_last = i, j
        a_first, b_first = i, j
    if a_last >= 0:
        runs.append(Match(a_first, a_last, b_first, b_last))
    return [run for run in runs if run.length >= min_length], total


def _check_size(a: bytes, b: bytes, limit_bytes: int) -> None:
    if (len(a) + 1) * (len(b) + 1) * _CELL_BYTES > limit_bytes:
        raise CommandError(TOO_LARGE)


def _rows(along: bytes, across: bytes) -> Iterator[tuple[int, int]]:
    """For each byte of ``across``: where it stands in ``along``, and where the row of L grows.

    Bit k of both belongs to byte k of ``along``.
    """
    every = (1 << len(along)) - 1
    places = _Places(along)
    level = every  # ones where L does not grow; the first row, of no bytes, is all zeros
    for byte in across:
        here = places[byte]
        used = level & here
        level = (level + used | level - used) & every
        yield here, every ^ level


class _Places(dict[int, int]):
    """Where each byte stands in a string, as bits; found when first asked for."""

    def __init__(self, string: bytes) -> None:
        super().__init__()
        self._reversed = string[::-1]

    def __missing__(self, byte: int) -> int:
        digits = bytearray(b"0" * 256)
        digits[byte] = ord("1")
        self[byte] = place = int(self._reversed.translate(digits) or b"0", 2)
        return place


def _common_places(a: bytes, b: bytes) -> Iterator[tuple[int, int]]:
    """The indices of each common byte in both strings, from the last to the first."""
    along_b = len(a) <= len(b)
    along, across = (b, a) if along_b else (a, b)
    every = (1 << len(along)) - 1
    stops: list[int] = []
    before = 0
    for here, growth in _rows(along, across):
        if along_b:
            stops.append(here | growth)
        else:
            # L(i, j) - L(i, j-1) over i: 1 from where this row grows alone to where the last one does.
            across_growth = ((before & ~growth) - (growth & ~before)) & every
            stops.append(here | every ^ across_growth)
        before = growth
    at = len(along)
    for row in range(len(across) - 1, -1, -1):
        at = (stops[row] & (1 << at) - 1).bit_length()
        if at == 0:
            return
        if along[at - 1] == across[row]:
            at -= 1
            yield (row, at) if along_b else (at, row)
