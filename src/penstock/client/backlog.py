"""Commands that wait for a connection: which are kept, in which order, for how long.

What becomes of a command when its connection ends (``kept_after_loss``):

===================  =========================================================
never written        kept, for the next connection
written, harmless    (reads; idempotent writes where the user opted in) kept,
                     until it was sent ``max_attempts`` times
written, otherwise   ``OutcomeUnknownError``
===================  =========================================================

Rules: what is kept stays in the order it was issued. A caller that has gone meanwhile is
never sent. The parts of a burst stay together. Nothing here knows connections or time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from penstock.client.config import Settings
from penstock.client.connection import Burst, Slot, expire
from penstock.client.facts import is_idempotent, is_repeatable
from penstock.client.policies import Decision, decide
from penstock.errors import OutcomeUnknownError, PenstockError


class Backlog:
    """A queue of slots, oldest first."""

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        #: whether ``issued_s`` only grows along the queue
        self._is_in_order = True

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, slots: Iterable[Slot], *, is_in_order: bool) -> None:
        """Behind everything else; ``is_in_order`` if these were issued just now."""
        self._is_in_order = is_in_order and (self._is_in_order or not self._slots)
        self._slots.extend(slots)

    def add_first(self, slots: list[Slot]) -> None:
        """Before everything else, in the order given."""
        self._is_in_order = False
        self._slots.extendleft(reversed(slots))

    def first(self) -> Slot | None:
        """The next whose caller still waits."""
        slots = self._slots
        while slots:
            if not slots[0].future.done():
                return slots[0]
            slots.popleft()
        return None

    def take(self, count: int) -> list[Slot]:
        return [self._slots.popleft() for _ in range(count)]

    def take_all(self) -> list[list[Slot]]:
        """Everything whose caller still waits; what belongs together in one list."""
        groups: list[list[Slot]] = []
        while (slot := self.first()) is not None:
            groups.append(self.take(size_of(slot)))
        return groups

    def refuse_all(self, why: Callable[[], PenstockError]) -> None:
        slots, self._slots = self._slots, deque()
        for slot in slots:
            refuse(slot, why())

    def expire(self, horizon_s: float, error: Callable[[Slot], PenstockError]) -> None:
        """Time out what was issued before."""
        expire(self._slots, horizon_s, self._is_in_order, error)

    def drop_gone(self) -> None:
        """Callers that have gone must not take the room of others."""
        self._slots = deque(slot for slot in self._slots if not slot.future.done())

    def clear(self) -> None:
        self._slots.clear()


def burst_of(slot: Slot) -> Burst | None:
    """The burst that a slot is a part of."""
    place: object = slot.future
    return place if isinstance(place, Burst) else None


def size_of(slot: Slot) -> int:
    """How many slots go together with this one."""
    burst = burst_of(slot)
    return 1 if burst is None else len(burst.commands)


def refuse(slot: Slot, error: PenstockError) -> None:
    """Tell the caller that its command will not be sent; it may have been sent before."""
    if slot.future.done():
        return
    if slot.attempt > 1:
        slot.future.set_exception(OutcomeUnknownError(f"sent before, without a reply; now: {error}"))
    else:
        slot.future.set_exception(error)


def kept_after_loss(
    unanswered: list[Slot], unsent: list[Slot], settings: Settings, unknown: Callable[[], OutcomeUnknownError]
) -> list[Slot]:
    """What to send again, in order; the callers of everything else are told that the outcome is unknown."""
    kept: list[Slot] = []
    last_burst: Burst | None = None
    for slot in unanswered:
        burst = burst_of(slot)
        if burst is None:
            if _may_resend(slot, settings, is_harmless=is_repeatable(slot.arguments)):
                kept.append(slot._replace(attempt=slot.attempt + 1))
            else:
                slot.future.set_exception(unknown())
        elif burst is not last_burst:
            last_burst = burst
            # The slots that are left may not be all it had.
            if _may_resend(slot, settings, is_harmless=burst.is_harmless, in_burst=True):
                kept += burst.slots(slot.issued_s, slot.attempt + 1)
            else:
                burst.set_exception(unknown())
    return kept + unsent


def _may_resend(slot: Slot, settings: Settings, *, is_harmless: bool, in_burst: bool = False) -> bool:
    may_repeat_writes = settings.retry_idempotent_writes and not in_burst
    decision = decide(
        was_sent=True,
        is_readonly=is_harmless,
        is_idempotent=may_repeat_writes and is_idempotent(slot.arguments),
        attempt=slot.attempt,
        max_attempts=settings.max_attempts,
    )
    return decision is Decision.RESEND
