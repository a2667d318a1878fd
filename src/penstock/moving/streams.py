"""One stream with all it has, from one place to another: offsets, times, holes, groups, producers, policy.

The engine keeps streams as nodes, Redis as entries with side keys. Neither layout is known here: ``TSCAN``
answers the messages, and what ``TEXPORT`` says of the rest is what ``TIMPORT`` takes. So a copy is exact,
with these exceptions:

* a reader that waits, and a compaction that is under way, begin anew;
* the engine knows producers with very long names by a digest, and cannot tell their names;
* Redis counts up to 2^53-1, where the engine counts to 2^64-1;
* on a cluster dead letters must lie in the slot of their stream.

Rule: a stream that is half there is gone on with behind its last message, so that a run which was killed
repeats little.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.errors import CommandError
from penstock.protocol.slots import key_slot
from penstock.streams.commands import StreamCommands
from penstock.streams.repeating import repeat
from penstock.streams.scanning import Columns, scan

#: offset, time in ms, tag, entry (None: a tombstone)
Row: TypeAlias = tuple[int, int, bytes, bytes | None]

_NUMBERS: Final = 6
#: The largest offset where scripts stand in for the engine: their numbers are doubles.
LARGEST_IN_SCRIPTS: Final = (1 << 53) - 1
#: What one command takes about, in messages and in bytes.
_BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 4 << 20


class Export(NamedTuple):
    """What TEXPORT says of a stream."""

    first: int
    last: int
    compacted_to: int
    node_messages: int
    node_bytes: int
    #: producers whose names nobody can tell
    nameless: int
    #: for TIMPORT alone
    words: list[bytes]


async def export(commands: StreamCommands, key: bytes) -> Export | None:
    """None if there is no such stream; ``CommandError`` WRONGTYPE for a stream that is none of ours."""
    reply: Any = await repeat(commands, "TEXPORT", key)
    if reply is None:
        return None
    first, last, compacted_to, node_messages, node_bytes, nameless = map(int, reply[:_NUMBERS])
    return Export(first, last, compacted_to, node_messages, node_bytes, nameless, reply[_NUMBERS:])


async def copy_stream(
    source: StreamCommands,
    target: StreamCommands,
    key: bytes,
    head: Export,
    *,
    goes_on: bool,
    on_messages: Callable[[int], None],
) -> None:
    """Make the stream in the other place; ``goes_on``: what is there comes from a run that was killed."""
    start = await _last_there(target, key) + 1 if goes_on else 0
    if not start:
        await target.execute("TIMPORT", key, "BEGIN", head.first, head.node_messages, head.node_bytes)
        start = head.first
    words: list[Any] = []
    count = size = 0
    batch = max(_BATCH_MESSAGES // head.node_messages, 1) * head.node_messages
    async for offset, time_ms, tag, entry in rows(source, key, start, head.last):
        words += (offset, time_ms, "t" if entry is None else "e", tag, entry or b"")
        count += 1
        size += len(tag) + len(entry or b"")
        if count >= batch or size >= _BATCH_BYTES:
            await target.execute("TIMPORT", key, "ADD", offset, head.compacted_to, *words)
            on_messages(count)
            words, count, size = [], 0, 0
    await target.execute("TIMPORT", key, "ADD", head.last, head.compacted_to, *words)
    on_messages(count)
    await target.execute("TIMPORT", key, "END", *head.words)


async def _last_there(commands: StreamCommands, key: bytes) -> int:
    """-1: there is no stream to go on with."""
    try:
        return int((await commands.execute("TINFO", "STREAM", key))["last"])
    except CommandError:
        return -1


async def distant_letters(commands: StreamCommands, key: bytes) -> dict[bytes, str]:
    """Groups whose dead letters lie in another slot than their stream: what a cluster makes of them."""
    found = {}
    for group in await repeat(commands, "TINFO", "GROUPS", key):
        letters = group["deadletter"]
        if letters and key_slot(letters) != key_slot(key):
            found[group["name"]] = (
                f"group {_shown(group['name'])} wrote dead letters to {_shown(letters)}, which is in another"
                " slot of the cluster: it drops them until you set a key of the same slot"
            )
    return found


async def drop_letters(commands: StreamCommands, key: bytes, groups: Iterable[bytes]) -> None:
    """Have groups drop their dead letters."""
    for group in groups:
        await commands.execute("TGROUP", "SET", key, group, "DEADLETTER", "")


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


# ------------------------------------------------------------------------- messages


async def rows(commands: StreamCommands, key: bytes, first: int, last: int) -> AsyncIterator[Row]:
    """Messages from one offset to another."""
    if first > last:
        return
    async for page in scan(commands, key, first, last):
        for block in page.blocks:
            for row in _rows_of(block):
                yield row


def _rows_of(block: Columns) -> Iterator[Row]:
    count = block.count
    offsets = range(block.base, block.base + count)
    if block.offset_steps is not None:
        offsets = _sums(block.base, block.offset_steps, 4)  # type: ignore[assignment]
    times_ms = _sums(block.first_ms, block.time_steps, block.time_width)
    tags = _slices(block.tags, block.tag_lengths)
    entries = _slices(block.entries, block.entry_lengths)
    valid = None if block.valid is None else int.from_bytes(block.valid, "little")
    for place, (offset, time_ms, tag, entry) in enumerate(zip(offsets, times_ms, tags, entries, strict=True)):
        is_there = valid is None or valid >> place & 1
        yield offset, time_ms, tag, entry if is_there else None


def _numbers(column: bytes, width: int) -> list[int]:
    return [int.from_bytes(column[at : at + width], "little") for at in range(0, len(column), width)]


def _sums(start: int, steps: bytes, width: int) -> list[int]:
    """Numbers of which each is a step from the one before."""
    return list(accumulate(_numbers(steps, width), initial=start))[1:]


def _slices(blob: bytes, lengths: bytes) -> list[bytes]:
    ends = array("Q", accumulate(_numbers(lengths, 4), initial=0))
    return [blob[start:end] for start, end in pairwise(ends)]
