"""A stream's messages as columns: what analysis reads, millions of messages a second.

    async for page in scan(commands, "orders", 1, None, page_bytes=4 << 20):
        for block in page.blocks: …

A server of ours answers TSCAN, whose blocks are columns as they are stored. Where scripts stand in, the same
reply is made here of what TREAD answers (:func:`scan_by_reading`, for ``commands``): a block an answer.

Layout of a block: numbers are little-endian, and each column has one for every message.

================  =============================================================================
``base``          where offsets count from
``count``         messages
``first_ms``      where times count from
``offset_steps``  u32: offset minus that of the message before, the first one's minus ``base``;
                  None: dense, the first one's is ``base``
``time_steps``    u32 or u64 (``time_width`` 4 or 8): ms after the message before, the first one's
                  after ``first_ms``
``tag_lengths``   u32
``entry_lengths`` u32; 0 for a tombstone
``valid``         a bit a message, the lowest bit of the first byte first: 1 unless it is a
                  tombstone; None: there are none
``tags``          one after the other
``entries``       one after the other
================  =============================================================================

Rule: what is gone, evicted or compacted away, is in no block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from itertools import chain
from operator import sub
from struct import pack
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.errors import CommandError
from penstock.streams.arguments import MAX_OFFSET, Execute, Name
from penstock.streams.repeating import repeat

#: What a page has about, and at most.
PAGE_BYTES: Final = 4 << 20
MAX_PAGE_BYTES: Final = 64 << 20

#: Where scripts stand in, a reply is limited by messages: a script holds up everybody else.
_MOST_MESSAGES: Final = 10_000
#: …and what one of them is taken to have, since a script is not told how many bytes are wanted.
_MESSAGE_BYTES: Final = 256

#: The smallest number that does not fit into a u32.
_WIDE: Final = 1 << 32
_MAX_INT64: Final = (1 << 63) - 1

_Read: TypeAlias = Callable[[bytes, list[bytes]], Awaitable[Any]]


class Columns(NamedTuple):
    """Messages in order, as columns of bytes; the table above tells what is in each."""

    base: int
    count: int  # type: ignore[assignment]  # nobody looks for a value among columns
    first_ms: int
    offset_steps: bytes | None
    time_steps: bytes
    time_width: int
    tag_lengths: bytes
    entry_lengths: bytes
    valid: bytes | None
    tags: bytes
    entries: bytes


class Page(NamedTuple):
    """What one command has answered."""

    #: the first and the last offset of the stream, as of now; an empty one has last + 1 and last
    first: int
    last: int
    #: the offset that comes after this page
    next: int
    blocks: list[Columns]


async def scan(
    commands: Execute, key: Name, first: int, last: int | None, *, page_bytes: int = PAGE_BYTES
) -> AsyncGenerator[Page, None]:
    """Pages from one offset to another, or to the one that is last when this begins.

    There is at least one page, if only to tell what the stream has.
    """
    end = MAX_OFFSET if last is None else last
    while True:
        bounds, following, *blocks = await repeat(commands, "TSCAN", key, first, end, "BYTES", page_bytes)
        page = Page(bounds[0], bounds[1], following, list(map(Columns._make, blocks)))
        yield page
        end = min(end, page.last)
        if page.next > end or not blocks:
            return
        first = page.next


# ------------------------------------------------------------------ where scripts stand in


async def scan_by_reading(read: _Read, key: bytes, words: Sequence[bytes]) -> list[Any]:
    """The reply to a TSCAN with these words after its key. ``read`` answers a TREAD."""
    first, last, most_bytes = _parse(words)
    count = min(max(1, most_bytes // _MESSAGE_BYTES), _MOST_MESSAGES, max(0, last - first + 1))
    wish = [b"%d" % first, b"%d" % count, b"SKIPNULL", b"WITHTIME", b"WITHINFO"]
    bounds, *found = await read(key, wish)
    rows = found if not found or found[-1][0] <= last else [row for row in found if row[0] <= last]
    end = min(last, bounds[1])
    if not rows:
        return [bounds, end + 1]
    rows = rows[: _end_of_reach(rows)]
    is_over = len(rows) < len(found) and found[len(rows)][0] > last
    return [bounds, (end if is_over else rows[-1][0]) + 1, to_columns(rows)]


def to_columns(rows: Sequence[Sequence[Any]]) -> Columns:
    """Of ``[offset, tag, entry, time_ms]``, at least one, in order."""
    offsets, tags, entries, times_ms = zip(*rows, strict=True)
    count, base, first_ms = len(rows), offsets[0], times_ms[0]
    is_dense = offsets[-1] - base < count
    is_wide = times_ms[-1] - first_ms >= _WIDE
    valid = None
    if None in entries:
        digits = "".join(["0" if entry is None else "1" for entry in reversed(entries)])
        valid = int(digits, 2).to_bytes((count + 7) >> 3, "little")
        entries = tuple([entry or b"" for entry in entries])
    return Columns(
        base,
        count,
        first_ms,
        None if is_dense else pack(f"<{count}I", *_differences(offsets)),
        pack(f"<{count}{'Q' if is_wide else 'I'}", *_differences(times_ms)),
        8 if is_wide else 4,
        pack(f"<{count}I", *map(len, tags)),
        pack(f"<{count}I", *map(len, entries)),
        valid,
        b"".join(tags),
        b"".join(entries),
    )


def _differences(numbers: Sequence[int]) -> Iterable[int]:
    """Each number minus the one before it; the first is 0."""
    return map(sub, numbers, chain(numbers[:1], numbers))


def _end_of_reach(rows: Sequence[Sequence[Any]]) -> int:
    """How many of the rows are near enough to one another for a column of u32."""
    if rows[-1][0] - rows[0][0] < _WIDE:
        return len(rows)
    gaps = _differences([row[0] for row in rows])
    return next((place for place, gap in enumerate(gaps) if gap >= _WIDE), len(rows))


def _parse(words: Sequence[bytes]) -> tuple[int, int, int]:
    """First, last and bytes, refused as the command refuses them."""
    first, last, *options = words
    limits = _parse_offset(first), _parse_offset(last)
    most_bytes = PAGE_BYTES
    for at in range(0, len(options), 2):
        if options[at].upper() != b"BYTES" or at + 1 == len(options):
            raise CommandError("ERR syntax error")
        most_bytes = min(_parse_count(options[at + 1]), MAX_PAGE_BYTES)
    return *limits, most_bytes


def _parse_offset(word: bytes) -> int:
    if word.isdigit() and len(word) <= len(str(MAX_OFFSET)) and (offset := int(word)) <= MAX_OFFSET:
        return offset
    raise CommandError("ERR invalid offset")


def _parse_count(word: bytes) -> int:
    is_plain = word.isdigit() and (word == b"0" or not word.startswith(b"0"))
    if is_plain and len(word) <= len(str(_MAX_INT64)) and (count := int(word)) <= _MAX_INT64:
        return count
    raise CommandError("ERR value is not an integer or out of range")
