"""Time as a link sees it: commands that took too long, peers that went silent, connections that idle.

=========================  ==================================================================
``command_timeout_ms``     from issue to reply, waiting and replays included; what was written
                           leaves a tombstone
``unresponsive_timeout_ms``  since the server owes us a sign of life: the connection ends, and the
                           link decides what to send again
``idle_ping_ms``           since we heard of the server: it is asked
=========================  ==================================================================

One look every tenth of a second, more often where a timeout is short. Between two looks
nothing is late by more than that, and no command costs a timer of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable
from typing import Final

from penstock.client.backlog import Backlog
from penstock.client.config import Settings
from penstock.client.connection import Connection, ReplyFuture, Slot
from penstock.errors import PenstockError

log = logging.getLogger("penstock.client")

#: How often to look; a quarter of the shortest timeout if that is less, …
_INTERVAL_S: Final = 0.1
#: … but not more often than this.
_MIN_INTERVAL_S: Final = 0.002


class Watch:
    """Looks at one link from ``start`` to ``stop``."""

    def __init__(self, name: str, settings: Settings, context: contextvars.Context) -> None:
        self._name = name
        self._settings = settings
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._interval_s = _interval_s(settings)
        self._timer: asyncio.TimerHandle | None = None

    def start(self, look: Callable[[], None]) -> None:
        """Call ``look`` at every interval. Harmless when repeated."""
        if self._timer is None:
            self._tick(look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, look: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._look, look, context=self._context)

    def _look(self, look: Callable[[], None]) -> None:
        self._tick(look)
        look()

    def look_at_backlog(self, backlog: Backlog, error: Callable[[Slot], PenstockError]) -> None:
        if self._settings.command_timeout_ms:
            backlog.expire(self._horizon_s(), error)

    def look_at_connection(self, connection: Connection) -> None:
        settings = self._settings
        if settings.command_timeout_ms:
            connection.expire(self._horizon_s())
        silent_ms = (self._loop.time() - connection.silent_since_s) * 1000
        if connection.in_flight:
            if 0 < settings.unresponsive_timeout_ms < silent_ms:
                log.warning("%s: no reply for %d ms; ending the connection", self._name, silent_ms)
                connection.abort()
        elif 0 < settings.idle_ping_ms < silent_ms:
            connection.call(("PING",)).add_done_callback(_ignore)

    def _horizon_s(self) -> float:
        return self._loop.time() - self._settings.command_timeout_ms / 1000


def _interval_s(settings: Settings) -> float:
    timeouts_ms = (settings.command_timeout_ms, settings.unresponsive_timeout_ms, settings.idle_ping_ms)
    shortest_s = min((timeout_ms / 1000 for timeout_ms in timeouts_ms if timeout_ms), default=math.inf)
    return max(_MIN_INTERVAL_S, min(_INTERVAL_S, shortest_s / 4))


def _ignore(future: ReplyFuture) -> None:
    """What became of a sign of life is seen by the connection; nobody else asks."""
    if not future.cancelled():
        future.exception()
