"""A circuit breaker: who has failed several times in a row is left alone for a while.

=========  =========================  =========  ====================================================
state      event                      next       effect
=========  =========================  =========  ====================================================
closed     success                    closed     failures are forgotten
closed     failure, not yet enough    closed     it is counted
closed     failure, enough in a row   open       nobody enters for ``open_ms``
open       time is up                 half-open  ``probes`` may enter
half-open  success                    closed     failures are forgotten
half-open  failure                    open       for twice as long as last time, up to ``max_open_ms``
=========  =========================  =========  ====================================================

Who entered before the breaker opened, or opened again, has no say afterwards: each change begins a new epoch,
and a pass of an older one counts for nothing.

Rules: pure, without I/O; time comes from the clock it is given. It does not know what is called. Endpoints of
webhooks have the same table in ``lua/settle.lua``, where all processes share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.clock import Clock
from penstock.errors import ConfigError


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens, and for how long."""

    #: in a row
    failures: int = 10
    open_ms: int = 30_000
    max_open_ms: int = 600_000
    #: calls at a time that find out whether it may close; webhooks always use one
    probes: int = 1

    def __post_init__(self) -> None:
        for name in ("failures", "open_ms", "probes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of the breaker must be at least 1, not {getattr(self, name)}")
        if self.max_open_ms < self.open_ms:
            raise ConfigError(
                f"max_open_ms must be at least open_ms ({self.open_ms}), not {self.max_open_ms}"
            )


class CircuitBreaker:
    """One thing that may fail. Whoever wants to call it asks :meth:`enter` first."""

    def __init__(
        self,
        clock: Clock,
        failures: int = 10,
        open_ms: int = 30_000,
        *,
        max_open_ms: int | None = None,
        probes: int = 1,
    ) -> None:
        longest_ms = max(600_000, open_ms) if max_open_ms is None else max_open_ms
        self._policy = BreakerPolicy(failures, open_ms, longest_ms, probes)
        self._clock = clock
        self._failures = 0
        #: times in a row that it opened
        self._opened = 0
        self._until_s = 0.0
        self._epoch = 0
        self._probing = 0

    @property
    def state(self) -> BreakerState:
        if not self._opened:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.remaining_ms() > 0 else BreakerState.HALF_OPEN

    def remaining_ms(self) -> int:
        """How long nobody may enter; 0 if it is not open."""
        if not self._opened:
            return 0
        left_ms = (self._until_s - self._clock.monotonic_s()) * 1000
        # Rounded up: whoever sleeps so long must not come too early.
        return max(0, -int(-left_ms // 1))

    def enter(self) -> Pass | None:
        """Leave to make one call, or None: not now. A pass must be told how the call ended."""
        match self.state:
            case BreakerState.OPEN:
                return None
            case BreakerState.HALF_OPEN:
                if self._probing >= self._policy.probes:
                    return None
                self._probing += 1
        return Pass(self, self._epoch)

    def _leave(self, epoch: int, is_success: bool | None) -> None:
        if epoch != self._epoch:
            return
        if self._opened:
            self._probing -= 1
        if is_success is None:
            return
        if is_success:
            self._close()
            return
        self._failures += 1
        if self._opened or self._failures >= self._policy.failures:
            self._open()

    def _close(self) -> None:
        self._failures = 0
        if self._opened:
            self._opened = 0
            self._begin_epoch()

    def _open(self) -> None:
        open_ms = min(self._policy.open_ms * 2 ** min(self._opened, 30), self._policy.max_open_ms)
        self._until_s = self._clock.monotonic_s() + open_ms / 1000
        self._opened += 1
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._probing = 0

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.state} failures={self._failures} remaining_ms={self.remaining_ms()}>"


class Pass:
    """Leave to make one call. The first word about its end counts, later ones do not."""

    __slots__ = ("_breaker", "_epoch")

    def __init__(self, breaker: CircuitBreaker, epoch: int) -> None:
        self._breaker: CircuitBreaker | None = breaker
        self._epoch = epoch

    def succeeded(self) -> None:
        self._end(True)

    def failed(self) -> None:
        self._end(False)

    def cancelled(self) -> None:
        """The call was not made, or says nothing."""
        self._end(None)

    def _end(self, is_success: bool | None) -> None:
        breaker, self._breaker = self._breaker, None
        if breaker is not None:
            breaker._leave(self._epoch, is_success)
