"""The table of the circuit breaker, row by row, on a clock that stands still."""

from __future__ import annotations

import pytest

from penstock.clock import ManualClock
from penstock.errors import ConfigError
from penstock.webhooks.breaker import BreakerState, CircuitBreaker, Pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(clock: ManualClock) -> CircuitBreaker:
    return CircuitBreaker(clock, failures=3, open_ms=1000, max_open_ms=5000)


def entered(breaker: CircuitBreaker) -> Pass:
    leave = breaker.enter()
    assert leave is not None, breaker
    return leave


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        entered(breaker).failed()


def test_closed_stays_closed_while_failures_are_not_in_a_row(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        fail(breaker, 2)
        entered(breaker).succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_enough_failures_open_it(breaker: CircuitBreaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    assert breaker.state is BreakerState.OPEN
    assert breaker.enter() is None
    assert breaker.remaining_ms() == 1000
    clock.advance_ms(999)
    assert breaker.enter() is None
    clock.advance_ms(1)
    assert breaker.state is BreakerState.HALF_OPEN


def test_one_probe_at_a_time_and_success_closes(breaker: CircuitBreaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.advance_ms(1000)
    probe = entered(breaker)
    assert breaker.enter() is None
    probe.succeeded()
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, 2)
    assert breaker.state is BreakerState.CLOSED  # the old failures are forgotten


def test_a_failed_probe_opens_for_longer_up_to_a_bound(breaker: CircuitBreaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    lengths = [breaker.remaining_ms()]
    for _ in range(4):
        clock.advance_ms(breaker.remaining_ms())
        fail(breaker)
        lengths.append(breaker.remaining_ms())
    assert lengths == [1000, 2000, 4000, 5000, 5000]
    clock.advance_ms(5000)
    entered(breaker).succeeded()
    fail(breaker, 3)
    assert breaker.remaining_ms() == 1000


def test_a_probe_that_was_not_made_leaves_its_place(breaker: CircuitBreaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.advance_ms(1000)
    entered(breaker).cancelled()
    assert breaker.state is BreakerState.HALF_OPEN
    entered(breaker).succeeded()
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("is_success", [True, False])
def test_who_entered_before_it_opened_has_no_say(
    breaker: CircuitBreaker, clock: ManualClock, is_success: bool
) -> None:
    early = entered(breaker)
    fail(breaker, 3)
    clock.advance_ms(1000)
    probe = entered(breaker)
    early.succeeded() if is_success else early.failed()
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.enter() is None  # the probe's place is still taken
    probe.succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_the_first_word_counts(breaker: CircuitBreaker) -> None:
    for _ in range(3):
        leave = entered(breaker)
        leave.succeeded()
        leave.failed()
    assert breaker.state is BreakerState.CLOSED
    assert "closed failures=0" in repr(breaker)


@pytest.mark.parametrize(
    "settings", [{"failures": 0}, {"open_ms": 0}, {"probes": 0}, {"open_ms": 10, "max_open_ms": 9}]
)
def test_settings_that_make_no_sense(clock: ManualClock, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        CircuitBreaker(clock, **settings)
