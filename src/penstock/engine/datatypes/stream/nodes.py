"""Many messages as one value: the macro nodes of a stream, bytes and back. Pure functions.

A stream is a row of nodes, each with the messages from its base offset on. Nodes at the
open end are small and plain, one a write; a full one is *sealed*: merged and compressed.

Value of a node
---------------
All integers of the head are big-endian. One message alone (kind 0):

=============  =====  ==========================================================
kind           1      0
flags          1      bit 0: a tombstone
time_ms        8      when it was written
tag length     4
tag, entry     rest
=============  =====  ==========================================================

Several (kind 1: plain, kind 2: the body is zstd):

=============  =====  ==========================================================
kind           1      1 or 2
flags          1      bit 0: has tombstones; bit 1: has holes; bit 2: wide times
count          4      messages that are there
span           4      offsets that it covers, holes included
first_ms       8      when its first message was written
last_ms        8      when its last one was
body length    4      when inflated
body           rest   see below
=============  =====  ==========================================================

The body is columns, so that they compress well; integers are u32, little-endian:

=============  =========  ========================================================
times          4 count    ms after the message before (8 count if they are wide: a stream
                          may sleep for 50 days)
tag lengths    4 count
entry lengths  4 count
valid          count / 8  with tombstones: bit i is 1 unless message i is one
steps          4 count    with holes: offset minus that of the message before
tags           …          one after the other
entries        …          one after the other
=============  =========  ========================================================

An inflated node has offset tables instead of lengths: with its blobs these are the two buffers
of an Arrow binary array, and its ``valid`` bits are Arrow's validity bitmap. (Lengths are
what is stored, since running sums do not compress.)

Times never run backwards: whoever writes sees to that.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.engine.datatypes.stream.columns import Block, bitmap, differences, pack, to_block, unpack
from penstock.engine.datatypes.stream.compression import ZstdError, deflate, inflate

_SINGLE: Final = 0
_PLAIN: Final = 1
_PACKED: Final = 2

_TOMBSTONES: Final = 1
_HOLES: Final = 2
_WIDE_TIMES: Final = 4

_SINGLE_HEAD: Final = Struct(">BBQI")
SINGLE_HEAD_BYTES: Final = _SINGLE_HEAD.size
_HEAD: Final = Struct(">BBIIQQI")

#: What decoding raises if the bytes are not those of a node, or of another row of a stream.
DAMAGE: Final = (
    AssertionError, LookupError, MemoryError, OverflowError, ValueError, struct.error, ZstdError
)  # fmt: skip

#: Up to so many messages are found without making tables.
_FEW: Final = 16


class Message(NamedTuple):
    offset: int
    tag: bytes
    #: None: a tombstone
    entry: bytes | None
    time_ms: int


class NodeHead(NamedTuple):
    """What can be said of a node without inflating it."""

    #: messages that are there
    held: int
    span: int
    first_ms: int
    last_ms: int
    #: of tags and entries and their tables, before compression
    raw_bytes: int
    has_holes: bool
    is_sealed: bool


class Node:
    """The messages of one node, inflated. Not to be changed.

    Tables are made of the stored columns when somebody asks for them: who wants one message
    out of a thousand adds up the lengths before it instead.
    """

    __slots__ = (
        "_entry_lengths", "_entry_offsets", "_first_ms", "_positions", "_steps_ms", "_tag_lengths",
        "_tag_offsets", "_times_ms", "base", "count", "entries", "span", "tags", "valid",
    )  # fmt: skip

    def __init__(
        self,
        base: int,
        span: int,
        first_ms: int,
        steps_ms: Sequence[int] | None,
        tag_lengths: Sequence[int],
        tags: bytes,
        entry_lengths: Sequence[int],
        entries: bytes,
        valid: bytes | None,
        positions: Sequence[int] | None,
    ) -> None:
        self.base = base
        self.span = span
        self.count = len(tag_lengths)
        self.tags = tags
        self.entries = entries
        #: a bit a message, 0 for tombstones; None: there are none
        self.valid = valid
        self._first_ms = first_ms
        #: ms after the message before; None: all are of the same time
        self._steps_ms = steps_ms
        self._tag_lengths = tag_lengths
        self._entry_lengths = entry_lengths
        #: offset minus base of each message; None: there are no holes
        self._positions = positions
        self._tag_offsets: Sequence[int] | None = None
        self._entry_offsets: Sequence[int] | None = None
        self._times_ms: Sequence[int] | None = None

    @property
    def tag_offsets(self) -> Sequence[int]:
        """Where each tag begins, and the last one ends."""
        if self._tag_offsets is None:
            self._tag_offsets = array("I", accumulate(self._tag_lengths, initial=0))
        return self._tag_offsets

    @property
    def entry_offsets(self) -> Sequence[int]:
        """Where each entry begins, and the last one ends."""
        if self._entry_offsets is None:
            self._entry_offsets = array("I", accumulate(self._entry_lengths, initial=0))
        return self._entry_offsets

    @property
    def times_ms(self) -> Sequence[int]:
        """When each message was written."""
        if self._times_ms is None:
            if self._steps_ms is None:
                self._times_ms = [self._first_ms] * self.count
            else:
                self._times_ms = list(accumulate(self._steps_ms, initial=self._first_ms))[1:]
        return self._times_ms

    def offset_at(self, index: int) -> int:
        return self.base + (index if self._positions is None else self._positions[index])

    def index_from(self, offset: int) -> int:
        """Of the first message at or after an offset; ``count`` if there is none."""
        place = max(offset - self.base, 0)
        if self._positions is None:
            return min(place, self.count)
        return bisect_left(self._positions, place)

    def message(self, index: int) -> Message:
        starts, ends = self.tag_offsets, self.entry_offsets
        entry: bytes | None = None
        if self.is_entry(index):
            entry = self.entries[ends[index] : ends[index + 1]]
        return Message(
            self.offset_at(index), self.tags[starts[index] : starts[index + 1]], entry, self.times_ms[index]
        )

    def is_entry(self, index: int) -> bool:
        """Whether a message is not a tombstone."""
        return self.valid is None or bool(self.valid[index >> 3] >> (index & 7) & 1)

    def messages(self, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages by their places in the node."""
        stop = self.count if stop is None else min(stop, self.count)
        if self.valid is not None:
            return [self.message(index) for index in range(start, stop)]
        tags, entries = self.tags, self.entries
        first = self.base
        offsets: Iterable[int] = range(first + start, first + stop)
        if self._positions is not None:
            offsets = (first + place for place in self._positions[start:stop])
        return [
            Message(offset, tags[a:b], entries[c:d], time_ms)
            for offset, (a, b), (c, d), time_ms in zip(
                offsets,
                pairwise(self.tag_offsets[start : stop + 1]),
                pairwise(self.entry_offsets[start : stop + 1]),
                self.times_ms[start:stop],
                strict=True,
            )
        ]

    def rows(self, start: int, stop: int, is_timed: bool) -> list[list[Any]]:
        """``[offset, tag, entry]`` of messages by their places, with the time as a fourth."""
        columns: list[Iterable[Any]] = [self._offsets(start, stop)]
        columns += (self._tags(start, stop), self._entries(start, stop))
        if is_timed:
            columns.append(self.times_ms[start:stop])
        return list(map(list, zip(*columns, strict=True)))

    def _offsets(self, start: int, stop: int) -> Iterable[int]:
        if self._positions is None:
            return range(self.base + start, self.base + stop)
        return [self.base + place for place in self._positions[start:stop]]

    def _tags(self, start: int, stop: int) -> list[bytes]:
        if self._tag_offsets is None and stop - start <= _FEW:
            return _few_slices(self.tags, self._tag_lengths, start, stop)
        return _slices(self.tags, self.tag_offsets, start, stop)

    def _entries(self, start: int, stop: int) -> list[bytes | None]:
        entries: list[bytes | None]
        if self._entry_offsets is None and stop - start <= _FEW:
            entries = [*_few_slices(self.entries, self._entry_lengths, start, stop)]
        else:
            entries = [*_slices(self.entries, self.entry_offsets, start, stop)]
        if self.valid is not None:
            for index in range(start, stop):
                if not self.is_entry(index):
                    entries[index - start] = None
        return entries

    def block(self, start: int, stop: int) -> Block:
        """The columns of messages by their places, at least one."""
        tags, entries = self._tag_lengths, self._entry_lengths
        tags_at, entries_at = sum(tags[:start]), sum(entries[:start])
        first_ms, steps_ms, width = self._first_ms, bytes(4 * (stop - start)), 4
        if isinstance(self._steps_ms, array):
            first_ms += sum(self._steps_ms[: start + 1])
            width = self._steps_ms.itemsize
            steps_ms = bytes(width) + pack(self._steps_ms[start + 1 : stop], "Q" if width == 8 else "I")
        steps = valid = None
        if self._positions is not None:
            places = self._positions[start:stop]
            steps = pack(differences(places, places[0]))
        if self.valid is not None:
            valid = bitmap([self.is_entry(index) for index in range(start, stop)])
        return Block(
            self.offset_at(start),
            stop - start,
            first_ms,
            steps,
            steps_ms,
            width,
            pack(tags[start:stop]),
            pack(entries[start:stop]),
            valid,
            self.tags[tags_at : tags_at + sum(tags[start:stop])],
            self.entries[entries_at : entries_at + sum(entries[start:stop])],
        )

    def encode_kept(self, kept: Sequence[int]) -> bytes:
        """A sealed node of some of the messages: ``kept`` is 0 at the places of those that become holes."""
        tags, entries = self._tags(0, self.count), self._entries(0, self.count)
        places = [offset - self.base for offset in compress(self._offsets(0, self.count), kept)]
        return _encode(
            list(compress(tags, kept)),
            list(compress(entries, kept)),
            list(compress(self.times_ms, kept)),
            places,
            self.span,
            sealed=True,
        )

    def bytes_between(self, start: int, stop: int) -> int:
        """Of tags and entries."""
        return sum(self._tag_lengths[start:stop]) + sum(self._entry_lengths[start:stop])

    def stop_within(self, start: int, most_bytes: int, each_bytes: int = 0) -> int:
        """Up to which place the messages from another one on fit into so many bytes.

        ``each_bytes``: what a message takes besides its tag and its entry.
        """
        tags, entries = self.tag_offsets, self.entry_offsets

        def end_of(index: int) -> int:
            return tags[index + 1] + entries[index + 1] + each_bytes * (index + 1)

        limit = most_bytes + tags[start] + entries[start] + each_bytes * start
        return bisect_right(range(self.count), limit, lo=start, key=end_of)

    def __repr__(self) -> str:
        return f"<Node {self.base}+{self.span} {self.count} messages>"


class _Single(Node):
    """A node of one message: there may be many of them at the open end, so that each must be cheap."""

    __slots__ = ()

    def index_from(self, offset: int) -> int:
        return 0 if offset <= self.base else 1

    def rows(self, start: int, stop: int, is_timed: bool) -> list[list[Any]]:
        if start >= stop:
            return []
        row = [self.base, self.tags, self.entries if self.valid is None else None]
        if is_timed:
            row.append(self._first_ms)
        return [row]


def _few_slices(blob: bytes, lengths: Sequence[int], start: int, stop: int) -> list[bytes]:
    """Without a table of offsets."""
    at = sum(lengths[:start])
    slices = []
    for length in lengths[start:stop]:
        slices.append(blob[at : at + length])
        at += length
    return slices


def _slices(blob: bytes, offsets: Sequence[int], start: int, stop: int) -> list[bytes]:
    return [blob[a:b] for a, b in pairwise(offsets[start : stop + 1])]


# --------------------------------------------------------------------- encoding


def encode_single(tag: bytes, entry: bytes | None, time_ms: int) -> bytes:
    """A node of one message."""
    flags = _TOMBSTONES if entry is None else 0
    return _SINGLE_HEAD.pack(_SINGLE, flags, time_ms, len(tag)) + tag + (entry or b"")


def encode(
    tags: Sequence[bytes], entries: Sequence[bytes | None], times_ms: Sequence[int] | int, *, sealed: bool
) -> bytes:
    """A node of several messages without holes. ``times_ms`` may be one for all."""
    return _encode(tags, entries, times_ms, None, len(tags), sealed)


def encode_sealed(
    tags: Sequence[bytes],
    entries: Sequence[bytes | None],
    times_ms: Sequence[int],
    places: Sequence[int] | None,
    span: int,
) -> bytes:
    """A sealed node of messages with holes between them: ``places`` are offsets minus its base."""
    return _encode(tags, entries, times_ms, places, span, sealed=True)


def _encode(
    tags: Sequence[bytes],
    entries: Sequence[bytes | None],
    times_ms: Sequence[int] | int,
    places: Sequence[int] | None,
    span: int,
    sealed: bool,
) -> bytes:
    count = len(tags)
    flags = 0
    if isinstance(times_ms, int):
        first_ms = last_ms = times_ms
        times = bytes(4 * count)
    else:
        first_ms, last_ms = (times_ms[0], times_ms[-1]) if times_ms else (0, 0)
        is_wide = last_ms - first_ms >= 1 << 32
        flags |= _WIDE_TIMES * is_wide
        times = pack(differences(times_ms, first_ms), "Q" if is_wide else "I")
    valid = steps = b""
    if None in entries:
        flags |= _TOMBSTONES
        valid = bitmap([entry is not None for entry in entries])
        entries = [entry or b"" for entry in entries]
    if places is not None:
        flags |= _HOLES
        steps = pack(differences(places, 0))
    filled: Sequence[bytes] = entries  # type: ignore[assignment]
    body = b"".join((times, pack(map(len, tags)), pack(map(len, filled)), valid, steps, *tags, *filled))
    head = _HEAD.pack(_PACKED if sealed else _PLAIN, flags, count, span, first_ms, last_ms, len(body))
    return head + (deflate(body) if sealed else body)


class Columns:
    """Open nodes on their way into a sealed one or a block: messages that follow one another, no holes."""

    __slots__ = ("_entries", "_times_ms", "raw_bytes", "tags")

    def __init__(self) -> None:
        self.tags: list[bytes] = []
        self._entries: list[bytes | None] = []
        self._times_ms: list[int] = []
        #: of the nodes that were added
        self.raw_bytes = 0

    def add(self, rows: Iterable[tuple[int, bytes]], first: int) -> None:
        """The messages of nodes from an offset on."""
        tags, entries, times_ms = self.tags, self._entries, self._times_ms
        raw_bytes = 0
        # In one go for nodes of one message: every message that was written alone comes this way once.
        for base, value in rows:
            if value[0] != _SINGLE:
                raw_bytes += self._add_several(base, value, first)
                continue
            _, flags, time_ms, tag_bytes = _SINGLE_HEAD.unpack_from(value)
            middle = SINGLE_HEAD_BYTES + tag_bytes
            tags.append(value[SINGLE_HEAD_BYTES:middle])
            entries.append(None if flags & _TOMBSTONES else value[middle:])
            times_ms.append(time_ms)
            raw_bytes += len(value) - SINGLE_HEAD_BYTES
        self.raw_bytes += raw_bytes

    def _add_several(self, base: int, value: bytes, first: int) -> int:
        node = decode(base, value)
        for message in node.messages(node.index_from(first)):
            self.tags.append(message.tag)
            self._entries.append(message.entry)
            self._times_ms.append(message.time_ms)
        return read_head(value).raw_bytes

    def encode(self) -> bytes:
        return encode(self.tags, self._entries, self._times_ms, sealed=True)

    def block(self, base: int) -> Block:
        """They begin at this offset."""
        return to_block(base, self.tags, self._entries, self._times_ms)


# --------------------------------------------------------------------- decoding


def is_single(value: bytes) -> bool:
    return value[0] == _SINGLE


def is_sealed(value: bytes) -> bool:
    return value[0] == _PACKED


def read_head(value: bytes) -> NodeHead:
    """Of any node."""
    if value[0] == _SINGLE:
        time_ms = int.from_bytes(value[2:10], "big")
        return NodeHead(1, 1, time_ms, time_ms, len(value) - _SINGLE_HEAD.size, False, False)
    kind, flags, count, span, first_ms, last_ms, raw_bytes = _HEAD.unpack_from(value)
    return NodeHead(count, span, first_ms, last_ms, raw_bytes, bool(flags & _HOLES), kind == _PACKED)


def decode(base: int, value: bytes) -> Node:
    """Any node."""
    if value[0] == _SINGLE:
        _, flags, time_ms, tag_bytes = _SINGLE_HEAD.unpack_from(value)
        middle = _SINGLE_HEAD.size + tag_bytes
        tag, entry = value[_SINGLE_HEAD.size : middle], value[middle:]
        valid = b"\0" if flags & _TOMBSTONES else None
        return _Single(base, 1, time_ms, None, (tag_bytes,), tag, (len(entry),), entry, valid, None)
    span = _HEAD.unpack_from(value)[3]
    block = read_block(base, value)
    steps_ms = positions = None
    if block.time_steps != bytes(len(block.time_steps)):
        steps_ms = unpack(block.time_steps, "Q" if block.time_width == 8 else "I")
    if block.offset_steps is not None:
        positions = array("I", accumulate(unpack(block.offset_steps)))
    return Node(
        base,
        span,
        block.first_ms,
        steps_ms,
        unpack(block.tag_lengths),
        block.tags,
        unpack(block.entry_lengths),
        block.entries,
        block.valid,
        positions,
    )


def read_block(base: int, value: bytes) -> Block:
    """A whole node of several messages, its columns as they were stored."""
    kind, flags, count, _, first_ms, _, raw_bytes = _HEAD.unpack_from(value)
    body = value[_HEAD.size :]
    if kind == _PACKED:
        body = inflate(body, raw_bytes)
    width = 8 if flags & _WIDE_TIMES else 4
    tags_at = width * count
    entries_at = tags_at + 4 * count
    at = entries_at + 4 * count
    valid = steps = None
    if flags & _TOMBSTONES:
        valid = body[at : at + ((count + 7) >> 3)]
        at += len(valid)
    if flags & _HOLES:
        steps = body[at : at + 4 * count]
        at += len(steps)
    tag_lengths = body[tags_at:entries_at]
    middle = at + sum(unpack(tag_lengths))
    return Block(
        base,
        count,
        first_ms,
        steps,
        body[:tags_at],
        width,
        tag_lengths,
        body[entries_at : entries_at + 4 * count],
        valid,
        body[at:middle],
        body[middle:],
    )
