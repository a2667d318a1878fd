"""Whether a pipeline makes sense: every problem at once, each with the path to it and what to do.

    steps[2].branches.eu[0].ms: must be 1 to 31622400000 milliseconds, not 0

Rules: types are right already (``codec`` decodes before it asks here); nothing raises, problems are text.
Whether the pipelines and functions that are named exist is not asked: they may come later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.transactions.keys import is_name
from penstock.transactions.pipelines.definition import Pipeline, walk
from penstock.transactions.pipelines.patterns import PatternError, compile_pattern
from penstock.transactions.pipelines.retry import Retry
from penstock.transactions.pipelines.steps import (
    AnyStep,
    CheckFields,
    Child,
    Delay,
    FieldCheck,
    Function,
    Http,
    Map,
    MapFields,
    Parallel,
    Router,
    Wait,
)
from penstock.webhooks.addresses import check_url
from penstock.webhooks.endpoints import ANY_ADDRESS
from penstock.webhooks.model import checked_headers

MAX_STEPS: Final = 500
MAX_DEPTH: Final = 8
MAX_BRANCHES: Final = 100
MAX_AT_ONCE: Final = 10_000
MAX_PRIORITY: Final = 9
MAX_ATTEMPTS: Final = 1_000
MAX_NOTE_LENGTH: Final = 2_000
MAX_PATH_LENGTH: Final = 256
MAX_MS: Final = 366 * 24 * 60 * 60 * 1_000

#: Dots and slashes part the paths of ``steps_at``.
_BRANCH: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VERSION: Final = re.compile(r"[0-9a-f]{20}")
_PATH: Final = re.compile(r"[^.\x00-\x1f]+(?:\.[^.\x00-\x1f]+)*")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

#: Steps that do work of their own or of children: they can fail, last, and be undone.
_WORKING: Final = (Function, Http, Child, Router, Parallel, Map)


def problems_of(pipeline: Pipeline) -> list[str]:
    """All that is wrong with it; nothing if it may be saved."""
    check = _Check()
    check.name("name", pipeline.name)
    check.name("node_group", pipeline.node_group)
    check.note("description", pipeline.description)
    check.time("deadline_ms", pipeline.deadline_ms)
    check.number("priority", pipeline.priority, 0, MAX_PRIORITY)
    check.retry("retry", pipeline.retry)
    if pipeline.input is not None:
        _check_fields(check, "input", pipeline.input)
    _check_steps(check, pipeline)
    return check.problems


class _Check:
    """Collects problems. Each question names the path, so that answers need no context."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def add(self, path: str, text: str) -> None:
        self.problems.append(f"{path}: {text}")

    def require(self, is_right: object, path: str, text: str) -> None:
        if not is_right:
            self.add(path, text)

    def name(self, path: str, value: str | None) -> None:
        if value is not None and not is_name(value):
            self.add(
                path, f"must be 1 to 128 of the characters A-Z a-z 0-9 _ . @ : / + -, not {value!r:.150}"
            )

    def field(self, path: str, value: str | None) -> None:
        if value is not None and (len(value) > MAX_PATH_LENGTH or not _PATH.fullmatch(value)):
            self.add(path, f"must be names of fields with dots between them, not {value!r:.150}")

    def number(self, path: str, value: float | None, least: float, most: float, unit: str = "") -> None:
        if value is not None and not least <= value <= most:
            self.add(path, f"must be {least} to {most}{unit}, not {value}")

    def time(self, path: str, value: int | None) -> None:
        self.number(path, value, 1, MAX_MS, " milliseconds")

    def note(self, path: str, value: str) -> None:
        self.require(
            len(value) <= MAX_NOTE_LENGTH, path, f"must not be longer than {MAX_NOTE_LENGTH} characters"
        )

    def retry(self, path: str, retry: Retry | None) -> None:
        if retry is None:
            return
        self.number(f"{path}.limit", retry.limit, 1, MAX_ATTEMPTS)
        self.number(f"{path}.backoff_ms", retry.backoff_ms, 0, MAX_MS, " milliseconds")
        self.number(f"{path}.factor", retry.factor, 1, 100)
        self.number(f"{path}.max_backoff_ms", retry.max_backoff_ms, 0, MAX_MS, " milliseconds")
        self.number(f"{path}.jitter", retry.jitter, 0, 1)
        self.require(retry.on, f"{path}.on", 'must name errors or statuses, or be ["*"]')
        for part, names in (("on", retry.on), ("never", retry.never)):
            for index, name in enumerate(names):
                if name != "*" or part == "never":
                    self.name(f"{path}.{part}[{index}]", name)


def _check_steps(check: _Check, pipeline: Pipeline) -> None:
    seen: dict[str, str] = {}
    count = 0
    check.require(pipeline.steps, "steps", "must have at least one step")
    for path, depth, step in walk(pipeline.steps):
        count += 1
        if depth == MAX_DEPTH + 1:
            check.add(path, f"lies deeper than {MAX_DEPTH} levels, put it into a child pipeline")
        if step.id in seen:
            check.add(
                f"{path}.id", f"{step.id!r} is the id of {seen[step.id]} already, choose another or none"
            )
        seen.setdefault(step.id, path)
        _check_common(check, path, step)
        kind_check = _CHECKS.get(type(step))
        if kind_check is not None:
            kind_check(check, path, step)
    check.require(
        count <= MAX_STEPS,
        "steps",
        f"there are {count}, put some into child pipelines: {MAX_STEPS} are allowed",
    )


def _check_common(check: _Check, path: str, step: AnyStep) -> None:
    check.name(f"{path}.id", step.id)
    check.name(f"{path}.node_group", step.node_group)
    check.name(f"{path}.compensate", step.compensate)
    check.time(f"{path}.timeout_ms", step.timeout_ms)
    check.retry(f"{path}.retry", step.retry)
    check.note(f"{path}.note", step.note)
    if isinstance(step, _WORKING):
        return
    # What would never be heeded is refused: its author believes in it.
    for option in ("retry", "compensate", "timeout_ms"):
        is_heeded = option == "timeout_ms" and isinstance(step, Wait)
        if getattr(step, option) is not None and not is_heeded:
            check.add(f"{path}.{option}", f"has no meaning for a step of type {step.kind}, leave it out")


def _check_function(check: _Check, path: str, step: Function) -> None:
    check.name(f"{path}.name", step.name)


def _check_delay(check: _Check, path: str, step: Delay) -> None:
    for name in ("ms", "min_ms", "max_ms"):
        check.time(f"{path}.{name}", getattr(step, name))
    is_range = step.min_ms is not None and step.max_ms is not None
    is_either = (step.min_ms is None and step.max_ms is None) if step.ms is not None else is_range
    check.require(is_either, path, "give either ms, or min_ms and max_ms")
    if step.min_ms is not None and step.max_ms is not None:
        check.require(step.min_ms <= step.max_ms, f"{path}.max_ms", "must not be less than min_ms")


def _check_wait(check: _Check, path: str, step: Wait) -> None:
    check.name(f"{path}.switch", step.switch)
    check.field(f"{path}.into", step.into)
    if step.on_timeout == "continue":
        check.require(step.timeout_ms is not None, f"{path}.on_timeout", "needs timeout_ms, set it")


def _check_map_fields(check: _Check, path: str, step: MapFields) -> None:
    for target, source in step.copy.items():
        check.field(f"{path}.copy", target)
        check.field(f"{path}.copy.{target}", source)
    for target in step.set:
        check.field(f"{path}.set", target)
    for index, target in enumerate(step.drop):
        check.field(f"{path}.drop[{index}]", target)


def _check_fields(check: _Check, path: str, step: CheckFields) -> None:
    for name, field in step.fields.items():
        check.field(f"{path}.fields", name)
        for problem in _problems_of_field(field):
            check.add(f"{path}.fields.{name}.{problem[0]}", problem[1])


def _problems_of_field(field: FieldCheck) -> Iterator[tuple[str, str]]:
    if field.max_length is not None and field.max_length < 0:
        yield "max_length", f"must not be less than 0, but is {field.max_length}"
    if field.min is not None and field.max is not None and field.min > field.max:
        yield "max", "must not be less than min"
    if field.pattern is not None:
        try:
            compile_pattern(field.pattern)
        except PatternError as error:
            yield "pattern", f"must be a simple regular expression: {error}"


def _check_http(check: _Check, path: str, step: Http) -> None:
    problem = _problem_of_url(step.url)
    if problem is not None:
        check.add(f"{path}.url", problem)
    for name in _PLACEHOLDER.findall(step.url):
        check.field(f"{path}.url", name)
    try:
        checked_headers(step.headers)
    except ConfigError as error:
        check.add(f"{path}.headers", str(error))
    check.require(
        not any(name.lower() == "idempotency-key" for name in step.headers),
        f"{path}.headers",
        "Idempotency-Key is set for each attempt, leave it out",
    )
    if step.body not in ("data", "none"):
        check.field(f"{path}.body", step.body)
    check.field(f"{path}.into", step.into)
    for index, status in enumerate(step.expect):
        check.number(f"{path}.expect[{index}]", status, 100, 599)


def _problem_of_url(url: str) -> str | None:
    bare = _PLACEHOLDER.sub("", url)
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = None
    if not is_address or not url.isascii() or not url.isprintable() or " " in bare or len(url) > 2_000:
        return f"must be an address that begins with http:// or https://, not {url!r:.150}"
    # The data of a transaction must not choose whom we call.
    if "{" in parts.netloc or "}" in parts.netloc:
        return "must name its host itself: {…} may only stand in the path and the query"
    if "{" in bare or "}" in bare:
        return "has a brace without its partner, write %7B or %7D for the characters"
    try:
        # Which networks may be called is the operator's to say, where the step runs.
        check_url(_PLACEHOLDER.sub("x", url), ANY_ADDRESS)
    except ConfigError as error:
        return str(error)
    return None


def _check_child(check: _Check, path: str, step: Child) -> None:
    check.name(f"{path}.pipeline", step.pipeline)
    check.field(f"{path}.into", step.into)
    if step.version is not None and not _VERSION.fullmatch(step.version):
        check.add(f"{path}.version", f"must be the 20 hex digits of a version, not {step.version!r:.150}")


def _check_router(check: _Check, path: str, step: Router) -> None:
    check.field(f"{path}.field", step.field)
    check.field(f"{path}.into", step.into)
    check.name(f"{path}.default", step.default)
    for value, name in step.routes.items():
        check.name(f"{path}.routes.{value}", name)
    check.require(step.routes or step.default, path, "has nowhere to go, give routes or a default")


def _check_parallel(check: _Check, path: str, step: Parallel) -> None:
    count = len(step.branches)
    check.require(1 <= count <= MAX_BRANCHES, f"{path}.branches", f"must be 1 to {MAX_BRANCHES}, not {count}")
    for name, steps in step.branches.items():
        if not _BRANCH.fullmatch(name):
            check.add(f"{path}.branches", f"{name!r:.150} must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
        check.require(steps, f"{path}.branches.{name}", "must have at least one step")


def _check_map(check: _Check, path: str, step: Map) -> None:
    check.field(f"{path}.field", step.field)
    check.name(f"{path}.pipeline", step.pipeline)
    check.field(f"{path}.into", step.into)
    check.number(f"{path}.at_once", step.at_once, 1, MAX_AT_ONCE)
    check.require((step.pipeline is None) != (step.steps is None), path, "give either pipeline or steps")
    if step.steps is not None:
        check.require(step.steps, f"{path}.steps", "must have at least one step")


#: Progress and Reply say anything.
_CHECKS: Final[dict[type, Callable[[_Check, str, Any], None]]] = {
    Function: _check_function,
    Delay: _check_delay,
    Wait: _check_wait,
    MapFields: _check_map_fields,
    CheckFields: _check_fields,
    Http: _check_http,
    Child: _check_child,
    Router: _check_router,
    Parallel: _check_parallel,
    Map: _check_map,
}
