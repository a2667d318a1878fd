"""Blocks of TSCAN taken apart, message by message, for tests: slow, and as simple as the layout allows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any


def rows_of(block: Sequence[Any]) -> list[list[Any]]:
    """``[offset, tag, entry, time_ms]`` of each message, as TREAD answers them."""
    base, count, first_ms, offset_steps, time_steps, width, tag_lengths, entry_lengths, valid, *blobs = block
    assert count > 0
    assert width in (4, 8)
    offsets: Iterable[int] = range(base, base + count)
    if offset_steps is not None:
        offsets = [base + place for place in accumulate(_numbers(offset_steps, count))]
    times = [first_ms + ms for ms in accumulate(_numbers(time_steps, count, width))]
    tags = _slices(blobs[0], _numbers(tag_lengths, count))
    entries: list[bytes | None] = [*_slices(blobs[1], _numbers(entry_lengths, count))]
    if valid is not None:
        assert len(valid) == (count + 7) // 8
        assert int.from_bytes(valid, "little") < 1 << count
        for place in range(count):
            if not valid[place // 8] >> place % 8 & 1:
                assert entries[place] == b""
                entries[place] = None
    return [list(row) for row in zip(offsets, tags, entries, times, strict=True)]


def size_of(block: Sequence[Any]) -> int:
    """Of all its columns."""
    return sum(len(column) for column in block if isinstance(column, bytes))


def _numbers(column: bytes, count: int, width: int = 4) -> tuple[int, ...]:
    return struct.unpack(f"<{count}{'I' if width == 4 else 'Q'}", column)


def _slices(blob: bytes, lengths: Iterable[int]) -> list[bytes]:
    slices, at = [], 0
    for length in lengths:
        slices.append(blob[at : at + length])
        at += length
    assert at == len(blob)
    return slices
