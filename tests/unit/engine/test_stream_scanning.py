"""Scanning a stream in the engine: which blocks there are, and what time and size make of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any, cast

import pytest

from penstock.clock import ManualClock
from penstock.engine.datatypes.stream import Stream, nodes
from penstock.engine.datatypes.stream.scanning import Scanner
from tests.columns import rows_of, size_of
from tests.unit.engine.stream_clients import Client, write

LARGE = 2**32


def blocks(do: Client, first: int = 0, last: int = 2**64 - 1, *options: Any) -> list[Any]:
    return cast("list[Any]", do("TSCAN", "k", first, last, *options)[2:])


def scanned(do: Client) -> list[Any]:
    return [row for block in blocks(do) for row in rows_of(block)]


def read(do: Client) -> Any:
    return do("TREAD", "k", 0, 1_000_000, "SKIPNULL", "WITHTIME")


def write_many(do: Client, count: int, tag: str = "t") -> None:
    do("TWRITE", "k", "ENTRIES", *[tag, "entry"] * count)


# ---------------------------------------------------------------------- blocks


def test_a_node_is_a_block_and_the_open_end_is_one(do: Client) -> None:
    write_many(do, 2_000)
    for size in (1, 1, 300, 7, 1):
        write_many(do, size)
    write(do, 20, tag="end")
    assert [(block[0], block[1]) for block in blocks(do)] == [
        (1, 1000), (1001, 1000), (2001, 2), (2003, 300), (2303, 28),
    ]  # fmt: skip
    assert [(block[0], block[1]) for block in blocks(do, 500, 1500)] == [(500, 501), (1001, 500)]
    assert scanned(do) == read(do)


def test_small_nodes_are_one_block_with_their_holes(do: Client) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    for tag in "aababbcccdabcdabcdef":
        do("TWRITE", "k", tag, tag)
    do("TWRITE", "k", "BACKLOG", 100, "TOMBSTONES", "f", "g")
    assert do("TCOMPACT", "k") > 8
    (block,) = blocks(do)
    assert block[3] is not None
    assert block[8] is not None
    assert rows_of(block) == read(do)
    (cut,) = blocks(do, 14, 18)
    assert rows_of(cut) == [row for row in read(do) if 14 <= row[0] <= 18]


def test_offsets_that_are_too_far_apart_end_a_block() -> None:
    class Rows:
        first, last = 1, 3 * LARGE

        def stored(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
            for base in (1, 2, LARGE + 1, 2 * LARGE + 1, 2 * LARGE + 2):
                yield base, nodes.encode_single(b"t", b"e", 5)

    found, following = Scanner(cast(Stream, Rows())).scan(0, 2**64 - 1)
    assert [[row[0] for row in rows_of(block)] for block in found] == [
        [1, 2, LARGE + 1],
        [2 * LARGE + 1, 2 * LARGE + 2],
    ]
    assert following == 3 * LARGE + 1


# ---------------------------------------------------------------------- times


@pytest.mark.parametrize("sleeps_ms", [[0, 5, 0, 70], [LARGE - 1, 1, 0], [LARGE, 0, 1], [1, 3 * LARGE, 2]])
@pytest.mark.parametrize("size", [1, 3, 400])
def test_times_however_long_a_stream_sleeps(
    do: Client, clock: ManualClock, sleeps_ms: list[int], size: int
) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 500)
    for sleep_ms in sleeps_ms * 2:
        write_many(do, size)
        write_many(do, 1)
        clock.advance_ms(sleep_ms)
    assert scanned(do) == read(do)
    first, *_, last = read(do)
    (cut,) = blocks(do, first[0] + 2, first[0] + 3)[:1]
    assert rows_of(cut)[0] == read(do)[2]
    assert last[3] - first[3] >= sum(sleeps_ms)


# ---------------------------------------------------------------------- sizes


def test_a_large_node_is_cut_to_what_was_asked_for(do: Client) -> None:
    do("TWRITE", "k", "ENTRIES", *[word for at in range(1000) for word in (f"{at}", "e" * at)])
    following, sizes = 1, []
    while following <= 1000:
        _, following, block = do("TSCAN", "k", following, 1000, "BYTES", 5_000)
        sizes.append(size_of(block))
    assert max(sizes[:-1]) <= 5_000
    assert min(sizes[:-1]) > 5_000 - 12 - 4 - 1000
    assert do("TSCAN", "k", 1, 1000)[1] == 1001


def test_a_message_that_is_larger_than_the_limit_comes_alone(do: Client) -> None:
    for size in (10, 9_000, 10, 9_000, 9_000):
        do("TWRITE", "k", "t", "e" * size)
    ends = []
    following = 1
    while following <= 5:
        _, following, *_ = do("TSCAN", "k", following, 9, "BYTES", 1_000)
        ends.append(following)
    assert ends == [2, 3, 4, 5, 6]


# ---------------------------------------------------------------------- by chance


@pytest.mark.parametrize("seed", range(6))
def test_by_chance_the_same_as_reading(do: Client, clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        change(do, chance)
        clock.advance_ms(chance.choice([0, 0, 1, 50, 2**31, LARGE]))
        rows = read(do)
        last = rows[-1][0] if rows else 0
        first, end = sorted((chance.randint(0, last + 1), chance.randint(0, last + 1)))
        limit = chance.choice([1, 400, 5_000, 1 << 20])
        following, found = first, []
        while following <= min(end, do("TREAD", "k", 0, 0, "WITHINFO")[0][1]):
            _, following, *page = do("TSCAN", "k", following, end, "BYTES", limit)
            found += [row for block in page for row in rows_of(block)]
            count = sum(block[1] for block in page)
            # joining may widen times, and add steps of offsets and bits
            assert sum(map(size_of, page)) <= limit + 9 * count or count == 1
        assert found == [row for row in rows if first <= row[0] <= end]


def change(do: Client, chance: random.Random) -> None:
    tags = [chance.choice(["", "a", "b", "cc", "ddd"]) for _ in range(chance.choice([1, 1, 2, 40, 900]))]
    match chance.randrange(7):
        case 0 | 1 | 2:
            for is_tomb, run in groupby(tags, lambda _: chance.random() < 0.1):
                if is_tomb:
                    do("TWRITE", "k", "BACKLOG", 10**6, "TOMBSTONES", *run)
                else:
                    words = [word for tag in run for word in (tag, chance.randbytes(chance.randrange(30)))]
                    do("TWRITE", "k", "ENTRIES", *words)
        case 3:
            for tag in tags[:30]:
                do("TWRITE", "k", tag, "one")
        case 4:
            do("TCOMPACT", "k")
        case 5:
            first, last = do("TREAD", "k", 0, 0, "WITHINFO")[0]
            do("TEVICT", "k", chance.randint(first, max(first, (first + last) // 2)))
        case 6:
            do("TPOLICY", "k", "NODE-MESSAGES", chance.choice([1, 2, 10, 300, 1000]))


# ---------------------------------------------------------------------- elsewhere


def test_inside_a_script_and_a_transaction(do: Client) -> None:
    write(do, 3)
    script = "local r = redis.call('TSCAN', KEYS[1], 1, 2) return {r[1], r[2], r[3][1], r[3][2], r[3][11]}"
    assert do("EVAL", script, 1, "k") == [[1, 3], 3, 1, 2, b"e1e2"]
    do("MULTI")
    do("TSCAN", "k", 2, 2)
    ((bounds, following, block),) = do("EXEC")
    assert (bounds, following, block[10]) == ([1, 3], 3, b"e2")
