"""Everything at once, on everything: kills, stops, full disks, cut connections, wrong clocks, failovers.

    python -m tests.chaos --minutes 10 --seed 7
    python -m tests.chaos --minutes 1 --scene redis cluster --crew streams channels

The minutes of storm are shared by the scenes. Prints a report, and how to repeat the run; the status is 1 if
a promise was broken, and then plan, logs and stores are kept. docs/chaos.md tells what is promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import get_args

from tests.chaos.crews import CREWS
from tests.chaos.model import SceneKind
from tests.chaos.report import RunReport, SceneReport, render
from tests.chaos.running import run_scene

_INTERRUPTED = 130


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    scenes = get_args(SceneKind)
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="faults of every kind under load"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of storm, for all scenes together (10)")
    parser.add_argument("--seed", type=int, help="repeats a run; else one is drawn and printed")
    parser.add_argument("--scene", nargs="+", choices=scenes, default=scenes, help="all unless given")
    parser.add_argument(
        "--crew", nargs="+", choices=list(CREWS), default=list(CREWS), help="all unless given"
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="leave the data pipeline out: no Java is needed"
    )
    parser.add_argument("--report", type=Path, help="write the report here, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for logs and plans, kept")
    given = parser.parse_args()
    if given.minutes <= 0:
        parser.error(f"--minutes must be more than 0, not {given.minutes:g}")
    if given.keep is not None and given.keep.exists():
        parser.error(f"--keep needs a directory that is not there yet, and {given.keep} is")
    if given.no_spark:
        given.crew = [name for name in given.crew if name != "spark"]
    if not given.crew:
        parser.error("no crew is left: name some with --crew")
    if given.seed is None:
        given.seed = random.randrange(1 << 32)
    return given


async def _run(given: argparse.Namespace, directory: Path) -> list[SceneReport]:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Everything that was started, stopped or mounted is taken back on the way out.
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    seconds = given.minutes * 60 / len(given.scene)
    return [
        await run_scene(
            kind,
            [CREWS[name]() for name in given.crew],
            seed=given.seed,
            seconds=seconds,
            directory=directory / kind,
            say=_say,
        )
        for kind in given.scene
    ]


def _repetition(given: argparse.Namespace) -> str:
    """What repeats the weather of this run."""
    if list(given.scene) == list(get_args(SceneKind)) and given.crew == list(CREWS):
        return f"make chaos MINUTES={given.minutes:g} SEED={given.seed}"
    chosen = f"--scene {' '.join(given.scene)} --crew {' '.join(given.crew)}"
    return f"python -m tests.chaos --minutes {given.minutes:g} --seed {given.seed} {chosen}"


def main() -> int:
    given = _arguments()
    logging.getLogger().addHandler(logging.NullHandler())  # connections are lost all the time
    directory = given.keep or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    _say(f"Seed {given.seed}; logs are in {directory}")
    try:
        with asyncio.Runner() as runner:
            scenes = runner.run(_run(given, directory))
    except asyncio.CancelledError:
        _say(f"Interrupted; what there is has been kept in {directory}")
        return _INTERRUPTED
    report = RunReport(given.seed, given.minutes, scenes)
    page = render(report)
    _say("\n" + page)
    if given.report is not None:
        given.report.write_text(page)
    if report.broken:
        _say(f"Logs, plans and stores are kept in {directory}")
    elif given.keep is None:
        with contextlib.suppress(OSError):
            shutil.rmtree(directory)
    _say(f"To repeat it: {_repetition(given)}")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
