"""Whoever has this duty starts what is due. Any number of processes may have it; each fire is one's alone.

    duty = SchedulerDuty(Schedules(store))
    await duty.run()                    # until it is cancelled

What happens to one schedule that is due:

1. It is taken under a lease. Whoever dies with it leaves it to the next, after the lease.
2. Its fires up to now are found, and the catch-up rule says which of them start something: "skip" the latest
   if it is not late, "one" the latest, "all" each of the last 1,000.
3. They are started, each under an external id made of the name and the fire: whoever does so again, after a
   crash before step 4, starts nothing (for ``FIRE_ID_MS``).
4. It advances to its next fire, if nobody has changed it meanwhile.

Rules: a fire that can never be started (no such pipeline) is noted and passed over. One that can be later
(full queues) is tried again until the next fires take its place. One schedule never holds up another.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from penstock.client.pubsub import Message, Subscriber
from penstock.errors import BackpressureError, ClosedError, DuplicateError, PenstockError, UsageError
from penstock.transactions.keys import TOPIC_AGENDA
from penstock.transactions.model import MAX_NOTE, Started
from penstock.transactions.schedules import timing
from penstock.transactions.schedules.model import MAX_CATCH_UP, Schedule, ScheduleInfo
from penstock.transactions.schedules.schedules import Entry, Schedules

_LOG = logging.getLogger(__name__)

LEASE_MS: Final = 30_000
#: With "skip": how late a fire may be and still count as in time. More than a lease: a crash is no miss.
GRACE_MS: Final = 60_000
#: When to come back to what could not be started.
RETRY_MS: Final = 5_000
#: Schedules that are taken at once.
_BATCH: Final = 100
#: Starts at the same time, of one schedule.
_AT_ONCE: Final = 50
#: Look at least so often: clocks are set.
_LONGEST_WAIT_MS: Final = 60_000
_PAUSE_MS: Final = 1_000


class Round(NamedTuple):
    """What one look came to."""

    started: int
    #: ms until something is due; None for never
    next_ms: int | None


class SchedulerDuty:
    """Starts what the schedules of one store say."""

    def __init__(
        self,
        schedules: Schedules,
        *,
        lease_ms: int = LEASE_MS,
        grace_ms: int = GRACE_MS,
        retry_ms: int = RETRY_MS,
    ) -> None:
        self._schedules = schedules
        self._lease_ms = lease_ms
        self._grace_ms = grace_ms
        self._retry_ms = retry_ms

    async def run(self) -> None:
        """Until it is cancelled, or the client is closed."""
        while True:
            try:
                async with self._schedules.store.client.pubsub() as subscriber:
                    await subscriber.subscribe(TOPIC_AGENDA)
                    while True:
                        done = await self.run_once()
                        await self._sleep(subscriber, done.next_ms)
            except ClosedError:
                return
            except PenstockError:
                _LOG.exception("schedules cannot be looked at; trying again")
                await asyncio.sleep(_PAUSE_MS / 1000)

    async def _sleep(self, subscriber: Subscriber, wait_ms: int | None) -> None:
        """Until something is due, or schedules have changed; the topic tells of much else, too."""
        wait_ms = _LONGEST_WAIT_MS if wait_ms is None else min(wait_ms, _LONGEST_WAIT_MS)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while (left_s := until_s - loop.time()) > 0:
            item = await subscriber.get(left_s * 1000)
            if item is not None and (not isinstance(item, Message) or item.data == b"{tx}."):
                return

    async def run_once(self) -> Round:
        """See to everything that is due now."""
        started = 0
        while True:
            taken = await self._schedules.take(_BATCH, self._lease_ms)
            outcomes = await asyncio.gather(
                *(self._see_to(entry, taken.now_ms) for entry in taken.entries), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                started += outcome
            if len(taken.entries) < _BATCH:
                # What was advanced may be due before what the reply knew of.
                return Round(started, (await self._schedules.take(0, 0)).next_ms)

    async def _see_to(self, entry: Entry, now_ms: int) -> int:
        """How many transactions it has started."""
        try:
            info = entry.info()
            timing.check(info.schedule)
        except UsageError as error:
            # It would be due for ever.
            await self._schedules.advance(entry, None, error=str(error)[:MAX_NOTE])
            return 0
        if entry.next_ms is None:
            await self._schedules.advance(entry, None, error=entry.error)
            return 0
        fires = self._fires_of(info, entry.next_ms, now_ms)
        next_ms = timing.next_fire(info.schedule, now_ms, info.anchor_ms)
        return await self._start_all(entry, info.schedule, fires, next_ms)

    def _fires_of(self, info: ScheduleInfo, due_ms: int, now_ms: int) -> list[int]:
        schedule = info.schedule
        count = MAX_CATCH_UP if schedule.catch_up == "all" else 1
        fires = timing.last_fires(schedule, due_ms, now_ms, info.anchor_ms, count)
        if schedule.catch_up == "skip":
            return [fire for fire in fires if fire >= now_ms - self._grace_ms]
        return fires

    async def _start_all(
        self, entry: Entry, schedule: Schedule, fires: list[int], next_ms: int | None
    ) -> int:
        total, problem = 0, ""
        for at in range(0, len(fires), _AT_ONCE):
            batch = fires[at : at + _AT_ONCE]
            outcomes = await asyncio.gather(*(self._start(schedule, fire) for fire in batch))
            problems = [outcome for outcome in outcomes if isinstance(outcome, PenstockError)]
            begun = [outcome for outcome in outcomes if isinstance(outcome, Started)]
            count = sum(outcome.is_new for outcome in begun)
            total += count
            problem = str(problems[0])[:MAX_NOTE] if problems else ""
            later = [fire for fire, outcome in zip(batch, outcomes, strict=True) if _is_passing(outcome)]
            left = later or fires[at + _AT_ONCE :]
            is_kept = await self._schedules.advance(
                entry,
                left[0] if left else next_ms,
                fired_ms=None if later else batch[-1],
                fires=count,
                transaction=begun[-1].id if begun else "",
                error=problem,
                lease_ms=(self._retry_ms if later else self._lease_ms) if left else 0,
            )
            if later or not is_kept:
                return total
        if not fires:
            await self._schedules.advance(
                entry, next_ms, error="it was missed, and is not made up for (skip)"
            )
        return total

    async def _start(self, schedule: Schedule, fire_ms: int) -> Started | PenstockError:
        try:
            return await self._schedules.start(schedule, fire_ms)
        except DuplicateError as error:
            # It was started by somebody who died before saying so, and its input has changed since.
            return Started(error.transaction, False)
        except ClosedError:
            raise
        except PenstockError as error:
            return error


def _is_passing(outcome: Started | PenstockError) -> bool:
    """Whether the same may succeed later."""
    if isinstance(outcome, Started):
        return False
    return isinstance(outcome, BackpressureError) or not isinstance(outcome, UsageError)
