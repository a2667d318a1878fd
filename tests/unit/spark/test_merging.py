"""Which pieces are merged: however a table grows, it has few of them and its rows are rewritten few times."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.lake.files import LakeFile
from penstock.lake.tables import TABLES
from penstock.spark.jobs.merging import MergeRule, Piece, chosen, layout_of, level_of, pieces_of

PLAIN, SUMS, DIGITS = layout_of("steps"), layout_of("stats_60s"), layout_of("transactions")


def file_of(path: str, rows: int, size_bytes: int = 100, **partition: str) -> LakeFile:
    return LakeFile(path, size_bytes, rows, partition, "{}", 0)


def piece_of(rows: int, size_bytes: int = 100, name: str = "a") -> Piece:
    return Piece((file_of(f"data/{name}/part.parquet", rows, size_bytes),))


@pytest.mark.parametrize("fan_in", [2, 3, 8])
def test_pieces_are_few_and_rows_are_rewritten_few_times(fan_in: int) -> None:
    rule = MergeRule(fan_in)
    dice = random.Random(fan_in)
    pieces: list[Piece] = []
    #: of every write: how often it was rewritten
    lifted: Counter[int] = Counter()
    members: dict[int, set[int]] = {}
    total = 0
    for number in range(600):
        rows = dice.choice([1, 1, 3, 40, 500])
        total += rows
        pieces.append(piece_of(rows))
        members[id(pieces[-1])] = {number}
        while merging := chosen(pieces, PLAIN, rule):
            assert len(merging) >= fan_in
            one = piece_of(sum(piece.rows for piece in merging))
            members[id(one)] = set().union(*(members[id(piece)] for piece in merging))
            lifted.update(members[id(one)])
            pieces = [piece for piece in pieces if piece not in merging] + [one]
        levels = Counter(level_of(piece.rows, fan_in) for piece in pieces)
        assert max(levels.values()) < fan_in
    assert sum(piece.rows for piece in pieces) == total
    assert max(lifted.values()) <= level_of(total, fan_in)


def test_a_full_level_takes_along_the_one_above_it() -> None:
    rule = MergeRule(3)
    small, large = (
        [piece_of(1, name=f"s{n}") for n in range(3)],
        [piece_of(4, name=f"l{n}") for n in range(2)],
    )
    assert chosen(small[:2] + large, PLAIN, rule) == []
    assert chosen(small + large, PLAIN, rule) == small + large
    # That one is not reached, and is a merge of its own.
    far = [piece_of(9, name=f"f{n}") for n in range(3)]
    assert chosen(small + far, PLAIN, rule) == small
    assert chosen(far, PLAIN, rule) == far


def test_what_is_large_is_left_alone() -> None:
    pieces = [piece_of(10, size_bytes=1_000) for _ in range(4)]
    assert chosen(pieces, PLAIN, MergeRule(2, file_bytes=1_000)) == []
    assert chosen(pieces, PLAIN, MergeRule(2, file_bytes=1_001)) == pieces
    # It is divided into sixteen files.
    assert chosen(pieces, DIGITS, MergeRule(2, file_bytes=63)) == pieces
    assert chosen(pieces, DIGITS, MergeRule(2, file_bytes=62)) == []


def test_sums_are_merged_whole_when_a_fourth_lies_outside() -> None:
    rule = MergeRule(8)
    assert chosen([piece_of(100), piece_of(24)], SUMS, rule) == []
    assert chosen([piece_of(100), piece_of(25)], SUMS, rule) == [piece_of(100), piece_of(25)]
    assert chosen([piece_of(100), piece_of(25)], PLAIN, rule) == []
    assert chosen([piece_of(100)], SUMS, rule) == chosen([], SUMS, rule) == []


def test_a_piece_is_what_one_write_has_left_in_a_partition() -> None:
    files = [
        file_of("data/a/in_day=1/x.parquet", 1, day="1"),
        file_of("data/a/in_day=2/x.parquet", 2, day="2"),
        file_of("data/a/in_day=2/y.parquet", 3, day="2"),
        file_of("data/b/in_day=2/x.parquet", 4, day="2"),
    ]
    assert pieces_of(files) == [[Piece((files[0],))], [Piece((files[1], files[2])), Piece((files[3],))]]
    assert pieces_of(files)[1][0].rows == 5


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_an_order_of_its_own_columns(name: str) -> None:
    assert set(layout_of(name).sorted_by) <= set(TABLES[name].schema.names)
