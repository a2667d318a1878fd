"""The parts of a split command on their way: all at once, then one reply.

The caller's future ends with the merged reply. A caller that goes away takes those parts
with it that were not sent yet. Which parts there are and how replies are merged is decided in
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
