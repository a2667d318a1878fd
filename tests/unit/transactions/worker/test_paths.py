"""Paths into data: what is put there is found there, and nobody's data is changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.transactions.worker.paths import MISSING, drop_path, get_path, put_into, set_path

NAMES = st.sampled_from(["a", "b", "order", "0", "1", "2", "01", "-1", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(".".join)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)
CONTAINERS = st.dictionaries(NAMES, VALUES, max_size=4) | st.lists(VALUES, max_size=3)


def leaves(data: Any, way: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every scalar and empty container, by its way."""
    inner = (
        data.items() if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else ()
    )
    if not inner:
        return {way: data}
    return {place: leaf for key, value in inner for place, leaf in leaves(value, (*way, str(key))).items()}


@given(CONTAINERS | st.none(), PATHS, VALUES)
def test_what_was_set_is_there(data: Any, path: str, value: Any) -> None:
    before = copy.deepcopy(data)
    try:
        made = set_path(data, path, value)
    except UsageError:
        made = None
    assert data == before
    assume(made is not None)
    assert get_path(made, path) == value
    assert made is not data


@given(CONTAINERS, PATHS, VALUES)
def test_everything_else_stays(data: Any, path: str, value: Any) -> None:
    try:
        made = set_path(data, path, value)
    except UsageError:
        assume(False)
    parts = tuple(path.split("."))
    after = leaves(made)
    for way, leaf in leaves(data).items():
        is_on_the_way = way == parts[: len(way)] or way[: len(parts)] == parts
        if not is_on_the_way:
            assert after[way] == leaf


@given(CONTAINERS, PATHS)
def test_a_refusal_is_for_what_stands_in_the_way(data: Any, path: str) -> None:
    """Nothing that could be read is refused, nor what has only objects and nothing on its way."""
    parts = path.split(".")
    way: Any = data
    is_free = True
    for part in parts:
        if isinstance(way, list):
            is_free = part in [str(number) for number in range(len(way) + 1)]
        elif way is not None and way is not MISSING and not isinstance(way, dict):
            is_free = False
        if not is_free:
            break
        way = get_path(way, part)
    if is_free:
        set_path(data, path, 1)
    else:
        assert get_path(data, path) is MISSING
        with pytest.raises(UsageError, match="cannot be written"):
            set_path(data, path, 1)


@given(CONTAINERS, PATHS)
def test_what_was_dropped_is_gone(data: Any, path: str) -> None:
    before = copy.deepcopy(data)
    made = drop_path(data, path)
    assert data == before
    if get_path(data, path) is MISSING:
        assert made is data
        return
    parent, _, last = path.rpartition(".")
    old, new = (get_path(data, parent), get_path(made, parent)) if parent else (data, made)
    assert len(new) == len(old) - 1
    if isinstance(old, dict):
        assert get_path(made, path) is MISSING
        assert new == {name: value for name, value in old.items() if name != last}
    else:
        assert new == old[: int(last)] + old[int(last) + 1 :]


ORDER = {"order": {"items": [{"price": 5}, {"price": None}], "no": False}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("order.items.0.price", 5),
        ("order.items.1.price", None),
        ("order.no", False),
        ("order.items.2.price", MISSING),
        ("order.items.-1.price", MISSING),
        ("order.items.00.price", MISSING),
        ("order.items.٠.price", MISSING),
        ("order.items.99999999999999999999", MISSING),
        ("order.items.price", MISSING),
        ("order.items.0.price.unit", MISSING),
        ("order.items.1.price.unit", MISSING),
        ("order.name", MISSING),
    ],
)
def test_reading(path: str, value: Any) -> None:
    assert get_path(ORDER, path) is value or get_path(ORDER, path) == value
    assert (get_path(ORDER, path) is MISSING) == (value is MISSING)


def test_writing_makes_objects_and_appends() -> None:
    assert set_path({}, "a.0.b", 1) == {"a": {"0": {"b": 1}}}
    assert set_path(None, "a.b", 1) == {"a": {"b": 1}}
    assert set_path({"a": None}, "a.b", 1) == {"a": {"b": 1}}
    assert set_path({"a": [1, 2]}, "a.2.b", 3) == {"a": [1, 2, {"b": 3}]}
    assert set_path([{"x": 1}], "0.x", 2) == [{"x": 2}]


def test_writing_copies_the_way_and_shares_the_rest() -> None:
    data = {"way": {"beside": [1]}, "rest": [2]}
    made = set_path(data, "way.new", 3)
    assert made["way"] is not data["way"]
    assert made["way"]["beside"] is data["way"]["beside"]
    assert made["rest"] is data["rest"]


@pytest.mark.parametrize(
    ("data", "path", "text"),
    [
        ({"a": {"b": "text"}}, "a.b.c", "'a.b' is a string"),
        ({"a": 0}, "a.b", "'a' is an integer"),
        ({"a": False}, "a.b", "'a' is a boolean"),
        (1.5, "a", "the data is a number"),
        ({"a": [1]}, "a.2", "a is an array of 1"),
        ({"a": [1]}, "a.b", "a is an array of 1"),
        ([], "b", "the data is an array of 0"),
    ],
)
def test_a_blocked_way_is_named(data: Any, path: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        set_path(data, path, 1)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b"])
def test_what_is_no_path(path: str) -> None:
    for use in (lambda: get_path({}, path), lambda: set_path({}, path, 1), lambda: drop_path({}, path)):
        with pytest.raises(UsageError, match="one dot between"):
            use()


def test_depth_is_not_bounded_by_recursion() -> None:
    path = ".".join(["a"] * 5_000)
    deep = set_path({}, path, 7)
    assert get_path(deep, path) == 7
    assert get_path(drop_path(deep, path), path) is MISSING


def test_an_answer_replaces_the_data_or_goes_into_it() -> None:
    assert put_into({"a": 1}, None, [2]) == [2]
    assert put_into({"a": 1}, None, None) is None
    assert put_into({"a": 1}, "b.c", None) == {"a": 1, "b": {"c": None}}
