"""When a step that failed is tried again: a value that decides, and does nothing.

Rules: chance comes from the caller, so that a decision can be repeated; no wait is ever longer than
``max_backoff_ms``. Knows nothing of steps or of who runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How often, how soon, and after which errors."""

    #: attempts all in all; 1 never repeats
    limit: int = 3
    #: the wait after the first attempt, and by what it grows with each further one
    backoff_ms: int = 1_000
    factor: float = 2.0
    max_backoff_ms: int = 300_000
    #: the share of a wait that chance may take away, so that those who failed together do not return together
    jitter: float = 0.2
    #: names of error classes or statuses; "*" is any
    on: tuple[str, ...] = ("*",)
    #: … and those after which it is never tried again, whatever ``on`` says
    never: tuple[str, ...] = ()

    def delay_ms(self, attempt: int, chance: float) -> int:
        """The wait after this attempt (the first is 1) has failed; ``chance`` is of 0 to 1."""
        try:
            wait_ms = min(self.backoff_ms * self.factor ** (attempt - 1), self.max_backoff_ms)
        except OverflowError:  # a power beyond all floats is beyond the longest wait, too
            wait_ms = self.max_backoff_ms
        return round(wait_ms * (1 - self.jitter * chance))

    def applies(self, error_names: Sequence[str]) -> bool:
        """Whether an error is to be retried, by its names: its class, its bases, its status."""
        if not set(self.never).isdisjoint(error_names):
            return False
        return "*" in self.on or not set(self.on).isdisjoint(error_names)


#: Of a step that has no policy, in a pipeline that has none.
NO_RETRY = Retry(limit=1)
