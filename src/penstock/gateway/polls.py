"""Waiting on behalf of a client: ends with the client, and is one of a bounded number."""

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
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(request.disconnected())
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Disconnected
        return task.result()
    finally:
        services.waiting -= 1
        services.metrics.waiting_polls(-1)
        watch.cancel()
        if not task.done():
            task.cancel()
