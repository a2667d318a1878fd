"""The data pipeline's configuration: one YAML file, the command line over it, frozen values out of it.

    store: redis://localhost            # or the directory of a store
    lake: ./lake
    node: etl-1                         # default: the name of this machine
    spark:
      master: local[4]
      conf: {spark.driver.memory: 4g}
      log: ./spark.log
    jobs:
      archive: {}
      export: {every: 5s, streams: [orders, audit]}
      nightly-export: {job: export, every: 24h, streams: [clicks]}
      reconcile: {every: never}         # when somebody asks for it by name

Keys of a job, beside ``job`` and ``every``, are the fields of its options. A field that ends in ``_ms`` may
be written without that, as a duration: ``older_than: 7d`` for ``older_than_ms``. ``${NAME}`` is a variable
of the environment.

Rules: either a whole configuration or one ``ConfigError`` with every problem, one a line, each with its path.
The process environment is not looked at; it is handed in. Knows no job's options: each job brings them along.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from penstock.configuration.durations import duration_ms_of
from penstock.configuration.problems import BROKEN, Problems, child, show, suggest
from penstock.configuration.sources import read_source
from penstock.configuration.variables import expand
from penstock.errors import ConfigError, PenstockError
from penstock.spark.job_options import read_options
from penstock.spark.jobs import KINDS, USUAL, JobKind
from penstock.spark.jobs.job import Job
from penstock.spark.options import absolute_url

#: Names the file for commands that are given none.
CONFIG_VARIABLE: Final = "PENSTOCK_SPARK_CONFIG"
#: Where store and lake are, if neither the file nor the command line says so.
PLACE_VARIABLES: Final = {"store": "PENSTOCK_STORE", "lake": "PENSTOCK_LAKE"}
NEVER: Final = "never"

_KEYS: Final = ("store", "lake", "node", "spark", "jobs")
_SPARK_KEYS: Final = ("master", "conf", "log")
#: It becomes a field of a hash and a directory.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What ``penstock.spark.session`` is called with."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """What a configuration says of where things are; None where it does not."""

    store: str | None
    lake: Path | None
    session: SessionConfig


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One job, ready to run."""

    name: str
    kind: str
    job: Job
    #: None: only when it is asked for by name
    every_ms: int | None


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """Everything a runner needs. Jobs are in the order of one pass."""

    #: with an absolute path, since executors run elsewhere
    store: str
    lake: Path
    node: str
    session: SessionConfig
    jobs: tuple[JobConfig, ...]

    def only(self, names: Sequence[str]) -> PipelineConfig:
        """With these jobs alone."""
        return replace(self, jobs=tuple(each for each in self.jobs if each.name in names))


def load(
    source: Path | Literal["-"] | None,
    *,
    environment: Mapping[str, str],
    overrides: Mapping[KeyPath, object] | None = None,
    wanted: Sequence[str] = (),
) -> PipelineConfig:
    """The configuration in a file, in standard input (``"-"``), or of nothing but defaults (``None``).

    ``overrides``: values by path (``{("spark", "master"): "local[2]"}``); ``None`` is no override.
    ``wanted``: names of jobs that must be there; kinds that the file does not mention come with defaults.
    """
    problems = Problems()
    usual = () if wanted else USUAL
    tree = _tree(source, environment, overrides or {}, problems, dict.fromkeys(usual))
    jobs = _with_wanted(_mapping("jobs", tree["jobs"], problems), wanted, problems)
    config = PipelineConfig(
        store=_store(tree.get("store"), problems),
        lake=Path(_text("lake", tree.get("lake"), problems)),
        node=_name("node", tree.get("node") or socket.gethostname(), problems),
        session=_session(tree.get("spark"), problems),
        jobs=tuple(_jobs(jobs, problems)),
    )
    problems.raise_if_any()
    return config


def places(
    source: Path | Literal["-"] | None,
    *,
    environment: Mapping[str, str],
    overrides: Mapping[KeyPath, object] | None = None,
) -> Places:
    """Where store, lake and Spark are, for who runs no job: neither jobs are read, nor must all be there."""
    problems = Problems()
    tree = _tree(source, environment, overrides or {}, problems)
    found = Places(
        store=None if tree.get("store") is None else _store(tree["store"], problems),
        lake=None if tree.get("lake") is None else Path(_text("lake", tree["lake"], problems)),
        session=_session(tree.get("spark"), problems),
    )
    problems.raise_if_any()
    return found


# -------------------------------------------------------------------------------------- the tree


def _tree(
    source: Path | Literal["-"] | None,
    environment: Mapping[str, str],
    overrides: Mapping[KeyPath, object],
    problems: Problems,
    jobs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the file, the command line and the environment say together; ``jobs`` if nobody names any."""
    tree = _mapping("", expand(read_source(source), environment, problems), problems)
    _refuse_unknown("", tree, _KEYS, problems)
    if tree.get("jobs") is None:
        tree["jobs"] = dict(jobs or {})
    for path, value in overrides.items():
        if value is not None:
            _put(tree, path, value, problems)
    for key, variable in PLACE_VARIABLES.items():
        if tree.get(key) is None and environment.get(variable):
            tree[key] = environment[variable]
    return tree


def _mapping(path: str, value: Any, problems: Problems) -> dict[str, Any]:
    if isinstance(value, dict):
        return {str(key): part for key, part in value.items()}
    if value is not None and value is not BROKEN:
        problems.add(path, f"must be a mapping, not {show(value)}", getattr(value, "origin", ""))
    return {}


def _refuse_unknown(path: str, tree: Iterable[str], allowed: Sequence[str], problems: Problems) -> None:
    for name in tree:
        if name not in allowed:
            problems.add(child(path, name), f"is not a known key: {suggest(name, allowed)}")


def _put(tree: dict[str, Any], path: KeyPath, value: object, problems: Problems) -> None:
    """The value at the end of the path; a mapping is laid over the one that is there."""
    branch = tree
    for at, key in enumerate(path[:-1]):
        branch[key] = _mapping(".".join(path[: at + 1]), branch.get(key), problems)
        branch = branch[key]
    there = branch.get(path[-1])
    branch[path[-1]] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value


def _text(path: str, value: Any, problems: Problems, default: str | None = None) -> str:
    if value is None and default is None:
        problems.add(path, "is missing")
    elif value is not None and value is not BROKEN and not (isinstance(value, str) and value):
        problems.add(path, f"must be text that is not empty, not {show(value)}", getattr(value, "origin", ""))
    return str(value) if isinstance(value, str) else default or ""


def _store(value: Any, problems: Problems) -> str:
    url = _text("store", value, problems)
    if url:
        try:
            return absolute_url(url)
        except PenstockError as error:
            problems.add("store", str(error))
    return url


def _name(path: str, value: Any, problems: Problems) -> str:
    name = _text(path, value, problems)
    if name and _NAME.fullmatch(name) is None:
        problems.add(path, f"must be 1 to 63 letters, digits, '_', '.' or '-', not {show(name)}")
    return name


def _session(value: Any, problems: Problems) -> SessionConfig:
    tree = _mapping("spark", value, problems)
    _refuse_unknown("spark", tree, _SPARK_KEYS, problems)
    conf = {}
    for name, part in _mapping("spark.conf", tree.get("conf"), problems).items():
        if isinstance(part, bool | int | float | str):
            conf[name] = str(part).lower() if isinstance(part, bool) else str(part)
        elif part is not BROKEN:
            problems.add(child("spark.conf", name), f"must be text or a number, not {show(part)}")
    texts = {
        key: _text(f"spark.{key}", tree[key], problems, "") or None
        for key in ("master", "log")
        if tree.get(key) is not None
    }
    return SessionConfig(conf=conf, **texts)


# -------------------------------------------------------------------------------------- jobs


def _with_wanted(jobs: dict[str, Any], wanted: Iterable[str], problems: Problems) -> dict[str, Any]:
    for name in wanted:
        if name in jobs:
            continue
        if name in KINDS:
            jobs[name] = None
        else:
            problems.add("", f"there is no job {show(name)}: {suggest(name, dict.fromkeys((*jobs, *KINDS)))}")
    return jobs


def _jobs(tree: Mapping[str, Any], problems: Problems) -> list[JobConfig]:
    found = [_job(name, part, problems) for name, part in tree.items()]
    order = list(KINDS)
    return sorted((each for each in found if each is not None), key=lambda each: order.index(each.kind))


def _job(name: str, value: Any, problems: Problems) -> JobConfig | None:
    path = child("jobs", name)
    if value is BROKEN:
        return None
    _name(path, name, problems)
    tree = _mapping(path, value, problems)
    kind = _kind(path, name, tree.pop("job", None), problems)
    every_ms = _every_ms(child(path, "every"), tree.pop("every", None), kind, problems)
    job = _made(path, name, kind, tree, problems) if kind is not None else None
    return JobConfig(name, kind.name, job, every_ms) if kind is not None and job is not None else None


def _kind(path: str, name: str, told: Any, problems: Problems) -> JobKind | None:
    word = name if told is None else str(told)
    kind = KINDS.get(word)
    if kind is None:
        where = path if told is None else child(path, "job")
        hint = suggest(word, KINDS)
        more = " (a job with a name of your own says which it is: job: export)" if told is None else ""
        problems.add(where, f"there is no job {show(word)}: {hint}{more}")
    return kind


def _every_ms(path: str, value: Any, kind: JobKind | None, problems: Problems) -> int | None:
    if value is None:
        return kind.every_ms if kind is not None else None
    if value == NEVER:
        return None
    try:
        return duration_ms_of(value, min_ms=1, has_days=True)
    except ValueError as error:
        problems.add(path, f"{error} ({NEVER} is allowed, too)", getattr(value, "origin", ""))
        return None


def _made(path: str, name: str, kind: JobKind, tree: Mapping[str, Any], problems: Problems) -> Job | None:
    try:
        options_class, make = kind.load()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the job {kind.name} needs packages that are not installed ({error.name}):"
            " pip install 'penstock[spark]'"
        ) from error
    options = read_options(path, options_class, tree, problems)
    if options is None:
        return None
    try:
        job = make(options)
    except PenstockError as error:
        problems.add(path, str(error))
        return None
    job.name = name
    return job
