"""Hours of hostile input, for those who have them.

    python -m tests.fuzz TARGET… --minutes 5 --seed 7
    python -m tests.fuzz all --minutes 10

Tells how many inputs were tried. What fails is kept in ``tests/fuzz/corpus/<target>/``; so is the input that
the process was at when it died (it is written down before it is tried), as soon as the target runs again.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import sys
import tempfile
import traceback
from mmap import mmap
from pathlib import Path
from typing import Final

from tests.fuzz.mutating import MAX_BYTES
from tests.fuzz.running import Report, run, save
from tests.fuzz.targets import TARGETS

_HEAD_BYTES: Final = 4
_HANGS_S: Final = 60


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class LastInput:
    """The input that is being tried, in a file that outlives a crash of the process."""

    def __init__(self, name: str) -> None:
        self._path = Path(tempfile.gettempdir()) / f"penstock-fuzz-{name}.last"
        if self._path.exists():
            old = self._path.read_bytes()
            data = old[_HEAD_BYTES : _HEAD_BYTES + int.from_bytes(old[:_HEAD_BYTES], "big")]
            _say(f"{name}: the last run died at an input, kept as {save(name, data).name}")
        self._path.write_bytes(bytes(_HEAD_BYTES + 8 * MAX_BYTES))
        self._file = self._path.open("r+b")
        self._map = mmap(self._file.fileno(), 0)

    def note(self, data: bytes) -> None:
        """Called before an input is tried. One that hangs ends the process, and shows where it was."""
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)
        data = data[: len(self._map) - _HEAD_BYTES]
        self._map[: _HEAD_BYTES + len(data)] = len(data).to_bytes(_HEAD_BYTES, "big") + data

    def close(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._map.close()
        self._file.close()
        self._path.unlink(missing_ok=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="hostile input")
    parser.add_argument("targets", nargs="+", metavar="TARGET", help=f"all, or some of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together (5)")
    parser.add_argument("--seed", type=int, help="repeats a run; else one is drawn and printed")
    given = parser.parse_args()
    names = list(TARGETS) if "all" in given.targets else given.targets
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}: name some of {', '.join(TARGETS)}, or all")
    given.targets = names
    return given


def _run_one(name: str, seconds: float, seed: int) -> Report:
    last = LastInput(name)
    with TARGETS[name]() as target:
        report = run(target, seed=seed, seconds=seconds, on_input=last.note)
    last.close()
    return report


def main() -> int:
    given = _arguments()
    logging.getLogger().addHandler(logging.NullHandler())  # targets listen themselves
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    failed = 0
    for name in given.targets:
        report = _run_one(name, given.minutes * 60 / len(given.targets), seed)
        _say(str(report))
        for failure in report.failures:
            _say(f"  {failure}")
            traceback.print_exception(failure.error)
        failed += len(report.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
