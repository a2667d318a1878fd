"""When the next attempt comes, and what every answer means."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.webhooks.model import Attempt, Health, OutcomeKind
from penstock.webhooks.schedule import AnswerRules, Schedule, growing, judge

HOUR = 3_600_000


def never() -> float:
    return 0.0


def almost_always() -> float:
    return 0.999_999


def test_the_schedule_of_standard_webhooks() -> None:
    schedule = Schedule()
    delays = [schedule.delay_ms(attempt, never) for attempt in range(1, 12)]
    seconds = [0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert delays == [1000 * second for second in seconds] + [None]


def test_jitter_is_added_and_bounded() -> None:
    schedule = Schedule((0, 1000, 2000), jitter=0.5)
    assert [schedule.delay_ms(attempt, never) for attempt in (1, 2, 3)] == [0, 1000, 2000]
    late = [schedule.delay_ms(attempt, almost_always) for attempt in (1, 2, 3)]
    assert late == [0, 1499, 2999]


@pytest.mark.parametrize(
    ("schedule", "delays"),
    [
        (growing(0, 1000), (0,)),
        (growing(3, 1000), (0, 1000, 2000, 4000)),
        (growing(3, 1000, 1), (0, 1000, 1000, 1000)),
        (growing(4, 1000, 10, max_delay_ms=5000), (0, 1000, 5000, 5000, 5000)),
        (growing(2, 100, 1.5, jitter=0), (0, 100, 150)),
    ],
)
def test_schedules_that_grow(schedule: Schedule, delays: tuple[int, ...]) -> None:
    assert schedule.delays_ms == delays


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule(()),
        lambda: Schedule((0,) * 101),
        lambda: Schedule((-1,)),
        lambda: Schedule((0, 31 * 24 * HOUR)),
        lambda: Schedule((0,), jitter=1.1),
        lambda: Schedule((0,), jitter=-0.1),
        lambda: growing(100, 1),
        lambda: growing(-1, 1),
        lambda: growing(1, -1),
        lambda: growing(1, 1, 0.5),
        lambda: AnswerRules(give_up=frozenset({99})),
        lambda: AnswerRules(throttle_ms=-1),
    ],
)
def test_schedules_that_make_no_sense(make) -> None:
    with pytest.raises(ConfigError):
        make()


#: status (None: no answer), outcome, is the endpoint spared, health
ANSWERS = [
    (200, OutcomeKind.DONE, False, Health.UP),
    (204, OutcomeKind.DONE, False, Health.UP),
    (299, OutcomeKind.DONE, False, Health.UP),
    (None, OutcomeKind.RETRY, False, Health.DOWN),
    (199, OutcomeKind.RETRY, False, Health.DOWN),
    (301, OutcomeKind.RETRY, False, Health.DOWN),
    (302, OutcomeKind.RETRY, False, Health.DOWN),
    (304, OutcomeKind.RETRY, False, Health.DOWN),
    (400, OutcomeKind.RETRY, False, Health.DOWN),
    (401, OutcomeKind.RETRY, False, Health.DOWN),
    (404, OutcomeKind.RETRY, False, Health.DOWN),
    (410, OutcomeKind.DISABLE, False, Health.UNKNOWN),
    (429, OutcomeKind.RETRY, True, Health.UNKNOWN),
    (500, OutcomeKind.RETRY, False, Health.DOWN),
    (502, OutcomeKind.RETRY, True, Health.DOWN),
    (503, OutcomeKind.RETRY, False, Health.DOWN),
    (504, OutcomeKind.RETRY, True, Health.DOWN),
    (599, OutcomeKind.RETRY, False, Health.DOWN),
]


@pytest.mark.parametrize(("status", "kind", "is_spared", "health"), ANSWERS)
def test_what_an_answer_means(status: int | None, kind: OutcomeKind, is_spared: bool, health: Health) -> None:
    error = None if status else "connection refused"
    outcome = judge(Attempt(status=status, error=error), 1, Schedule(), AnswerRules(), never)
    assert (outcome.kind, outcome.hold_ms > 0, outcome.health) == (kind, is_spared, health)
    assert outcome.delay_ms == (5000 if kind is OutcomeKind.RETRY else 0)


def test_the_last_attempt_is_the_last() -> None:
    schedule = growing(2, 1000, jitter=0)
    outcomes = [judge(Attempt(status=500), n, schedule, AnswerRules(), never) for n in (1, 2, 3)]
    assert [outcome.kind for outcome in outcomes] == ["retry", "retry", "dead"]
    assert [outcome.delay_ms for outcome in outcomes] == [1000, 2000, 0]
    assert "all 3 attempts" in (outcomes[2].reason or "")


@pytest.mark.parametrize(
    ("status", "asked_ms", "delay_ms", "hold_ms"),
    [
        (503, 60_000, 60_000, 0),
        (503, 1_000, 5_000, 0),
        (429, 60_000, 60_000, 60_000),
        (429, 1, 5_000, 7_000),
        (429, None, 5_000, 7_000),
        (429, 10**15, 24 * HOUR, 24 * HOUR),
        (301, 60_000, 60_000, 0),
    ],
)
def test_retry_after_is_obeyed_within_bounds(
    status: int, asked_ms: int | None, delay_ms: int, hold_ms: int
) -> None:
    attempt = Attempt(status=status, retry_after_ms=asked_ms)
    outcome = judge(attempt, 1, Schedule(), AnswerRules(throttle_ms=7_000), never)
    assert (outcome.delay_ms, outcome.hold_ms) == (delay_ms, hold_ms)


def test_statuses_that_are_not_tried_again() -> None:
    rules = AnswerRules(give_up=frozenset({400, 422, 200, 410}))
    kinds = {
        status: judge(Attempt(status=status), 1, Schedule(), rules, never).kind
        for status in (400, 422, 404, 200, 410)
    }
    assert kinds == {400: "dead", 422: "dead", 404: "retry", 200: "done", 410: "disable"}
