"""Rearranging data, and saying what is wrong with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.errors import StepFailedError
from penstock.transactions.pipelines.steps import CheckFields, FieldCheck, MapFields
from penstock.transactions.worker.fields import MAX_SCALE, MAX_UNKNOWN, check_fields, map_fields

# ----------------------------------------------------------------------------------------------- mapping


def test_copies_then_sets_then_drops() -> None:
    data = {"name": "Ada", "address": {"city": "London", "zip": "N1"}, "junk": 1}
    before = copy.deepcopy(data)
    step = MapFields(
        copy={"customer.name": "name", "customer.city": "address.city"},
        set={"customer.city": "Paris", "source": "web"},
        drop=["name", "junk", "address.zip", "source", "not.there"],
    )
    assert map_fields(step, data) == {
        "address": {"city": "London"},
        "customer": {"name": "Ada", "city": "Paris"},
    }
    assert data == before


def test_without_the_rest_only_what_is_named_stays() -> None:
    step = MapFields(copy={"a.b": "x", "c": "y.z"}, set={"d": [1]}, keep_rest=False)
    assert map_fields(step, {"x": 1, "y": {"z": None}, "rest": 2}) == {"a": {"b": 1}, "c": None, "d": [1]}
    assert map_fields(step, "text") == {"d": [1]}


def test_two_fields_change_places() -> None:
    assert map_fields(MapFields(copy={"a": "b", "b": "a"}), {"a": 1, "b": 2}) == {"a": 2, "b": 1}


def test_a_source_that_is_not_there_is_passed_over() -> None:
    assert map_fields(MapFields(copy={"a": "nowhere", "b": "a"}), {"a": 1}) == {"a": 1, "b": 1}


def test_a_blocked_way_fails_the_step() -> None:
    with pytest.raises(StepFailedError, match="'a' is an integer") as caught:
        map_fields(MapFields(set={"a.b": 1}), {"a": 5})
    assert caught.value.names == ("FieldError",)


def test_the_values_of_the_step_are_not_written_to() -> None:
    step = MapFields(set={"a": {"b": 1}, "a.c": 2})
    assert map_fields(step, {}) == {"a": {"b": 1, "c": 2}}
    assert step.set["a"] == {"b": 1}


# ---------------------------------------------------------------------------------------------- checking


def problems(check: FieldCheck, value: Any) -> list[str]:
    report = check_fields(CheckFields(fields={"order.x": check}), {"order": {"x": value}})
    assert report.notes == []
    assert all(problem.startswith("order.x: must ") for problem in report.problems)
    return [problem.removeprefix("order.x: ") for problem in report.problems]


EUROS = {"currency": "EUR", "unscaledAmount": 1999, "scale": 2}
SAMPLES: dict[str, Any] = {
    "string": "text", "integer": 5, "number": 1.5, "boolean": True, "object": {}, "array": [],
    "amount": EUROS, "date": "2024-02-29",
}  # fmt: skip
#: Which samples are more than one thing.
ALSO = {"string": {"date"}, "number": {"integer"}, "object": {"amount"}}


@pytest.mark.parametrize("type", SAMPLES)
@pytest.mark.parametrize("sample", SAMPLES)
def test_types(type: Any, sample: str) -> None:
    found = problems(FieldCheck(type=type), SAMPLES[sample])
    is_right = type == sample or sample in ALSO.get(type, ())
    assert len(found) == (0 if is_right else 1), found
    assert problems(FieldCheck(), SAMPLES[sample]) == []


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("integer", 5.0),
        ("integer", "5"),
        ("date", "2023-02-29"),
        ("date", "2024-13-01"),
        ("date", "0000-01-01"),
        ("date", "20240229"),
        ("date", "2024-2-29"),
        ("date", "2024-02-29T00:00:00"),
        ("date", "2024-W09-4"),
        ("date", "٢٠٢٤-02-29"),
        ("date", "2024-02-29\n"),
        ("amount", EUROS | {"currency": "EURO"}),
        ("amount", EUROS | {"currency": "E1R"}),
        ("amount", EUROS | {"currency": None}),
        ("amount", EUROS | {"unscaledAmount": 19.99}),
        ("amount", EUROS | {"unscaledAmount": True}),
        ("amount", EUROS | {"unscaledAmount": "1999"}),
        ("amount", EUROS | {"scale": -1}),
        ("amount", EUROS | {"scale": MAX_SCALE + 1}),
        ("amount", EUROS | {"scale": 2.0}),
        ("amount", EUROS | {"scale": False}),
        ("amount", {}),
    ],
)
def test_wrong_values(type: Any, value: Any) -> None:
    assert len(problems(FieldCheck(type=type), value)) == 1


def test_every_fault_of_an_amount_is_in_its_sentence() -> None:
    [found] = problems(FieldCheck(type="amount"), {"currency": "€", "scale": 2})
    assert found == "must be an amount, its currency three letters and its unscaledAmount an integer"


def test_what_is_not_given() -> None:
    step = CheckFields(fields={"a": FieldCheck(), "b.c": FieldCheck(), "d": FieldCheck(is_required=False)})
    assert check_fields(step, {"a": None}).problems == ["a: must be given, not null", "b.c: must be given"]
    assert check_fields(step, {"a": 0, "b": {"c": ""}, "d": None}).problems == []
    assert check_fields(step, None).problems == ["a: must be given", "b.c: must be given"]
    assert problems(FieldCheck(values=[None, 1]), None) == []
    assert problems(FieldCheck(values=[1]), None) == ["must be given, not null"]
    optional = FieldCheck(type="integer", is_required=False)
    assert problems(optional, "x") == ["must be an integer, not a string"]


@pytest.mark.parametrize(
    ("values", "value", "is_one"),
    [
        (["a", "b"], "b", True),
        (["a", "b"], "c", False),
        ([1], True, False),
        ([True], 1, False),
        ([1], 1.0, True),
        ([[1, {"a": True}]], [1, {"a": True}], True),
        ([[1, {"a": True}]], [1, {"a": 1}], False),
        ([[1]], [1, 2], False),
        (["1"], 1, False),
    ],
)
def test_values(values: list[Any], value: Any, is_one: bool) -> None:
    found = problems(FieldCheck(values=values), value)
    assert (found == []) == is_one
    assert is_one or found[0].startswith("must be one of ")


def test_a_value_must_be_of_the_type_as_well() -> None:
    assert problems(FieldCheck(type="integer", values=["a"]), "a") == ["must be an integer, not a string"]


@pytest.mark.parametrize(
    ("value", "count"),
    [(1, 0), (3, 0), (2.5, 0), (0.99, 1), (3.01, 1), (float("nan"), 2), ("2", 1), ([], 1), ({"a": 1}, 1),
     (EUROS | {"unscaledAmount": 300}, 0), (EUROS | {"unscaledAmount": 301}, 1),
     (EUROS | {"unscaledAmount": 10**40, "scale": 40}, 0),
     (EUROS | {"unscaledAmount": 10**40 - 1, "scale": 40}, 1)],
)  # fmt: skip
def test_least_and_most(value: Any, count: int) -> None:
    assert len(problems(FieldCheck(min=1, max=3), value)) == count


def test_length_and_pattern() -> None:
    check = FieldCheck(type="string", max_length=4, pattern="[a-z]+")
    assert problems(check, "abcd") == []
    assert problems(check, "ABCDE") == [
        "must have at most 4 characters, not 5",
        "must be a string that matches [a-z]+",
    ]
    assert problems(FieldCheck(max_length=1), [1, 2]) == ["must have at most 1 items, not 2"]
    assert problems(FieldCheck(max_length=1), 5) == ["must be a string or an array, not an integer"]
    assert problems(FieldCheck(pattern="[0-9]+"), 5) == ["must be a string that matches [0-9]+"]


def test_all_problems_come_at_once_and_without_values() -> None:
    step = CheckFields(
        fields={
            "name": FieldCheck("string", max_length=3),
            "born": FieldCheck("date"),
            "items.0.price": FieldCheck("number", max=10),
            "mail": FieldCheck(pattern=".+@.+"),
        },
        unknown="fail",
    )
    data = {"name": "secret-name", "born": "secret-day", "items": [{"price": 11}], "mail": "secret", "x": 1}
    found = check_fields(step, data).problems
    assert [problem.partition(":")[0] for problem in found] == ["name", "born", "items.0.price", "mail", "x"]
    assert "secret" not in " ".join(found)


def test_what_is_no_object() -> None:
    step = CheckFields(fields={"a": FieldCheck(is_required=False)})
    assert check_fields(step, "text").problems == ["data: must be an object, not a string"]
    assert check_fields(step, False).problems == ["data: must be an object, not a boolean"]


# ----------------------------------------------------------------------------------------------- unknown

KNOWN = {"order.id": FieldCheck(), "order.extra": FieldCheck(), "items.0.x": FieldCheck(is_required=False)}
DATA = {
    "order": {"id": 1, "extra": {"anything": 1}, "more": 2},
    "order.id": 3,
    "items": [{"y": 1}],
    "other": {"id": 4},
}
STRANGERS = ["order.more", "order.id", "other"]


def test_unknown_fields() -> None:
    sentences = [f"{path}: is not known here, leave it out" for path in STRANGERS]
    ignored = check_fields(CheckFields(fields=KNOWN), DATA)
    noted = check_fields(CheckFields(fields=KNOWN, unknown="note"), DATA)
    failed = check_fields(CheckFields(fields=KNOWN, unknown="fail"), DATA)
    assert (ignored.problems, ignored.notes) == ([], [])
    assert (noted.problems, noted.notes) == ([], sentences)
    assert (failed.problems, failed.notes) == (sentences, [])


def test_many_unknown_fields_are_counted() -> None:
    data = {f"{number}" * 300: number for number in range(MAX_UNKNOWN + 7)}
    found = check_fields(CheckFields(fields={}, unknown="fail"), data).problems
    assert len(found) == MAX_UNKNOWN + 1
    assert found[-1] == "data: has 7 more fields that are not known here"
    assert max(map(len, found)) < 200
