"""What is refused: every rule of definitions, with the path to the fault, all faults at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import DefinitionError
from penstock.transactions.pipelines import (
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Http,
    Map,
    MapFields,
    Parallel,
    Pipeline,
    Progress,
    Reply,
    Retry,
    Router,
    Wait,
    decode,
    dump,
    parse,
)
from penstock.transactions.pipelines.codec import MAX_DEFINITION_BYTES, MAX_TEXT_BYTES
from penstock.transactions.pipelines.steps import AnyStep

YEAR_MS = 366 * 24 * 3_600_000


def problems(definition: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        parse(definition)
    return caught.value.problems


@pytest.mark.parametrize(
    ("step", "path", "why"),
    [
        (Function("no spaces"), "steps[0].name", "must be 1 to 128 of the characters"),
        (Function("", id="x"), "steps[0].name", "must be 1 to 128"),
        (Function("x" * 129, id="x"), "steps[0].name", "must be 1 to 128"),
        (Function("f", id="a b"), "steps[0].id", "must be 1 to 128"),
        (Function("f", node_group="ü"), "steps[0].node_group", "must be 1 to 128"),
        (Function("f", compensate=""), "steps[0].compensate", "must be 1 to 128"),
        (Function("f", timeout_ms=0), "steps[0].timeout_ms", "1 to 31622400000 milliseconds, not 0"),
        (Function("f", note="x" * 2_001), "steps[0].note", "longer than 2000"),
        (Function("f", retry=Retry(limit=0)), "steps[0].retry.limit", "1 to 1000, not 0"),
        (Function("f", retry=Retry(backoff_ms=-1)), "steps[0].retry.backoff_ms", "0 to"),
        (Function("f", retry=Retry(factor=0.5)), "steps[0].retry.factor", "1 to 100"),
        (Function("f", retry=Retry(max_backoff_ms=-1)), "steps[0].retry.max_backoff_ms", "0 to"),
        (Function("f", retry=Retry(jitter=1.5)), "steps[0].retry.jitter", "0 to 1, not 1.5"),
        (Function("f", retry=Retry(on=())), "steps[0].retry.on", "must name errors"),
        (Function("f", retry=Retry(on=("a b",))), "steps[0].retry.on[0]", "must be 1 to 128"),
        (Function("f", retry=Retry(never=("*",))), "steps[0].retry.never[0]", "must be 1 to 128"),
        (Delay(), "steps[0]", "give either ms, or min_ms and max_ms"),
        (Delay(5, 1, 2), "steps[0]", "give either ms"),
        (Delay(min_ms=5), "steps[0]", "give either ms"),
        (Delay(min_ms=5, max_ms=4), "steps[0].max_ms", "must not be less than min_ms"),
        (Delay(0), "steps[0].ms", "must be 1 to"),
        (Delay(YEAR_MS + 1), "steps[0].ms", "must be 1 to"),
        (Delay(5, compensate="undo"), "steps[0].compensate", "no meaning for a step of type delay"),
        (Delay(5, timeout_ms=5), "steps[0].timeout_ms", "no meaning"),
        (Reply(retry=Retry()), "steps[0].retry", "no meaning for a step of type reply"),
        (Progress(1, compensate="undo"), "steps[0].compensate", "no meaning"),
        (Wait("s", compensate="undo"), "steps[0].compensate", "no meaning"),
        (Wait("a switch"), "steps[0].switch", "must be 1 to 128"),
        (Wait("s", into=".a"), "steps[0].into", "names of fields with dots"),
        (Wait("s", "continue"), "steps[0].on_timeout", "needs timeout_ms"),
        (MapFields({"": "a"}), "steps[0].copy", "names of fields"),
        (MapFields({"a": "b..c"}), "steps[0].copy.a", "names of fields"),
        (MapFields(set={"a.": 1}), "steps[0].set", "names of fields"),
        (MapFields(drop=["a", "x" * 257]), "steps[0].drop[1]", "names of fields"),
        (CheckFields({"a\n": FieldCheck()}), "steps[0].fields", "names of fields"),
        (CheckFields({"a": FieldCheck(min=2, max=1)}), "steps[0].fields.a.max", "must not be less than min"),
        (CheckFields({"a": FieldCheck(max_length=-1)}), "steps[0].fields.a.max_length", "less than 0"),
        (CheckFields({"a": FieldCheck(pattern=r"(a)\1")}), "steps[0].fields.a.pattern", "simple regular"),
        (Http("ftp://example.com"), "steps[0].url", "begins with http"),
        (Http("https://"), "steps[0].url", "begins with http"),
        (Http("https://h:x/"), "steps[0].url", "begins with http"),
        (Http("https://[::1/"), "steps[0].url", "begins with http"),
        (Http("https://h/a b"), "steps[0].url", "begins with http"),
        (Http("https://{host}/"), "steps[0].url", "must name its host itself"),
        (Http("https://h:{port}/"), "steps[0].url", "begins with http"),
        (Http("https://h/{a..b}"), "steps[0].url", "names of fields"),
        (Http("https://h/{a"), "steps[0].url", "without its partner"),
        (
            Http("https://h/", headers={"A": "b\r\nC: d"}),
            "steps[0].headers",
            "the value of a must be printable",
        ),
        (Http("https://user@h/"), "steps[0].url", "user"),
        (Http("https://h/", headers={"Idempotency-Key": "b"}), "steps[0].headers", "leave it out"),
        (Http("https://h/", headers={"Host": "b"}), "steps[0].headers", "must not set host"),
        (Http("https://h/", headers={"A:": "b"}), "steps[0].headers", "is no name of a header"),
        (Http("https://h/", body=""), "steps[0].body", "names of fields"),
        (Http("https://h/", into=""), "steps[0].into", "names of fields"),
        (Http("https://h/", expect=[200, 600]), "steps[0].expect[1]", "100 to 599"),
        (Child("a b"), "steps[0].pipeline", "must be 1 to 128"),
        (Child("a", "latest"), "steps[0].version", "20 hex digits"),
        (Child("a", into=""), "steps[0].into", "names of fields"),
        (Router("f"), "steps[0]", "give routes or a default"),
        (Router("", default="a"), "steps[0].field", "names of fields"),
        (Router("f", default="a b"), "steps[0].default", "must be 1 to 128"),
        (Router("f", {"x": ""}), "steps[0].routes.x", "must be 1 to 128"),
        (Router("f", default="a", into=""), "steps[0].into", "names of fields"),
        (Parallel({}), "steps[0].branches", "must be 1 to 100, not 0"),
        (Parallel({f"b{n}": ["f"] for n in range(101)}), "steps[0].branches", "must be 1 to 100, not 101"),
        (Parallel({"a": []}), "steps[0].branches.a", "at least one step"),
        (Parallel({"a.b": ["f"]}), "steps[0].branches", "'a.b' must be 1 to 64"),
        (Parallel({"eu": ["f", Delay(0)]}), "steps[0].branches.eu[1].ms", "must be 1 to"),
        (Map("", "p"), "steps[0].field", "names of fields"),
        (Map("a"), "steps[0]", "give either pipeline or steps"),
        (Map("a", "p", ["f"]), "steps[0]", "give either pipeline or steps"),
        (Map("a", steps=[]), "steps[0].steps", "at least one step"),
        (Map("a", "a b"), "steps[0].pipeline", "must be 1 to 128"),
        (Map("a", "p", at_once=0), "steps[0].at_once", "1 to 10000"),
        (Map("a", "p", into=""), "steps[0].into", "names of fields"),
        (Map("a", steps=[Delay(0)]), "steps[0].steps[0].ms", "must be 1 to"),
    ],
)
def test_a_step_that_makes_no_sense(step: AnyStep, path: str, why: str) -> None:
    (problem,) = problems(Pipeline("p", [step]))
    assert problem.startswith(f"{path}: ")
    assert why in problem


@pytest.mark.parametrize(
    ("pipeline", "path", "why"),
    [
        (Pipeline("", ["a"]), "name", "must be 1 to 128"),
        (Pipeline("a b", ["a"]), "name", "must be 1 to 128"),
        (Pipeline("p", []), "steps", "at least one step"),
        (Pipeline("p", ["a"], node_group="{x}"), "node_group", "must be 1 to 128"),
        (Pipeline("p", ["a"], description="x" * 2_001), "description", "longer"),
        (Pipeline("p", ["a"], deadline_ms=0), "deadline_ms", "must be 1 to"),
        (Pipeline("p", ["a"], priority=10), "priority", "0 to 9, not 10"),
        (Pipeline("p", ["a"], retry=Retry(limit=0)), "retry.limit", "1 to 1000"),
        (
            Pipeline("p", ["a"], input=CheckFields({"a": FieldCheck(min=2, max=1)})),
            "input.fields.a.max",
            "less than min",
        ),
        (Pipeline("p", ["a"] * 501), "steps", "there are 501"),
        (
            Pipeline("p", [Function("a", id="x"), Parallel({"b": [Function("c", id="x")]})]),
            "steps[1].branches.b[0].id",
            "'x' is the id of steps[0] already",
        ),
        (Pipeline("p", [Function("a", {"x": "y" * MAX_DEFINITION_BYTES})]), "definition", "child pipelines"),
    ],
)
def test_a_pipeline_that_makes_no_sense(pipeline: Pipeline, path: str, why: str) -> None:
    (problem,) = problems(pipeline)
    assert problem.startswith(f"{path}: ")
    assert why in problem


def nested(levels: int) -> Pipeline:
    step: AnyStep = Function("f")
    for _ in range(levels - 1):
        step = Map("items", steps=[step])
    return Pipeline("p", [step])


def test_nesting_has_a_bound() -> None:
    assert parse(nested(8)) == nested(8)
    (problem,) = problems(nested(9))
    assert "deeper than 8 levels" in problem


def test_nesting_beyond_reason_is_a_problem_like_others() -> None:
    inner = '{"type":"map","field":"x","steps":[' * 5_000 + '"f"' + "]}" * 5_000
    assert "nested too deep" in problems(f'{{"name":"p","steps":[{inner}]}}')[0]
    with pytest.raises(DefinitionError, match="nested too deep"):
        nested(5_000)
    value: list[Any] = []
    for _ in range(5_000):
        value = [value]
    with pytest.raises(DefinitionError, match="nested too deep"):
        dump(Pipeline("p", [Progress(value)]))


def test_all_problems_are_told_at_once() -> None:
    pipeline = Pipeline("a b", [Delay(0), Parallel({"eu": [Http("x")]})], priority=99)
    assert [problem.partition(":")[0] for problem in problems(pipeline)] == [
        "name",
        "priority",
        "steps[0].ms",
        "steps[1].branches.eu[0].url",
    ]
    with pytest.raises(DefinitionError, match=r"^name: must be .* \(and 3 more\)$"):
        parse(pipeline)


def test_wrong_types_of_several_steps_are_told_at_once() -> None:
    text = b"""{"name": 5, "steps": ["f", {"type": "delay", "ms": "1"}, {"type": "nap"}, 7, {"name": "f"},
        {"type": "map", "field": "x", "steps": "f"}, {"type": "delay", "ms": 1, "sec": 2},
        {"type": "parallel", "branches": {"a": [{"type": "wait"}]}}]}"""
    assert problems(text) == (
        "name: expected str, got int, change it",
        "steps[1].ms: expected int | null, got str, change it",
        "steps[2].type: invalid value 'nap', change it",
        "steps[3]: expected str | object, got int, change it",
        "steps[4]: object missing required field type, change it",
        "steps[5].steps: expected array | null, got str, change it",
        "steps[6]: object contains unknown field sec, change it",
        "steps[7].branches[...][0]: object missing required field switch, change it",
    )


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (b"", "definition: must be JSON, but"),
        (b"{", "definition: must be JSON, but"),
        (b'{"name":"\xff","steps":["f"]}', "definition: must be JSON, but"),
        (b"[]", "definition: expected object, got array"),
        (b"{}", "definition: object missing required field name"),
        ({"name": "p", "steps": ["f"], "colour": 1}, "definition: object contains unknown field colour"),
        ({"name": "p", "steps": {}}, "steps: expected array, got object"),
        ({"name": "p", "steps": [object()]}, "definition: has a value that JSON cannot hold"),
        ({"name": "\ud800", "steps": ["f"]}, "definition: has a value that JSON cannot hold"),
        (b" " * (MAX_TEXT_BYTES + 1), "definition: is 1048577 bytes"),
        (5, "definition: give a Pipeline, a dict or JSON, not int"),
    ],
)
def test_what_is_no_definition_at_all(definition: Any, why: str) -> None:
    (problem,) = problems(definition)
    assert problem.startswith(why)


def test_types_of_values_made_in_python_are_checked_too() -> None:
    pipeline = Pipeline("p", [Function("f", timeout_ms="5s"), Delay(1.5)])  # type: ignore[arg-type]
    assert [problem.partition(":")[0] for problem in problems(pipeline)] == [
        "steps[0].timeout_ms",
        "steps[1].ms",
    ]
    with pytest.raises(DefinitionError, match="JSON cannot hold"):
        dump(Pipeline("p", [Progress(object())]))


def test_what_is_trusted_need_not_make_sense_any_more() -> None:
    text = json.dumps({"name": "p", "steps": [{"type": "delay", "id": "x", "ms": 0}]})
    assert decode(text).steps == (Delay(0, id="x"),)
