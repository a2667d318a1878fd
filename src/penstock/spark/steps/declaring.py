"""Functions that are steps on Spark: under which name, and how they are to be called.

    @spark_step(app, "rate")
    def rate(order): return {**order, "rate": order["amount"] * 0.02}

    @spark_step(app, "score", kind="pandas", input_schema="amount double", output_schema="score double")
    def score(frame): return frame.assign(score=model.predict(frame[["amount"]]))

==========  =================================  ==========================================================
kind        the function is given              and gives
==========  =================================  ==========================================================
``python``  the input of one transaction, and  its output; None: the input goes on
            a ``SparkCall``, if it takes two
``pandas``  a ``DataFrame`` with ``tx``,       one with ``tx`` and ``output``, JSON text (null: the input
            ``attempt``, ``key``, ``args``     goes on); with ``output_schema``, one with ``tx`` and
            and ``input``, JSON text; with     these columns, which are the fields of the output
            ``input_schema``, fields of the
            input are columns instead
``arrow``   the same as a ``pyarrow.Table``    … as a ``pyarrow.Table``
==========  =================================  ==========================================================

Rules: an app with such steps is an ordinary app; a worker that is none of Spark's leaves them to others. How
functions get to executors is told in ``travelling``. Nothing here runs anything, nor knows Spark.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from penstock.errors import ConfigError, StepFailedError
from penstock.transactions.worker.app import App
from penstock.transactions.worker.performing import UNKNOWN_STEP

P = ParamSpec("P")
R = TypeVar("R")
Kind = Literal["python", "pandas", "arrow"]

MAX_BATCH: Final = 100_000
MAX_LINGER_MS: Final = 60_000
_MARK: Final = "__penstock_spark_step__"


class SparkCall(NamedTuple):
    """For whom a step is called."""

    #: id of the transaction
    tx: str
    #: of this step; the first is 1
    attempt: int
    #: the same for all attempts of this step, and for no other
    key: str
    #: what the pipeline gives this step
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SparkStep:
    """A function under the name by which pipelines know it."""

    name: str
    function: Callable[..., Any]
    kind: Kind = "python"
    #: transactions in one job, at most, and how long the first of them waits for others
    max_batch: int = 10_000
    linger_ms: int = 200
    #: as Spark writes schemas: "id long, amount double"
    input_schema: str | None = None
    output_schema: str | None = None
    #: fields of the output are added to those of the input
    keep_input: bool = False

    def __post_init__(self) -> None:
        if problem := _problem_of(self):
            raise ConfigError(f"step {self.name!r}: {problem}")

    @property
    def takes_call(self) -> bool:
        """Whether the function is given a ``SparkCall`` beside the input."""
        return self.kind == "python" and _required(self.function) == 2


def _problem_of(step: SparkStep) -> str | None:
    if step.kind not in get_args(Kind):
        return f"kind must be one of {', '.join(get_args(Kind))}, not {step.kind!r}"
    if inspect.iscoroutinefunction(step.function):
        return "a function on Spark must not be async"
    if not 1 <= step.max_batch <= MAX_BATCH:
        return f"max_batch must be 1 to {MAX_BATCH}, not {step.max_batch}"
    if not 0 <= step.linger_ms <= MAX_LINGER_MS:
        return f"linger_ms must be 0 to {MAX_LINGER_MS}, not {step.linger_ms}"
    if step.kind == "python" and (step.input_schema or step.output_schema):
        return "schemas are for kind pandas and arrow: a python function has the input as it is"
    most = 2 if step.kind == "python" else 1
    if not 1 <= (number := _required(step.function)) <= most:
        return f"its function must take 1{' or 2' if most == 2 else ''} arguments, not {number}"
    return None


def _required(function: Callable[..., Any]) -> int:
    """How many arguments it must be given; 1 if nobody can tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = sum(one.default is one.empty for one in by_place)
    takes_any = bool(by_place) or any(one.kind is one.VAR_POSITIONAL for one in parameters)
    return required or int(takes_any)


def spark_step(
    app: App,
    name: str,
    *,
    kind: Kind = "python",
    max_batch: int = 10_000,
    linger_ms: int = 200,
    input_schema: str | None = None,
    output_schema: str | None = None,
    keep_input: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the function below as the step of this name, which workers of Spark run on executors."""

    def add(function: Callable[P, R]) -> Callable[P, R]:
        step = SparkStep(name, function, kind, max_batch, linger_ms, input_schema, output_schema, keep_input)
        app.step(name)(_stand_in(step))
        return function

    return add


def _stand_in(step: SparkStep) -> Callable[..., Any]:
    """What an ordinary worker finds under the name: it leaves the transaction to others, as it does with
    steps that it has never heard of."""

    async def leave(tx: Any) -> None:
        raise StepFailedError(
            f"step {step.name!r} runs on Spark: start `penstock spark worker` for its node group",
            names=(UNKNOWN_STEP,),
        )

    setattr(leave, _MARK, step)
    return leave


def spark_steps_of(app: App) -> dict[str, SparkStep]:
    """By name."""
    functions = {name: app.find(name) for name in app.step_names}
    marks = {name: getattr(found.function, _MARK, None) for name, found in functions.items() if found}
    return {name: mark for name, mark in marks.items() if isinstance(mark, SparkStep)}
