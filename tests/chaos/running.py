"""One scene, from the first stream to the last verdict.

    report = await run_scene("redis", crews, seed=7, seconds=60, directory=path, say=print)

1. The crews prepare; members begin to live.
2. The weather rages as planned (the plan is in ``plan.txt`` of the directory).
3. It is calm: the store is whole, clocks are right, members that make new work are ended.
4. The others go on until each crew says that everything has arrived; that has a limit.
5. All are ended; each crew is judged, the store itself is looked at.

Rules: what goes wrong is written into the report and the rest goes on, so that one failure does not hide
another. Only a Ctrl-C comes through.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import penstock
from tests.chaos.model import Crew, SceneKind, Verdict
from tests.chaos.plan import KINDS_OF_MEMBERS, Event, Offer, draw
from tests.chaos.processes import Fleet
from tests.chaos.report import SceneReport
from tests.chaos.scenes import PLACES, Place
from tests.chaos.weather import Weather

#: How long everything that was confirmed may take to arrive once it is calm.
SETTLE_S: Final = 480.0
_LOOK_S: Final = 0.25

Say = Callable[[str], None]


async def run_scene(
    kind: SceneKind, crews: Sequence[Crew], *, seed: int, seconds: float, directory: Path, say: Say
) -> SceneReport:
    """Never fails because of what it finds: see ``wrong`` of the report."""
    report = SceneReport(kind, seconds)
    try:
        async with PLACES[kind](directory) as place:
            await _Scene(place, crews, seed, report, say).run()
    except Exception:  # noqa: BLE001 - whatever it was, it is what was found
        report.wrong.append(f"the scene could not go on:\n{traceback.format_exc()}")
    return report


class _Scene:
    """What the phases have in common."""

    def __init__(self, place: Place, crews: Sequence[Crew], seed: int, report: SceneReport, say: Say) -> None:
        self._place = place
        self._scene = place.scene
        self._crews = crews
        self._seed = seed
        self._report = report
        self._tell = say
        self._members = [member for crew in crews for member in crew.members]
        report.about, report.notes = place.about, place.notes

    def _say(self, text: str) -> None:
        self._tell(f"{self._place.kind}: {text}")

    async def run(self) -> None:
        """Keeps the store if something is wrong: its disk goes with the place."""
        is_sound = False
        try:
            await self._run()
            is_sound = not self._report.broken
        finally:
            if not is_sound:
                await asyncio.to_thread(self._place.save, self._place.directory)

    async def _run(self) -> None:
        plan = self._plan()
        async with penstock.open(self._scene.calm_url) as ps:
            for crew in self._crews:
                await crew.prepare(self._scene, ps)
        async with Fleet(self._scene, self._members, self._seed) as fleet:
            try:
                await self._storm(fleet, plan)
                await self._calm(fleet)
            finally:
                await fleet.end()
                self._report.lives = fleet.lives
                self._report.wrong += fleet.failures
        await self._judge()

    def _plan(self) -> list[Event]:
        members = {member.name: member.weight for member in self._members}
        kinds = self._place.kinds | KINDS_OF_MEMBERS
        plan = draw(self._seed, self._report.seconds, Offer(kinds, members, self._place.nodes))
        path = self._place.directory / "plan.txt"
        path.write_text("".join(f"{event}\n" for event in plan))
        self._say(f"{len(self._members)} members, {len(plan)} faults planned ({path})")
        return plan

    async def _storm(self, fleet: Fleet, plan: Sequence[Event]) -> None:
        weather = Weather(fleet, self._place)
        try:
            await weather.rage(plan, self._report.seconds)
        finally:
            self._report.happened, self._report.left_out = weather.happened, weather.left_out
        self._say(f"{weather.happened.total()} faults happened, now it is calm")

    async def _calm(self, fleet: Fleet) -> None:
        start_s = time.monotonic()
        await self._place.calm()
        await fleet.retire(member.name for member in self._members if member.is_maker)
        settled: dict[str, float] = {}
        self._report.settled_s = settled
        waiting = list(self._crews)
        async with penstock.open(self._scene.calm_url) as ps:
            while waiting and time.monotonic() - start_s < SETTLE_S:
                for crew in list(waiting):
                    if await crew.is_settled(self._scene, ps):
                        settled[crew.name] = time.monotonic() - start_s
                        waiting.remove(crew)
                await asyncio.sleep(_LOOK_S if waiting else 0)
        for crew in waiting:
            self._report.wrong.append(f"{crew.name} has not settled after {SETTLE_S:g} s of calm: {crew!r}")
        self._say(f"settled after {time.monotonic() - start_s:.1f} s")

    async def _judge(self) -> None:
        async with penstock.open(self._scene.calm_url) as ps:
            self._report.verdicts = [await self._verdict(crew, ps) for crew in self._crews]
        self._report.wrong += await self._place.examine()
        self._say(f"{self._report.broken} broken promises")

    async def _verdict(self, crew: Crew, ps: penstock.Penstock) -> Verdict:
        try:
            return await crew.judge(self._scene, ps)
        except Exception:  # noqa: BLE001 - the others are judged all the same
            return Verdict(crew.name, wrong=[f"the judge could not go on:\n{traceback.format_exc()}"])
