"""The stream itself: append, read, evict; full nodes are sealed on the way.

=====================================  ===================================================
where                                  bytes
=====================================  ===================================================
``extra`` of the head record           see ``_EXTRA``
row ``version(8) n base(8)``           a node (``nodes``): the messages from ``base`` on
rows of other spaces                   groups and what they keep (``groups``), policies,
                                       producers, ``dropping``
=====================================  ===================================================

    1 ············ 1000 ············ 2000 ·· 2003 2004 2005
    └ sealed ──────┘└ sealed ────────┘└ open: small nodes ─┘
                                       ^ open_from        ^ last

Invariants
----------
S1  Offsets are dense: ``last`` grows by one a message, and never shrinks. A stream that was
    emptied stays, for the sake of its ``last``.
S2  Nodes do not overlap, in the order of their bases. Every message from ``first`` to ``last``
    is in the node that covers its offset, or is a hole. So may ``first`` and ``last`` be.
S3  ``size`` is the number of messages from ``first`` on. A node may begin below ``first``: those
    messages are gone, and their bytes go with the node.
S4  Nodes that end below ``open_from`` are sealed. The others are plain, have ``open_bytes`` and no
    holes, and are fewer than ``node_messages`` messages after every append. The first of them
    begins below ``open_from`` after an eviction into it.
S5  Times never run backwards.
S6  ``dirty_bytes`` are those of sealed nodes that begin above ``compacted_to``; ``dirty_since_ms`` is
    not later than their first message, and 0 if there are none.

Costs: a seek is one lookup in the tree, whatever the size of the stream. Appending costs
one row, and a thousandth of a seal. Evicting costs the nodes that go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.collection import Collection
from penstock.engine.datatypes.packed import DamagedError
from penstock.engine.datatypes.stream import nodes
from penstock.engine.datatypes.stream.nodes import Message, Node
from penstock.engine.storage.layout import STREAM
from penstock.errors import CommandError

if TYPE_CHECKING:
    from penstock.engine.storage.environment import Table
    from penstock.engine.storage.transaction import Unit

#: first, last, last_ms, open_from, open_bytes, stored bytes of all nodes, raw bytes of all nodes,
#: compacted up to, sealed bytes beyond that, since when (ms), node_messages, node_bytes, groups, flags
_EXTRA: Final = Struct(">QQQQQQQQQQIIIB")
_SIZE_AND_EXTRA: Final = Struct(">Q" + _EXTRA.format[1:])

DEFAULT_NODE_MESSAGES: Final = 1_000
DEFAULT_NODE_BYTES: Final = 1 << 20
LARGEST_OFFSET: Final = (1 << 64) - 1

#: A node that comes from somewhere else is not inflated beyond this: a few bytes may stand for gigabytes.
_MOST_RESTORED_BYTES: Final = 1 << 30

#: Inflated nodes that are kept at hand in this process.
_CACHED_NODES: Final = 64


class Stream(Collection):
    """One loaded stream; valid until the unit of work ends."""

    TYPE = STREAM

    __slots__ = (
        "_base", "bytes", "compacted_to", "dirty_bytes", "dirty_since_ms", "first", "flags", "groups", "last",
        "last_ms", "node_bytes", "node_messages", "open_bytes", "open_from", "raw_bytes",
    )  # fmt: skip

    def _load_extra(self, extra: bytes) -> None:
        self._base = self._version + b"n"
        if not extra:
            self.first, self.last, self.last_ms = 1, 0, 0
            self.open_from, self.open_bytes = 1, 0
            self.bytes = self.raw_bytes = 0
            self.compacted_to = 0
            self.dirty_bytes = self.dirty_since_ms = 0
            self.node_messages, self.node_bytes = DEFAULT_NODE_MESSAGES, DEFAULT_NODE_BYTES
            #: how many groups there are
            self.groups = 0
            #: bit 0: the engine tends it in the background (``policies``)
            self.flags = 0
            return
        (
            self.first, self.last, self.last_ms, self.open_from, self.open_bytes, self.bytes, self.raw_bytes,
            self.compacted_to, self.dirty_bytes, self.dirty_since_ms, self.node_messages, self.node_bytes,
            self.groups, self.flags,
        ) = _EXTRA.unpack(extra)  # fmt: skip

    def _record(self) -> bytes:
        return self._head + self._version + _SIZE_AND_EXTRA.pack(
            self.size,
            self.first, self.last, self.last_ms, self.open_from, self.open_bytes, self.bytes, self.raw_bytes,
            self.compacted_to, self.dirty_bytes, self.dirty_since_ms, self.node_messages, self.node_bytes,
            self.groups, self.flags,
        )  # fmt: skip

    def save(self) -> None:
        """As of any collection, but an empty stream stays (S1)."""
        if self._saved is None:
            self._create()
        elif self not in self._unit.late:
            self._put_off()

    # ------------------------------------------------------------------- rows of others

    def row(self, space: bytes, rest: bytes = b"") -> bytes:
        """The key of a row in one of this stream's own spaces."""
        return self._version + space + rest

    @property
    def table(self) -> Table:
        """Where its rows are."""
        return self._table

    @property
    def unit(self) -> Unit:
        return self._unit

    @property
    def database(self) -> int:
        return self._ks.index

    # ------------------------------------------------------------------------ export

    def export(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Everything there is, groups included, without key and version."""
        rows = self._unit.rows(self._table, self._version)
        return self._record()[len(self._head) + 8 :], [(row[8:], value) for row, value in rows]

    def take_in(self, head: bytes, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Become what was exported (and checked); for a new stream."""
        self.size = int.from_bytes(head[:8], "big")
        self._load_extra(head[8:])
        for rest, value in rows:
            self._unit.put(self._version + rest, value, db=self._table)
        self.save()

    # ------------------------------------------------------------------------- append

    def append_one(self, tag: bytes, entry: bytes | None) -> int:
        """Add one message at the end, now; answers its offset. As ``append``, the shortest way."""
        offset = self.last + 1
        if offset > LARGEST_OFFSET:
            raise CommandError("ERR the stream is full")
        now_ms = self._unit.now_ms
        if now_ms > self.last_ms:
            self.last_ms = now_ms
        value = nodes.encode_single(tag, entry, self.last_ms)
        self._unit.put(self._base + offset.to_bytes(8, "big"), value, True, True, False, self._table)
        size = len(value)
        self.bytes += size
        self.raw_bytes += size - nodes.SINGLE_HEAD_BYTES
        self.last = offset
        self.size += 1
        self.open_bytes += size
        if offset - self.open_from + 1 >= self.node_messages or self.open_bytes >= self.node_bytes:
            self._seal(offset)
        return offset

    def append(self, tags: Sequence[bytes], entries: Sequence[bytes | None]) -> int:
        """Add messages at the end, now; answers the offset of the last one."""
        count = len(tags)
        if count == 1:
            return self.append_one(tags[0], entries[0])
        if self.last > LARGEST_OFFSET - count:
            raise CommandError("ERR the stream is full")
        time_ms = self.last_ms = max(self.last_ms, self._unit.now_ms)
        start = 0
        if count >= self.node_messages:
            self.close_open()
            start = self._append_sealed(tags, entries, time_ms)
        if start < count:
            self._append_open(tags[start:], entries[start:], time_ms)
        return self.last

    def _append_open(self, tags: Sequence[bytes], entries: Sequence[bytes | None], time_ms: int) -> None:
        value = nodes.encode(tags, entries, time_ms, sealed=False)
        self._put(self.last + 1, value, nodes.read_head(value))
        self.last += len(tags)
        self.size += len(tags)
        self.open_bytes += len(value)
        if self.last - self.open_from + 1 >= self.node_messages or self.open_bytes >= self.node_bytes:
            self._seal(self.last)

    def _append_sealed(self, tags: Sequence[bytes], entries: Sequence[bytes | None], time_ms: int) -> int:
        """As many full nodes as there are messages for; answers how many messages they took."""
        step = self.node_messages
        whole = len(tags) // step * step
        for start in range(0, whole, step):
            stop = start + step
            value = nodes.encode(tags[start:stop], entries[start:stop], time_ms, sealed=True)
            self._put_sealed(self.last + 1, value)
            self.last += step
        self.size += whole
        self.open_from = self.last + 1
        self.open_bytes = 0
        return whole

    def close_open(self) -> None:
        """Seal what is open, however little it is."""
        if self.open_from <= self.last:
            self._seal(self.last)

    def _seal(self, last: int) -> None:
        """Merge the open nodes up to ``last`` into one that is compressed."""
        first = max(self.open_from, self.first)
        open_nodes = list(self._rows(first))
        columns = nodes.Columns()
        columns.add(open_nodes, first)
        if open_nodes:
            cursor = self._unit.cursor(self._table)
            cursor.set_key(self._base + open_nodes[0][0].to_bytes(8, "big"))
            for _, value in open_nodes:
                cursor.delete()  # which goes on to the next one
                self.bytes -= len(value)
        self.raw_bytes -= columns.raw_bytes
        if columns.tags:
            self._put_sealed(first, columns.encode())
        self.open_from = last + 1
        self.open_bytes = 0

    def _put_sealed(self, base: int, value: bytes) -> None:
        head = nodes.read_head(value)
        self._put(base, value, head)
        self.dirty_bytes += len(value)
        self.dirty_since_ms = self.dirty_since_ms or head.first_ms

    def put_copied(self, base: int, value: bytes, *, is_dirty: bool) -> None:
        """Add a sealed node behind all others (``copying``), which sees to the offsets and the size."""
        if is_dirty:
            self._put_sealed(base, value)
        else:
            self._put(base, value, nodes.read_head(value))

    def _put(self, base: int, value: bytes, head: nodes.NodeHead) -> None:
        self._unit.put(self._base + base.to_bytes(8, "big"), value, db=self._table)
        self.bytes += len(value)
        self.raw_bytes += head.raw_bytes

    def _drop(self, base: int, value: bytes) -> None:
        self._unit.delete(self._base + base.to_bytes(8, "big"), db=self._table)
        self.bytes -= len(value)
        self.raw_bytes -= nodes.read_head(value).raw_bytes

    # --------------------------------------------------------------------------- read

    def read(self, offset: int, count: int) -> Iterator[Message]:
        """Up to ``count`` messages at or above an offset; holes are left out."""
        offset = max(offset, self.first)
        if offset > self.last or count <= 0:
            return
        left = count
        for node in self.covering(offset, self.last):
            start = node.index_from(offset)
            found = node.messages(start, start + left)
            yield from found
            left -= len(found)
            if left <= 0:
                return

    def read_back(self, offset: int, count: int) -> Iterator[Message]:
        """Up to ``count`` messages at or below an offset, newest first."""
        offset = min(offset, self.last)
        left = count
        while offset >= self.first and left > 0:
            row = self._row_at(offset)
            if row is None:
                return
            node = self.inflated(*row)
            stop = node.index_from(offset + 1)
            start = max(node.index_from(self.first), stop - left)
            found = node.messages(start, stop)
            yield from reversed(found)
            left -= len(found)
            offset = node.base - 1

    def get(self, offset: int) -> Message | None:
        """One message; None if it is gone or not there yet."""
        found = next(self.read(offset, 1), None)
        return found if found is not None and found.offset == offset else None

    def covering(self, first: int, last: int) -> Iterator[Node]:
        """The nodes that cover these offsets, in order, inflated. Do not write meanwhile."""
        for base, value in self.stored(first, last):
            yield self.inflated(base, value)

    def stored(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """(base, value) of the nodes that cover these offsets, in order. Do not write meanwhile."""
        return takewhile(lambda row: row[0] <= last, self._rows(first))

    def heads(self, first: int = 0) -> Iterator[tuple[int, nodes.NodeHead]]:
        """Base and head of the nodes from the one on that covers an offset."""
        for base, value in self._rows(first):
            yield base, nodes.read_head(value)

    def count_nodes(self) -> int:
        """How many rows the messages take."""
        cursor = self._unit.cursor(self._table)
        if not cursor.set_range(self._base):
            return 0
        prefix = self._base
        return sum(1 for _ in takewhile(lambda row: row.startswith(prefix), cursor.iternext(values=False)))

    def sealed_sizes(self, first: int) -> Iterator[tuple[int, nodes.NodeHead, int]]:
        """Base, head and stored bytes of the sealed nodes from the one on that covers an offset."""
        for base, value in self._rows(first):
            head = nodes.read_head(value)
            if not head.is_sealed:
                return
            yield base, head, len(value)

    def thin_out(self, node: Node, kept: Sequence[int]) -> int:
        """Keep some messages of a sealed node; answers how many went that could be read.

        ``kept`` is 0 at the places of the others, which become holes. A node without messages is removed.
        """
        base, seen_from = node.base, node.index_from(self.first)
        value = self._unit.get(self._base + base.to_bytes(8, "big"), None, self._table)
        assert value is not None
        before = len(value)
        self._drop(base, value)
        value = b""
        if any(kept):
            value = node.encode_kept(kept)
            self._put(base, value, nodes.read_head(value))
        if base > self.compacted_to:
            self.dirty_bytes += len(value) - before
            self.dirty_since_ms = self.dirty_since_ms if self.dirty_bytes else 0
        removed = node.count - seen_from - sum(kept[seen_from:])
        self.size -= removed
        return removed

    def inflated(self, base: int, value: bytes) -> Node:
        """Inflate, or find it inflated already. Rows can be rewritten, so the bytes are compared."""
        if not nodes.is_sealed(value):
            return nodes.decode(base, value)
        name = (self._version, base)
        cached = _cache.get(name)
        if cached is not None and cached[0] == value:
            _cache.move_to_end(name)
            return cached[1]
        node = nodes.decode(base, value)
        _cache[name] = (value, node)
        if len(_cache) > _CACHED_NODES:
            _cache.popitem(last=False)
        return node

    def _rows(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """(base, value) of nodes, from the one on that covers an offset or comes next."""
        cursor = self._unit.cursor(self._table)
        if not self._unit.seek(cursor, self._base, offset.to_bytes(8, "big")):
            return
        prefix = self._base
        for row, value in cursor.iternext():
            if not row.startswith(prefix):
                return
            yield int.from_bytes(row[9:], "big"), value

    def _row_at(self, offset: int) -> tuple[int, bytes] | None:
        """The last node that begins at or below an offset."""
        cursor = self._unit.cursor(self._table)
        if not self._unit.seek(cursor, self._base, offset.to_bytes(8, "big")):
            return None
        base = int.from_bytes(cursor.key()[9:], "big")
        return (base, cursor.value()) if base <= offset else None

    # -------------------------------------------------------------------------- evict

    def evict_to(self, offset: int) -> int:
        """Remove every message at or below an offset; answers how many there were."""
        new_first = min(offset, self.last) + 1
        if new_first <= self.first:
            return 0
        removed = 0
        next_sealed_ms = 0
        gone: list[tuple[int, bytes]] = []
        for base, value in self._rows(self.first):
            head = nodes.read_head(value)
            if base >= new_first:
                next_sealed_ms = head.first_ms if head.is_sealed else 0
                break
            removed += self._count_between(base, value, self.first, new_first)
            is_gone = base + head.span <= new_first
            if is_gone:
                gone.append((base, value))
            if head.is_sealed and base > self.compacted_to:
                self.dirty_bytes -= len(value)
            elif is_gone and not head.is_sealed:
                self.open_bytes -= len(value)
        for base, value in gone:
            self._drop(base, value)
        self.first = new_first
        self.size -= removed
        self.open_from = max(self.open_from, new_first)
        if self.compacted_to < new_first - 1:
            self.compacted_to = new_first - 1
            self.dirty_since_ms = next_sealed_ms
        return removed

    def _count_between(self, base: int, value: bytes, first: int, stop: int) -> int:
        """How many messages of a node have an offset from ``first`` to before ``stop``."""
        head = nodes.read_head(value)
        if base >= first and base + head.span <= stop:
            return head.held
        if not head.has_holes:
            return min(base + head.span, stop) - max(base, first)
        node = self.inflated(base, value)
        return node.index_from(stop) - node.index_from(first)

    def keep_at_least(self, count: int) -> int:
        """Remove whole nodes from the front while at least ``count`` messages remain."""
        return self.evict_to(self.end_of_surplus(count))

    def end_of_surplus(self, count: int) -> int:
        """The last offset of the whole nodes at the front without which ``count`` messages remain.

        0 if there are none. The open end is never one of them.
        """
        left, upto = self.size, 0
        for base, value in self._rows(self.first):
            end = base + nodes.read_head(value).span
            left -= self._count_between(base, value, self.first, end)
            if end > self.open_from or left < count:
                break
            upto = end - 1
        return upto

    def end_of_excess(self, limit_bytes: int) -> int:
        """The last offset of the whole nodes that must go for the rest to be that small; 0 if none."""
        left, upto = self.bytes, 0
        for base, value in self._rows(self.first):
            end = base + nodes.read_head(value).span
            if left <= limit_bytes or end > self.open_from:
                break
            left -= len(value)
            upto = end - 1
        return upto

    def keep_exactly(self, count: int) -> int:
        """Remove from the front until ``count`` messages remain."""
        excess = self.size - count
        if excess <= 0:
            return 0
        if count == 0:
            return self.evict_to(self.last)
        for base, value in self._rows(self.first):
            end = base + nodes.read_head(value).span
            held = self._count_between(base, value, self.first, end)
            if held > excess:
                node = self.inflated(base, value)
                return self.evict_to(node.offset_at(node.index_from(self.first) + excess) - 1)
            if held == excess:
                return self.evict_to(end - 1)
            excess -= held
        return 0

    def offset_before(self, time_ms: int) -> int:
        """The last offset that was written before a time; 0 if there is none."""
        last = 0
        for base, value in self._rows(self.first):
            head = nodes.read_head(value)
            if head.first_ms >= time_ms:
                break
            if head.last_ms < time_ms:
                last = base + head.span - 1
                continue
            node = self.inflated(base, value)
            older = [index for index in range(node.count) if node.times_ms[index] < time_ms]
            if older:
                last = node.offset_at(older[-1])
            break
        return last


def check_export(head: bytes, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise DamagedError for what :meth:`Stream.export` cannot have answered."""
    try:
        _EXTRA.unpack(head[8:])
        for rest, value in rows:
            if rest[:1] == b"n":
                if nodes.read_head(value).raw_bytes > _MOST_RESTORED_BYTES:
                    raise DamagedError
                nodes.decode(int.from_bytes(rest[1:], "big"), value)
    except Exception as error:
        raise DamagedError from error


#: By version and base: the bytes a node was made of, and the node. Versions are never used again.
_cache: OrderedDict[tuple[bytes, int], tuple[bytes, Node]] = OrderedDict()
