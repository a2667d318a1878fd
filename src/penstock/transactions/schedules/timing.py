"""When a schedule fires. Pure functions of times in ms; nothing here reads a clock.

Cron expressions have five fields (minute, hour, day of month, month, day of week) or six (a second before
them), and are read in the schedule's time zone. When clocks change:

===========================  ========================================  ==================================
an expression that           hour that is left out (02:00 to 03:00)    hour that comes twice
===========================  ========================================  ==================================
fixes minute and hour        fires when the gap is over, once          fires in the first of them, once
(``30 2 * * *``)             (03:00)
begins minute or hour with   follows time as it passes: what falls     follows time as it passes: fires
``*``, or has seconds        into the gap is left out                  in both
(``*/15 * * * *``)
===========================  ========================================  ==================================

Intervals and single times know no time zones. An interval counts from its anchor, so fires do not drift.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.errors import UsageError
from penstock.transactions.schedules.model import Schedule

_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MAX_LENGTH: Final = 256
_HOUR_MS: Final = 3_600_000
#: Each look back is so many times as long as the one before: an expression that fires each second is not
#: counted through for a month in order to find its last fires.
_GROWTH: Final = 4


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise UsageError(f"timezone must be a name such as Europe/Berlin or UTC, not {name!r}") from None


def check(schedule: Schedule) -> None:
    """``UsageError`` for an expression that is none, or never comes true."""
    zone_of(schedule.timezone)
    if schedule.cron is None:
        return
    if len(schedule.cron) > _MAX_LENGTH:
        raise UsageError(f"cron must have at most {_MAX_LENGTH} characters, not {len(schedule.cron)}")
    try:
        is_possible = next(_cron(schedule, 0), None) is not None
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        raise UsageError(
            f"cron must be an expression such as '*/5 * * * *', not {schedule.cron!r}: {error}"
        ) from None
    if not is_possible:
        raise UsageError(f"cron {schedule.cron!r} never comes true: no day is such a day")


def next_fire(schedule: Schedule, after_ms: int, anchor_ms: int) -> int | None:
    """The first fire after a time; None if there is none any more."""
    return next(_fires(schedule, after_ms, anchor_ms), None)


def next_fires(schedule: Schedule, after_ms: int, anchor_ms: int, count: int) -> list[int]:
    fires = _fires(schedule, after_ms, anchor_ms)
    return [fire for _, fire in zip(range(count), fires, strict=False)]


def last_fires(schedule: Schedule, first_ms: int, now_ms: int, anchor_ms: int, count: int) -> list[int]:
    """The last ``count`` fires from ``first_ms``, itself a fire, up to now; oldest first."""
    if schedule.at_ms is not None:
        return [first_ms] if first_ms <= now_ms else []
    if schedule.every_ms is not None:
        every_ms = schedule.every_ms
        last = first_ms + (now_ms - first_ms) // every_ms * every_ms
        return list(range(max(first_ms, last - (count - 1) * every_ms), last + 1, every_ms))
    back_ms = _HOUR_MS
    while True:
        start_ms = max(first_ms - 1, now_ms - back_ms)
        found: deque[int] = deque(maxlen=count)
        for fire in _cron(schedule, start_ms):
            if fire > now_ms:
                break
            found.append(fire)
        if len(found) == count or start_ms == first_ms - 1:
            return list(found)
        back_ms *= _GROWTH


def _fires(schedule: Schedule, after_ms: int, anchor_ms: int) -> Iterator[int]:
    if schedule.at_ms is not None:
        if schedule.at_ms > after_ms:
            yield schedule.at_ms
    elif schedule.every_ms is not None:
        fire = anchor_ms + max(1, (after_ms - anchor_ms) // schedule.every_ms + 1) * schedule.every_ms
        while True:
            yield fire
            fire += schedule.every_ms
    else:
        yield from _cron(schedule, after_ms)


def _cron(schedule: Schedule, after_ms: int) -> Iterator[int]:
    """Fires after a time, each later than the one before."""
    expression = (schedule.cron or "").strip()
    begin = datetime.fromtimestamp(after_ms // 1000, zone_of(schedule.timezone))
    for moment in CronSim(_ALIASES.get(expression.lower(), expression), begin):
        fire_ms = int(moment.timestamp()) * 1000
        # Within an hour that comes twice, fires of its first half are offered again.
        if fire_ms > after_ms:
            after_ms = fire_ms
            yield fire_ms
