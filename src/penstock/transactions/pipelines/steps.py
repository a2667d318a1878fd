"""The steps that pipelines are made of: the same values are the language and the stored data.

    Pipeline("checkout", ["validate", Function("charge-card", retry=Retry(limit=5)), Delay(5_000)])

Rules: steps are frozen; JSON has the names of Python, and ``type`` tells the kind (``map-fields`` for
MapFields). What equals its default is left out. A string stands for a Function of that name. Types are
checked when a definition is parsed, meaning in ``validation``. Paths into data have dots: ``order.items``.
Knows nothing of stores or of who runs steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from penstock.errors import DefinitionError
from penstock.transactions.pipelines.retry import Retry

OnFailure = Literal["fast", "wait"]


def _tag_of(class_name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", class_name).lower()


class StepBase(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="type",
    tag=_tag_of,
):
    """What all steps have."""

    #: what it is called in its pipeline; without one, its name or kind, with -2, -3 … if that is taken
    id: str = ""
    #: without one, the pipeline's
    retry: Retry | None = None
    #: for one attempt, or for all children
    timeout_ms: int | None = None
    #: runs on this group instead of the pipeline's
    node_group: str | None = None
    #: the function that undoes it when a later step fails
    compensate: str | None = None
    #: for people
    note: str = ""

    @property
    def kind(self) -> str:
        """What ``type`` says in JSON."""
        return str(self.__struct_config__.tag)


class Function(StepBase, frozen=True):
    """Calls the step function of this name."""

    name: str
    args: dict[str, Any] = {}


#: What users know it by who write little else.
Step = Function


class Delay(StepBase, frozen=True):
    """Sleeps: ``Delay(5_000)``, or by chance ``Delay(min_ms=500, max_ms=1_000)``."""

    ms: int | None = None
    min_ms: int | None = None
    max_ms: int | None = None


class Wait(StepBase, frozen=True):
    """Waits until a switch is set, for ``timeout_ms`` or for ever."""

    switch: str
    on_timeout: Literal["timeout", "continue"] = "timeout"
    #: the field of the data that gets the switch's value
    into: str | None = None


class Progress(StepBase, frozen=True):
    """Reports progress to whoever watches the transaction."""

    report: Any


class Reply(StepBase, frozen=True):
    """Ends the pipeline, without an output with the data as it stands; ``note`` is told with its end."""

    output: Any = None
    status: Literal["success", "failed", "aborted"] = "success"


class MapFields(StepBase, frozen=True):
    """Rearranges the data: copies first, then sets, then drops."""

    #: target path: source path
    copy: dict[str, str] = {}
    set: dict[str, Any] = {}
    drop: list[str] = []
    #: whether what is not named stays
    keep_rest: bool = True


FieldType = Literal["any", "string", "integer", "number", "boolean", "object", "array", "amount", "date"]


class FieldCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, repr_omit_defaults=True
):
    """What one field must be."""

    type: FieldType = "any"
    is_required: bool = True
    #: one of these, if there are any
    values: list[Any] = []
    min: int | float | None = None
    max: int | float | None = None
    #: of the whole text, in the subset of ``patterns``
    pattern: str | None = None
    max_length: int | None = None


class CheckFields(StepBase, frozen=True):
    """Fails if the data is not as it must be."""

    #: path: what must be there
    fields: dict[str, FieldCheck]
    unknown: Literal["ignore", "note", "fail"] = "ignore"


class Http(StepBase, frozen=True):
    """Calls a URL; ``{path}`` in its path or query is replaced by that field, percent-encoded."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, str] = {}
    #: "data" is all of it, "none" nothing, everything else a path
    body: str = "data"
    into: str | None = None
    #: statuses that are a success; without any, 200 to 299
    expect: list[int] = []
    save: Literal["body", "all"] = "body"


class Child(StepBase, frozen=True):
    """Runs another pipeline and waits for it."""

    pipeline: str
    #: without one, the version that is active when the child starts
    version: str | None = None
    into: str | None = None


class Router(StepBase, frozen=True):
    """Runs the pipeline that the value of a field chooses; booleans and numbers by their JSON text."""

    field: str
    routes: dict[str, str] = {}
    default: str | None = None
    into: str | None = None


class Parallel(StepBase, frozen=True):
    """Runs branches at the same time; the output is ``{branch: output}``."""

    branches: dict[str, Steps]
    on_failure: OnFailure = "fast"

    if TYPE_CHECKING:  # strings and lists are taken, and made tuples of steps

        def __init__(
            self,
            branches: Mapping[str, Sequence[str | AnyStep]],
            on_failure: OnFailure = "fast",
            *,
            id: str = "",
            retry: Retry | None = None,
            timeout_ms: int | None = None,
            node_group: str | None = None,
            compensate: str | None = None,
            note: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.branches, Mapping):
            raise DefinitionError(f"branches: give names and their steps, not {type(self.branches).__name__}")
        made = {name: as_steps(steps, f"branches.{name}") for name, steps in self.branches.items()}
        msgspec.structs.force_setattr(self, "branches", made)


class Map(StepBase, frozen=True):
    """Runs a pipeline, or steps, for each item of an array; the output is the array of theirs."""

    field: str
    pipeline: str | None = None
    steps: Steps | None = None
    #: how many run at the same time
    at_once: int = 100
    on_failure: OnFailure = "fast"
    into: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            field: str,
            pipeline: str | None = None,
            steps: Sequence[str | AnyStep] | None = None,
            at_once: int = 100,
            on_failure: OnFailure = "fast",
            into: str | None = None,
            *,
            id: str = "",
            retry: Retry | None = None,
            timeout_ms: int | None = None,
            node_group: str | None = None,
            compensate: str | None = None,
            note: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.steps is not None:
            msgspec.structs.force_setattr(self, "steps", as_steps(self.steps))


AnyStep: TypeAlias = (
    Function
    | Delay
    | Wait
    | Progress
    | Reply
    | MapFields
    | CheckFields
    | Http
    | Child
    | Router
    | Parallel
    | Map
)
if TYPE_CHECKING:
    Steps: TypeAlias = tuple[AnyStep, ...]
else:  # a decoder meets strings as well; nobody behind __post_init__ does
    Steps = tuple[str | AnyStep, ...]


def as_steps(given: Sequence[str | AnyStep], path: str = "steps") -> Steps:
    """With a Function for each string; DefinitionError for what cannot be a step at all."""
    if not isinstance(given, list | tuple):
        raise DefinitionError(f"{path}: give a list of steps, not {type(given).__name__}")
    made = [Function(step) if isinstance(step, str) else step for step in given]
    wrong = [
        f"{path}[{index}]: give a step or the name of a function, not {step!r:.60}"
        for index, step in enumerate(made)
        if not isinstance(step, StepBase)
    ]
    if wrong:
        raise DefinitionError(*wrong)
    return tuple(made)
