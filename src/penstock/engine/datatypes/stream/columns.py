"""Columns of messages as bytes: numbers packed and unpacked, and blocks of columns joined. Pure functions.

A column is numbers one after the other, u32 or u64, little-endian. A bitmap has a bit a message, the lowest
bit of the first byte first; what is left of its last byte is zero.

Steps are differences: each number minus the one before it, so that they compress well, and so that many
blocks are joined by changing the first step of each and nothing else.

Nothing here knows where columns are stored (``nodes``) or who wants them (``scanning``).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import sub
from typing import Final, Literal, NamedTuple

assert array("I").itemsize == 4
assert array("Q").itemsize == 8
_MUST_SWAP: Final = sys.byteorder == "big"

#: The smallest number that does not fit into a column of u32.
WIDE: Final = 1 << 32

_ONE: Final = (1).to_bytes(4, "little")


class Block(NamedTuple):
    """Messages in order, as columns; TSCAN answers them as they are.

    ``offset_steps`` count from ``base`` and ``time_steps`` from ``first_ms``: the first of them is that of
    the first message, mostly 0.
    """

    base: int
    count: int  # type: ignore[assignment]  # nobody looks for a value among columns
    first_ms: int
    #: u32; None: offsets are dense, from ``base`` on
    offset_steps: bytes | None
    time_steps: bytes
    #: 4 for u32, 8 for u64
    time_width: int
    #: u32, as those of entries
    tag_lengths: bytes
    entry_lengths: bytes
    #: a bitmap: 1 for an entry, 0 for a tombstone; None: there are no tombstones
    valid: bytes | None
    tags: bytes
    entries: bytes


def differences(numbers: Sequence[int], first: int) -> Iterable[int]:
    """Each number minus the one before it, the first one minus ``first``."""
    return map(sub, numbers, chain((first,), numbers))


def pack(numbers: Iterable[int], width: Literal["I", "Q"] = "I") -> bytes:
    column = array(width, numbers)
    if _MUST_SWAP:
        column.byteswap()
    return column.tobytes()


def unpack(column: bytes, width: Literal["I", "Q"] = "I") -> array[int]:
    numbers = array(width)
    numbers.frombytes(column)
    if _MUST_SWAP:
        numbers.byteswap()
    return numbers


def bitmap(flags: Sequence[bool]) -> bytes:
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits, 2).to_bytes((len(flags) + 7) >> 3, "little")


def to_block(
    base: int, tags: Sequence[bytes], entries: Sequence[bytes | None], times_ms: Sequence[int]
) -> Block:
    """Messages whose offsets are dense, at least one."""
    first_ms = times_ms[0]
    is_wide = times_ms[-1] - first_ms >= WIDE
    filled = [entry or b"" for entry in entries]
    return Block(
        base,
        len(tags),
        first_ms,
        None,
        pack(differences(times_ms, first_ms), "Q" if is_wide else "I"),
        8 if is_wide else 4,
        pack(map(len, tags)),
        pack(map(len, filled)),
        bitmap([entry is not None for entry in entries]) if None in entries else None,
        b"".join(tags),
        b"".join(filled),
    )


# ---------------------------------------------------------------------- joining


def join(blocks: Sequence[Block]) -> Block:
    """One block of several, in order. Offsets between two of them must not be further apart than ``WIDE``."""
    if len(blocks) == 1:
        return blocks[0]
    first = blocks[0]
    times, width = _joined_times(blocks)
    return Block(
        first.base,
        sum(block.count for block in blocks),
        first.first_ms,
        _joined_offsets(blocks),
        times,
        width,
        b"".join([block.tag_lengths for block in blocks]),
        b"".join([block.entry_lengths for block in blocks]),
        _joined_bitmaps(blocks),
        b"".join([block.tags for block in blocks]),
        b"".join([block.entries for block in blocks]),
    )


def last_offset(block: Block) -> int:
    if block.offset_steps is None:
        return block.base + block.count - 1
    return block.base + sum(unpack(block.offset_steps))


def _joined_offsets(blocks: Sequence[Block]) -> bytes | None:
    lasts = [last_offset(block) for block in blocks]
    is_dense = all(block.offset_steps is None for block in blocks)
    if is_dense and lasts[-1] - blocks[0].base + 1 == sum(block.count for block in blocks):
        return None
    columns = []
    before = blocks[0].base
    for block, last in zip(blocks, lasts, strict=True):
        column = block.offset_steps or bytes(4) + _ONE * (block.count - 1)
        columns.append(_beginning_with(block.base - before, column, 4))
        before = last
    return b"".join(columns)


def _joined_times(blocks: Sequence[Block]) -> tuple[bytes, int]:
    """The steps, and the bytes of each."""
    gaps = []
    before = blocks[0].first_ms
    for block in blocks:
        gaps.append(block.first_ms - before)
        before = block.first_ms + sum(_times(block))
    is_wide = max(gaps) >= WIDE or any(block.time_width == 8 for block in blocks)
    width = 8 if is_wide else 4
    columns = [_widened(block) if is_wide else block.time_steps for block in blocks]
    joined = [_beginning_with(gap, column, width) for gap, column in zip(gaps, columns, strict=True)]
    return b"".join(joined), width


def _times(block: Block) -> array[int]:
    return unpack(block.time_steps, "I" if block.time_width == 4 else "Q")


def _widened(block: Block) -> bytes:
    return pack(_times(block), "Q") if block.time_width == 4 else block.time_steps


def _beginning_with(gap: int, column: bytes, width: int) -> bytes:
    """A column whose first step counts from somewhere that is ``gap`` before."""
    first = int.from_bytes(column[:width], "little") + gap
    return first.to_bytes(width, "little") + column[width:]


def _joined_bitmaps(blocks: Sequence[Block]) -> bytes | None:
    if all(block.valid is None for block in blocks):
        return None
    digits = "".join([_digits(block) for block in reversed(blocks)])
    return int(digits, 2).to_bytes((len(digits) + 7) >> 3, "little")


def _digits(block: Block) -> str:
    """The bits of a block in binary, the last message first."""
    if block.valid is None:
        return "1" * block.count
    return format(int.from_bytes(block.valid, "little"), f"0{block.count}b")
