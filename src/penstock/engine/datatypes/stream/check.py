"""Does a stream hold together? Reads every row of it and compares what must agree.

:func:`faults_of` answers pairs of a rule and a sentence, one a fault. The rules:

=====  ================================================================================
rule   what must hold
=====  ================================================================================
L1     every row is of a known space and decodes; a node holds what its head says
L2     1 ≤ first ≤ last + 1; nodes neither overlap, nor are below first or above last
L3     size, bytes and raw_bytes are those of the nodes
L4     nodes below open_from are sealed; those from it on are plain, without a hole up
       to last, and open_bytes are theirs
L5     dirty_bytes and dirty_since_ms are those of sealed nodes above compacted_to
L6     times never run backwards, up to last_ms
L7     calls of a producer are in order, and of messages that were written
G1     each group stands under its name, with a number of its own; ``Stream.groups`` counts
       them; rows of groups are of one of them
G2     runs are not empty and do not overlap; each is due once, and expires once if ever
G3     pending and passed count what is pending and passed over, all below reached
G4     an ordered group holds the tags of what is pending or ready, and of nothing else;
       whatever waits, waits for one of them. Other groups hold none
G5     names and numbers of consumers belong to one another, also in runs
G6     what is to come in a group has a timer that is not later
=====  ================================================================================

It only reads. Whoever calls it knows the tables besides the stream's own.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.engine.datatypes.stream import nodes, producers
from penstock.engine.datatypes.stream.consumers import all_consumers
from penstock.engine.datatypes.stream.groups import Group, all_groups, find_group
from penstock.engine.datatypes.stream.policies import load_policy
from penstock.engine.datatypes.stream.timers import has_timer
from penstock.engine.storage.layout import U64, hash64

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream

#: (rule, sentence)
Fault: TypeAlias = tuple[str, str]

_SPACES: Final = (b"n", b"g", b"d", b"o", b"h")
_GROUP_LETTERS: Final = b"pdxcktowr"


def faults_of(stream: Stream) -> Iterator[Fault]:
    """Every broken rule of one stream."""
    for space in {row[8:9] for row, _ in stream.unit.rows(stream.table, stream.row(b""))}:
        if space not in _SPACES:
            yield "L1", f"has rows of an unknown space {space!r}"
    yield from _LogCheck(stream).run()
    yield from _producer_faults(stream)
    yield from _groups_faults(stream)


# ------------------------------------------------------------------------------ log


class _LogCheck:
    """One pass over the nodes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sums: Counter[str] = Counter()
        self._dirty_since_ms = 0
        self._end = 0
        self._open_end = stream.open_from
        self._last_ms = 0

    def run(self) -> Iterator[Fault]:
        stream = self._stream
        if not 1 <= stream.first <= stream.last + 1:
            yield "L2", f"begins at {stream.first} and ends at {stream.last}"
        if not stream.first <= stream.open_from <= stream.last + 1:
            yield "L4", f"is open from {stream.open_from}, which is not between its first and its last"
        if not stream.first - 1 <= stream.compacted_to <= stream.last:
            yield "L5", f"is compacted to {stream.compacted_to}"
        for row, value in stream.unit.rows(stream.table, stream.row(b"n")):
            base = int.from_bytes(row[9:], "big")
            try:
                node, head = nodes.decode(base, value), nodes.read_head(value)
            except nodes.DAMAGE as error:
                yield "L1", f"has a node at {base} that does not decode: {error!r}"
                continue
            yield from self._check_node(node, head)
            self._count(node, head, len(value))
        yield from self._compare_sums()

    def _check_node(self, node: nodes.Node, head: nodes.NodeHead) -> Iterator[Fault]:
        stream, end = self._stream, node.base + head.span
        where = f"has a node {node.base}+{head.span}"
        offsets = [node.offset_at(index) for index in range(node.count)]
        lengths = len(node.tags), len(node.entries)
        if not node.count == head.held == len(set(offsets)) or offsets != sorted(offsets):
            yield "L1", f"{where} of {node.count} messages, whose head says {head.held}"
        elif not node.base <= offsets[0] <= offsets[-1] < end:
            yield "L1", f"{where} with messages outside of it"
        if lengths != (node.tag_offsets[-1], node.entry_offsets[-1]):
            yield "L1", f"{where} whose columns do not have the lengths that they should"
        if node.base < self._end or not stream.first < end <= stream.last + 1:
            yield "L2", f"{where} that overlaps another one, or is out of range"
        if head.is_sealed != (end <= stream.open_from):
            yield (
                "L4",
                f"{where} that is {'sealed' if head.is_sealed else 'plain'}, open from {stream.open_from}",
            )
        if not head.is_sealed and (head.has_holes or node.base > self._open_end):
            yield "L4", f"{where} with a hole in it or before it at the open end"
        times = [self._last_ms, head.first_ms, *node.times_ms, head.last_ms, stream.last_ms]
        if any(later < earlier for earlier, later in pairwise(times)):
            yield "L6", f"{where} whose times run backwards"

    def _count(self, node: nodes.Node, head: nodes.NodeHead, stored_bytes: int) -> None:
        stream = self._stream
        self._sums["size"] += node.count - node.index_from(stream.first)
        self._sums["bytes"] += stored_bytes
        self._sums["raw_bytes"] += head.raw_bytes
        if not head.is_sealed:
            self._sums["open_bytes"] += stored_bytes
            self._open_end = node.base + head.span
        elif node.base > stream.compacted_to:
            self._sums["dirty_bytes"] += stored_bytes
            self._dirty_since_ms = self._dirty_since_ms or head.first_ms
        self._end = node.base + head.span
        self._last_ms = head.last_ms

    def _compare_sums(self) -> Iterator[Fault]:
        stream = self._stream
        rules = {"size": "L3", "bytes": "L3", "raw_bytes": "L3", "open_bytes": "L4", "dirty_bytes": "L5"}
        for name, rule in rules.items():
            said, found = getattr(stream, name), self._sums[name]
            if said != found:
                yield rule, f"has {name} {said}, its nodes have {found}"
        if not min(1, self._dirty_since_ms) <= stream.dirty_since_ms <= self._dirty_since_ms:
            yield "L5", f"is dirty since {stream.dirty_since_ms}, its nodes since {self._dirty_since_ms}"
        if self._open_end != stream.last + 1:
            yield "L4", f"ends at {stream.last}, its open nodes before {self._open_end}"


def _producer_faults(stream: Stream) -> Iterator[Fault]:
    try:
        load_policy(stream)
        remembered = list(producers.all_calls(stream))
    except (struct.error, ValueError) as error:
        yield "L1", f"has a policy or a producer that does not decode: {error!r}"
        return
    for row, calls in remembered:
        numbers = [number for first, last, _ in calls for number in (first, last)]
        offsets = [0, *(offset for _, _, offset in calls), stream.last]
        is_odd = not calls or len(calls) > producers.MAX_CALLS or numbers != sorted(numbers)
        if is_odd or offsets != sorted(offsets):
            yield "L7", f"has a producer {row!r} with odd calls"


# --------------------------------------------------------------------------- groups


def _groups_faults(stream: Stream) -> Iterator[Fault]:
    rows = [row[9:] for row, _ in stream.unit.rows(stream.table, stream.row(b"g"))]
    records = sum(row[:4] == bytes(4) for row in rows)
    if records != stream.groups:
        yield "G1", f"has {records} groups and says {stream.groups}"
        return
    groups = all_groups(stream)
    numbers = [group.number for group in groups]
    if len(set(numbers)) < len(numbers) or 0 in numbers:
        yield "G1", f"has groups with the numbers {numbers}"
    strays = {row[:5] for row in rows if int.from_bytes(row[:4], "big") not in (0, *numbers)}
    strays |= {row[:5] for row in rows if row[:4] != bytes(4) and row[4] not in _GROUP_LETTERS}
    for stray in strays:
        yield "G1", f"has rows {stray!r} of no group"
    for group in groups:
        found = find_group(stream, group.name)
        if found is None or found.number != group.number:
            yield "G1", f"has a group {group.name!r} that is not under its name"
        for check in (_run_faults, _place_faults, _tag_faults, _consumer_faults, _timer_faults):
            yield from ((rule, f"group {group.name!r} {text}") for rule, text in check(stream, group))


def _rests(group: Group, letter: bytes) -> dict[bytes, bytes]:
    """The rows of a group under a letter, without their common beginning."""
    prefix = group.row(letter)
    return {row[len(prefix) :]: value for row, value in group.unit.rows(group.table, prefix)}


def _run_faults(stream: Stream, group: Group) -> Iterator[Fault]:
    runs = list(group.runs.all())
    if not all(run.mask for run in runs):
        yield "G2", "has an empty run"
    for earlier, later in pairwise(runs):
        if earlier.last >= later.base:
            yield "G2", f"has runs that overlap: {earlier}, {later}"
    due = {U64.pack(run.due_ms) + U64.pack(run.base) for run in runs}
    expiring = {U64.pack(run.expires_ms) + U64.pack(run.base) for run in runs if run.expires_ms}
    for letter, wanted in ((b"d", due), (b"x", expiring)):
        for rest in _rests(group, letter).keys() ^ wanted:
            what = "lacks" if rest in wanted else "has too much:"
            yield "G2", f"{what} a row {letter!r} of the run at {int.from_bytes(rest[-8:], 'big')}"


def _place_faults(stream: Stream, group: Group) -> Iterator[Fault]:
    pending = [offset for run in group.runs.all() for offset in run.offsets()]
    passed = [int.from_bytes(row[-8:], "big") for row in group.passed_rows()]
    if (len(pending), len(passed)) != (group.pending, group.passed):
        counted = f"{len(pending)} pending and {len(passed)} passed over"
        yield "G3", f"has {counted}, and says {group.pending} and {group.passed}"
    if len({*pending, *passed}) != len(pending) + len(passed):
        yield "G3", "has an offset twice among what is pending or passed over"
    if max((0, *pending, *passed)) >= max(group.reached, 1):
        yield "G3", f"reached {group.reached}, and has delivered or passed over later messages"


def _tag_faults(stream: Stream, group: Group) -> Iterator[Fault]:
    taken, held, waiting = (_rests(group, letter) for letter in (b"t", b"o", b"w"))
    if not group.options.ordered:
        if taken or held or waiting:
            yield "G4", "is not ordered and holds tags"
        return
    names = Counter(held.values())
    names += Counter(name for name in _rests(group, b"r").values() if name != bytes(8))
    counts = {name: int.from_bytes(count, "big") for name, count in taken.items()}
    if counts != names:
        yield "G4", f"holds tags {counts}, its messages {dict(names)}"
    if not {rest[:8] for rest in waiting} <= taken.keys():
        yield "G4", "has messages that wait for a tag which nobody holds"
    pending = {offset for run in group.runs.all() for offset in run.offsets()}
    if not {int.from_bytes(rest, "big") for rest in held} <= pending:
        yield "G4", "holds tags of messages that are not pending"
    for offset in pending:
        message = stream.get(offset)
        name = held.get(U64.pack(offset))
        if message is not None and name != (hash64(message.tag) if message.tag else None):
            yield "G4", f"does not hold the tag of {offset}, which is pending"


def _consumer_faults(stream: Stream, group: Group) -> Iterator[Fault]:
    by_name = {consumer.number: consumer.name for consumer in all_consumers(group)}
    by_number = {int.from_bytes(rest, "big"): name for rest, name in _rests(group, b"k").items()}
    if by_name != by_number:
        yield "G5", f"has consumers {by_name} by name and {by_number} by number"
    if max((0, *by_number)) > group.consumers:
        yield "G5", f"has a consumer above {group.consumers}"
    unknown = {run.consumer for run in group.runs.all()} - {0, *by_number}
    if unknown:
        yield "G5", f"has runs of consumers {unknown} that do not exist"


def _timer_faults(stream: Stream, group: Group) -> Iterator[Fault]:
    if has_timer(stream, 0, 0):
        return  # all groups will be looked at, and get their timers
    upcoming = [group.runs.next_due_ms(stream.unit.now_ms), group.runs.next_expiry_ms()]
    if group.options.ttl_ms:
        upcoming.append(group.active_ms + group.options.ttl_ms)
    first = min((due_ms for due_ms in upcoming if due_ms is not None), default=None)
    if first is not None and not 0 < group.timer_ms <= first:
        yield "G6", f"has something to come at {first} and its timer at {group.timer_ms}"
    if group.timer_ms and not has_timer(stream, group.number, group.timer_ms):
        yield "G6", f"has a timer at {group.timer_ms} that does not exist"
