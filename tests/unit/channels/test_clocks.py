"""The arithmetic of clocks, also that of the scripts, against counting one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.channels
from penstock.channels.clocks import MAX, MIN, distance, following, is_unread
from penstock.engine import Engine, LocalSession

CLOCKS = st.one_of(
    st.integers(MIN, MIN + 5), st.integers(MAX - 5, MAX), st.integers(-5, 5), st.integers(MIN, MAX)
)
EDGES = [MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX]


def test_the_range_is_that_of_exact_numbers() -> None:
    assert (MAX, MIN) == (9007199254740991, -9007199254740991)
    assert float(MAX) + 1 != float(MAX)


def test_after_the_largest_comes_the_smallest() -> None:
    assert [following(clock) for clock in (MIN, -1, 0, MAX - 1, MAX)] == [MIN + 1, 0, 1, MAX, MIN]


@given(start=CLOCKS, steps=st.integers(0, 12))
def test_distance_counts_steps(start: int, steps: int) -> None:
    clock = start
    for _ in range(steps):
        clock = following(clock)
    assert MIN <= clock <= MAX
    assert distance(start, clock) == steps


@given(cursor=CLOCKS, unread=st.integers(0, 8), clock=CLOCKS)
def test_unread_is_what_lies_between(cursor: int, unread: int, clock: int) -> None:
    between, last = set(), cursor
    for _ in range(unread):
        last = following(last)
        between.add(last)
    assert is_unread(clock, cursor, last) == (clock in between)
    assert all(is_unread(each, cursor, last) for each in between)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSession]:
    path = tmp_path_factory.mktemp("clocks") / "store.pen"
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        yield session


def _run(session: LocalSession, line: str, *clocks: int) -> object:
    common = (Path(penstock.channels.__file__).parent / "lua" / "common.lua").read_text()
    return session.execute("EVAL", f"{common}\n{line}", 0, *clocks)


def test_the_scripts_do_the_same(session: LocalSession) -> None:
    for cursor, last, clock in itertools.product(EDGES, repeat=3):
        line = "return common.is_unread(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])) and 1 or 0"
        assert _run(session, line, clock, cursor, last) == int(is_unread(clock, cursor, last))
    for cursor, last in itertools.product(EDGES, repeat=2):
        line = "return common.text(common.distance(tonumber(ARGV[1]), tonumber(ARGV[2])))"
        reply = _run(session, line, cursor, last)
        assert isinstance(reply, bytes)
        exact = distance(cursor, last)
        assert int(reply) == exact if exact <= MAX else int(reply) > MAX
    for clock in EDGES:
        line = "return common.text(common.following(tonumber(ARGV[1])))"
        assert _run(session, line, clock) == str(following(clock)).encode()
