"""When to try again, and what an answer means.

===================  ============  ==========================================================
answer               outcome       besides
===================  ============  ==========================================================
2xx                  done
410                  disable       the receiver wants nothing any more
one of ``give_up``   dead          unless it is 2xx or 410; nothing is in it by default
429, 502, 504        retry         the endpoint is spared for ``throttle_ms``, or as it asks
anything else, 3xx,  retry         a redirection is never followed
no answer
===================  ============  ==========================================================

A retry that the schedule has no time for any more is dead. ``Retry-After`` can make a pause longer, up to
``max_retry_after_ms``, and never shorter.

Rules: pure; chance is injected. Jitter is added, never taken away, so that no retry comes before its time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from penstock.errors import ConfigError
from penstock.webhooks.model import DAY_MS, Attempt, Health, Outcome, OutcomeKind

MAX_ATTEMPTS: Final = 100
MAX_DELAY_MS: Final = 30 * DAY_MS

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE

#: Chance from 0 up to 1, as ``random.random``.
Chance = Callable[[], float]


class Schedule(msgspec.Struct, frozen=True):
    """The pause before each attempt; there are as many attempts as pauses."""

    delays_ms: tuple[int, ...] = (
        0, 5 * _SECOND, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR,
        24 * _HOUR,
    )  # fmt: skip
    #: up to this share of a pause is added to it
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= len(self.delays_ms) <= MAX_ATTEMPTS:
            raise ConfigError(f"delays_ms must be 1 to {MAX_ATTEMPTS} pauses, not {len(self.delays_ms)}")
        if not all(0 <= delay <= MAX_DELAY_MS for delay in self.delays_ms):
            raise ConfigError(f"delays_ms must each be 0 to {MAX_DELAY_MS}")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"jitter must be 0 to 1, not {self.jitter}")

    @property
    def attempts(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, attempt: int, chance: Chance) -> int | None:
        """The pause before this attempt (the first is 1); None if there is no such attempt."""
        if attempt > len(self.delays_ms):
            return None
        delay = self.delays_ms[attempt - 1]
        return delay + int(delay * self.jitter * chance())


def growing(
    count: int,
    interval_ms: int,
    multiplier: float = 2.0,
    jitter: float = 0.1,
    max_delay_ms: int = DAY_MS,
) -> Schedule:
    """One attempt at once and ``count`` retries: after ``interval_ms``, then ``multiplier`` times that …"""
    if not 0 <= count < MAX_ATTEMPTS:
        raise ConfigError(f"count must be 0 to {MAX_ATTEMPTS - 1}, not {count}")
    if interval_ms < 0 or multiplier < 1:
        raise ConfigError("interval_ms must be at least 0 and multiplier at least 1")
    delays = [0]
    delay = float(interval_ms)
    for _ in range(count):
        delay = min(delay, max_delay_ms)
        delays.append(int(delay))
        delay *= multiplier
    assert all(one <= other for one, other in pairwise(delays[1:])), "pauses do not get shorter"
    return Schedule(tuple(delays), jitter)


class AnswerRules(msgspec.Struct, frozen=True):
    """What is left to choose about answers."""

    #: statuses after which nothing is tried again
    give_up: frozenset[int] = frozenset()
    throttle: frozenset[int] = frozenset({429, 502, 504})
    #: how long an endpoint is spared that does not say so itself
    throttle_ms: int = 5_000
    max_retry_after_ms: int = DAY_MS

    def __post_init__(self) -> None:
        for name in ("give_up", "throttle"):
            if not all(100 <= status <= 599 for status in getattr(self, name)):
                raise ConfigError(f"{name} must hold statuses from 100 to 599")
        if self.throttle_ms < 0 or self.max_retry_after_ms < 0:
            raise ConfigError("throttle_ms and max_retry_after_ms must be at least 0")


def judge(attempt: Attempt, number: int, schedule: Schedule, rules: AnswerRules, chance: Chance) -> Outcome:
    """What becomes of a delivery after its ``number``-th attempt ended like this."""
    status = attempt.status
    if status is not None and 200 <= status <= 299:
        return Outcome(kind=OutcomeKind.DONE, health=Health.UP)
    if status == 410:
        return Outcome(kind=OutcomeKind.DISABLE, reason="the endpoint answered 410 Gone")
    asked_ms = min(attempt.retry_after_ms or 0, rules.max_retry_after_ms)
    hold_ms = max(asked_ms, rules.throttle_ms) if status in rules.throttle else 0
    # Who says "slow down" is there; who says anything else than yes is not doing its work.
    health = Health.UNKNOWN if status == 429 else Health.DOWN
    if status in rules.give_up:
        why = f"the endpoint answered {status}, after which nothing is tried again"
        return Outcome(kind=OutcomeKind.DEAD, health=health, hold_ms=hold_ms, reason=why)
    delay_ms = schedule.delay_ms(number + 1, chance)
    if delay_ms is None:
        why = f"all {schedule.attempts} attempts have failed"
        return Outcome(kind=OutcomeKind.DEAD, health=health, hold_ms=hold_ms, reason=why)
    return Outcome(kind=OutcomeKind.RETRY, delay_ms=max(delay_ms, asked_ms), hold_ms=hold_ms, health=health)
