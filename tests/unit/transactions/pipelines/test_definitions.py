"""Definitions: Python and JSON are the same values, each with one text and one version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from penstock.errors import DefinitionError, UsageError
from penstock.transactions.pipelines import (
    NO_RETRY,
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
    Step,
    Wait,
    dump,
    parse,
    steps_at,
    version_of,
)
from penstock.transactions.pipelines.steps import AnyStep

_COMMON: dict[str, Any] = {"retry": Retry(limit=5, on=("OSError",)), "timeout_ms": 10, "compensate": "undo"}

#: Of each kind the least and the most that can be said, and the JSON of the least.
STEPS: list[tuple[AnyStep, AnyStep, dict[str, Any]]] = [
    (Function("f"), Function("f", {"a": [1, {"b": None}]}, **_COMMON), {"type": "function", "name": "f"}),
    (Delay(5), Delay(min_ms=1, max_ms=2, node_group="far"), {"type": "delay", "ms": 5}),
    (
        Wait("paid"),
        Wait("paid", "continue", "payment.by", timeout_ms=5),
        {"type": "wait", "switch": "paid"},
    ),
    (Progress(None), Progress({"percent": 50.5}, note="half"), {"type": "progress", "report": None}),
    (Reply(), Reply({"ok": False}, "aborted", note="no"), {"type": "reply"}),
    (MapFields(), MapFields({"a.b": "c"}, {"d": 1}, ["e"], False), {"type": "map-fields"}),
    (
        CheckFields({}),
        CheckFields(
            {"n": FieldCheck("integer", False, [1, 2], 0, 9.5), "s": FieldCheck(pattern="a+", max_length=4)},
            "fail",
        ),
        {"type": "check-fields", "fields": {}},
    ),
    (
        Http("https://example.com/"),
        Http("http://h:8080/{a.b}?q={c}", "GET", {"X-A": "b"}, "x.y", "z", [200, 404], "all", **_COMMON),
        {"type": "http", "url": "https://example.com/"},
    ),
    (Child("other"), Child("other", "0" * 20, "into", **_COMMON), {"type": "child", "pipeline": "other"}),
    (
        Router("country", {"de": "german"}),
        Router("country", {"true": "yes", "7": "seven"}, "any", "out", **_COMMON),
        {"type": "router", "field": "country", "routes": {"de": "german"}},
    ),
    (
        Parallel({"a": ["f"]}),
        Parallel({"a": [Function("f"), Delay(1)], "b": ["g"]}, "wait", **_COMMON),
        {"type": "parallel", "branches": {"a": [{"id": "f", "name": "f", "type": "function"}]}},
    ),
    (
        Map("items", "other"),
        Map("items", steps=["f", Delay(3)], at_once=2, on_failure="wait", into="out", **_COMMON),
        {"type": "map", "field": "items", "pipeline": "other"},
    ),
]


@pytest.mark.parametrize(("least", "most", "data"), STEPS, ids=[case[2]["type"] for case in STEPS])
def test_each_kind_comes_back_as_it_went(least: AnyStep, most: AnyStep, data: dict[str, Any]) -> None:
    assert least.kind == data["type"]
    pipeline = Pipeline("p", [least, most])
    assert parse(dump(pipeline)) == pipeline
    assert parse(json.loads(dump(pipeline))) == pipeline
    stem = "f" if isinstance(least, Function) else least.kind
    assert json.loads(dump(Pipeline("p", [least])))["steps"] == [data | {"id": stem}]
    assert parse({"name": "p", "steps": [data]}) == Pipeline("p", [least])


def test_the_kinds_are_all_tried() -> None:
    assert {type(case[0]) for case in STEPS} == set(AnyStep.__args__)  # type: ignore[attr-defined]
    assert Step is Function


def test_all_options_of_a_pipeline_come_back() -> None:
    pipeline = Pipeline(
        "shop/checkout@eu",
        ["f"],
        node_group="shop",
        description="buys",
        is_startable=False,
        deadline_ms=60_000,
        priority=0,
        input=CheckFields({"order.id": FieldCheck("string")}),
        retry=Retry(limit=2),
    )
    assert parse(dump(pipeline)) == pipeline
    assert parse(pipeline) == pipeline


def test_the_text_is_canonical() -> None:
    pipeline = Pipeline("p", ["b", Function("a", {"z": 1, "a": (2, 3)})], priority=5)
    assert dump(pipeline) == (
        b'{"name":"p","priority":5,"steps":[{"id":"b","name":"b","type":"function"},'
        b'{"args":{"a":[2,3],"z":1},"id":"a","name":"a","type":"function"}]}'
    )


def test_a_version_follows_from_the_meaning_alone() -> None:
    made = Pipeline("p", ["a", Delay(5)])
    canonical = (
        b'{"name":"p","steps":[{"id":"a","name":"a","type":"function"},{"id":"delay","ms":5,"type":"delay"}]}'
    )
    assert version_of(made) == hashlib.sha256(canonical).hexdigest()[:20]
    written = (
        b' {"steps": ["a", {"ms": 5, "type": "delay", "id": "delay"}],  "node_group": "default", "name": "p"}'
    )
    assert version_of(parse(written)) == version_of(made)
    assert version_of(Pipeline("p", ["a", Delay(6)])) != version_of(made)


def test_what_equals_its_default_is_left_out_however_it_was_said() -> None:
    said = {
        "name": "p",
        "description": "",
        "retry": {"limit": 3, "backoff_ms": 1_000, "factor": 2, "max_backoff_ms": 300_000, "jitter": 0.2}
        | {"on": ["*"], "never": []},
        "steps": [{"type": "map", "field": "x", "pipeline": "q", "at_once": 100, "on_failure": "fast"}],
    }
    bare = Pipeline("p", [Map("x", "q")], retry=Retry())
    assert dump(parse(said)) == dump(bare) == dump(Pipeline("p", [Map("x", "q")], retry=Retry(factor=2)))
    assert json.loads(dump(bare))["retry"] == {}


def test_ids_are_derived_and_unique_in_the_whole_pipeline() -> None:
    shared = Function("f")
    pipeline = Pipeline(
        "p", [shared, shared, Parallel({"a": ["f", Delay(1)], "b": [Delay(2)]}), Function("g", id="f-2"), "f"]
    )
    assert [step.id for step in pipeline.steps] == ["f", "f-3", "parallel", "f-2", "f-5"]
    assert [step.id for step in steps_at(pipeline, "2.a")] == ["f-4", "delay"]
    assert [step.id for step in steps_at(pipeline, "2.b")] == ["delay-2"]
    assert shared.id == ""
    assert parse(dump(pipeline)) == pipeline
    assert version_of(parse(pipeline)) == version_of(pipeline)


def test_ids_of_long_names_stay_names() -> None:
    pipeline = Pipeline("p", ["x" * 128] * 12)
    assert len({step.id for step in parse(pipeline).steps}) == 12


def test_steps_are_found_by_their_path() -> None:
    inner = Map("rows", steps=["deep"])
    pipeline = Pipeline("p", ["a", Map("items", steps=["b", Parallel({"eu": [inner]})]), Delay(1)])
    assert steps_at(pipeline, "") == pipeline.steps
    assert [step.id for step in steps_at(pipeline, "1")] == ["b", "parallel"]
    assert [step.kind for step in steps_at(pipeline, "1/1.eu")] == ["map"]
    assert [step.id for step in steps_at(pipeline, "1/1.eu/0")] == ["deep"]


@pytest.mark.parametrize("path", ["0", "9", "x", "1.eu", "1/1", "1/1.us", "1/1.eu/0/0", "/", "-1", "²"])
def test_a_path_to_nothing_is_refused(path: str) -> None:
    inner = Map("rows", steps=["deep"])
    pipeline = Pipeline("p", ["a", Map("items", steps=["b", Parallel({"eu": [inner]})]), Map("x", "other")])
    with pytest.raises(UsageError, match=r"^path: pipeline 'p' has no steps at"):
        steps_at(pipeline, path)


def test_the_policy_of_a_step_is_its_own_or_the_pipelines() -> None:
    own, common = Retry(limit=7), Retry(limit=2)
    pipeline = Pipeline("p", [Function("a", retry=own), "b"], retry=common)
    assert [pipeline.retry_of(step) for step in pipeline.steps] == [own, common]
    bare = Pipeline("p", ["b"])
    assert bare.retry_of(bare.steps[0]) == NO_RETRY
    assert NO_RETRY.limit == 1


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Pipeline("p", "abc"), "steps: give a list of steps, not str"),
        (lambda: Pipeline("p", ["a", 5]), "steps[1]: give a step or the name of a function, not 5"),
        (lambda: Parallel({"a": "f"}), "branches.a: give a list of steps, not str"),
        (lambda: Parallel(["f"]), "branches: give names and their steps, not list"),
        (lambda: Map("x", steps="f"), "steps: give a list of steps, not str"),
    ],
)
def test_what_cannot_be_a_step_is_refused_at_once(make: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert caught.value.problems == (problem,)
