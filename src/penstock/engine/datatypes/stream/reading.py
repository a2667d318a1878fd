"""Messages as rows ``[offset, tag, entry]``, straight from the nodes, within the limits of one answer.

A row may have a fourth place for the time of its message. Offsets whose message is gone are None, or
left out. A reader counts the bytes it hands out and stops at the limit; the first row of all is always
handed out, however large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream
    from penstock.engine.datatypes.stream.nodes import Node

MOST_MESSAGES: Final = 1_000_000
MOST_BYTES: Final = 64 << 20

Row: TypeAlias = list[Any]


class Reader:
    """Reads one stream for one answer."""

    __slots__ = ("_has_begun", "_is_timed", "_left_bytes", "_stream", "is_full")

    def __init__(self, stream: Stream, is_timed: bool = False, most_bytes: int = MOST_BYTES) -> None:
        self._stream = stream
        self._is_timed = is_timed
        self._left_bytes = most_bytes
        self._has_begun = False
        #: the limit of bytes is reached
        self.is_full = False

    def forward(self, offset: int, count: int) -> list[Row | None]:
        """What stands at ``count`` offsets from one on, as far as the stream goes."""
        stream = self._stream
        end = min(offset + count - 1, stream.last)
        rows: list[Row | None] = []
        if offset > end:
            return rows
        place = offset
        first = max(offset, stream.first)
        for node in stream.covering(first, end):
            found = self._take(node, node.index_from(first), node.index_from(end + 1))
            if found:
                if found[0][0] == place and found[-1][0] - place == len(found) - 1:
                    rows += found
                else:
                    _add_in_place(rows, place, found)
                place = found[-1][0] + 1
            if self.is_full:
                return rows
        if place <= end:
            rows.extend([None] * (end + 1 - place))
        return rows

    def present(self, offset: int, count: int) -> list[Row]:
        """Up to ``count`` messages at or above an offset."""
        stream = self._stream
        offset = max(offset, stream.first)
        rows: list[Row] = []
        if offset > stream.last or count <= 0:
            return rows
        for node in stream.covering(offset, stream.last):
            start = node.index_from(offset)
            rows += self._take(node, start, min(start + count - len(rows), node.count))
            if self.is_full or len(rows) >= count:
                break
        return rows

    def backward(self, offset: int, count: int) -> list[Row | None]:
        """What stands at ``count`` offsets from one on downwards."""
        rows: list[Row | None] = []
        place = min(offset, self._stream.last)
        end = max(place - count, 0)
        for row in self.present_backward(place, count):
            if row[0] <= end:
                break
            rows.extend([None] * (place - row[0]))
            rows.append(row)
            place = row[0] - 1
        if not self.is_full:
            rows.extend([None] * (place - end))
        return rows

    def present_backward(self, offset: int, count: int) -> list[Row]:
        """Up to ``count`` messages at or below an offset, newest first."""
        rows: list[Row] = []
        for message in self._stream.read_back(offset, count):
            size = len(message.tag) + len(message.entry or b"")
            if self._has_begun and size > self._left_bytes:
                self.is_full = True
                break
            self._has_begun = True
            self._left_bytes -= size
            rows.append(list(message) if self._is_timed else list(message[:3]))
        return rows

    def _take(self, node: Node, start: int, stop: int) -> list[Row]:
        if start >= stop:
            return []
        size = node.bytes_between(start, stop)
        if size > self._left_bytes:
            self.is_full = True
            stop = node.stop_within(start, self._left_bytes)
            if stop == start:
                if self._has_begun:
                    return []
                stop = start + 1
            size = node.bytes_between(start, stop)
        self._has_begun = True
        self._left_bytes -= size
        return node.rows(start, stop, self._is_timed)


def _add_in_place(rows: list[Row | None], place: int, found: list[Row]) -> None:
    """Append rows, with None for each offset that is missing between them."""
    for row in found:
        rows.extend([None] * (row[0] - place))
        rows.append(row)
        place = row[0] + 1
