"""Dropping: single messages become holes, wherever in the stream they are.

Whoever drops says which offsets (TDROP); nobody is asked but the groups.

Row ``version(8) h``: how often something was dropped (8). A compaction that is under way begins anew when it
has changed: what it took for the newest message of a tag may be gone.

Rules
-----
D1  Offsets and order never change, and neither do ``first`` and ``last``: as after a compaction, both may be
    holes. Nodes keep their base and span.
D2  A message that a group has pending stays.
D3  The open end has no holes (S4 of ``log``), so that it is sealed before something of it goes.

Costs: each node with something to drop is inflated and written once, however many ranges reach into it.
Nodes in between are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.stream.groups import pending_between
from penstock.engine.datatypes.stream.pending import Range
from penstock.engine.storage.layout import U64

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream

_SPACE: Final = b"h"


def drop(stream: Stream, ranges: Sequence[Range]) -> int:
    """Drop the messages in ranges that are in order and do not overlap; answers how many went.

    The caller saves the stream.
    """
    wanted = _within(ranges, stream.first, stream.last)
    if wanted and wanted[-1].last >= stream.open_from:
        stream.close_open()
    hits = list(_hits(stream, wanted))  # all of them before the first write: a cursor finds them
    removed = sum(_drop_from(stream, base, inside) for base, inside in hits)
    if removed:
        stream.unit.put(stream.row(_SPACE), U64.pack(count_drops(stream) + 1), db=stream.table)
    return removed


def count_drops(stream: Stream) -> int:
    """How often something was dropped."""
    return int.from_bytes(stream.unit.get(stream.row(_SPACE), b"", stream.table) or b"", "big")


def _within(ranges: Sequence[Range], first: int, last: int) -> list[Range]:
    """What of the ranges is between two offsets, both included."""
    return [Range(max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first]


def _hits(stream: Stream, ranges: Sequence[Range]) -> Iterator[tuple[int, list[Range]]]:
    """Bases of the nodes that ranges reach into, each with these ranges."""
    at = start = 0
    while at < len(ranges):
        start = max(start, ranges[at].first)
        ends = ((base, base + head.span) for base, head in stream.heads(start))
        base, end = next((node for node in ends if node[1] > start), (0, 0))
        if not end:
            return
        inside = []
        while at < len(ranges) and ranges[at].first < end:
            if ranges[at].last >= base:
                inside.append(ranges[at])
            if ranges[at].last >= end:
                break  # it goes on in the next node
            at += 1
        if inside:
            yield base, inside
        start = end


def _drop_from(stream: Stream, base: int, ranges: Sequence[Range]) -> int:
    node = next(stream.covering(base, base))
    kept = bytearray(b"\1" * node.count)
    for first, last in ranges:
        start, stop = node.index_from(first), node.index_from(last + 1)
        kept[start:stop] = bytes(stop - start)
    for offset in pending_between(stream, base, base + node.span - 1):
        place = node.index_from(offset)
        if place < node.count and node.offset_at(place) == offset:
            kept[place] = 1
    return 0 if all(kept) else stream.thin_out(node, kept)
