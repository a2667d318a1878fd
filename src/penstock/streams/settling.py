"""Acknowledging many messages with few commands: what several tasks say in one tick leaves together.

``settle`` returns when the server has answered, so "acknowledged" means acknowledged.

Rules: a caller that goes away takes nothing back from the others of its batch. TACK, TDEAD and
TRENEW are tried again when the connection was lost, since repeating them finds nothing left to
do. TNACK is not: meanwhile somebody else may be at work on the message.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from penstock.client.resending import persistently
from penstock.streams.arguments import Execute, Name, items

#: Most messages in one command.
MAX_BATCH: Final = 5_000
#: How long a lost connection may keep an acknowledgement.
_PATIENCE_MS: Final = 30_000

_REPEATABLE: Final = frozenset(("TACK", "TDEAD", "TRENEW"))

#: A command and what stands between the name of the group and the items.
_Head: TypeAlias = tuple[int | str, ...]


class _Batch:
    """Offsets that go together, and the answer to come."""

    __slots__ = ("done", "offsets")

    def __init__(self, done: asyncio.Future[int]) -> None:
        self.offsets: list[int] = []
        self.done = done


class Settling:
    """Settles the messages of one group."""

    def __init__(self, commands: Execute, key: Name, group: Name) -> None:
        self._commands = commands
        self._key = key
        self._group = group
        #: those of this tick
        self._batches: dict[_Head, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def settle(self, offset: int, command: str, *parameters: int | str) -> None:
        """One message, together with what others settle alike in this tick."""
        loop = asyncio.get_running_loop()
        head: _Head = (command, *parameters)
        batch = self._batches.get(head)
        if batch is None or len(batch.offsets) >= MAX_BATCH:
            batch = self._batches[head] = _Batch(loop.create_future())
            loop.call_soon(self._start, head, batch)
        batch.offsets.append(offset)
        await asyncio.shield(batch.done)

    async def settle_now(self, offsets: list[int], command: str, *parameters: int | str) -> int:
        """Many at once; how many of them were pending."""
        found = 0
        for at in range(0, len(offsets), MAX_BATCH):
            found += await self._send((command, *parameters), offsets[at : at + MAX_BATCH])
        return found

    def _start(self, head: _Head, batch: _Batch) -> None:
        if self._batches.get(head) is batch:
            del self._batches[head]
        task = asyncio.get_running_loop().create_task(self._finish(head, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, head: _Head, batch: _Batch) -> None:
        try:
            found = await self._send(head, batch.offsets)
        except asyncio.CancelledError:
            batch.done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is for those who wait
            batch.done.set_exception(error)
            batch.done.exception()  # … who may all have gone
        else:
            batch.done.set_result(found)

    async def _send(self, head: _Head, offsets: list[int]) -> int:
        command, *parameters = head
        words = (command, self._key, self._group, *parameters, *items(offsets))
        if command not in _REPEATABLE:
            return int(await self._commands.execute(*words))
        return int(await persistently(command, lambda: self._commands.execute(*words), limit_ms=_PATIENCE_MS))
