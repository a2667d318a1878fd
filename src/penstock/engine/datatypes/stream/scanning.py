"""A stream's messages as blocks of columns, straight from the nodes, within the limits of one answer.

    blocks, next_offset = Scanner(stream, most_bytes).scan(first, last)

A node that lies in the range whole is a block as it was stored: nobody looks at its messages one by one.

==========================  ===========================================================
node                        becomes
==========================  ===========================================================
whole, many messages        a block
whole, few messages         part of a block, with its neighbours of the same kind
one message (the open end)  likewise
over an end of the range    cut to it, and then as above
larger than the limit       cut to it, if it would be the first block of all
==========================  ===========================================================

What is counted are the bytes of nodes before they are joined. A node that does not fit any more is left
for the next answer; the first message of all is always answered, however large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.stream import nodes
from penstock.engine.datatypes.stream.columns import WIDE, Block, join, last_offset

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.datatypes.stream.nodes import Node

DEFAULT_BYTES: Final = 4 << 20
MOST_BYTES: Final = 64 << 20

#: Blocks of fewer messages are joined: for who reads them each costs more than its messages.
_FEW: Final = 256
#: What a message takes in the columns besides its tag and its entry.
_EACH_BYTES: Final = 12


class Scanner:
    """Scans one stream for one answer."""

    __slots__ = ("_gathering", "_has_begun", "_left_bytes", "_stream")

    def __init__(self, stream: Stream, most_bytes: int = DEFAULT_BYTES) -> None:
        self._stream = stream
        self._gathering = _Gathering()
        self._left_bytes = most_bytes
        self._has_begun = False

    def scan(self, first: int, last: int) -> tuple[list[Block], int]:
        """The messages from one offset to another, and the offset to go on with."""
        stream = self._stream
        first, end = max(first, stream.first), min(last, stream.last)
        if first <= end:
            for base, value in stream.stored(first, end):
                stopped_at = self._take(base, value, first, end)
                if stopped_at is not None:
                    return self._gathering.finish(), stopped_at
        return self._gathering.finish(), end + 1

    def _take(self, base: int, value: bytes, first: int, end: int) -> int | None:
        """Add what is in the range of a node; answers where to go on if there is no more room."""
        if nodes.is_single(value):
            return self._take_single(base, value) if base >= first else None
        head = nodes.read_head(value)
        if base < first or base + head.span - 1 > end:
            return self._take_part(self._stream.inflated(base, value), first, end)
        if self._has_room(head.raw_bytes):
            self._gathering.add(nodes.read_block(base, value))
            return None
        return base if self._has_begun else self._take_part(self._stream.inflated(base, value), first, end)

    def _take_single(self, base: int, value: bytes) -> int | None:
        if self._has_room(len(value)):
            self._gathering.add_single(base, value)
            return None
        if self._has_begun:
            return base
        self._gathering.add_single(base, value)
        return base + 1

    def _take_part(self, node: Node, first: int, end: int) -> int | None:
        start, stop = node.index_from(first), node.index_from(end + 1)
        if start == stop:
            return None
        if self._has_room(node.bytes_between(start, stop) + _EACH_BYTES * (stop - start)):
            self._gathering.add(node.block(start, stop))
            return None
        if self._has_begun:
            return max(node.base, first)
        stop = max(start + 1, node.stop_within(start, self._left_bytes, _EACH_BYTES))
        self._gathering.add(node.block(start, stop))
        return node.offset_at(stop - 1) + 1

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes are left; they are taken then."""
        if size > self._left_bytes:
            return False
        self._left_bytes -= size
        self._has_begun = True
        return True


class _Gathering:
    """Blocks in order, small ones joined."""

    __slots__ = ("_blocks", "_end", "_few", "_singles", "_singles_from")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        #: small ones that wait to be joined
        self._few: list[Block] = []
        #: the last offset in them
        self._end = 0
        #: nodes of one message, dense
        self._singles = nodes.Columns()
        self._singles_from = 0

    def add(self, block: Block) -> None:
        self._close_singles()
        if block.count < _FEW:
            self._wait(block)
        else:
            self._close_few()
            self._blocks.append(block)

    def add_single(self, base: int, value: bytes) -> None:
        if base != self._singles_from + len(self._singles.tags):
            self._close_singles()
            self._singles_from = base
        self._singles.add(((base, value),), base)

    def finish(self) -> list[Block]:
        self._close_singles()
        self._close_few()
        return self._blocks

    def _close_singles(self) -> None:
        if self._singles.tags:
            self._wait(self._singles.block(self._singles_from))
            self._singles = nodes.Columns()

    def _wait(self, block: Block) -> None:
        if block.base - self._end >= WIDE:
            self._close_few()
        self._few.append(block)
        self._end = last_offset(block)

    def _close_few(self) -> None:
        if self._few:
            self._blocks.append(join(self._few))
            self._few = []
