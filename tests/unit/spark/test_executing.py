"""What becomes of a batch on executors, without Spark: kinds of functions, columns, ways to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import ConfigError, StepAbortedError, StepFailedError
from penstock.spark.steps.batching import Call
from penstock.spark.steps.declaring import SparkStep, spark_step, spark_steps_of
from penstock.spark.steps.executing import Plan, outcome_from
from penstock.spark.steps.jobs import _table_of
from penstock.transactions import App
from penstock.transactions.model import Ending
from penstock.transactions.worker.outcomes import Done, Failed

AMOUNT = pa.schema([("amount", pa.float64())])


def run(plan: Plan, *inputs: Any, attempt: int = 1, args: Any = None) -> list[Any]:
    """What becomes of these inputs: outputs, and of those who fail their ``Failed``."""
    calls = [
        Call(
            f"tx-{place}", attempt, f"key-{place}", msgspec.json.encode(args or {}), msgspec.json.encode(data)
        )
        for place, data in enumerate(inputs)
    ]
    (batch,) = _table_of(calls).to_batches()
    results = plan.run(batch)
    assert results.column("tx").to_pylist() == [call.tx for call in calls]
    found = []
    for output, failure in zip(
        *(results.column(name).to_pylist() for name in ("output", "failure")), strict=True
    ):
        outcome = outcome_from(output, failure)
        if isinstance(outcome, Done):
            found.append(None if outcome.output is None else msgspec.json.decode(outcome.output))
        else:
            found.append(outcome)
    return found


def plan(
    function: Callable[..., Any],
    kind: Any = "pandas",
    inputs: pa.Schema | None = None,
    outputs: pa.Schema | None = None,
    **options: Any,
) -> Plan:
    return Plan(SparkStep("score", function, kind, **options), inputs, outputs)


# ------------------------------------------------------------------------------------------------ python


def test_python_functions_are_called_for_each() -> None:
    assert run(plan(lambda data: data["n"] + 1, "python"), {"n": 1}, {"n": 2}) == [2, 3]
    assert run(plan(lambda data: None, "python"), 1) == [None], "the input goes on"

    def with_call(data: Any, call: Any) -> Any:
        return [call.tx, call.attempt, call.key, call.args, data]

    assert run(plan(with_call, "python"), "x", attempt=3, args={"model": 7}) == [
        ["tx-0", 3, "key-0", {"model": 7}, "x"]
    ]
    kept = plan(lambda data: {"m": 2}, "python", keep_input=True)
    good, bad = run(kept, {"n": 1, "m": 1}, 5)
    assert good == {"n": 1, "m": 2}
    assert bad.note == "step 'score' keeps its input, so its input and its output must be objects"


def test_a_python_function_fails_for_one_alone() -> None:
    def pick(data: Any) -> Any:
        match data:
            case "failed":
                raise StepFailedError("no money", {"why": 1}, names=("Poor",))
            case "aborted":
                raise StepAbortedError("fraud")
            case "late":
                raise TimeoutError("too late")
            case "exit":
                raise SystemExit(1)
            case "garbage":
                return object()
        return data

    *bad, good = run(plan(pick, "python"), "failed", "aborted", "late", "exit", "garbage", "good")
    assert good == "good"
    assert [one.status for one in bad] == ["failed", "aborted", "timeout", "internal-error", "internal-error"]
    assert (bad[0].note, bad[0].output, bad[0].names[:2]) == (
        "no money",
        b'{"why":1}',
        ["Poor", "StepFailedError"],
    )
    assert [one.is_fault for one in bad] == [False, False, False, True, True]
    assert "must be JSON" in bad[4].note


# ------------------------------------------------------------------------------------------------ tables


def test_json_text_in_and_out() -> None:
    def frame(given: pd.DataFrame) -> pd.DataFrame:
        assert list(given.columns) == ["tx", "attempt", "key", "args", "input"]
        return given.assign(output=['{"text": 1}', {"object": 2}, None, float("nan")])[::-1][["output", "tx"]]

    assert run(plan(frame), 1, 2, 3, 4) == [{"text": 1}, {"object": 2}, None, None], "in any order"

    def table(given: pa.Table) -> pa.Table:
        return given.append_column("output", pc.binary_join_element_wise("[", given["input"], "]", ""))

    assert run(plan(table, "arrow"), {"a": 1}, None) == [[{"a": 1}], [None]]
    kept = plan(lambda given: given.assign(output='{"b": 2}'), keep_input=True)
    assert run(kept, {"a": 1}) == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_fields_are_columns(kind: str) -> None:
    inputs = pa.schema(
        [
            ("id", pa.int64()),
            ("amount", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    outputs = pa.schema([("id", pa.int64()), ("double", pa.float64()), ("at", pa.timestamp("us", "UTC"))])

    def frame(given: pd.DataFrame) -> pd.DataFrame:
        assert list(given["tags"][0]) == ["x"]
        return given.assign(double=given["amount"] * 2)

    def table(given: pa.Table) -> pa.Table:
        return given.append_column("double", pc.multiply(given["amount"], 2))

    made = plan(frame if kind == "pandas" else table, kind, inputs, outputs)
    moment = "2024-05-06T07:08:09Z"
    assert run(
        made,
        {"id": 1, "amount": 3, "at": moment, "tags": ["x"], "more": 0},
        {"id": 2, "amount": 0.5, "at": None},
    ) == [{"id": 1, "double": 6.0, "at": moment}, {"id": 2, "double": 1.0, "at": None}]


def test_a_row_that_does_not_fit_fails_alone() -> None:
    made = plan(lambda given: given, inputs=AMOUNT, outputs=AMOUNT)
    good, text, number, also_good = run(made, {"amount": 1}, {"amount": "much"}, 7, {"amount": 2})
    assert (good, also_good) == ({"amount": 1.0}, {"amount": 2.0})
    assert text.note.startswith("amount of its input must be double")
    assert number.note == "its input must be an object: input_schema names fields of it"
    assert text.status == number.status == "failed"
    assert "FieldError" in text.names


# ------------------------------------------------------------------------------------------------ poison


def test_one_poison_row_fails_alone() -> None:
    sizes = []

    def poison(given: pd.DataFrame) -> pd.DataFrame:
        sizes.append(len(given))
        if (given["amount"] == 13).any():
            raise StepAbortedError("poison")
        return given

    made = plan(poison, inputs=AMOUNT, outputs=AMOUNT)
    found = run(made, *({"amount": number} for number in range(1_000)))
    bad = [place for place, one in enumerate(found) if isinstance(one, Failed)]
    assert (bad, found[13].status, found[13].note) == ([13], "aborted", "poison")
    assert sizes[0] == 1_000
    assert len(sizes) < 25, "halves, not rows"


def test_a_function_that_always_fails_is_not_called_for_each() -> None:
    calls = 0

    def broken(given: pd.DataFrame) -> pd.DataFrame:
        nonlocal calls
        calls += 1
        raise OSError("no model")

    found = run(plan(broken), *range(5_000))
    assert {(one.status, one.note) for one in found} == {(Ending.INTERNAL_ERROR, "OSError: no model")}
    assert calls < 80


def test_many_poison_rows_fail_alone_if_any_succeeds() -> None:
    def picky(given: pd.DataFrame) -> pd.DataFrame:
        if given["amount"].max() >= 50:
            raise ValueError("large")
        return given

    found = run(plan(picky, inputs=AMOUNT, outputs=AMOUNT), *({"amount": number} for number in range(200)))
    assert [isinstance(one, Failed) for one in found] == [False] * 50 + [True] * 150


def test_rows_that_are_lost_or_doubled_fail_alone() -> None:
    def lossy(given: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([given[given["amount"] != 1], given[given["amount"] == 2]])

    made = plan(lossy, inputs=AMOUNT, outputs=AMOUNT)
    first, lost, doubled, last = run(made, *({"amount": number} for number in range(4)))
    assert (first, last) == ({"amount": 0.0}, {"amount": 3.0})
    assert lost.note == "the function of step 'score' gave no row for this transaction"
    assert doubled.note == "the function of step 'score' gave more than one row for this transaction"
    assert lost.status == "internal-error"
    assert "LostRowError" in lost.names


@pytest.mark.parametrize(
    ("kind", "function", "note"),
    [
        ("pandas", lambda given: 7, "must give a pandas DataFrame, not int"),
        ("arrow", lambda given: None, "must give a pyarrow Table, not NoneType"),
        ("pandas", lambda given: given[["tx"]], "must give the column output, and gave tx"),
        (
            "arrow",
            lambda given: given.drop(["tx"]),
            "must give the column tx, and gave attempt, key, args, input",
        ),
    ],
)
def test_a_result_that_nobody_understands_fails_all_at_once(kind: str, function: Any, note: str) -> None:
    calls = []

    def watched(given: Any) -> Any:
        calls.append(len(given))
        return function(given)

    found = run(plan(watched, kind), 1, 2, 3)
    assert {one.note for one in found} == {f"the function of step 'score' {note}"}
    assert {one.status for one in found} == {"internal-error"}
    assert calls == [3]


@pytest.mark.parametrize(
    ("output", "note"),
    [
        ("no json", "its output must be JSON text: "),
        ('"' + "x" * 1_048_576 + '"', "its output must have at most 1048576 bytes as JSON, not 1048578"),
        (object(), "its output must be JSON: "),
    ],
)
def test_an_output_that_is_no_json_fails_alone(output: Any, note: str) -> None:
    good, bad = run(plan(lambda given: given.assign(output=["1", output])), 1, 2)
    assert good == 1
    assert bad.note.startswith(note)
    assert bad.is_fault


# ------------------------------------------------------------------------------------------- declaring


def test_a_declared_function_stays_itself() -> None:
    app = App()

    @spark_step(app, "double", max_batch=7)
    def double(data: Any) -> Any:
        return 2 * data

    assert double(4) == 8
    assert spark_steps_of(app) == {"double": SparkStep("double", double, max_batch=7)}
    app.step("other")(lambda tx: None)
    assert spark_steps_of(app).keys() == {"double"}
    with pytest.raises(ConfigError, match="there are two steps 'double'"):
        spark_step(app, "double")(lambda data: data)


async def _async(data: Any) -> Any:
    return data


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "scala"}, "kind must be one of python, pandas, arrow, not 'scala'"),
        ({"max_batch": 0}, "max_batch must be 1 to 100000, not 0"),
        ({"linger_ms": -1}, "linger_ms must be 0 to 60000, not -1"),
        ({"input_schema": "a int"}, "schemas are for kind pandas and arrow"),
        ({"function": _async}, "a function on Spark must not be async"),
        ({"function": lambda: None}, "its function must take 1 or 2 arguments, not 0"),
        ({"function": lambda a, b, c: None}, "its function must take 1 or 2 arguments, not 3"),
        ({"kind": "pandas", "function": lambda a, b: None}, "its function must take 1 arguments, not 2"),
    ],
)
def test_wrong_declarations(options: dict[str, Any], problem: str) -> None:
    function = options.pop("function", lambda data: data)
    with pytest.raises(ConfigError, match=f"step 'x': {problem}"):
        spark_step(App(), "x", **options)(function)


def test_arguments_with_defaults_are_left_alone() -> None:
    def rate(data: Any, percent: int = 2) -> Any:
        return data * percent

    assert run(plan(rate, "python"), 4) == [8]
    assert run(plan(str, "python"), 4) == ["4"]
    assert run(plan(lambda *given: len(given), "python"), 4) == [1]
