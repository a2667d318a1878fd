"""The log of a stream against a list: append, read both ways, evict, seal, holes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine
from penstock.engine.datatypes.packed import DamagedError
from penstock.engine.datatypes.stream import Message, Stream, nodes
from penstock.engine.datatypes.stream.log import check_export

KEY = b"k"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine:
        yield engine


class Log:
    """A stream with small nodes, and what it should hold."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self._engine = engine
        self._chance = chance
        self.live: dict[int, tuple[bytes, bytes | None]] = {}
        self.first, self.last = 1, 0

    def within(self, work: Callable[[Stream], Any]) -> Any:
        answers: list[Any] = []

        def task() -> None:
            stream = self._engine.keyspaces[0].load_or_new(KEY, Stream)
            stream.node_messages, stream.node_bytes = 20, 400
            answers.append(work(stream))
            stream.save()

        self._engine.run_task(task)
        return answers[0]

    def forget_below(self, first: int) -> int:
        gone = [offset for offset in self.live if offset < first]
        for offset in gone:
            del self.live[offset]
        self.first = max(self.first, first)
        return len(gone)

    # ------------------------------------------------------------------ operations

    def append(self) -> None:
        chance = self._chance
        count = chance.choice([1, 1, 1, 2, 5, chance.randrange(1, 30), chance.randrange(1, 80)])
        tags = [b"t%d" % chance.randrange(5) for _ in range(count)]
        entries = [
            None if chance.random() < 0.1 else b"e" * chance.randrange(4) + b"%d" % chance.randrange(1000)
            for _ in range(count)
        ]
        for message in zip(tags, entries, strict=True):
            self.last += 1
            self.live[self.last] = message
        assert self.within(lambda stream: stream.append(tags, entries)) == self.last

    def evict_to(self) -> None:
        upto = self._chance.randrange(0, self.last + 5)
        removed = self.within(lambda stream: stream.evict_to(upto))
        assert removed == self.forget_below(min(upto, self.last) + 1)

    def keep_exactly(self) -> None:
        count = self._chance.randrange(60)
        removed, first = self.within(lambda stream: (stream.keep_exactly(count), stream.first))
        assert removed == max(0, len(self.live) - count)
        assert removed == self.forget_below(first)

    def keep_at_least(self) -> None:
        count, before = self._chance.randrange(60), len(self.live)
        first = self.within(lambda stream: (stream.keep_at_least(count), stream.first)[1])
        self.forget_below(first)
        assert len(self.live) >= min(count, before)

    def make_holes(self) -> None:
        def work(stream: Stream) -> list[int]:
            sealed = [
                base for base, head in stream.heads(stream.first) if head.is_sealed and base >= stream.first
            ]
            if not sealed:
                return []
            node = next(stream.covering(base := self._chance.choice(sealed), base))
            kept = [self._chance.random() < 0.6 for _ in range(node.count)]
            gone = [message.offset for message, stays in zip(node.messages(), kept, strict=True) if not stays]
            assert stream.thin_out(node, kept) == len(gone)
            return gone

        for offset in self.within(work):
            del self.live[offset]

    # ---------------------------------------------------------------------- checks

    def check(self) -> None:
        offset, count = self._chance.randrange(self.last + 3), self._chance.randrange(1, 40)

        def work(stream: Stream) -> None:
            assert (stream.first, stream.last, stream.size) == (self.first, self.last, len(self.live))
            upwards = [each for each in sorted(self.live) if each >= offset][:count]
            read = [(m.offset, (m.tag, m.entry)) for m in stream.read(offset, count)]
            assert read == [(each, self.live[each]) for each in upwards]
            downwards = [each for each in sorted(self.live, reverse=True) if each <= offset][:count]
            assert [m.offset for m in stream.read_back(offset, count)] == downwards
            assert stream.bytes == sum(len(value) for _, value in stream._rows(0))
            found = stream.get(offset)
            assert (found is None) == (offset not in self.live)

        self.within(work)


@pytest.mark.parametrize("seed", range(6))
def test_against_a_list(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    log = Log(engine, chance)
    operations = [log.append] * 12 + [log.evict_to, log.evict_to, log.keep_exactly, log.keep_at_least]
    operations.append(log.make_holes)
    for _ in range(400):
        chance.choice(operations)()
        log.check()
    assert log.last > 1_000


def test_export_and_take_in(engine: Engine) -> None:
    log = Log(engine, random.Random(1))
    for _ in range(50):
        log.append()

    def task() -> None:
        original = engine.keyspaces[0].load(KEY, Stream)
        assert original is not None
        head, rows = original.export()
        check_export(head, rows)
        copy = Stream(engine.keyspaces[1], b"copy", None)
        copy.take_in(head, rows)
        assert list(copy.read(0, 10_000)) == list(original.read(0, 10_000))
        assert (copy.first, copy.last, copy.size) == (original.first, original.last, original.size)
        for bad_head, bad_rows in ((head[:-1], rows), (head, [(b"n" + bytes(8), b"\2nonsense")])):
            with pytest.raises(DamagedError):
                check_export(bad_head, bad_rows)

    engine.run_task(task)


def test_a_large_write_is_sealed_at_once(engine: Engine) -> None:
    def task() -> None:
        stream = Stream(engine.keyspaces[0], KEY, None)
        stream.append([b"t"] * 3_500, [b"entry"] * 3_500)
        heads = list(stream.heads())
        assert [(base, head.held, head.is_sealed) for base, head in heads] == [
            (1, 1000, True), (1001, 1000, True), (2001, 1000, True), (3001, 500, False),
        ]  # fmt: skip
        assert stream.bytes < 3_500 * 13

    engine.run_task(task)


# ------------------------------------------------------------------------- nodes


@pytest.mark.parametrize("sealed", [False, True])
def test_nodes_there_and_back(sealed: bool) -> None:
    messages = [
        Message(5, b"", b"", 10),
        Message(6, b"tag", None, 10),
        Message(7, b"\x00" * 300, b"x" * 70_000, 2_000_000_000_000),
    ]
    _, tags, entries, times_ms = zip(*messages, strict=True)
    value = nodes.encode(tags, entries, times_ms, sealed=sealed)
    node = nodes.decode(5, value)
    assert node.messages() == messages
    assert [node.index_from(offset) for offset in (0, 5, 7, 8)] == [0, 0, 2, 3]
    head = nodes.read_head(value)
    assert (head.held, head.span, head.has_holes, head.is_sealed) == (3, 3, False, sealed)
    assert (head.first_ms, head.last_ms) == (10, 2_000_000_000_000)


def test_nodes_with_holes() -> None:
    tags, entries = [b"%d" % number for number in range(8)], [b"x", None] * 4
    node = nodes.decode(5, nodes.encode(tags, entries, [0, 1, 1, 5, 6, 6, 1 << 40, 1 << 40], sealed=True))
    messages = node.messages()
    value = node.encode_kept([0, 1, 1, 0, 1, 1, 1, 0])
    thinner = nodes.decode(5, value)
    assert thinner.messages() == [messages[place] for place in (1, 2, 4, 5, 6)]
    assert [thinner.index_from(offset) for offset in (0, 6, 8, 11, 12)] == [0, 0, 2, 4, 5]
    again = nodes.decode(5, thinner.encode_kept([1, 0, 0, 1, 0]))
    assert again.messages() == [messages[1], messages[5]]
    head = nodes.read_head(value)
    assert (head.held, head.span, head.has_holes, head.is_sealed) == (5, 8, True, True)
    assert (head.first_ms, head.last_ms) == (1, 1 << 40)


def test_columns_are_arrows() -> None:
    node = nodes.decode(1, nodes.encode([b"a", b"bc"], [b"x", None], 1, sealed=True))
    assert list(node.tag_offsets) == [0, 1, 3]
    assert (node.tags, node.entries) == (b"abc", b"x")
    assert list(node.entry_offsets) == [0, 1, 1]
    assert node.valid == b"\x01"
