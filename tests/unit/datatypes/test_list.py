"""The list type against a Python list: random operations, then the rows on disk (L1, I1, I2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import SystemClock
from penstock.engine.changes import Changes
from penstock.engine.datatypes.list import List
from penstock.engine.keyspace import INLINE_DELETE_SIZE, Keyspace
from penstock.engine.storage.environment import open_environment
from penstock.engine.storage.layout import decode_index
from penstock.engine.storage.transaction import Unit

KEY = b"queue"


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
    yield ks
    ks.unit.abort()


def filled(ks: Keyspace, values: list[bytes]) -> List:
    items = ks.load_or_new(KEY, List)
    items.push_right(values)
    items.save()
    return items


def rows(ks: Keyspace) -> list[tuple[int, bytes]]:
    """(index, element) of every list row in the store."""
    return [(decode_index(row[9:]), value) for row, value in ks.unit.rows(ks.data, b"")]


def check(ks: Keyspace, model: list[bytes]) -> None:
    """What is stored is the model, and nothing else."""
    items = ks.load(KEY, List)
    found = rows(ks)
    if not model:
        assert items is None
        assert found == []
        return
    assert items is not None
    assert len(items) == len(model)
    assert list(items) == model
    first = found[0][0]
    assert found == [(first + n, value) for n, value in enumerate(model)]


# ------------------------------------------------------------------------------ model

ELEMENTS = st.sampled_from([b"a", b"b", b"c", b""])
NUMBERS = st.integers(0, 1 << 16)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["push_left", "push_right"]), st.lists(ELEMENTS, min_size=1, max_size=6)),
    st.tuples(st.sampled_from(["pop_left", "pop_right"])),
    st.tuples(st.sampled_from(["take_left", "take_right"]), st.integers(0, 12)),
    st.tuples(st.just("set"), NUMBERS, ELEMENTS),
    st.tuples(st.just("insert"), NUMBERS, ELEMENTS),
    st.tuples(st.just("remove"), st.sets(NUMBERS, max_size=4)),
    st.tuples(st.just("keep"), NUMBERS, NUMBERS),
)


def apply(operation: str, arguments: tuple[Any, ...], items: List, model: list[bytes]) -> None:
    """The same change to both; numbers become positions by the length that the list has."""
    if operation == "push_left":
        items.push_left(arguments[0])
        model[:0] = arguments[0][::-1]
    elif operation == "push_right":
        items.push_right(arguments[0])
        model.extend(arguments[0])
    elif operation in ("take_left", "take_right"):
        count = arguments[0]
        taken = model[:count] if operation == "take_left" else model[::-1][:count]
        assert getattr(items, operation)(count) == taken
        model[:] = model[count:] if operation == "take_left" else model[: max(0, len(model) - count)]
    elif operation == "insert":
        position = arguments[0] % (len(model) + 1)
        items.insert(position, arguments[1])
        model.insert(position, arguments[1])
    elif operation == "remove":
        positions = sorted({number % len(model) for number in arguments[0]}) if model else []
        items.remove(positions)
        model[:] = [value for position, value in enumerate(model) if position not in positions]
    elif operation == "keep":
        start, stop = (number % (len(model) + 1) for number in arguments)
        items.keep(start, stop)
        model[:] = model[start:stop]
    elif model and operation == "set":
        items[arguments[0] % len(model)] = arguments[1]
        model[arguments[0] % len(model)] = arguments[1]
    elif model:
        assert getattr(items, operation)() == model.pop(0 if operation == "pop_left" else -1)


@given(st.lists(st.tuples(OPERATIONS, st.booleans()), max_size=30))
def test_behaves_like_a_python_list(ks: Keyspace, steps: list[tuple[tuple[Any, ...], bool]]) -> None:
    ks.unit.begin(write=True)
    try:
        model: list[bytes] = []
        items = ks.load_or_new(KEY, List)
        for (operation, *arguments), reload in steps:
            apply(operation, tuple(arguments), items, model)
            items.save()
            check(ks, model)
            if reload or not model:
                items = ks.load_or_new(KEY, List)
    finally:
        ks.unit.abort()


@given(
    values=st.lists(ELEMENTS, max_size=20),
    wanted=ELEMENTS,
    backwards=st.booleans(),
    skip=st.integers(0, 5),
    limit=st.integers(0, 5),
    window=st.integers(0, 25),
)
def test_find_equals_a_naive_search(
    ks: Keyspace, values: list[bytes], wanted: bytes, backwards: bool, skip: int, limit: int, window: int
) -> None:
    ks.unit.begin(write=True)
    try:
        items = filled(ks, values)
        order = list(enumerate(values))
        if backwards:
            order.reverse()
        if window:
            order = order[:window]
        matches = [position for position, value in order if value == wanted][skip:]
        expected = matches[:limit] if limit else matches
        assert items.find(wanted, backwards=backwards, skip=skip, limit=limit, window=window) == expected
    finally:
        ks.unit.abort()


# ------------------------------------------------------------------------------ places


@pytest.mark.parametrize("position", [0, 1, 4, 8, 9])
def test_positions_are_direct_after_growth_at_both_ends(fresh: Keyspace, position: int) -> None:
    items = fresh.load_or_new(KEY, List)
    items.push_left([b"4", b"3", b"2", b"1", b"0"])
    items.push_right([b"5", b"6", b"7", b"8", b"9"])
    assert items[position] == b"%d" % position


def test_slices_are_half_open_and_may_be_empty(fresh: Keyspace) -> None:
    items = filled(fresh, [b"a", b"b", b"c"])
    assert items.slice(0, 3) == [b"a", b"b", b"c"]
    assert items.slice(1, 2) == [b"b"]
    assert items.slice(2, 2) == []


def test_neighbours_in_the_table_stay_out_of_scans(fresh: Keyspace) -> None:
    before = fresh.load_or_new(b"before", List)
    items = fresh.load_or_new(KEY, List)
    after = fresh.load_or_new(b"after", List)
    for collection, value in ((before, b"x"), (items, b"mine"), (after, b"x")):
        collection.push_right([value, value])
        collection.save()
    assert list(items) == [b"mine", b"mine"]
    assert items.find(b"x") == items.find(b"x", backwards=True) == []


@pytest.mark.parametrize(("position", "expected_first"), [(1, -1), (8, 0)])
def test_insertion_moves_the_shorter_side(fresh: Keyspace, position: int, expected_first: int) -> None:
    items = filled(fresh, [b"%d" % n for n in range(10)])
    items.insert(position, b"new")
    items.save()
    assert rows(fresh)[0][0] == expected_first


@pytest.mark.parametrize(("position", "expected_first"), [(1, 1), (8, 0)])
def test_removal_moves_the_shorter_side(fresh: Keyspace, position: int, expected_first: int) -> None:
    items = filled(fresh, [b"%d" % n for n in range(10)])
    items.remove([position])
    items.save()
    assert rows(fresh)[0][0] == expected_first


# ----------------------------------------------------------------------------- removal


def test_taking_a_long_list_whole_leaves_its_rows_to_the_sweeper(fresh: Keyspace) -> None:
    values = [b"%d" % n for n in range(INLINE_DELETE_SIZE + 1)]
    items = filled(fresh, values)
    assert items.take_left(1 << 40) == values
    items.save()
    assert not fresh.exists(KEY)
    assert fresh.unit.entries(fresh.unit.tables["garbage"]) == 1


def test_a_list_emptied_before_its_first_save_leaves_nothing(fresh: Keyspace) -> None:
    items = fresh.load_or_new(KEY, List)
    items.push_right([b"a", b"b"])
    items.clear()
    items.save()
    check(fresh, [])


def test_a_list_made_anew_does_not_see_the_old_elements(fresh: Keyspace) -> None:
    filled(fresh, [b"old"] * (INLINE_DELETE_SIZE + 1))
    fresh.delete(KEY)
    assert list(filled(fresh, [b"new"])) == [b"new"]


def test_the_deadline_survives_changes(fresh: Keyspace) -> None:
    filled(fresh, [b"a"])
    deadline_ms = fresh.unit.now_ms + 60_000
    fresh.set_deadline(KEY, deadline_ms)
    filled(fresh, [b"b"])
    assert fresh.deadline_of(KEY) == deadline_ms
    items = fresh.load(KEY, List)
    assert items is not None
    assert list(items) == [b"a", b"b"]
