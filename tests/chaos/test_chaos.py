"""A very short storm through the whole program, on a directory; and that the program sees what goes wrong."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import penstock
from tests.chaos import running
from tests.chaos.counters import Counters
from tests.chaos.crews import CREWS
from tests.chaos.model import Crew, Scene, Verdict
from tests.chaos.report import RunReport, SceneReport, render
from tests.chaos.running import run_scene

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

#: One whose clocks go backward only: what is taken in the future has to be waited for.
SEED = 18
STORM_S = 6.0


def _say(line: str) -> None:
    """Shown by pytest when the test fails, or with -s."""
    sys.stdout.write(line + "\n")


def _run(crews: list[Crew], seconds: float, directory: Path) -> SceneReport:
    report = asyncio.run(
        run_scene("embedded", crews, seed=SEED, seconds=seconds, directory=directory / "s", say=_say)
    )
    _say(render(RunReport(SEED, seconds / 60, [report])))
    return report


def test_a_short_storm_breaks_no_promise(tmp_path: Path) -> None:
    report = _run([CREWS["streams"](), CREWS["channels"]()], STORM_S, tmp_path)
    assert report.broken == 0
    assert report.happened["kill"] > 0
    assert {verdict.crew for verdict in report.verdicts if verdict.checked} == {"streams", "channels"}
    assert set(report.settled_s) == {"streams", "channels"}
    assert len((tmp_path / "s" / "plan.txt").read_text().splitlines()) >= sum(report.happened.values())
    assert not (tmp_path / "s" / "disk").is_mount()


class _Forgetful(Counters):
    """Whose store loses what was confirmed, before anybody looks."""

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        await ps.set("c0", b"-1")
        return True


class _Endless(Counters):
    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        return False

    def __repr__(self) -> str:
        return "<Endless waits for nothing>"


class _Careless(Counters):
    """One of whose members fails at once."""

    def __init__(self) -> None:
        super().__init__(is_careless=True)

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        return scene.error_of("counters-copier").exists()


class _Clueless(Counters):
    def __init__(self) -> None:
        super().__init__()
        self.members = ()  # their names are taken

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        raise LookupError("the books are gone")


def test_what_is_lost_is_told_and_its_store_is_kept(tmp_path: Path) -> None:
    report = _run([_Forgetful(), _Clueless()], 0.5, tmp_path)
    lost, clueless = report.verdicts
    assert "c0 is -1; " in lost.wrong[0]
    assert "LookupError: the books are gone" in clueless.wrong[0]
    assert report.broken == 2
    assert (tmp_path / "s" / "store.pen" / "data.mdb").exists()


def test_a_member_that_fails_is_told(tmp_path: Path) -> None:
    [failure] = _run([_Careless()], 0.3, tmp_path).wrong
    assert failure.startswith("counters-copier ended by itself:\n")
    assert failure.endswith("RuntimeError: a careless member")


def test_a_crew_that_does_not_settle_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SETTLE_S", 0.3)
    report = _run([_Endless()], 0.3, tmp_path)
    assert report.wrong == ["counters has not settled after 0.3 s of calm: <Endless waits for nothing>"]
