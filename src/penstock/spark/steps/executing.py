"""A batch of calls where Spark runs it: rows of calls come in, and a row with its outcome goes out for each.

    results = Plan(step, inputs, outputs).run(batch)          # pyarrow, both; no Spark needed to try it

===========  ===========  ================================================================
of a call    type
===========  ===========  ================================================================
``tx``       string       the transaction; no two calls of a batch have the same
``attempt``  int32
``key``      string       idempotency key
``args``     binary       JSON
``input``    binary       JSON
===========  ===========  ================================================================

===========  ===========  ================================================================
of a result  type
===========  ===========  ================================================================
``tx``       string
``output``   binary       JSON; null: the input goes on
``failure``  binary       MessagePack of ``outcomes.Failed``; null: it succeeded
===========  ===========  ================================================================

Who fails
---------
1. ``python``: each row by itself, as a step in a worker does: StepFailedError, StepAbortedError and all
   others mean what they mean there.
2. ``pandas``, ``arrow``: a call that raises is repeated with each half of its rows, and so on, until single
   rows are left that cannot be helped. So the function may see a row several times, and a bad row fails
   alone. If the first rows that were tried alone have all failed, and nothing ever succeeded, then the
   function itself is wrong: the rest fails without being tried one by one.
3. A row that is missing in what came back, or is there twice, fails alone. A result that is no table, or
   lacks a column, fails everybody who was in it.

Runs in Spark's processes: knows neither the session nor the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import StepFailedError, UsageError
from penstock.spark.steps.declaring import SparkCall, SparkStep
from penstock.transactions.model import MAX_DATA_BYTES, Ending, from_json, to_json
from penstock.transactions.worker.outcomes import Done, Failed, Outcome, printable
from penstock.transactions.worker.performing import failure_of, outcome_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns that tables have beside those of the user.
OWN_COLUMNS: Final = ("tx", "attempt", "key", "args")
INPUT: Final = "input"
OUTPUT: Final = "output"
#: Rows that must fail alone before a function counts as wrong.
_HOPELESS: Final = 16

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Failed).decode


class _WrongResultError(Exception):
    """What a function gave cannot be made out, whichever rows it was given."""


@dataclass(frozen=True)
class Plan:
    """A step, ready to travel: schemas are Arrow's by now."""

    step: SparkStep
    inputs: pa.Schema | None = None
    outputs: pa.Schema | None = None

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The results of some calls."""
        if self.step.kind == "python":
            return _results(batch, _row_by_row(self.step, batch))
        return _results(batch, _Bisection(self, batch).outcomes())


def _results(batch: pa.RecordBatch, outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    import pyarrow as pa

    outputs = [one.output if isinstance(one, Done) else None for one in outcomes]
    failures = [_pack(one) if isinstance(one, Failed) else None for one in outcomes]
    columns = [batch.column("tx"), pa.array(outputs, pa.binary()), pa.array(failures, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["tx", "output", "failure"])


def untouched(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Results of calls that nobody has made."""
    return _results(batch, [Done()] * batch.num_rows)


def outcome_from(output: bytes | None, failure: bytes | None) -> Outcome:
    """Of a row of results."""
    return Done(output) if failure is None else _unpack(failure)


def _fault(note: str, *names: str) -> Failed:
    """The code is wrong: somebody should look at it."""
    known = (*names, "OutputError", "internal-error")
    return Failed(Ending.INTERNAL_ERROR, printable(note), known, is_fault=True)


# ------------------------------------------------------------------------------------------------ python


def _row_by_row(step: SparkStep, batch: pa.RecordBatch) -> list[Outcome]:
    rows = zip(*(batch.column(name).to_pylist() for name in (*OWN_COLUMNS, INPUT)), strict=True)
    call = _with_call if step.takes_call else _without_call
    return [_of_row(step, data, partial(call, step, own)) for *own, data in rows]


def _with_call(step: SparkStep, own: Sequence[Any], given: Any) -> Any:
    tx, attempt, key, args = own
    return step.function(given, SparkCall(tx, attempt, key, from_json(args)))


def _without_call(step: SparkStep, own: Sequence[Any], given: Any) -> Any:
    return step.function(given)


def _of_row(step: SparkStep, data: bytes, function: Callable[[Any], Any]) -> Outcome:
    outcome = outcome_of(step.name, function, from_json(data))
    if isinstance(outcome, Failed):
        return outcome
    if not isinstance(outcome, Done):
        # Only the context of a worker can suspend a transaction or hand it back.
        return _fault(f"step {step.name!r} runs on Spark: it gives an output or fails, and cannot wait")
    output = outcome.output
    if output is None or not step.keep_input:
        return outcome
    return _made(lambda: _merged(step, data, from_json(output)))


# ------------------------------------------------------------------------------------------------ tables


class _Bisection:
    """The calls of a batch, as few at a time as it takes."""

    def __init__(self, plan: Plan, batch: pa.RecordBatch) -> None:
        self._plan = plan
        self._batch = batch
        self._found: list[Outcome] = []
        self._has_success = False
        self._failed_alone = 0

    def outcomes(self) -> list[Outcome]:
        self._try(self._batch)
        return self._found

    def _try(self, rows: pa.RecordBatch) -> None:
        try:
            self._found += _of_table(self._plan, rows)
            self._has_success = True
        except _WrongResultError as error:
            self._found += [_fault(str(error))] * rows.num_rows
        except BaseException as error:  # noqa: BLE001 - whatever a step throws is its own affair
            self._divide(rows, error)

    def _divide(self, rows: pa.RecordBatch, error: BaseException) -> None:
        is_hopeless = self._failed_alone >= _HOPELESS and not self._has_success
        if rows.num_rows > 1 and not is_hopeless:
            half = rows.num_rows // 2
            self._try(rows.slice(0, half))
            self._try(rows.slice(half))
            return
        self._failed_alone += 1
        self._found += [failure_of(error)] * rows.num_rows


def _of_table(plan: Plan, rows: pa.RecordBatch) -> list[Outcome]:
    """Raises what the function raises, and what columns raise that cannot be made."""
    given = _given(plan, rows)
    if plan.step.kind == "pandas":
        ids, values = _from_frame(plan, plan.step.function(given.to_pandas()))
    else:
        ids, values = _from_table(plan, plan.step.function(given))
    inputs = dict(zip(rows.column("tx").to_pylist(), rows.column(INPUT).to_pylist(), strict=True))
    found: dict[str, Outcome] = {}
    for tx, value in zip(ids, values, strict=True):
        if tx in found:
            found[tx] = _failed_row(plan, "more than one row")
        elif tx in inputs:
            found[tx] = _made(partial(_output_of, plan, inputs[tx], value))
    return [found.get(tx) or _failed_row(plan, "no row") for tx in inputs]


def _given(plan: Plan, rows: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    args = rows.column("args").cast(pa.string())
    own = [rows.column("tx"), rows.column("attempt"), rows.column("key"), args]
    if plan.inputs is None:
        return pa.table([*own, rows.column(INPUT).cast(pa.string())], names=[*OWN_COLUMNS, INPUT])
    objects = [_object(text) for text in rows.column(INPUT).to_pylist()]
    columns = [_column(field, [one.get(field.name) for one in objects]) for field in plan.inputs]
    return pa.table([*own, *columns], names=[*OWN_COLUMNS, *plan.inputs.names])


def _object(text: bytes) -> dict[str, Any]:
    value = from_json(text)
    if not isinstance(value, dict):
        note = "its input must be an object: input_schema names fields of it"
        raise StepFailedError(note, names=("FieldError",))
    return value


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    """Times and decimals are texts in JSON; everything else is what it is."""
    import pyarrow as pa

    is_text = pa.types.is_temporal(field.type) or pa.types.is_decimal(field.type)
    try:
        return pa.array(values, pa.string()).cast(field.type) if is_text else pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        note = f"{field.name} of its input must be {field.type}: {error}"
        raise StepFailedError(note, names=("FieldError",)) from None


def _from_frame(plan: Plan, made: Any) -> tuple[Sequence[str], Iterable[Any]]:
    import pandas as pd
    import pyarrow as pa

    if not isinstance(made, pd.DataFrame):
        raise _wrong(plan, f"must give a pandas DataFrame, not {type(made).__name__}")
    _check_columns(plan, list(made.columns))
    if plan.outputs is None:
        return made["tx"].tolist(), made[OUTPUT].tolist()
    table = pa.Table.from_pandas(made[plan.outputs.names], plan.outputs, preserve_index=False)
    return made["tx"].tolist(), table.to_pylist()


def _from_table(plan: Plan, made: Any) -> tuple[Sequence[str], Iterable[Any]]:
    import pyarrow as pa

    if not isinstance(made, pa.Table | pa.RecordBatch):
        raise _wrong(plan, f"must give a pyarrow Table, not {type(made).__name__}")
    _check_columns(plan, made.schema.names)
    ids = made.column("tx").to_pylist()
    if plan.outputs is None:
        return ids, made.column(OUTPUT).to_pylist()
    return ids, made.select(plan.outputs.names).cast(plan.outputs).to_pylist()


def _check_columns(plan: Plan, names: Sequence[Any]) -> None:
    wanted = ["tx", *([OUTPUT] if plan.outputs is None else plan.outputs.names)]
    if missing := [name for name in wanted if name not in names]:
        gave = ", ".join(map(str, names)) or "none"
        raise _wrong(plan, f"must give the column {missing[0]}, and gave {gave}")


def _wrong(plan: Plan, text: str) -> _WrongResultError:
    return _WrongResultError(f"the function of step {plan.step.name!r} {text}")


def _failed_row(plan: Plan, what: str) -> Failed:
    return _fault(f"the function of step {plan.step.name!r} gave {what} for this transaction", "LostRowError")


# ------------------------------------------------------------------------------------------------ outputs


def _output_of(plan: Plan, data: bytes, value: Any) -> bytes | None:
    """JSON of what stands in a row for a transaction."""
    if plan.outputs is None:
        if _is_null(value):
            return None
        text = _json_text(value)
        return _merged(plan.step, data, from_json(text)) if plan.step.keep_input else text
    return _merged(plan.step, data, value) if plan.step.keep_input else to_json("its output", value)


def _is_null(value: Any) -> bool:
    """None, and pandas' ways to say so."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _json_text(value: Any) -> bytes:
    """What a column ``output`` has: text is JSON already, everything else becomes it."""
    if not isinstance(value, str | bytes):
        return to_json("its output", value)
    text = value.encode() if isinstance(value, str) else value
    if len(text) > MAX_DATA_BYTES:
        raise UsageError(f"its output must have at most {MAX_DATA_BYTES} bytes as JSON, not {len(text)}")
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"its output must be JSON text: {error}") from None
    return text


def _merged(step: SparkStep, data: bytes, made: Any) -> bytes:
    """The input with the fields of the output."""
    given = from_json(data)
    if not isinstance(given, dict) or not isinstance(made, dict):
        raise UsageError(f"step {step.name!r} keeps its input, so its input and its output must be objects")
    return to_json("its output", {**given, **made})


def _made(make: Callable[[], bytes | None]) -> Outcome:
    try:
        return Done(make())
    except UsageError as error:
        return _fault(str(error))
