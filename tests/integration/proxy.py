"""A TCP proxy that misbehaves on purpose, between a client and a real server.

    async with Proxy(server.port) as proxy:
        proxy.plan(Plan(cut_up=17))       # the next connection: 17 bytes reach the server, then both ends
        ...                               # see nothing but a reset; later connections are sound again

=============  ===========================================================================
``delay_s``    each piece waits that long, in both directions
``drip``       pieces of at most so many bytes (``delay_s`` between them)
``cut_up``     connection cut after so many bytes from the client; 0 before the first
``cut_down``   likewise from the server
``swallow``    half-open: accepted, then nothing passes in either direction
``chance``     pieces and delays of random size, from this generator
=============  ===========================================================================

Faults come from plans and seeds alone; what is random is so by a ``random.Random`` of the
test. Bytes are never changed, lost or reordered: TCP would not do that either.

A proxy that ``records`` keeps what the servers said, to the last byte, and on which
connections the client could not hear all of it (``is_harmed``).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Self

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Plan:
    """What happens to one connection."""

    delay_s: float = 0.0
    drip: int = 0
    cut_up: int | None = None
    cut_down: int | None = None
    swallow: bool = False
    chance: random.Random | None = None


class Passage:
    """One connection through the proxy."""

    def __init__(self, plan: Plan, records: bool = False) -> None:
        self.plan = plan
        #: set to True at any time: half-open from then on
        self.is_swallowing = plan.swallow
        #: bytes that passed
        self.up = 0
        self.down = 0
        #: all that the server said, and whether the proxy kept some of it from the client
        self.heard = bytearray()
        self.is_harmed = False
        self._records = records
        self.is_over = False
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Both ends see the connection reset."""
        self.is_harmed |= not self.is_over
        self._end()

    def _end(self) -> None:
        self.is_over = True
        client, *upstream = self._writers
        client.transport.abort()
        for writer in upstream:
            if not self._records:
                writer.transport.abort()
            elif not writer.is_closing() and writer.can_write_eof():
                writer.write_eof()  # what the server still says must be heard

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream_port: int
    ) -> None:
        self._writers.append(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(HOST, upstream_port)
        except OSError:
            return  # nobody is there; the client sees its connection end
        self._writers.append(up_writer)
        if self.is_over:
            self._end()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reader, up_writer, "up", self.plan.cut_up))
            group.create_task(self._pump(up_reader, writer, "down", self.plan.cut_down))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str, cut_at: int | None
    ) -> None:
        with contextlib.suppress(OSError):
            if cut_at == 0:
                self.cut()
            while data := await reader.read(1 << 16):
                if way == "down" and self._records:
                    self.heard += data
                if self.is_swallowing or self.is_over:
                    self.is_harmed |= self.is_swallowing
                    continue
                left = len(data) if cut_at is None else cut_at - getattr(self, way)
                for piece in self._pieces(data[:left]):
                    await self._delay()
                    if self.is_over:
                        break
                    writer.write(piece)
                    await writer.drain()
                    setattr(self, way, getattr(self, way) + len(piece))
                if left <= len(data) and cut_at is not None:
                    # What was written must arrive before the cut does.
                    self.is_harmed = True
                    if way == "down" or not self._records:
                        writer.close()
                        await writer.wait_closed()
                    break
        self._end()
        if way == "down" and self._records:
            await self._hear_out(reader)

    async def _hear_out(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.heard += data
        self._writers[1].transport.abort()

    def _pieces(self, data: bytes) -> list[bytes]:
        chance, size = self.plan.chance, self.plan.drip
        if not data:
            return []
        if chance is not None:
            starts = [0, *sorted(chance.randrange(len(data)) for _ in range(chance.randrange(6)))]
        else:
            starts = list(range(0, len(data), size or len(data)))
        ends = [*starts[1:], len(data)]
        return [data[start:end] for start, end in zip(starts, ends, strict=True) if start < end]

    async def _delay(self) -> None:
        plan = self.plan
        if plan.chance is not None and plan.chance.random() < 0.05:
            await asyncio.sleep(plan.chance.random() * 0.002)
        elif plan.delay_s:
            await asyncio.sleep(plan.delay_s)


class Proxy:
    """Listens on a port of its own. A plan is used up by one connection; without any, all is well."""

    def __init__(
        self, upstream_port: int, tls: ssl.SSLContext | None = None, *, records: bool = False
    ) -> None:
        self.upstream_port = upstream_port
        self._records = records
        self.port = 0
        #: for connections that have no plan of their own
        self.usual = Plan()
        self.passages: list[Passage] = []
        self._tls = tls
        self._plans: deque[Plan] = deque()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def plan(self, *plans: Plan) -> None:
        """For the next connections, one each."""
        self._plans.extend(plans)

    @property
    def passage(self) -> Passage:
        """The newest connection."""
        return self.passages[-1]

    @property
    def live(self) -> list[Passage]:
        """The connections that have not ended, oldest first."""
        return [passage for passage in self.passages if not passage.is_over]

    def cut(self) -> None:
        """Every connection, now."""
        for passage in self.passages:
            passage.cut()

    async def listen(self) -> None:
        """Also after ``vanish``, on the same port."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """As if the machine were switched off, but for the refusals that its kernel sends."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = Passage(self._plans.popleft() if self._plans else self.usual, self._records)
        self.passages.append(passage)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await passage.run(reader, writer, self.upstream_port)
        finally:
            self._tasks.discard(task)
            passage.cut()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()
