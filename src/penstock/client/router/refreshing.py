"""When to ask for the slot map again. One question at a time, however many ask for it.

=========  ========================  ===================================================
state      means                     leaves by
=========  ========================  ===================================================
idle       the map is trusted        ``request``, ``worry``: due
due        a timer runs              timer: running; an earlier ``request``: due sooner
running    the question is out       ``_run``: idle if all is well, else due, with a
                                     delay that grows from time to time
closed     for good                  nothing
=========  ========================  ===================================================

``request`` says that the map is known to be wrong somewhere, ``worry`` that it may be; a
worry does not hasten what is due, or a server that is down would be asked after without a
pause. What is learned while a question is out is the business of whoever reads its answer:
he says whether all is well.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.client.policies import Exponential

log = logging.getLogger("penstock.client")

#: From the first look at what is not well to the steady ones: a failover is seen within a second.
_BACKOFF: Final = Exponential(base_ms=50, cap_ms=1_000)


class Refresher:
    """Calls ``refresh(attempt)`` when it is time; it answers whether all is well now.

    ``attempt`` counts from 0 since all was well.
    """

    def __init__(self, refresh: Callable[[int], Awaitable[bool]], context: contextvars.Context) -> None:
        self._refresh = refresh
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._attempt = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        #: how often it was asked
        self.count = 0

    def request(self, delay_s: float) -> None:
        """Refresh within this time."""
        if not self._is_closed and self._task is None:
            self._schedule(delay_s)

    def worry(self) -> None:
        """Refresh now, unless that is planned already."""
        if self._timer is None:
            self.request(0.0)

    def _schedule(self, delay_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._start, context=self._context)

    def _start(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        self.count += 1
        try:
            is_well = await self._refresh(self._attempt)
        except Exception:
            log.exception("the slot map cannot be refreshed")
            is_well = False
        self._task = None
        if is_well:
            self._attempt = 0
            return
        self._attempt += 1
        delay_ms = _BACKOFF.delay_ms(self._attempt, random.random)
        assert delay_ms is not None, "it never gives up"
        self.request(delay_ms / 1000)

    async def close(self) -> None:
        """No more refreshes. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
