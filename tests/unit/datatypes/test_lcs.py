"""Longest common subsequence: fixed answers, a textbook table, and LCS of a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.datatypes.lcs import TOO_LARGE, Match, length, matches, subsequence
from penstock.errors import CommandError
from tests.unit.datatypes.realserver import Peer, peer

short_strings = st.text("abc", max_size=12).map(str.encode)


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


def test_the_example_of_the_redis_manual() -> None:
    a, b = b"ohmytext", b"mynewtext"
    assert subsequence(a, b) == b"mytext"
    assert length(a, b) == 6
    assert matches(a, b) == ([Match(4, 7, 5, 8), Match(2, 3, 0, 1)], 6)
    assert matches(a, b, min_length=4) == ([Match(4, 7, 5, 8)], 6)
    assert [run.length for run in matches(a, b)[0]] == [4, 2]


@pytest.mark.parametrize(("a", "b"), [(b"", b""), (b"", b"abc"), (b"abc", b""), (b"abc", b"xyz")])
def test_nothing_in_common(a: bytes, b: bytes) -> None:
    assert (subsequence(a, b), length(a, b), matches(a, b)) == (b"", 0, ([], 0))


def _table_length(a: bytes, b: bytes) -> int:
    row = [0] * (len(b) + 1)
    for byte in a:
        diagonal = 0
        for index, other in enumerate(b):
            diagonal, row[index + 1] = (
                row[index + 1],
                diagonal + 1 if byte == other else max(row[index], row[index + 1]),
            )
    return row[-1]


@given(short_strings, short_strings)
def test_same_as_the_table(a: bytes, b: bytes) -> None:
    runs, total = matches(a, b)
    common = subsequence(a, b)
    assert length(a, b) == total == len(common) == _table_length(a, b)
    assert b"".join(a[run.a_first : run.a_last + 1] for run in reversed(runs)) == common
    assert b"".join(b[run.b_first : run.b_last + 1] for run in reversed(runs)) == common


def test_strings_too_large_for_the_table_are_refused() -> None:
    assert length(b"x" * 9, b"x" * 9, limit_bytes=400) == 9
    for use in (length, subsequence, matches):
        with pytest.raises(CommandError) as refused:
            use(b"x" * 9, b"x" * 10, limit_bytes=400)
        assert str(refused.value) == TOO_LARGE


@pytest.mark.parametrize(("a_size", "b_size"), [(11_000, 11_000), (3, 2_000_000), (2_000_000, 3)])
def test_large_strings_take_a_moment(a_size: int, b_size: int) -> None:
    # Cell by cell, the first of these would take a minute.
    assert length(b"ab" * (a_size // 2), b"ab" * (b_size // 2)) == min(a_size, b_size) // 2 * 2
    assert len(subsequence(b"ab" * (a_size // 2), b"ba" * (b_size // 2))) >= min(a_size, b_size) // 2 * 2 - 1


def test_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(13)
    cases = []
    for _ in range(2000):
        alphabet = chance.choice([b"ab", b"abc", b"abcdefgh"])
        a, b = (bytes(chance.choices(alphabet, k=chance.randint(0, 20))) for _ in range(2))
        cases.append((a, b, chance.randint(0, 4)))
    commands = [
        words
        for a, b, shortest in cases
        for words in (
            ("MSET", "a", a, "b", b),
            ("LCS", "a", "b"),
            ("LCS", "a", "b", "LEN"),
            ("LCS", "a", "b", "IDX", "MINMATCHLEN", shortest, "WITHMATCHLEN"),
        )
    ]
    replies = server.batch(commands)
    for index, (a, b, shortest) in enumerate(cases):
        runs, total = matches(a, b, shortest)
        ranges = [[[run.a_first, run.a_last], [run.b_first, run.b_last], run.length] for run in runs]
        expected = [subsequence(a, b), length(a, b), [b"matches", ranges, b"len", total]]
        assert replies[4 * index + 1 : 4 * index + 4] == expected, (a, b, shortest)


def test_the_limit_is_the_real_server_s(server: Peer) -> None:
    server.batch([("SET", "a", b"x" * 11_584), ("SET", "b", b"x" * 11_585)])
    assert str(server("LCS", "a", "b", "LEN")) == TOO_LARGE
    with pytest.raises(CommandError, match=TOO_LARGE):
        length(b"x" * 11_584, b"x" * 11_585)
    assert length(b"x" * 11_584, b"x" * 11_584) == 11_584
