"""Around a test of faults: nothing goes wrong unheard, nothing is left behind, nothing takes for ever."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import penstock

#: What takes longer hangs.
LIMIT_S = 30.0


@asynccontextmanager
async def peace(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Nothing may go wrong without a caller who is told: no error that nobody retrieved, no handler
    that failed, no task left behind."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(repr(context)))
    before = asyncio.all_tasks()
    caplog.set_level(logging.ERROR, "penstock")
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()  # futures complain when they go
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    loop.set_exception_handler(None)
    complaints += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not complaints, f"{len(complaints)}: {complaints[:5]}"
    assert not left, f"tasks are left: {left}"


@asynccontextmanager
async def closing(client: penstock.Client) -> AsyncIterator[penstock.Client]:
    """Closes it within the time that closing may take."""
    try:
        yield client
    finally:
        async with asyncio.timeout(LIMIT_S):
            await client.close()


async def nothing_pending(client: penstock.Client) -> None:
    """Until every command that was sent is answered, and none waits. Soon, not at once: what the last
    callers left behind is still being taken back, and idle connections are asked for a sign of life."""
    async with asyncio.timeout(LIMIT_S):
        while pending := _pending(client.statistics()):
            await asyncio.sleep(0.005)
    assert not pending


def _pending(figures: dict[str, Any]) -> int:
    servers = [each for each in figures["servers"].values() if isinstance(each, dict)]
    in_flight: int = sum(each["in_flight"] + each["waiting"] for each in servers)
    return in_flight + int(figures["private_links"]["lent"])
