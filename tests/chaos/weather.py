"""Carries out a plan: each event at its time, on a fleet and its place, and counts what has happened.

    weather = Weather(fleet, place)
    await weather.rage(plan, seconds)       # ``weather.txt`` of the place tells what was when, in ns

Rules: events of one lane wait for one another (``plan.CROWDED`` excepted); one that is still waiting when the
time is over does not happen. Whatever happens is taken back before ``rage`` returns, also when it is
cancelled. Decides nothing: that is the plan's.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.chaos.clocks import set_shift
from tests.chaos.plan import CROWDED, LANE_OF, Event, Kind, Lane
from tests.chaos.processes import Fleet
from tests.chaos.scenes import Place


class Weather:
    def __init__(self, fleet: Fleet, place: Place) -> None:
        self._fleet = fleet
        self._place = place
        self._lanes: defaultdict[Lane, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: What has happened, and what was planned and could not be.
        self.happened: Counter[Kind] = Counter()
        self.left_out: Counter[Kind] = Counter()
        self._diary = place.directory / "weather.txt"

    async def rage(self, plan: Sequence[Event], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        async with asyncio.TaskGroup() as group:
            for event in plan:
                group.create_task(self._at_its_time(event, start_s, start_s + seconds))
        await asyncio.sleep(start_s + seconds - loop.time())

    async def _at_its_time(self, event: Event, start_s: float, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(start_s + event.at_s - loop.time())
        lane = LANE_OF[event.kind]
        if lane in CROWDED:
            has_happened = await self._happen(event)
        else:
            async with self._lanes[lane]:
                has_happened = loop.time() < end_s and await self._happen(event)
        (self.happened if has_happened else self.left_out)[event.kind] += 1

    async def _happen(self, event: Event) -> bool:
        """Writes down when it was: a plan is kept as well as a busy machine can."""
        began_ns = time.time_ns()
        has_happened = await self._carry_out(event)
        words = f"{began_ns} {time.time_ns()} {'' if has_happened else 'not '}{event}\n"
        with self._diary.open("a") as diary:
            diary.write(words)
        return has_happened

    async def _carry_out(self, event: Event) -> bool:
        match event.kind:
            case "kill":
                return await self._fleet.kill(event.target)
            case "stop":
                with self._fleet.stopped(event.target) as is_stopped:
                    if is_stopped:
                        await asyncio.sleep(event.lasts_s)
                return is_stopped
            case "clock":
                await self._shift_clock(event)
                return True
            case _:
                return await self._place.carry_out(event)

    async def _shift_clock(self, event: Event) -> None:
        clock_file = self._place.scene.clock_file
        await asyncio.to_thread(set_shift, clock_file, int(event.amount))
        try:
            await asyncio.sleep(event.lasts_s)
        finally:
            set_shift(clock_file, 0)
