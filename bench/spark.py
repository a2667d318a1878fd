"""The Spark part: source, sinks, lake, archive, lookups, latency, start-up, growth, steps.

Aims: the source at least 0.7 of ``spark.read.parquet`` of the same data; a lookup by id below 5 ms (p50); a
micro-batch below 200 ms; the cost of a read the same however long the log is.

Each part runs in a process of its own (``spark_parts``), so that its JVM ends with it. Data that several
parts need is made by the first of them, in a directory that is removed at the end of the run.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from bench.environments import NotMeasuredError
from bench.machine import versions_of
from bench.results import Results
from bench.running import Measure, Run
from bench.spark_parts.settings import Settings
from penstock.errors import PenstockError
from penstock.spark.java import chosen

#: In the order of ``plan.py``: ``growth`` lengthens the log that those before it read.
_PARTS: Final = ("source", "lake", "growth", "archive", "lookup", "latency", "steps", "session")
_LIBRARIES: Final = ("pyspark", "pyarrow", "deltalake", "duckdb", "pandas")
_ROOT: Final = Path(__file__).resolve().parent.parent
#: Of one part, with the largest sizes on a slow machine.
_LIMIT_S: Final = 7_200


def measure(part: str, run: Run) -> None:
    """Its tables go to our stdout, its words to our stderr, its figures into ``run.results``."""
    _tell_versions(run)
    settings = _settings(run, part)
    command = [sys.executable, "-m", f"bench.spark_parts.{part}", settings.to_json()]
    subprocess.run(command, cwd=_ROOT, timeout=_LIMIT_S, check=True)
    run.results.merge(Results.load(Path(settings.results)))


def _tell_versions(run: Run) -> None:
    try:
        java = chosen()
    except PenstockError as error:
        raise NotMeasuredError(str(error)) from error
    run.results.versions.update(versions_of(*_LIBRARIES) | {f"Java ({java.origin})": str(java.version)})


def _settings(run: Run, part: str) -> Settings:
    """Data that several parts need lies in a directory of the run, and is made by the first of them."""
    sizes = run.sizes
    return Settings(
        directory=str(run.directory),
        results=str(run.directory / f"{part}.json"),
        rounds=sizes.rounds,
        messages=sizes.table_messages,
        sizes=list(sizes.table_sizes),
        sunk=sizes.sunk,
        archived=sizes.archived,
        looked_up_in=sizes.looked_up_in,
        stepped=sizes.stepped,
    )


SECTIONS: Final[dict[str, Measure]] = {part: partial(measure, part) for part in _PARTS}
