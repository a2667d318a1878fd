"""A pipeline: named steps, and how transactions of it run.

Rules: a pipeline is a frozen value whose steps all have ids, unique in the whole of it, nested steps
included; what has none gets one when the pipeline is made. Whether it makes sense is asked in
``validation``, its text is made in ``codec``. Knows nothing of stores or of who runs steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import DefinitionError, UsageError
from penstock.transactions.keys import is_name
from penstock.transactions.pipelines.retry import NO_RETRY, Retry
from penstock.transactions.pipelines.steps import (
    AnyStep,
    CheckFields,
    Function,
    Map,
    Parallel,
    Steps,
    as_steps,
)

#: Leaves room for a number behind a name.
_MAX_STEM: Final = 120


class _Options(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """What may only be given by name."""

    #: whose workers run it
    node_group: str = "default"
    description: str = ""
    #: whether users may start it; others are children only
    is_startable: bool = True
    #: for the whole transaction
    deadline_ms: int | None = None
    #: 0 to 9
    priority: int | None = None
    #: what the input must be; a transaction with another one is refused
    input: CheckFields | None = None
    #: of steps that have none
    retry: Retry | None = None


class Pipeline(_Options, frozen=True):
    """What a transaction runs: ``Pipeline("checkout", ["validate", Delay(500), "ship"])``."""

    name: str
    steps: Steps

    if TYPE_CHECKING:  # strings and lists are taken, and made tuples of steps

        def __init__(
            self,
            name: str,
            steps: Sequence[str | AnyStep],
            *,
            node_group: str = "default",
            description: str = "",
            is_startable: bool = True,
            deadline_ms: int | None = None,
            priority: int | None = None,
            input: CheckFields | None = None,
            retry: Retry | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        try:
            steps = _with_ids(as_steps(self.steps))
        except RecursionError:
            raise DefinitionError("steps: they are nested too deep, put some into child pipelines") from None
        msgspec.structs.force_setattr(self, "steps", steps)

    def retry_of(self, step: AnyStep) -> Retry:
        """The step's own policy, else the pipeline's, else never again."""
        return step.retry or self.retry or NO_RETRY


def walk(steps: Steps, path: str = "steps", depth: int = 1) -> Iterator[tuple[str, int, AnyStep]]:
    """Every step, nested ones too, with the path to it and how deep it lies."""
    for index, step in enumerate(steps):
        here = f"{path}[{index}]"
        yield here, depth, step
        if isinstance(step, Parallel):
            for name, branch in step.branches.items():
                yield from walk(branch, f"{here}.branches.{name}", depth + 1)
        elif isinstance(step, Map) and step.steps is not None:
            yield from walk(step.steps, f"{here}.steps", depth + 1)


def steps_at(pipeline: Pipeline, path: str) -> Steps:
    """The steps that a path names: "" the pipeline's own, "3.eu" branch eu of the Parallel at 3, "3" those
    of the Map at 3, and so on behind a slash: "3.eu/0"."""
    steps = pipeline.steps
    for part in path.split("/") if path else ():
        index, _, branch = part.partition(".")
        step = steps[int(index)] if index.isdecimal() and int(index) < len(steps) else None
        if isinstance(step, Parallel) and branch in step.branches:
            steps = step.branches[branch]
        elif isinstance(step, Map) and step.steps is not None and not branch:
            steps = step.steps
        else:
            raise UsageError(
                f"path: pipeline {pipeline.name!r} has no steps at {path!r}, pass one of its own"
            )
    return steps


def _with_ids(steps: Steps) -> Steps:
    """The same steps, each with an id. Those that change are copied: others may hold them, too."""
    every = [step for _, _, step in walk(steps)]
    if all(step.id for step in every):
        return steps
    taken = {f"{step.id}" for step in every}

    def new_id(step: AnyStep) -> str:
        stem = step.name if isinstance(step, Function) and is_name(f"{step.name}") else step.kind
        number, made = 1, stem
        while made in taken:
            number += 1
            made = f"{stem[:_MAX_STEM]}-{number}"
        taken.add(made)
        return made

    def completed(step: AnyStep) -> AnyStep:
        if not step.id:
            step = msgspec.structs.replace(step, id=new_id(step))
        if isinstance(step, Parallel):
            branches = {name: tuple(map(completed, branch)) for name, branch in step.branches.items()}
            return msgspec.structs.replace(step, branches=branches)
        if isinstance(step, Map) and step.steps is not None:
            return msgspec.structs.replace(step, steps=tuple(map(completed, step.steps)))
        return step

    return tuple(map(completed, steps))
