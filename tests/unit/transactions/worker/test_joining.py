"""Steps that are made of others, decided from records alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.transactions import Child, Map, Parallel, Pipeline, Router
from penstock.transactions.model import Record
from penstock.transactions.pipelines import AnyStep
from penstock.transactions.worker.joining import MAX_DEPTH, is_join, join_field, perform_join
from penstock.transactions.worker.outcomes import Done, Failed, Suspended

WORDS = 7

NOW_MS = 1_800_000_000_000


def record_of(data: Any = None, **fields: Any) -> Record:
    named = {name.replace("__", ":").replace("_dot_", "."): value for name, value in fields.items()}
    values = {"version": "v1", "data": 0, "d:0": msgspec.json.encode(data), **named}
    return Record(
        "tx-0-1", {k.encode(): v if isinstance(v, bytes) else str(v).encode() for k, v in values.items()}
    )


def perform(step: AnyStep, record: Record, path: str = "") -> Any:
    pipeline = Pipeline("main", ["noop", step], node_group="shop")
    return perform_join(step, pipeline, record, 1, path, NOW_MS)


def children(outcome: Suspended) -> list[tuple[Any, ...]]:
    words = list(outcome.arguments[1:])
    return [tuple(words[place : place + WORDS]) for place in range(0, len(words), WORDS)]


def test_which_steps_are_joins() -> None:
    assert is_join(Child("a"))
    assert not is_join(Pipeline("main", ["noop"]).steps[0])


def test_a_child_is_asked_for_and_gives_its_result() -> None:
    asked = perform(Child("other", version="0" * 20), record_of({"n": 1}, depth=3))
    assert (asked.kind, asked.arguments[0], asked.fields) == ("join", 0, ("z:1:join", 1))
    assert children(asked) == [(0, "other", "0" * 20, "", "", b'{"n":1}', 4)]
    back = record_of({"n": 1}, z__1__join=1, join_last=1, c__1_dot_0=b'success {"m":2}')
    assert perform(Child("other"), back) == Done(b'{"m":2}')
    assert perform(Child("other", into="x"), back) == Done(b'{"n":1,"x":{"m":2}}')


def test_joins_of_other_steps_are_none_of_ours() -> None:
    """Step 0 has joined before; what came back then stays there."""
    record = record_of({}, z__0__join=1, join_last=2, c__1_dot_0=b"success 1", c__2_dot_0=b"success 2")
    asked = perform(Child("other"), record)
    assert asked.fields == (join_field(1), 3)


@pytest.mark.parametrize(
    ("came", "status", "note"),
    [
        (b'failed "no money"', "failed", "other: no money"),
        (b'cancelled ""', "cancelled", "other: "),
        (b'timeout "late"', "timeout", "other: late"),
        (b'strange "x"', "internal-error", "other: x"),
        (b"failed {", "failed", "other: {"),
    ],
)
def test_a_child_that_failed(came: bytes, status: str, note: str) -> None:
    outcome = perform(Child("other"), record_of({}, z__1__join=1, join_last=1, c__1_dot_0=came))
    assert isinstance(outcome, Failed)
    assert (outcome.status, outcome.note) == (status, note)
    assert outcome.names[0] == "ChildError"


def test_branches_are_parts_of_the_same_pipeline() -> None:
    step = Parallel({"a": ["noop"], "b": ["noop"]})
    asked = perform(step, record_of(1))
    assert asked.arguments[0] == 1  # the first failure is enough
    assert children(asked) == [
        (0, "main", "v1", "1.a", "shop", b"1", 1),
        (1, "main", "v1", "1.b", "shop", b"1", 1),
    ]
    assert children(perform(step, record_of(1), path="0.x"))[0][3] == "0.x/1.a"
    back = record_of(1, z__1__join=1, join_last=1, c__1_dot_0=b"success 10", c__1_dot_1=b"success 20")
    assert perform(step, back) == Done(b'{"a":10,"b":20}')
    half = record_of(1, z__1__join=1, join_last=1, c__1_dot_0=b"success 10")
    assert perform(step, half).status == "timeout"
    failed = record_of(1, z__1__join=1, join_last=1, c__1_dot_1=b'failed "no"')
    assert perform(step, failed).note == "b: no"


def test_items_come_in_waves() -> None:
    step = Map("items", "one", at_once=2, into="items")
    data = {"items": [1, 2, 3]}
    asked = perform(step, record_of(data))
    assert [child[0] for child in children(asked)] == [0, 1]
    assert [child[5] for child in children(asked)] == [b"1", b"2"]
    assert asked.note == "2 started, from 0"
    first = {"z__1__join": 5, "c__5_dot_0": b"success 10", "c__5_dot_1": b"success 20"}
    second = perform(step, record_of(data, join_last=5, **first))
    assert [child[5] for child in children(second)] == [b"3"]
    assert second.fields == ("z:1:join", 5)
    last = perform(step, record_of(data, join_last=6, c__6_dot_0=b"success 30", **first))
    assert last == Done(b'{"items":[10,20,30]}')
    assert perform(step, record_of({"items": []})) == Done(b'{"items":[]}')
    assert perform(step, record_of({"items": {}})).note == "items must be an array for this step"


def test_items_of_steps_lie_inside_the_pipeline() -> None:
    asked = perform(Map("items", steps=["noop"], on_failure="wait"), record_of({"items": [7]}))
    assert asked.arguments[0] == 0
    assert children(asked) == [(0, "main", "v1", "1", "shop", b"7", 1)]


def test_too_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transactions.worker.joining.MAX_ITEMS", 2)
    assert (
        perform(Map("items", "one"), record_of({"items": [1, 2, 3]})).note == "items has 3 items, more than 2"
    )


@pytest.mark.parametrize(
    ("value", "chosen"), [("eu", "a"), (True, "b"), (7, "c"), (None, "d"), (1.5, "e"), ("mars", "e")]
)
def test_routes(value: Any, chosen: str) -> None:
    step = Router("zone", {"eu": "a", "true": "b", "7": "c", "null": "d"}, default="e")
    assert children(perform(step, record_of({"zone": value})))[0][1] == chosen


def test_no_route() -> None:
    for data in ({"zone": "mars"}, {}, 7):
        outcome = perform(Router("zone", {"eu": "a"}), record_of(data))
        assert (outcome.status, outcome.names) == ("failed", ("RouteError",))


def test_depth() -> None:
    assert isinstance(perform(Child("other"), record_of({}, depth=MAX_DEPTH - 1)), Suspended)
    outcome = perform(Child("other"), record_of({}, depth=MAX_DEPTH))
    assert (outcome.status, outcome.is_fault) == ("internal-error", True)
