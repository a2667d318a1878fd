"""What ``async for`` steps through: the messages of a group. Forgetting it ends the consumption.

Rules: the tasks of a consumption know nothing of the consumer, so that leaving a loop (``break``, an
error) frees it, and freeing it closes the consumption on its own loop. A call of ``__anext__``
that is cancelled has taken nothing; the next one goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

from penstock.streams.consuming import Consumption
from penstock.streams.messages import GroupMessage


class Consumer(AsyncIterator[GroupMessage]):
    """Messages of a group, one after the other, for ever: ``async for message in group.consume():``.

    What was read ahead is given back when this is closed, or not used any more (``break``).
    ``async with group.consume() as messages:`` waits for that.
    """

    def __init__(
        self, make: Callable[[], Consumption], on_end: Callable[[Consumption], None] = lambda _: None
    ) -> None:
        self._make = make
        self._on_end = on_end
        self._consumption: Consumption | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupMessage:
        if self._is_closed:
            raise StopAsyncIteration
        if self._consumption is None:
            self._loop = asyncio.get_running_loop()
            self._consumption = self._make()
        try:
            message = await self._consumption.next()
        except asyncio.CancelledError:
            raise  # nothing was taken: whoever asks next gets it
        except BaseException:
            await self.aclose()
            raise
        if message is None:
            await self.aclose()
            raise StopAsyncIteration
        return message

    def stop(self) -> None:
        """End the iteration, from anywhere, before its next message."""
        self._is_closed = self._is_closed or self._consumption is None
        if self._consumption is not None:
            self._consumption.stop()

    async def aclose(self) -> None:
        """Give back what was read ahead; returns when that is through."""
        self._is_closed = True
        if self._consumption is not None:
            self._on_end(self._consumption)
            await self._consumption.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """Forgotten (``break`` out of a loop): close it on its own loop, wherever we are."""
        consumption, loop = self._consumption, self._loop
        if consumption is None or loop is None or self._is_closed or loop.is_closed():
            return
        self._on_end(consumption)
        try:
            loop.call_soon_threadsafe(_close_later, consumption)
        except RuntimeError:
            return  # the loop was closed just now

    def __repr__(self) -> str:
        return f"<Consumer {'new' if self._consumption is None else repr(self._consumption)}>"


#: Closings that nobody waits for; loops do not keep their tasks alive.
_CLOSINGS: Final[set[asyncio.Task[None]]] = set()


def _close_later(consumption: Consumption) -> None:
    task = asyncio.get_running_loop().create_task(consumption.close())
    _CLOSINGS.add(task)
    task.add_done_callback(_CLOSINGS.discard)
