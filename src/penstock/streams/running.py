"""Calling a handler for every message of a group, several at a time, until told to stop.

=========================  ============================================================
the handler                and then
=========================  ============================================================
returns                    the message is acknowledged, unless the handler settled it
raises                     logged; given back, with the group's backoff or ours
runs for long              its message is renewed until it is over
is cancelled with ``run``  its message is given back at once
=========================  ============================================================

Rules: a message that was read ahead when the end comes is given back before anybody waits for
handlers. A handler's error never ends the run; that of a read (no such type, closed) does, once
handlers are through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from penstock.errors import PenstockError
from penstock.streams.consuming import Consumption
from penstock.streams.messages import GroupMessage

log = logging.getLogger("penstock.streams")

Handler: TypeAlias = Callable[[GroupMessage], Awaitable[Any]]


async def run_handlers(
    consumption: Consumption, handler: Handler, concurrency: int, backoff_ms: Sequence[int] | None
) -> None:
    """Until the consumption is stopped. ``backoff_ms`` None: the group has its own."""
    tasks: set[asyncio.Task[None]] = set()
    slots = asyncio.Semaphore(concurrency)
    consumption.on_stop = slots.release  # whoever waits for a handler shall see the end, too

    def finished(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        slots.release()

    try:
        while True:
            await slots.acquire()
            message = await consumption.next()
            if message is None:
                break
            task = asyncio.get_running_loop().create_task(_handle(message, handler, backoff_ms))
            tasks.add(task)
            task.add_done_callback(finished)
        await _wind_up(consumption, tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    except Exception:
        await _wind_up(consumption, tasks)
        raise
    finally:
        if tasks:
            await asyncio.wait(tasks)
        await consumption.close()


async def _wind_up(consumption: Consumption, tasks: set[asyncio.Task[None]]) -> None:
    """What was read ahead goes back now; handlers finish, and their messages are renewed meanwhile."""
    await consumption.rest()
    if tasks:
        await asyncio.wait(tasks)


async def _handle(message: GroupMessage, handler: Handler, backoff_ms: Sequence[int] | None) -> None:
    try:
        await handler(message)
    except asyncio.CancelledError:
        await _quietly(message, message.nack)
        raise
    except Exception:
        log.exception("the handler of %r has failed", message)
        await _quietly(message, lambda: message.nack(_delay_ms(message, backoff_ms)))
    else:
        await _quietly(message, message.ack)


def _delay_ms(message: GroupMessage, backoff_ms: Sequence[int] | None) -> int | None:
    if backoff_ms is None:
        return None
    return backoff_ms[min(max(message.deliveries, 1), len(backoff_ms)) - 1]


async def _quietly(message: GroupMessage, settle: Callable[[], Awaitable[None]]) -> None:
    """Settle a message that its handler has not; if that fails, it comes again in time."""
    if message.is_settled:
        return
    try:
        await settle()
    except PenstockError as error:
        log.warning("%r could not be settled and will come again: %s", message, error)
