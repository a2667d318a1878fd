"""Steps that are made of other transactions: child pipelines, routers, parallel branches, items of an array.

Such a step is come to several times. The first time it asks for children (``join``); when they are back it is
come to again, and either asks for more (the next items of an array) or gives the output. Between the two the
record holds the number of its first join (``join_field``), and what came back in ``c:<join>.<slot>``.

Rules: decided from the record alone, without asking the store. The output of a child is its result; a child
that failed fails the step with its status and a note that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.transactions.model import Ending, Record, from_json, to_json
from penstock.transactions.pipelines import AnyStep, Child, Map, Parallel, Pipeline, Router
from penstock.transactions.worker.fields import placed
from penstock.transactions.worker.outcomes import Done, Failed, Outcome, Suspended
from penstock.transactions.worker.paths import MISSING, get_path

MAX_DEPTH: Final = 16
MAX_ITEMS: Final = 100_000


class _Plan(NamedTuple):
    """The children of a step. ``labels`` name them in notes; ``at_once`` of them are started together."""

    labels: Sequence[str]
    #: pipeline, version, path, group
    targets: Sequence[tuple[str, str, str, str]]
    inputs: Sequence[bytes]
    at_once: int
    is_hurried: bool


def is_join(step: AnyStep) -> bool:
    return isinstance(step, Child | Router | Parallel | Map)


def join_field(number: int) -> str:
    """Where the record has the first join of a step. A replay forgets it with all that begins so."""
    return f"z:{number}:join"


def end_field(number: int) -> str:
    """Where the record has the time (ms) until which a step waits for its children; 0 for ever."""
    return f"z:{number}:join-end"


def perform_join(
    step: AnyStep, pipeline: Pipeline, record: Record, number: int, path: str, now_ms: int
) -> Outcome:
    """Ask for children, or make an output of what came back."""
    data = from_json(record.data)
    plan = _plan(step, pipeline, record, number, path, data)
    if not isinstance(plan, _Plan):
        return plan
    first = record.number(join_field(number).encode())
    end_ms = record.number(end_field(number).encode())
    if not first:
        if record.number(b"depth") >= MAX_DEPTH:
            return Failed(
                Ending.INTERNAL_ERROR, f"children are nested more than {MAX_DEPTH} deep", is_fault=True
            )
        first = record.number(b"join_last") + 1
        end_ms = now_ms + step.timeout_ms if step.timeout_ms else 0
        if not plan.inputs:
            return _give(step, plan, [], data)
        return _ask(plan, record, number, first, 0, end_ms)
    waves = record.number(b"join_last") - first + 1
    results: list[Any] = []
    for place, label in enumerate(plan.labels[: waves * plan.at_once]):
        wave, slot = divmod(place, plan.at_once)
        came = record.fields.get(b"c:%d.%d" % (first + wave, slot))
        if came is None:
            continue  # somebody failed, and the others were not waited for
        status, _, text = came.partition(b" ")
        if status != b"success":
            return _failed(status.decode(), label, from_json(text))
        results.append(from_json(text))
    asked = min(waves * plan.at_once, len(plan.inputs))
    if len(results) < asked or (end_ms and now_ms >= end_ms and asked < len(plan.inputs)):
        return Failed(Ending.TIMEOUT, "not all children came back in time", ("TimeoutError", "timeout"))
    if asked < len(plan.inputs):
        return _ask(plan, record, number, first, waves, end_ms)
    return _give(step, plan, results, data)


def _plan(
    step: AnyStep, pipeline: Pipeline, record: Record, number: int, path: str, data: Any
) -> _Plan | Failed:
    inside = f"{path}/{number}" if path else f"{number}"
    here = (pipeline.name, record.text(b"version"))
    if isinstance(step, Child):
        return _Plan([step.pipeline], [(step.pipeline, step.version or "", "", "")], [record.data], 1, False)
    if isinstance(step, Router):
        chosen = _route(step, data)
        if chosen is None:
            return Failed(
                Ending.FAILED, f"{step.field} leads to no pipeline, and there is no default", ("RouteError",)
            )
        return _Plan([chosen], [(chosen, "", "", "")], [record.data], 1, False)
    if isinstance(step, Parallel):
        names = list(step.branches)
        targets = [(*here, f"{inside}.{name}", pipeline.node_group) for name in names]
        return _Plan(names, targets, [record.data] * len(names), len(names), step.on_failure == "fast")
    assert isinstance(step, Map)
    items = get_path(data, step.field) if step.field else data
    if not isinstance(items, list):
        return Failed(Ending.FAILED, f"{step.field} must be an array for this step", ("FieldError",))
    if len(items) > MAX_ITEMS:
        return Failed(
            Ending.FAILED, f"{step.field} has {len(items)} items, more than {MAX_ITEMS}", ("FieldError",)
        )
    target = (step.pipeline, "", "", "") if step.pipeline else (*here, inside, pipeline.node_group)
    labels = [f"item {place}" for place in range(len(items))]
    inputs = [to_json("item", item) for item in items]
    return _Plan(labels, [target] * len(items), inputs, step.at_once, step.on_failure == "fast")


def _route(step: Router, data: Any) -> str | None:
    value = get_path(data, step.field)
    if value is MISSING:
        return step.default
    text = value if isinstance(value, str) else to_json("field", value).decode()
    return step.routes.get(text, step.default)


def _ask(plan: _Plan, record: Record, number: int, first: int, wave: int, end_ms: int) -> Suspended:
    start = wave * plan.at_once
    depth = record.number(b"depth") + 1
    words: list[Any] = [int(plan.is_hurried)]
    for slot, place in enumerate(range(start, min(start + plan.at_once, len(plan.inputs)))):
        words += (slot, *plan.targets[place], plan.inputs[place], depth)
    count = (len(words) - 1) // 7
    fields: tuple[Any, ...] = (join_field(number), first)
    if end_ms:
        fields += (end_field(number), end_ms, "wakes_ms", end_ms)
    return Suspended("join", words, fields, f"{count} started, from {start}")


def _give(step: AnyStep, plan: _Plan, results: list[Any], data: Any) -> Done:
    if isinstance(step, Parallel):
        output: Any = dict(zip(plan.labels, results, strict=True))
        return Done(to_json("output", output))
    output = results if isinstance(step, Map) else results[0]
    into = step.into if isinstance(step, Map | Child | Router) else None
    return Done(to_json("output", placed(data, into, output)))


def _failed(status: str, label: str, note: Any) -> Failed:
    ending = Ending(status) if status in set(Ending) else Ending.INTERNAL_ERROR
    return Failed(ending, f"{label}: {note}", ("ChildError", status))
