"""The Spark part: source, sinks, lake, archive, lookups, latency, start-up, growth, steps.

Aims: the source at least 0.7 of ``spark.read.parquet`` of the same data; a lookup by id below 5 ms (p50); a
micro-batch below 200 ms; the cost of a read the same however long the log is.

Each part runs in a process of its own (``spark_parts``), so that its JVM ends with it. Data that several
parts need is made by the first of them, in a directory that is removed at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.spark_parts.settings import Settings
from penstock.spark.java import chosen

#: In this order: ``growth`` lengthens the log that those before it read.
PARTS: Final = ("source", "lake", "growth", "archive", "lookup", "latency", "steps", "session")
MESSAGES: Final = 5_000_000
TRANSACTIONS: Final = 200_000
MANY_TRANSACTIONS: Final = 5_000_000
SIZES: Final = (1_000_000, 10_000_000)
LARGE_SIZE: Final = 100_000_000
#: Fewer archived transactions stay in one file.
_FEWEST_SORTED: Final = 20_000
_LIBRARIES: Final = ("pyspark", "pyarrow", "deltalake", "duckdb", "pandas")
_ROOT: Final = Path(__file__).resolve().parent.parent
#: Of one part, with the largest sizes on a slow machine.
_LIMIT_S: Final = 7_200


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("spark")
    group.add_argument("--messages", type=int, default=MESSAGES, help="of the log; default %(default)s")
    group.add_argument(
        "--transactions", type=int, nargs="?", default=TRANSACTIONS, const=MANY_TRANSACTIONS,
        help=f"archived ones to look up in; default %(default)s, {MANY_TRANSACTIONS} without a number",
    )  # fmt: skip
    group.add_argument("--large", action="store_true", help=f"let the log grow to {LARGE_SIZE:,}")


def main(arguments: argparse.Namespace) -> None:
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    print(f"Spark: {libraries}; Java {chosen().version} ({chosen().origin}); local[2]\n", flush=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory:
        settings = _settings(arguments, directory)
        for part in [arguments.only] if arguments.only in PARTS else PARTS:
            print(f"spark: {part} …", file=sys.stderr, flush=True)
            if problem := _run(part, settings):
                print(f"{part} is left out: {problem}\n", flush=True)
                failed.append(part)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


def _settings(arguments: argparse.Namespace, directory: str) -> Settings:
    def scaled(count: int, least: int) -> int:
        return max(int(count * arguments.scale), least)

    sizes = [*SIZES, LARGE_SIZE] if arguments.large else SIZES
    return Settings(
        directory=directory,
        messages=scaled(arguments.messages, 1_000),
        sizes=[scaled(size, 1_000) for size in sizes],
        sunk=scaled(1_000_000, 1_000),
        archived=scaled(20_000, 100),
        looked_up_in=scaled(arguments.transactions, _FEWEST_SORTED),
        stepped=scaled(10_000, 100),
    )


def _run(part: str, settings: Settings) -> str | None:
    """Its tables go to our stdout, its words to our stderr; what went wrong, or None."""
    command = [sys.executable, "-m", f"bench.spark_parts.{part}", settings.to_json()]
    try:
        done = subprocess.run(command, cwd=_ROOT, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {_LIMIT_S} s"
    return f"it ended with status {done.returncode}" if done.returncode else None
