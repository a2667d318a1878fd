"""Ranges of tasks, and what each stream gets of a limited batch: pure functions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.spark import ranges
from penstock.spark.options import parse_options
from penstock.spark.ranges import OffsetRange, split
from penstock.spark.stream_reading import share

OPTIONS = parse_options({"url": "x", "stream": "orders"}, "batch")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges.os, "cpu_count", lambda: 2)


def of(*spans: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(f"s{place}", *span) for place, span in enumerate(spans)]


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_the_whole_and_enough(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([10, 3_000, 500_000])
    spans = [(first := chance.randrange(1, 9_999), first + chance.randrange(size)) for _ in range(4)]
    options = replace(
        OPTIONS,
        min_partitions=chance.randrange(1, 9),
        messages_per_partition=chance.choice([1, 700, 1 << 20]),
    )
    if sum(end - first for first, end in spans) // options.messages_per_partition > 10_000:
        options = replace(options, messages_per_partition=700)
    pieces = split(of(*spans), options)
    assert all(len(piece) for piece in pieces)
    assert split(of(*spans), options) == pieces
    total = sum(end - first for first, end in spans)
    assert len(pieces) >= min(options.min_partitions, total)
    most = options.messages_per_partition
    assert max(map(len, pieces), default=0) <= (most if most <= 2_000 else most + 1_000)
    for place, (first, end) in enumerate(spans):
        mine = [piece for piece in pieces if piece.stream == f"s{place}"]
        bounds = [first, *(piece.end for piece in mine)]
        assert [piece.first for piece in mine] == bounds[:-1]
        assert bounds[-1] == end


def test_few_messages_are_one_task_and_many_are_cut_at_nodes() -> None:
    assert split(of((5, 5)), OPTIONS) == []
    assert split(of((5, 9)), OPTIONS) == of((5, 9))
    assert [len(piece) for piece in split(of((1, 45_001)), OPTIONS)] == [22_000, 23_000]
    assert len(split(of((1, 200_001)), OPTIONS)) == 4, "two tasks a core"
    assert len(split(of((1, 10_000_001)), OPTIONS)) == 10, "a million each"
    assert len(split(of((1, 3)), replace(OPTIONS, min_partitions=5))) == 2, "no more than there are messages"


def granted(waiting: list[int], most: int, turn: int = 0) -> list[int]:
    wholes = {one.stream: one for one in of(*((7, 7 + count) for count in waiting))}
    return [len(one) for one in share(wholes, most, turn=turn).values()]


def test_a_busy_stream_does_not_starve_the_others() -> None:
    assert granted([1_000_000, 3, 0, 50], 100) == [49, 3, 0, 48]
    assert granted([2, 3, 4], 100) == [2, 3, 4]
    assert granted([9, 9, 9], 10) == [3, 3, 4]
    assert granted([5], 2) == [2]


def test_with_fewer_messages_than_streams_all_have_their_turn() -> None:
    offsets = [1, 1, 1, 1, 1]
    for _ in range(5):
        for place, count in enumerate(granted([1_000_000, 5, 5, 0, 5], 3, turn=sum(offsets))):
            offsets[place] += count
    assert sum(offsets) == 5 + 15
    assert min(offsets[place] for place in (0, 1, 2, 4)) >= 3
