"""Plans on their way to executors.

    over(plan)          # for mapInArrow: the calls of a batch
    trial(plans)        # calls nothing: where this runs, every function has arrived

A function of a module travels by its name, one of a notebook or of the main script as a whole. So that names
are found, the places where the driver finds modules travel along: an executor that sees the same directories
(on the same machine, or by NFS) looks there last. Where it does not, modules have to be installed.

Rules: a plan is unpacked once in a process, and kept for the next batch: what a function keeps for itself, as
a model that takes long to load, is there again. Runs on both sides; knows neither the session nor the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.steps.executing import Plan, untouched

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterator["pa.RecordBatch"]

#: Plans that a process keeps.
_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Parcel:
    """Plans, packed."""

    content: bytes
    paths: tuple[str, ...]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Parcel:
        from pyspark import cloudpickle

        content = cloudpickle.dumps(list(plans))  # type: ignore[no-untyped-call]
        return cls(content, tuple(path or str(Path.cwd()) for path in sys.path))

    def opened(self) -> list[Plan]:
        sys.path += [path for path in self.paths if path not in sys.path and Path(path).exists()]
        return _unpacked(self.content)


@lru_cache(_KEPT)
def _unpacked(content: bytes) -> list[Plan]:
    from pyspark import cloudpickle

    plans: list[Plan] = cloudpickle.loads(content)
    return plans


def over(plan: Plan) -> Callable[[Batches], Batches]:
    """The calls of a batch, and their results."""
    parcel = Parcel.of([plan])

    def run(batches: Batches) -> Batches:
        (arrived,) = parcel.opened()
        return map(arrived.run, batches)

    return run


def trial(plans: Sequence[Plan]) -> Callable[[Batches], Batches]:
    """A result for every call, and no call."""
    parcel = Parcel.of(plans)

    def look(batches: Batches) -> Batches:
        parcel.opened()
        return map(untouched, batches)

    return look
