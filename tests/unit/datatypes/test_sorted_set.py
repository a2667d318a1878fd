"""The sorted set against a dict: random changes, every way of reading, the rows on disk (Z1, Z2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import SystemClock
from penstock.engine.changes import Changes
from penstock.engine.datatypes.sorted_set import (
    ADDED,
    EMPTY_LEX_RANGE,
    MOVED,
    SAME,
    LexRange,
    ScoreRange,
    SortedSet,
    entries_of,
    members_of,
)
from penstock.engine.keyspace import Keyspace
from penstock.engine.storage.environment import open_environment
from penstock.engine.storage.layout import decode_score, encode_score, fit, physical
from penstock.engine.storage.transaction import Unit

KEY = b"board"
INF = math.inf
#: The last four are at and beyond the length at which names are shortened; two agree in all
#: that stands in a row as it is.
MEMBERS = [b"", b"a", b"aa", b"b", b"b\0", b"\xff", b"m" * 449, b"m" * 450, b"m" * 451, b"z" * 900]
SCORES = [-INF, -1e300, -2.5, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.5, 2.0, 1e300, INF]


@pytest.fixture(scope="module")
def ks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyspace]:
    """A keyspace over one store; tests open and abort units of their own."""
    env = open_environment(tmp_path_factory.mktemp("store"), "relaxed")
    yield Keyspace(Unit(env, SystemClock()), 0, Changes())
    env.close()


@pytest.fixture
def fresh(ks: Keyspace) -> Iterator[Keyspace]:
    """The keyspace inside a unit that is thrown away afterwards."""
    ks.unit.begin(write=True)
    # Neighbours in the table: walking must stop at them.
    for key in (b"before", b"after"):
        zset = ks.load_or_new(key, SortedSet)
        zset.fill([(b"a", 0.0), (b"b", 1.0)])
        zset.save()
    yield ks
    ks.unit.abort()


def filled(ks: Keyspace, entries: dict[bytes, float]) -> SortedSet:
    zset = ks.load_or_new(KEY, SortedSet)
    zset.fill(entries.items())
    zset.save()
    return zset


def ordered(model: dict[bytes, float]) -> list[tuple[bytes, float]]:
    return sorted(model.items(), key=lambda entry: (entry[1], fit(entry[0])))


def check_rows(ks: Keyspace, model: dict[bytes, float]) -> None:
    """Z1: both spaces hold exactly the model, and nothing else is left of the set."""
    zset = ks.load(KEY, SortedSet)
    if not model:
        assert zset is None
        assert list(ks.unit.rows(ks.data, b"")) == []
        return
    assert zset is not None
    version = zset._version
    by_member, by_score = {}, {}
    for row, value in ks.unit.rows(ks.data, b""):
        assert row[:8] == version
        if row[8:9] == b"m":
            by_member[row[9:]] = value[-8:]
        else:
            assert row[8:9] == b"s"
            by_score[row[9:]] = value
    assert by_member == {physical(member): encode_score(score) for member, score in model.items()}
    assert by_score == {
        encode_score(score) + fit(member): member if len(member) >= 450 else b""
        for member, score in model.items()
    }
    assert zset.size == len(model)


# ------------------------------------------------------------------------------ model

MEMBER = st.sampled_from(MEMBERS)
SCORE = st.sampled_from(SCORES)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), MEMBER, SCORE),
    st.tuples(st.just("put"), MEMBER, SCORE),
    st.tuples(st.just("fill"), st.dictionaries(MEMBER, SCORE)),
    st.tuples(st.just("remove"), MEMBER),
    st.tuples(st.just("pop"), st.booleans()),
    st.tuples(st.just("take"), st.integers(0, 4), st.booleans()),
)


def apply(operation: str, arguments: tuple[Any, ...], zset: SortedSet, model: dict[bytes, float]) -> None:
    if operation == "put":
        member, score = arguments
        old = model.get(member)
        assert zset.put(member, score) == (ADDED if old is None else SAME if old == score else MOVED)
        model[member] = score + 0.0
    elif operation == "fill":
        new = {member: score + 0.0 for member, score in arguments[0].items() if member not in model}
        zset.fill(new.items())
        model |= new
    elif operation == "remove":
        assert zset.remove(arguments[0]) == (model.pop(arguments[0], None) is not None)
    elif operation == "pop":
        if model:
            expected_entry = ordered(model)[-1 if arguments[0] else 0]
            assert zset.pop(arguments[0]) == expected_entry
            del model[expected_entry[0]]
    else:
        count, highest = arguments
        expected = (ordered(model)[::-1] if highest else ordered(model))[:count]
        rows = zset.rows_by_rank(0, count, highest)
        assert entries_of(rows) == expected
        zset.remove_rows(rows)
        for member, _ in expected:
            del model[member]


@given(st.lists(OPERATIONS, max_size=25))
def test_changes_keep_both_orders_in_step(ks: Keyspace, steps: list[tuple[Any, ...]]) -> None:
    ks.unit.begin(write=True)
    try:
        model: dict[bytes, float] = {}
        for operation, *arguments in steps:
            zset = ks.load_or_new(KEY, SortedSet)
            apply(operation, tuple(arguments), zset, model)
            zset.save()
            check_rows(ks, model)
    finally:
        ks.unit.abort()


@given(
    st.dictionaries(MEMBER, SCORE, min_size=1), st.integers(0, 12), st.integers(0, 12), st.booleans(), MEMBER
)
def test_ranks(
    ks: Keyspace, entries: dict[bytes, float], start: int, stop: int, reverse: bool, member: bytes
) -> None:
    ks.unit.begin(write=True)
    try:
        zset = filled(ks, entries)
        expected = ordered(entries)
        assert zset.entries() == expected
        listed = expected[::-1] if reverse else expected
        assert members_of(zset.rows_by_rank(start, stop, reverse)) == [name for name, _ in listed[start:stop]]
        ranks = {name: rank for rank, (name, _) in enumerate(expected)}
        assert zset.rank(member) == ranks.get(member)
        assert zset.score(member) == entries.get(member)
    finally:
        ks.unit.abort()


@given(
    st.dictionaries(MEMBER, SCORE, min_size=1),
    st.tuples(SCORE, st.booleans(), SCORE, st.booleans()),
    st.booleans(),
    st.integers(0, 5),
    st.none() | st.integers(0, 5),
)
def test_ranges_of_scores(
    ks: Keyspace,
    entries: dict[bytes, float],
    ends: tuple[float, bool, float, bool],
    reverse: bool,
    skip: int,
    limit: int | None,
) -> None:
    low, low_open, high, high_open = ends

    def inside(score: float) -> bool:
        return (low < score if low_open else low <= score) and (score < high if high_open else score <= high)

    ks.unit.begin(write=True)
    try:
        zset = filled(ks, entries)
        expected = [entry for entry in ordered(entries) if inside(entry[1])]
        within = ScoreRange(*ends)
        assert zset.count_by_score(within) == len(expected)
        assert list(zset.iterate_by_score(within)) == expected
        listed = expected[::-1] if reverse else expected
        stop = None if limit is None else skip + limit
        assert entries_of(zset.rows_by_score(within, reverse, skip, limit)) == listed[skip:stop]
    finally:
        ks.unit.abort()


@given(
    st.sets(MEMBER, min_size=1),
    SCORE,
    st.tuples(MEMBER, st.booleans(), st.none() | MEMBER, st.booleans()),
    st.booleans(),
    st.integers(0, 5),
    st.none() | st.integers(0, 5),
)
def test_ranges_of_members_of_one_score(
    ks: Keyspace,
    members: set[bytes],
    score: float,
    ends: tuple[bytes, bool, bytes | None, bool],
    reverse: bool,
    skip: int,
    limit: int | None,
) -> None:
    low, low_open, high, high_open = ends

    def inside(member: bytes) -> bool:
        if member < low or (low_open and member == low):
            return False
        return high is None or (member < high if high_open else member <= high)

    ks.unit.begin(write=True)
    try:
        zset = filled(ks, dict.fromkeys(members, score))
        expected = [member for member in sorted(members, key=fit) if inside(member)]
        within = LexRange(*ends)
        assert zset.count_by_lex(within) == len(expected)
        listed = expected[::-1] if reverse else expected
        stop = None if limit is None else skip + limit
        assert members_of(zset.rows_by_lex(within, reverse, skip, limit)) == listed[skip:stop]
    finally:
        ks.unit.abort()


# --------------------------------------------------------------------------- by hand


def test_walks_stop_at_the_neighbours(fresh: Keyspace) -> None:
    zset = filled(fresh, {b"a": 0.5, b"b": 0.5})
    after = fresh.load_or_new(b"later", SortedSet)
    after.fill([(b"a", 0.5)])
    after.save()
    everything = ScoreRange(-INF, False, INF, False)
    for reverse in (False, True):
        listed = [(b"b", 0.5), (b"a", 0.5)] if reverse else [(b"a", 0.5), (b"b", 0.5)]
        assert entries_of(zset.rows_by_score(everything, reverse)) == listed
        assert entries_of(zset.rows_by_rank(0, 100, reverse)) == listed
        assert members_of(zset.rows_by_lex(LexRange(b"", False, None, True), reverse)) == [
            m for m, _ in listed
        ]
    assert zset.rank(b"a") == 0
    assert zset.rank(b"b") == 1


@pytest.mark.parametrize("size", [127, 128, 129, 256, 1000])
def test_ranks_in_a_large_set_from_both_ends(fresh: Keyspace, size: int) -> None:
    names = [b"%04d" % number for number in range(size)]
    zset = filled(fresh, {name: float(number) for number, name in enumerate(names)})
    assert [zset.rank(name) for name in names] == list(range(size))
    assert members_of(zset.rows_by_rank(size - 3, size)) == names[-3:]
    assert members_of(zset.rows_by_rank(size - 3, size, True)) == names[2::-1]
    assert members_of(zset.rows_by_rank(size // 2, size // 2 + 2)) == names[size // 2 : size // 2 + 2]


def test_negative_zero_is_zero(fresh: Keyspace) -> None:
    zset = fresh.load_or_new(KEY, SortedSet)
    assert zset.put(b"a", -0.0) == ADDED
    assert math.copysign(1.0, zset.score(b"a") or 0.0) == 1.0
    assert zset.put(b"a", 0.0) == SAME


def test_a_lex_range_over_different_scores_is_what_lies_between(fresh: Keyspace) -> None:
    zset = filled(fresh, {b"c": 1.0, b"a": 2.0, b"d": 3.0, b"b": 4.0})
    within = LexRange(b"b", False, b"c", False)
    assert members_of(zset.rows_by_lex(within)) == [b"c", b"a"]
    assert members_of(zset.rows_by_lex(within, reverse=True)) == [b"b", b"d"]
    assert zset.count_by_lex(within) == 2
    assert zset.rows_by_lex(LexRange(b"c", False, b"d", False)) == []  # the last member is below
    assert zset.rows_by_lex(LexRange(b"a", False, b"b", False)) == []  # the first member is above


def test_empty_lex_ranges(fresh: Keyspace) -> None:
    zset = filled(fresh, {b"": 0.0, b"a": 0.0})
    for within in (EMPTY_LEX_RANGE, LexRange(b"b", False, b"a", False), LexRange(b"a", True, b"a", False)):
        assert zset.rows_by_lex(within) == []
        assert zset.count_by_lex(within) == 0


def test_removing_every_row_removes_the_key(fresh: Keyspace) -> None:
    names = [b"%d" % number for number in range(500)]
    zset = filled(fresh, {name: float(name) for name in names})
    zset.remove_rows(zset.rows_by_rank(0, 500))
    zset.save()
    assert fresh.load(KEY, SortedSet) is None


def test_scanning_sees_every_member_once(fresh: Keyspace) -> None:
    model = {b"%d" % number: float(number) for number in range(300)} | {b"x" * 500: 7.0}
    zset = filled(fresh, model)
    found: list[tuple[bytes, float]] = []
    cursor = 0
    while True:
        cursor, step = zset.scan(cursor, 10, lambda member, place: (member, decode_score(place)))
        found += step
        if cursor == 0:
            break
    assert len(found) == len(model)
    assert dict(found) == model


def test_random_picks_carry_their_scores(fresh: Keyspace) -> None:
    model = {b"%d" % number: float(number) for number in range(300)}
    zset = filled(fresh, model)
    picked = {member: decode_score(place) for member, place in zset.sample(50)}
    assert len(picked) == 50
    assert picked.items() <= model.items()
