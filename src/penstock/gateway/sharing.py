"""Something that many follow and one reads: again and again, while there is anybody who follows.

    feed = SharedFeed(read)
    with feed.followed():
        news = await feed.following(0, timeout_s=15)      # (1, what was read)
        news = await feed.following(news.number, timeout_s=15)

Rules: a hundred followers cost one read. A follower that is late gets the newest, and misses what was
between. It begins with the first follower and ends with the last. A read that fails is logged, and tried
again: ``read`` deals with everything that may be expected. Nothing here knows what is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

_LOG = logging.getLogger("penstock.gateway")

EVERY_S: Final = 1.0

T = TypeVar("T")


class News(NamedTuple, Generic[T]):
    number: int
    value: T


class SharedFeed(Generic[T]):
    """One reader for all followers of one worker."""

    def __init__(self, read: Callable[[], Awaitable[T]], every_s: float = EVERY_S) -> None:
        self._read = read
        self._every_s = every_s
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._newest: News[T] | None = None
        self._changed = asyncio.Event()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """It is read as long as this lasts."""
        self._followers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="penstock shared feed")
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._task.cancel()
                self._task = None
                self._newest = None

    async def following(self, seen: int, timeout_s: float) -> News[T] | None:
        """What is newer than ``seen``, the number of the last news; None if nothing came, or on a nudge."""
        if not self._has_newer(seen):
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._newest if self._has_newer(seen) else None

    def nudge(self) -> None:
        """Let everybody look up who waits."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _has_newer(self, seen: int) -> bool:
        return self._newest is not None and self._newest.number > seen

    async def _run(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            began_s = now_s()
            try:
                value = await self._read()
            except Exception:  # noqa: BLE001 - whatever it was, followers wait for the next one
                _LOG.exception("what is followed could not be read")
            else:
                self._number += 1
                self._newest = News(self._number, value)
                self.nudge()
            await asyncio.sleep(max(0.0, began_s + self._every_s - now_s()))
