"""Waiting on behalf of a client: ends with the client, and is one of a bounded number.

Rules: the work runs in the task of its request, which is cancelled when the client goes; a poll costs no task
of its own. Whoever else cancels that task is obeyed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.gateway.failures import unavailable
from penstock.gateway.http.requests import Disconnected, Request
from penstock.gateway.services import Services

T = TypeVar("T")


async def while_connected(services: Services, request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client goes. The body must have been read."""
    if services.waiting >= services.config.http.limits.idle_polls:
        work.close()
        raise unavailable("too many requests are waiting already; try again later")
    services.waiting += 1
    services.metrics.waiting_polls(+1)
    try:
        return await _unless_gone(request, work)
    finally:
        services.waiting -= 1
        services.metrics.waiting_polls(-1)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    def leave() -> None:
        nonlocal is_gone
        is_gone = True
        task.cancel()

    forget = request.on_gone(leave)
    if forget is None:
        work.close()
        raise Disconnected
    try:
        return await work
    except asyncio.CancelledError:
        if is_gone and not task.uncancel():
            raise Disconnected from None
        raise
    finally:
        forget()
