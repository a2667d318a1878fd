"""Those who stay: followers over events and sockets. Each takes one of a bounded number of places.

Rules: a place is freed whatever happens. Whoever stays hears of the worker's end within :data:`LOOK_S`,
through one timer for all of them. Nothing here knows what they follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from penstock.gateway.failures import unavailable
from penstock.gateway.services import Life, Services

#: How often the timer looks whether the worker stops.
LOOK_S: Final = 0.1

Told: TypeAlias = Callable[[], None]


def check_room(services: Services) -> None:
    """Refuse while refusing is still possible: before the first byte."""
    if services.waiting >= services.config.http.limits.idle_polls:
        raise unavailable("too many clients follow already; try again later")


@contextmanager
def place(services: Services, kind: Literal["events", "socket"] = "events") -> Iterator[None]:
    count = services.metrics.open_sse if kind == "events" else services.metrics.open_websockets
    services.waiting += 1
    count(+1)
    try:
        yield
    finally:
        services.waiting -= 1
        count(-1)


async def release(services: Services, patience_s: float = 1.0) -> None:
    """Let everybody go who waits or follows, and give them the time to say so to their clients.

    For a worker whose ``life`` says already that it stops.
    """
    services.channels.release()
    if services.transactions is not None:
        services.transactions.release()
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + patience_s
    while services.waiting and now_s() < end_s:  # noqa: ASYNC110 - once in a worker's life
        await asyncio.sleep(0.01)


class Shutdown:
    """Tells followers that the worker stops."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._told: dict[object, Told] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watched(self, told: Told) -> Iterator[None]:
        """Call back once when the worker stops, if that happens inside of this."""
        key = object()
        self._told[key] = told
        if self._timer is None:
            self._look_later()
        try:
            yield
        finally:
            self._told.pop(key, None)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._life.is_stopping:
            told, self._told = self._told, {}
            for tell in told.values():
                tell()
        elif self._told:
            self._look_later()
