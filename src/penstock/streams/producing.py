"""Writing exactly once: a producer counts its messages, so that a repeated write is recognised.

    producer = orders.producer("host-1")
    offset = await producer.write("eu", b"…")       # also across lost connections and timeouts

Every command carries the number of its first message. If its outcome is unknown it is sent again
under the same number, and the stream answers what it answered then. What several tasks
write meanwhile is collected and leaves as the next command.

Rules:

1. One command is under way at a time: numbers reach the stream in their order, whatever is lost.
2. Numbers begin at the time in µs since 1970, which is above everything an earlier process of the
   same id has used (unless it wrote more than a million messages a second for all its life, or the
   clock went back). If not, the refusal of the very first command tells where to go on.
3. Later, ``SEQUENCE producer … is at …`` means that somebody else writes under the same id. That
   is raised: of two producers with one id only the younger one can go on.
4. A command that was given up (``patience_ms``) leaves its numbers used. Should it arrive after all, it
   is refused or was already written; it is never written twice.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, overload

from penstock.client.resending import persistently
from penstock.client.transports.base import Argument
from penstock.clock import Clock, SystemClock
from penstock.errors import CommandError
from penstock.streams.arguments import MISSING, Data, Execute, Missing, Name, named, whole
from penstock.streams.infos import text
from penstock.streams.writing import Batch, backlog_options, batches, fits, pair

PATIENCE_MS: Final = 60_000

_IS_AT: Final = re.compile(r"is at (\d+)$")


@dataclass(slots=True)
class _Unit:
    """What one call writes, and the offset of its last message."""

    batch: Batch
    options: tuple[Argument, ...]
    done: asyncio.Future[int]

    def suits(self, other: _Unit) -> bool:
        """Whether both may leave in one command."""
        return self.options == other.options and self.batch.is_tombstones == other.batch.is_tombstones


class Producer:
    """One writer with an id. Make one with ``stream.producer(id)``; an id is used by one at a time."""

    def __init__(
        self,
        commands: Execute,
        key: Name,
        id: Name,
        *,
        patience_ms: int = PATIENCE_MS,
        clock: Clock | None = None,
    ) -> None:
        self._commands = commands
        #: the name of the stream
        self.stream = key
        self.id: Name = named("id", id)
        self._patience_ms = whole("patience_ms", patience_ms)
        self._clock = clock or SystemClock()
        #: the number of the next message; 0: none was sent yet
        self._next = 0
        self._units: deque[_Unit] = deque()
        self._worker: asyncio.Task[None] | None = None

    @overload
    async def write(self, tag: Data, entry: Data | None, *, backlog: int | None = None) -> int: ...
    @overload
    async def write(self, *, entry: Data, backlog: int | None = None) -> int: ...
    async def write(
        self, tag: Data = b"", entry: Data | Missing | None = MISSING, *, backlog: int | None = None
    ) -> int:
        """Write one message, once; its offset. ``entry`` None is a tombstone."""
        if isinstance(entry, Missing):
            raise TypeError("entry is missing: write(tag, entry), or write(entry=…) without a tag")
        good_tag, good_entry = pair(tag, entry)
        batch = Batch(good_entry is None)
        batch.add(good_tag, good_entry)
        return await self._enqueue(batch, backlog_options(backlog, False))

    async def write_many(
        self, messages: Iterable[tuple[Data, Data | None]], *, backlog: int | None = None
    ) -> int:
        """Write messages, each once, in order; the offset of the last one. See ``Stream.write_many``."""
        options = backlog_options(backlog, False)
        last = 0
        for batch in batches(messages):
            last = await self._enqueue(batch, options)
        return last

    async def _enqueue(self, batch: Batch, options: tuple[Argument, ...]) -> int:
        loop = asyncio.get_running_loop()
        unit = _Unit(batch, options, loop.create_future())
        self._units.append(unit)
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        return await unit.done

    # ---------------------------------------------------------------------- sending

    async def _work(self) -> None:
        """Send what is there, command by command, until nothing is left."""
        units: list[_Unit] = []
        try:
            while units := self._take():
                try:
                    last = await self._send(units[0].options, _joined(units))
                except Exception as error:  # noqa: BLE001 - it is for those who wait
                    _fail(units, error)
                else:
                    _answer(units, last)
        finally:
            self._worker = None
            for unit in (*units, *self._units):
                unit.done.cancel()
            self._units.clear()

    def _take(self) -> list[_Unit]:
        """The units of the next command. Callers that have gone before it leaves are left out."""
        taken: list[_Unit] = []
        size, size_bytes = 0, 0
        while self._units:
            unit = self._units[0]
            if not unit.done.done():
                size += len(unit.batch)
                size_bytes += unit.batch.size_bytes
                if taken and not (unit.suits(taken[0]) and fits(size, size_bytes)):
                    break
                taken.append(unit)
            self._units.popleft()
        return taken

    async def _send(self, options: tuple[Argument, ...], batch: Batch) -> int:
        is_first = self._next == 0
        number = self._next or self._clock.now_us()
        self._next = number + len(batch)
        attempts = 0

        async def attempt() -> int:
            nonlocal attempts
            attempts += 1
            words = batch.command(self.stream, (*options, "PRODUCER", self.id, number))
            return int(await self._commands.execute(*words))

        try:
            return await persistently("TWRITE", attempt, limit_ms=self._patience_ms)
        except CommandError as error:
            is_at = _IS_AT.search(str(error)) if error.code == "SEQUENCE" else None
            if is_at is None or not is_first or attempts > 1:
                raise
            self._next = number = int(is_at[1]) + 1
            self._next += len(batch)
        return await persistently("TWRITE", attempt, limit_ms=self._patience_ms)

    def __repr__(self) -> str:
        waiting = sum(len(unit.batch) for unit in self._units)
        return f"<Producer {text(self.id)} of {text(self.stream)}: next {self._next}, {waiting} waiting>"


def _joined(units: list[_Unit]) -> Batch:
    batch = Batch(units[0].batch.is_tombstones)
    for unit in units:
        batch.words += unit.batch.words
    return batch


def _answer(units: list[_Unit], last: int) -> None:
    """Each caller gets the offset of its own last message."""
    for unit in reversed(units):
        if not unit.done.done():
            unit.done.set_result(last)
        last -= len(unit.batch)


def _fail(units: list[_Unit], error: Exception) -> None:
    for unit in units:
        if not unit.done.done():
            unit.done.set_exception(error)
