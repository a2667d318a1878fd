"""What a worker can run: step functions by name, and pipelines that come with them.

    app = App()

    @app.step("charge-card")
    async def charge(tx): ...

    app.pipeline(Pipeline("checkout", ["charge-card", "ship"], node_group="shop"))

``@step`` marks a function without an app; ``App.of(module)`` collects what a module has marked, and its
pipelines.

Rules: an async function runs on the worker's event loop, another one in a thread, one with
``runs_in="process"`` in a pool of processes. A name stands for one function. Nothing here runs anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final, Literal, ParamSpec, TypeVar

from penstock.errors import ConfigError
from penstock.transactions.keys import check_name
from penstock.transactions.pipelines import Pipeline

P = ParamSpec("P")
R = TypeVar("R")
RunsIn = Literal["loop", "thread", "process"]

_MARK: Final = "__penstock_step__"


class StepFunction:
    """A function under the name by which pipelines know it."""

    __slots__ = ("function", "name", "runs_in")

    def __init__(self, name: str, function: Callable[..., Any], runs_in: RunsIn | None = None) -> None:
        self.name = check_name("name", name)
        self.function = function
        is_async = inspect.iscoroutinefunction(function)
        self.runs_in: RunsIn = runs_in or ("loop" if is_async else "thread")
        if is_async != (self.runs_in == "loop"):
            wanted = "must be async" if self.runs_in == "loop" else "must not be async"
            raise ConfigError(f"step {name!r} runs in a {self.runs_in}, so its function {wanted}")

    def __repr__(self) -> str:
        return f"<StepFunction {self.name} in {self.runs_in}>"


def step(name: str, *, runs_in: RunsIn | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function as the step of this name; ``App.of(module)`` and ``penstock worker module`` find it."""
    check_name("name", name)

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        setattr(function, _MARK, StepFunction(name, function, runs_in))
        return function

    return mark


class App:
    """Step functions and pipelines."""

    def __init__(self, steps: Iterable[Callable[..., Any]] = (), pipelines: Iterable[Pipeline] = ()) -> None:
        self._steps: dict[str, StepFunction] = {}
        self._pipelines: dict[str, Pipeline] = {}
        for function in steps:
            marked = getattr(function, _MARK, None)
            if marked is None:
                raise ConfigError(f"{function!r} is not marked: put @step(name) above it")
            self._add(marked)
        for pipeline in pipelines:
            self.pipeline(pipeline)

    @classmethod
    def of(cls, module: ModuleType) -> App:
        """Everything that a module has marked, and the pipelines it has made."""
        values = list(vars(module).values())
        functions = [value for value in values if isinstance(getattr(value, _MARK, None), StepFunction)]
        return cls(dict.fromkeys(functions), {id(v): v for v in values if isinstance(v, Pipeline)}.values())

    def step(self, name: str, *, runs_in: RunsIn | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Add the function below as the step of this name."""

        def add(function: Callable[P, R]) -> Callable[P, R]:
            self._add(StepFunction(name, function, runs_in))
            return function

        return add

    def pipeline(self, pipeline: Pipeline) -> Pipeline:
        """Add a pipeline; workers of this app deploy it when they start."""
        known = self._pipelines.setdefault(pipeline.name, pipeline)
        if known != pipeline:
            raise ConfigError(f"there are two pipelines {pipeline.name!r}: give one another name")
        return pipeline

    def _add(self, function: StepFunction) -> None:
        if self._steps.setdefault(function.name, function).function is not function.function:
            raise ConfigError(f"there are two steps {function.name!r}: give one another name")

    def find(self, name: str) -> StepFunction | None:
        return self._steps.get(name)

    @property
    def step_names(self) -> list[str]:
        return sorted(self._steps)

    @property
    def pipelines(self) -> Iterator[Pipeline]:
        return iter(self._pipelines.values())

    def __repr__(self) -> str:
        return f"<App {len(self._steps)} steps, {len(self._pipelines)} pipelines>"
