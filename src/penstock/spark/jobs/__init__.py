"""The jobs of the data pipeline, by name.

    options, make = KINDS["export"].load()
    job = make(options(streams=["orders"]))

A kind is loaded when it is asked for: module ``penstock.spark.jobs.<name>`` has ``<Name>Job`` and its
``<Name>Options``. The order of the table is the order of one pass: what fills the lake first, then what
cleans up behind it, then what looks whether all is well.

Rules: ``job`` says what a job is. Nothing here runs one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.spark.jobs.job import Job

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


@dataclass(frozen=True, slots=True)
class JobKind:
    """What is known of a job before it is loaded."""

    name: str
    summary: str
    #: how often, unless the configuration tells; None: when somebody asks for it
    every_ms: int | None

    def load(self) -> tuple[type[msgspec.Struct], Callable[[Any], Job]]:
        """The class of its options, and what makes the job of them."""
        module = importlib.import_module(f"{__name__}.{self.name}")
        prefix = self.name.capitalize()
        return getattr(module, f"{prefix}Options"), getattr(module, f"{prefix}Job")


KINDS: Final[Mapping[str, JobKind]] = {
    kind.name: kind
    for kind in (
        JobKind("archive", "ended transactions from the store to the lake", 10 * _SECOND),
        JobKind("export", "streams to the lake", 5 * _SECOND),
        JobKind("rollup", "statistics at three granularities", 10 * _SECOND),
        JobKind("compact", "the last message of each tag is kept in huge streams", 10 * _MINUTE),
        JobKind("retention", "what is too old leaves the lake and the store", 10 * _MINUTE),
        JobKind("maintain", "small files of the lake are merged, old ones removed", 10 * _MINUTE),
        JobKind("reconcile", "the lake is compared with the store", _HOUR),
        JobKind("replay", "messages of the lake to a stream", None),
    )
}

#: What runs where nobody says which jobs are wanted; ``export`` joins them if streams are named.
USUAL: Final = ("archive", "rollup", "maintain")
