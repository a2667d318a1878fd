"""A stream as words, for whoever copies it to another place: all but its messages, and back again.

What :func:`state_of` answers, :func:`take_state` understands; so do ``texport.lua`` and ``timport.lua`` of
``penstock.streams``, where scripts stand in for the engine, and both say the same about the same stream.
All numbers are decimal text, all lists begin with their length and are sorted:

========================  ===========================================================================
last-ms
policy                    pairs of an option and its value; none where no policy was set
producers                 id, last-ms, kept (0, 1), calls: first, last, offset of the last
groups                    name, cursor, reached, lost, delivered, acked, expired, dead, active-ms, maxpending,
                          ttl, ordered (yes, no), maxdeliveries, backoff, deadletter, then three lists:
of these consumers        name, active-ms, delivered
of these pending          first and last offset, consumer, deliveries, first-ms, due-ms, expires-ms (0: never)
of these passed           offset: read while its tag was taken, to be delivered later
========================  ===========================================================================

Messages come as nodes of their own (:func:`add_messages`): sealed, with holes where the source has them,
and never over ``compacted_to``, so that it stays clear what a compaction has seen.

Rules: whoever calls has checked that offsets grow and times do not run backwards, and saves the stream. A
producer whose name is too long for a row is known by a digest alone, and is left out
(:func:`nameless_producers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.engine.datatypes.stream import nodes, ordering, timers
from penstock.engine.datatypes.stream.consumers import all_consumers, bring, name_of
from penstock.engine.datatypes.stream.groups import Group, Options, all_groups, create_group, destroy_group
from penstock.engine.datatypes.stream.nodes import Message
from penstock.engine.datatypes.stream.pending import Run, masks_of
from penstock.engine.datatypes.stream.policies import Policy, find_policy, forget_policy, store_policy, tend
from penstock.engine.datatypes.stream.producers import Known, all_known, forget_all, put_known
from penstock.engine.storage.layout import FIT_BYTES

if TYPE_CHECKING:
    from penstock.engine.datatypes.stream.log import Stream

_SWITCHES: Final = ("retain_acked", "compact")
_NODE_SIZES: Final = ("node_messages", "node_bytes")
_YES: Final = b"yes"
#: Offsets that a node can span.
_MOST_SPAN: Final = 1 << 31


class _Words:
    """Takes words from the front of a list."""

    __slots__ = ("_words",)

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words = iter(words)

    def word(self) -> bytes:
        """``ValueError`` if there is none."""
        found = next(self._words, None)
        if found is None:
            raise ValueError("too few words")
        return found

    def number(self) -> int:
        word = self.word()
        if not word.isdigit():
            raise ValueError(f"{word!r} is no number")
        return int(word)

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]

    def times(self) -> Iterable[int]:
        """As often as the next word says."""
        return range(self.number())

    def end(self) -> None:
        if next(self._words, None) is not None:
            raise ValueError("too many words")


# ------------------------------------------------------------------------------ out


def state_of(stream: Stream) -> list[bytes]:
    """All that there is besides messages and their offsets."""
    words = [_text(stream.last_ms)]
    words += _policy_words(stream)
    known = sorted((name, known) for name, known in all_known(stream) if len(name) < FIT_BYTES)
    words.append(_text(len(known)))
    for name, each in known:
        words += [name, _text(each.last_ms), _text(each.is_kept), _text(len(each.calls))]
        words += [_text(number) for call in each.calls for number in call]
    groups = sorted(all_groups(stream), key=lambda group: group.name)
    words.append(_text(len(groups)))
    for group in groups:
        words += _group_words(group)
    return words


def nameless_producers(stream: Stream) -> int:
    """How many producers cannot be told to anybody."""
    return sum(len(name) >= FIT_BYTES for name, _ in all_known(stream))


def _text(number: int) -> bytes:
    return b"%d" % number


def _policy_words(stream: Stream) -> list[bytes]:
    policy = find_policy(stream)
    if policy is None:
        return [b"0"]
    words = [_text(len(fields(Policy)) + len(_NODE_SIZES))]
    for name in (*(field.name for field in fields(Policy)), *_NODE_SIZES):
        value = getattr(stream if name in _NODE_SIZES else policy, name)
        words.append(name.replace("_", "-").encode())
        words.append((b"no", _YES)[value] if name in _SWITCHES else _text(value))
    return words


def _group_words(group: Group) -> list[bytes]:
    options = group.options
    numbers = (
        group.cursor, max(group.reached, group.cursor), group.lost, group.delivered, group.acked,
        group.expired, group.dead, group.active_ms, options.max_pending, options.ttl_ms,
    )  # fmt: skip
    words = [group.name, *map(_text, numbers), (b"no", _YES)[options.ordered], _text(options.max_deliveries)]
    words += [b",".join(map(_text, options.backoff_ms)), options.dead_letter]
    consumers = sorted(all_consumers(group), key=lambda consumer: consumer.name)
    words.append(_text(len(consumers)))
    for consumer in consumers:
        words += [consumer.name, _text(consumer.last_ms), _text(consumer.delivered)]
    pending = list(_pending_ranges(group))
    words.append(_text(len(pending)))
    for first, last, (consumer_name, *facts) in pending:
        words += [_text(first), _text(last), consumer_name, *map(_text, facts)]
    passed = sorted(int.from_bytes(row[-8:], "big") for row in group.passed_rows())
    return [*words, _text(len(passed)), *map(_text, passed)]


class _Facts(NamedTuple):
    """What messages that were delivered together share."""

    consumer: bytes
    deliveries: int
    first_ms: int
    due_ms: int
    expires_ms: int


def _pending_ranges(group: Group) -> Iterator[tuple[int, int, _Facts]]:
    """Offsets in a row with the same facts, whatever runs they are kept in."""
    names = {0: b""}
    found: tuple[int, int, _Facts] | None = None
    for run in group.runs.all():
        if run.consumer not in names:
            names[run.consumer] = name_of(group, run.consumer)
        facts = _Facts(names[run.consumer], run.deliveries, run.first_ms, run.due_ms, run.expires_ms)
        for offset in run.offsets():
            if found is not None and found[1] == offset - 1 and found[2] == facts:
                found = found[0], offset, facts
                continue
            if found is not None:
                yield found
            found = offset, offset, facts
    if found is not None:
        yield found


# ------------------------------------------------------------------------- messages


def begin(stream: Stream, first: int, node_messages: int, node_bytes: int) -> None:
    """Make a new stream one without messages, before its first one."""
    stream.first, stream.last = first, first - 1
    stream.open_from, stream.compacted_to = first, first - 1
    stream.node_messages, stream.node_bytes = node_messages, node_bytes


def add_messages(stream: Stream, messages: Sequence[Message], upto: int, compacted_to: int) -> None:
    """Add messages above the last offset; ``upto`` is the new last one, with holes where no message is."""
    stream.close_open()
    for batch in _batches(stream, messages, compacted_to):
        base, span = batch[0].offset, batch[-1].offset - batch[0].offset + 1
        tags, entries = [message.tag for message in batch], [message.entry for message in batch]
        times_ms = [message.time_ms for message in batch]
        places = None if span == len(batch) else [message.offset - base for message in batch]
        value = nodes.encode_sealed(tags, entries, times_ms, places, span)
        stream.put_copied(base, value, is_dirty=base > compacted_to)
    stream.size += len(messages)
    if messages:
        stream.last_ms = max(stream.last_ms, messages[-1].time_ms)
    stream.last = upto
    stream.open_from = upto + 1
    stream.compacted_to = max(stream.compacted_to, min(compacted_to, upto))


def _batches(stream: Stream, messages: Sequence[Message], compacted_to: int) -> Iterator[list[Message]]:
    """Messages of one node each."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        is_over = bool(batch) and (
            len(batch) >= stream.node_messages
            or size >= stream.node_bytes
            or message.offset - batch[0].offset >= _MOST_SPAN
            or batch[0].offset <= compacted_to < message.offset
        )
        if is_over:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.tag) + len(message.entry or b"")
    if batch:
        yield batch


# ------------------------------------------------------------------------------- in


def take_state(stream: Stream, words: Sequence[bytes]) -> None:
    """Become what another one was, whatever this one had. ``ValueError``: these are no words of ours."""
    source = _Words(words)
    last_ms = source.number()
    policy = {source.word(): source.word() for _ in source.times()}
    producers = [_take_producer(source) for _ in source.times()]
    groups = [_take_group(source) for _ in source.times()]
    source.end()
    values = _policy_values(policy)
    for group in all_groups(stream):
        destroy_group(stream, group)
    forget_policy(stream)
    forget_all(stream)
    stream.last_ms = max(stream.last_ms, last_ms)
    if values:
        stream.node_messages, stream.node_bytes = (values.pop(name) for name in _NODE_SIZES)
        store_policy(stream, Policy(**values))
    for name, known in producers:
        put_known(stream, name, known)
        tend(stream)
    for each in groups:
        _make_group(stream, each)


def _policy_values(words: dict[bytes, bytes]) -> dict[str, int]:
    values = {}
    for word, value in words.items():
        name = word.decode("ascii").replace("-", "_")
        values[name] = int(value == _YES) if name in _SWITCHES else int(value)
    known = {*(field.name for field in fields(Policy)), *_NODE_SIZES}
    if values and values.keys() != known:
        raise ValueError("a policy has other options")
    return values


def _take_producer(source: _Words) -> tuple[bytes, Known]:
    name = source.word()
    last_ms, is_kept = source.numbers(2)
    calls = []
    for _ in source.times():
        first, last, offset = source.numbers(3)
        calls.append((first, last, offset))
    return name, Known(last_ms, bool(is_kept), calls)


class _NewGroup(NamedTuple):
    name: bytes
    #: cursor, reached, lost, delivered, acked, expired, dead, active-ms
    numbers: list[int]
    options: Options
    #: name, active-ms, delivered
    consumers: list[tuple[bytes, int, int]]
    pending: list[tuple[int, int, _Facts]]
    passed: list[int]


def _take_group(source: _Words) -> _NewGroup:
    name, numbers = source.word(), source.numbers(8)
    max_pending, ttl_ms = source.numbers(2)
    is_ordered, max_deliveries = source.word() == _YES, source.number()
    backoff_ms = tuple(int(delay) for delay in source.word().split(b",") if delay)
    options = Options(max_pending, ttl_ms, is_ordered, max_deliveries, backoff_ms, source.word())
    consumers = [(source.word(), source.number(), source.number()) for _ in source.times()]
    pending = []
    for _ in source.times():
        first, last = source.numbers(2)
        pending.append((first, last, _Facts(source.word(), *source.numbers(4))))
    return _NewGroup(name, numbers, options, consumers, pending, source.numbers(source.number()))


def _make_group(stream: Stream, new: _NewGroup) -> None:
    group = create_group(stream, new.name, new.numbers[0], new.options)
    (
        group.cursor, group.reached, group.lost, group.delivered, group.acked, group.expired, group.dead,
        group.active_ms,
    ) = new.numbers  # fmt: skip
    numbers = {name: bring(group, name, active_ms, delivered) for name, active_ms, delivered in new.consumers}
    numbers[b""] = 0
    for first, last, facts in new.pending:
        if facts.consumer not in numbers:
            numbers[facts.consumer] = bring(group, facts.consumer, 0, 0)
        for base, mask in masks_of(range(first, last + 1), has_gaps=False):
            group.runs.add(
                Run(base, mask, facts.due_ms, facts.expires_ms, facts.first_ms, facts.deliveries,
                    numbers[facts.consumer])
            )  # fmt: skip
        group.pending += last - first + 1
    ordering.put_passed(stream, group, new.passed)
    timers.set_next(stream, group)
    group.save()
