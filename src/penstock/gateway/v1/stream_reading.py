"""Reading a stream from anywhere: pages, waiting, tags. What routes and followers share.

Rules: a page says where to go on, also where holes or a tag's absence left it empty. Looking for a tag is
bounded: a page that found little is answered, and the client goes on behind what was searched. Nothing here
knows HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.gateway.v1.staying import Shutdown
from penstock.gateway.v1.stream_documents import StreamMessage
from penstock.gateway.v1.stream_requests import message_of
from penstock.streams import StreamCommands

T = TypeVar("T")

#: Messages that are looked at for one page of a tag.
_MAX_SEARCHED: Final = 10_000
_SEARCH_PAGE: Final = 1_000


@dataclass(slots=True)
class Page:
    """Some messages, and the stream around them."""

    #: what is there; nothing if ``first`` is behind ``last``
    first: int
    last: int
    messages: list[StreamMessage]
    #: the offset to go on with
    next: int

    @property
    def is_up_to_date(self) -> bool:
        return self.next > self.last


class StreamReader:
    """One stream, and what its reader wants of it."""

    def __init__(
        self, commands: StreamCommands, stream: str, *, limit: int, tag: bytes | None = None
    ) -> None:
        self._commands = commands
        self._stream = stream
        self._limit = limit
        self._tag = tag

    async def bounds(self) -> tuple[int, int]:
        """The offsets that are there."""
        ((first, last),) = await self._commands.execute("TREAD", self._stream, 0, 0, "WITHINFO")
        return first, last

    async def first_since(self, moment_ms: int) -> int:
        """The offset of the first message that was written then or later; behind the last if there is none.

        Halves until it is found: times never go down from one message to the next. One that was compacted
        away is as old as the one after it.
        """
        first, last = await self.bounds()
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            _, *rows = await self._rows(middle, 1)
            if not rows or rows[0][3] >= moment_ms:
                high = middle
            else:
                low = rows[0][0] + 1
        return low

    async def page(self, start: int) -> Page:
        """What is there from this offset on; 0 is the first one available."""
        if self._tag is None:
            (first, last), *rows = await self._rows(start, self._limit)
            return Page(first, last, [message_of(row) for row in rows], _behind(rows, start, last))
        return await self._search(start, self._tag)

    async def _search(self, start: int, tag: bytes) -> Page:
        found: list[Any] = []
        searched = 0
        while True:
            (first, last), *rows = await self._rows(start, _SEARCH_PAGE)
            searched += len(rows)
            following = _behind(rows, start, last)
            for row in rows:
                if row[1] == tag:
                    found.append(row)
                    if len(found) == self._limit:
                        following = row[0] + 1
                        break
            start = following
            if len(found) == self._limit or start > last or searched >= _MAX_SEARCHED:
                return Page(first, last, [message_of(row) for row in found], start)

    async def waited_page(self, start: int, wait_ms: int) -> Page:
        """The same; if there is nothing yet, what comes within this time."""
        now_s = asyncio.get_running_loop().time
        ends_s = now_s() + wait_ms / 1_000
        page = await self.page(start)
        while not page.messages:
            left_ms = int((ends_s - now_s()) * 1_000)
            if left_ms <= 0:
                break
            if page.is_up_to_date:
                await self._commands.execute("TREAD", self._stream, page.next, 1, "BLOCK", left_ms)
            page = await self.page(page.next)
        return page

    async def _rows(self, start: int, count: int) -> Any:
        return await self._commands.execute(
            "TREAD", self._stream, start, count, "SKIPNULL", "WITHTIME", "WITHINFO"
        )


def _behind(rows: list[Any], start: int, last: int) -> int:
    """The offset behind what was read; without rows everything from ``start`` on is a hole, or to come."""
    return int(rows[-1][0]) + 1 if rows else max(start, last + 1)


async def unless_stopping(shutdown: Shutdown, wait: Callable[[], Awaitable[T]]) -> T | None:
    """What comes of waiting; None if the worker stops first."""
    stopped = asyncio.Event()
    task = asyncio.ensure_future(wait())
    watch = asyncio.ensure_future(stopped.wait())
    try:
        with shutdown.watched(stopped.set):
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
