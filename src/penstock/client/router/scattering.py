"""The parts of a split command on their way: all at once, then one reply.

The caller's future ends with the merged reply. A caller that goes away takes those parts
with it that were not sent yet. Both kinds of futures here can be ended from outside, by a
timeout say, which tasks cannot. Which parts there are and how replies are merged is decided in
``splitting``; where a part goes, by whoever sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.client.connection import ReplyFuture
from penstock.client.router.splitting import Split
from penstock.client.transports.base import Arguments
from penstock.protocol.replies import Reply


def scatter(split: Split, send: Callable[[int, Arguments], ReplyFuture]) -> ReplyFuture:
    """Send every part with ``send(slot, part)``."""
    return _Gathering(split, [send(slot, part) for slot, part in split.parts])


class _Gathering(asyncio.Future[Reply]):
    """The reply to all parts."""

    def __init__(self, split: Split, parts: list[ReplyFuture]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._split = split
        self._parts = parts
        self._left = len(parts)
        for part in parts:
            part.add_done_callback(self._part_done)

    def cancel(self, msg: Any | None = None) -> bool:
        # Not by a callback: the parts would have left by then.
        for part in self._parts:
            part.cancel()
        return super().cancel(msg)

    def _part_done(self, _: ReplyFuture) -> None:
        self._left -= 1
        if self._left:
            return
        # Each is looked at: asyncio reports errors that nobody saw. Cancelled is one with its caller only.
        replies: list[Reply] = [
            None if part.cancelled() else part.exception() or part.result() for part in self._parts
        ]
        if not self.done():
            self._settle(replies)

    def _settle(self, replies: list[Reply]) -> None:
        try:
            reply = self._split.merge(replies)
        except Exception as error:  # noqa: BLE001 - a reply of the wrong shape is the caller's to see
            reply = error
        if isinstance(reply, Exception):
            self.set_exception(reply)
        else:
            self.set_result(reply)


class Deferred(asyncio.Future[Reply]):
    """The reply to a command that cannot be sent before another one is answered."""

    def __init__(self, first: ReplyFuture, then: Callable[[], ReplyFuture]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._current = first
        self._then: Callable[[], ReplyFuture] | None = then
        first.add_done_callback(self._step)

    def cancel(self, msg: Any | None = None) -> bool:
        self._current.cancel()
        return super().cancel(msg)

    def _step(self, done: ReplyFuture) -> None:
        if done.cancelled():
            return  # with its caller only
        error = done.exception()
        if self.done():
            return
        then, self._then = self._then, None
        if error is not None:
            self.set_exception(error)
        elif then is None:
            self.set_result(done.result())
        else:
            self._current = then()
            self._current.add_done_callback(self._step)
