"""Step functions by name: what an app takes, what it collects, what it refuses."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from penstock.errors import ConfigError, UsageError
from penstock.transactions import App, Pipeline, step
from penstock.transactions.worker import StepFunction


async def on_loop(tx: Any) -> None: ...


def in_thread(tx: Any) -> None: ...


def test_where_functions_run() -> None:
    app = App()
    assert app.step("a")(on_loop) is on_loop
    app.step("b")(in_thread)
    app.step("c", runs_in="process")(in_thread)
    found = [app.find(name) for name in ("a", "b", "c")]
    assert [one.runs_in for one in found if one is not None] == ["loop", "thread", "process"]
    assert repr(found[2]) == "<StepFunction c in process>"
    assert app.find("d") is None
    assert app.step_names == ["a", "b", "c"]
    assert repr(app) == "<App 3 steps, 0 pipelines>"


@pytest.mark.parametrize(
    ("function", "runs_in", "why"),
    [
        (on_loop, "thread", "step 'a' runs in a thread, so its function must not be async"),
        (on_loop, "process", "step 'a' runs in a process, so its function must not be async"),
        (in_thread, "loop", "step 'a' runs in a loop, so its function must be async"),
    ],
)
def test_functions_that_cannot_run_there(function: Any, runs_in: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        App().step("a", runs_in=runs_in)(function)


def test_a_name_stands_for_one_thing() -> None:
    app = App()
    app.step("a")(on_loop)
    app.step("a")(on_loop)
    with pytest.raises(ConfigError, match="there are two steps 'a': give one another name"):
        app.step("a")(in_thread)
    app.pipeline(Pipeline("p", ["a"]))
    app.pipeline(Pipeline("p", ["a"]))
    with pytest.raises(ConfigError, match="there are two pipelines 'p': give one another name"):
        app.pipeline(Pipeline("p", ["a", "a"]))
    for make in (lambda: step("no spaces"), lambda: StepFunction("no spaces", on_loop)):
        with pytest.raises(UsageError, match="name must be 1 to 128"):
            make()


def test_a_module_is_an_app() -> None:
    module = ModuleType("shop")

    @step("marked")
    def marked(tx: Any) -> str:
        return "as before"

    pipeline = Pipeline("p", ["marked"])
    vars(module).update(marked=marked, alias=marked, plain=in_thread, pipeline=pipeline, again=pipeline)
    app = App.of(module)
    assert app.step_names == ["marked"]
    assert list(app.pipelines) == [pipeline]
    assert marked(None) == "as before"
    assert App([marked], [pipeline]).step_names == ["marked"]
    with pytest.raises(ConfigError, match=r"is not marked: put @step\(name\) above it"):
        App([in_thread])
