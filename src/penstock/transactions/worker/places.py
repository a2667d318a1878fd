"""The places of a worker: who runs, who waits on the shelf, and how many more may be fetched.

Everything that a worker has a lease of is here, in one of three parts:

=========  ========================================================================
on the     fetched, and waiting for a place. While steps are quick a few more are
shelf      fetched than there are places, so that nobody waits for the store; what
           has waited there for a second is handed back, for others
at its     its steps run; never more than ``concurrency``
place
leaving    what is being written is the last that this worker has to say about it;
           its place is free
=========  ========================================================================

Rules: decided without awaiting. Who is begun or handed back is told to the worker (``begin``, ``hand_back``),
which does it. Nothing here knows the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from penstock.transactions.worker.holding import Held

#: Steps that keep their places for less are quick.
_QUICK_MS: Final = 5.0
_AHEAD: Final = 128
_LONGEST_SHELF_S: Final = 1.0
#: Last writes that may be under way.
_MAX_LEAVING: Final = 512


class Places:
    """Of one worker."""

    def __init__(
        self,
        concurrency: int,
        *,
        begin: Callable[[Held], None],
        hand_back: Callable[[Held], None],
        ring: Callable[[], None],
    ) -> None:
        self.concurrency = concurrency
        self.active = 0
        self.leaving = 0
        self._begin = begin
        self._hand_back = hand_back
        #: something may be fetched, or has ended
        self._ring = ring
        self._held: dict[str, Held] = {}
        self._shelf: deque[Held] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        #: how long one keeps its place, about
        self._carry_ms = inf

    def room(self) -> int:
        """How many may be fetched: as many as there are free places, and some more while steps are quick."""
        if self.leaving > _MAX_LEAVING:
            return 0
        room = self.concurrency - self.active - len(self._shelf)
        if self._carry_ms > _QUICK_MS:
            return room
        # By many at a time: while these are carried, the store finds the next.
        room += _AHEAD
        return room if room >= _AHEAD // 2 or not self._shelf else 0

    def add(self, several: list[Held]) -> None:
        """What was fetched begins, or waits for a place."""
        for held in several:
            self._drop(held.record.id)
            self._held[held.record.id] = held
            self._shelf.append(held)
        self.fill()
        if self._shelf and self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_SHELF_S, self._clear_shelf)

    def fill(self) -> None:
        """Free places are for those on the shelf."""
        while self._shelf and self.active < self.concurrency and not self._is_closed:
            held = self._shelf.popleft()
            if held.is_lost:
                self.forget(held)
                continue
            self.active += 1
            held.began_s = asyncio.get_running_loop().time()
            self._begin(held)

    def note_leaving(self, held: Held) -> None:
        """What it writes now is its last: its place is free."""
        self.leaving += 1
        if held.began_s:
            self.active -= 1
            took_ms = (asyncio.get_running_loop().time() - held.began_s) * 1_000
            self._carry_ms = took_ms if self._carry_ms == inf else self._carry_ms * 0.9 + took_ms * 0.1
            self.fill()
        self._ring()

    def forget(self, held: Held) -> None:
        """It is gone; unless it is here again already."""
        if self._held.get(held.record.id) is held:
            del self._held[held.record.id]
            if held.is_leaving:
                self.leaving -= 1
            elif held.began_s:
                self.active -= 1
        self.fill()
        self._ring()

    def _drop(self, tx: str) -> None:
        """It is here again: after its last write, or because its lease was lost and nobody else took it."""
        old = self._held.get(tx)
        if old is None:
            return
        was_leaving = old.is_leaving
        self.forget(old)
        if not was_leaving:
            old.is_leaving = old.is_lost = True
            old.interrupt()

    def _clear_shelf(self) -> None:
        """Steps are no longer quick, or the worker stops: others may have what waits here for too long."""
        self._timer = None
        loop = asyncio.get_running_loop()
        oldest_s = loop.time() - _LONGEST_SHELF_S
        while self._shelf and (self._is_closed or self._shelf[0].born_s <= oldest_s):
            # Or it would be fetched again at once.
            self._carry_ms = inf
            self._hand_back(self._shelf.popleft())
        if self._shelf:
            self._timer = loop.call_later(self._shelf[0].born_s - oldest_s, self._clear_shelf)

    def hold(self) -> None:
        """Nothing begins any more; those at their places go on."""
        self._is_closed = True

    def close(self) -> None:
        """… and the shelf is handed back."""
        self.hold()
        if self._timer is not None:
            self._timer.cancel()
        self._clear_shelf()

    # ---------------------------------------------------------------------------------------- looking

    def get(self, tx: str) -> Held | None:
        return self._held.get(tx)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<Places {self.active} of {self.concurrency}, {len(self._shelf)} wait, {self.leaving} leave>"
