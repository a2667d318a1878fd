"""Every crew in a storm through the whole program: a short one each time, a long one for ``make soak``.

PENSTOCK_CRASH_SECONDS   how long the long ones last; 60 unless given
PENSTOCK_CRASH_SEED      the random choices of an earlier run, which prints it
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.chaos.crews import CREWS
from tests.chaos.model import SceneKind
from tests.chaos.report import RunReport, SceneReport, render
from tests.chaos.running import run_scene
from tests.effort import seed_of

pytestmark = [pytest.mark.crash]

SEED = seed_of("PENSTOCK_CRASH_SEED")
LONG_S = float(os.environ.get("PENSTOCK_CRASH_SECONDS", "60"))
SHORT_S = 4.0


def _say(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


def _storm(kind: SceneKind, names: list[str], seconds: float, directory: Path) -> SceneReport:
    crews = [CREWS[name]() for name in names]
    place = directory / "scene"
    report = asyncio.run(run_scene(kind, crews, seed=SEED, seconds=seconds, directory=place, say=_say))
    _say(render(RunReport(SEED, seconds / 60, [report])))
    return report


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_storm_on_a_server(tmp_path: Path) -> None:
    """The crews that the short storm of ``test_chaos`` leaves out."""
    names = ["pubsub", "transactions"]
    report = _storm("redis", names, SHORT_S, tmp_path)
    assert report.broken == 0
    assert [verdict.crew for verdict in report.verdicts if verdict.checked] == names


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kind", ["embedded", "redis", "cluster"])
def test_a_long_storm_with_everybody(kind: SceneKind, tmp_path: Path) -> None:
    report = _storm(kind, list(CREWS), LONG_S, tmp_path)
    assert report.broken == 0
    assert {verdict.crew for verdict in report.verdicts if verdict.checked} == CREWS.keys()
