"""Waiting in tests against scripted servers, which answer within a few turns of the loop.

What takes longer is waited for with ``tests.places.until``.
"""

from __future__ import annotations

import asyncio
from typing import Any


async def settle() -> None:
    """Until everything that is due has run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def outcome(future: asyncio.Future[Any]) -> Any:
    """The value or the error, one of which must come."""
    async with asyncio.timeout(20):
        return (await asyncio.gather(future, return_exceptions=True))[0]


def nothing_left_behind() -> None:
    """No task but the one that asks."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"left behind: {tasks}"
