"""Trying again what the way to the server has cut off.

Rule: only for calls that do no harm when they run twice; whoever calls this has made sure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.errors import (
    BackpressureError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    PenstockError,
    StoreError,
)

log = logging.getLogger("penstock.client")

T = TypeVar("T")

#: What says nothing about the command, only about the way to the server.
CUT_OFF: Final[tuple[type[PenstockError], ...]] = (ConnectionLostError, CommandTimeoutError)

#: Refusals of a server that have nothing to do with the command.
NOT_NOW: Final = frozenset({"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM"})
_MOVING: Final = frozenset({"READONLY", "TRYAGAIN"})

#: The client reconnects by itself and waits for that; these are for when it gives up at once.
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


async def persistently(
    what: str,
    attempt: Callable[[], Awaitable[T]],
    *,
    limit_ms: int | None,
    is_cause: Callable[[PenstockError], bool] = lambda error: isinstance(error, CUT_OFF),
    between: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """What an attempt answers, as soon as one does; its error when ``limit_ms`` (None: never) are up.

    ``is_cause`` says after which errors. ``between`` runs before each repetition; what it raises about the
    connection is overlooked.
    """
    loop = asyncio.get_running_loop()
    ends_s = None if limit_ms is None else loop.time() + limit_ms / 1000
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except PenstockError as error:
            if not is_cause(error) or (ends_s is not None and loop.time() + pause_s > ends_s):
                raise
            log.info("%s is tried again in %.2f s: %s", what, pause_s, error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if between is not None:
            try:
                await between()
            except CUT_OFF as error:
                log.debug("%s: %s", what, error)


def is_outage(error: PenstockError) -> bool:
    """Whether the store is away or cannot now, and may work later."""
    if isinstance(error, CommandError):
        code = _cause(error)
        return code in NOT_NOW or code in _MOVING
    return isinstance(error, BackpressureError | ConnectionLostError | StoreError | TimeoutError)


def _cause(error: CommandError) -> str:
    """The code of an error; of an EXEC that was discarded, the code of what it says was the reason."""
    if error.code != "EXECABORT":
        return error.code
    return str(error).partition("because of: ")[2].partition(" ")[0]
