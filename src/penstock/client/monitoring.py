"""MONITOR: every command that a server runs, as it runs them.

Rules: the connection is private and does nothing else. Lines wait in a bounded queue; a
reader that is too slow loses the oldest, and is told how many (``dropped``).
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.client.private import PrivateLink
from penstock.client.routes import Route, place_of
from penstock.errors import ConnectionLostError, ProtocolError, UsageError

if TYPE_CHECKING:
    from penstock.client.core import Core


@dataclass(frozen=True, slots=True)
class MonitorLine:
    """One command that ran."""

    #: since 1970, by the server's clock
    time_s: float
    database: int
    #: ``host:port``, ``unix:path``, or ``lua`` for a script
    client: str
    arguments: tuple[bytes, ...]


_LINE: Final = re.compile(rb"(\d+\.\d+) \[(\d+) ([^\]]*)\] (.*)", re.DOTALL)
_WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def parse_line(line: bytes) -> MonitorLine:
    """A line as servers write it: ``1339518083.107412 [0 127.0.0.1:60866] "keys" "*"``."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ProtocolError(f"not a line of MONITOR: {line!r:.200}")
    time_s, database, client, words = match.groups()
    return MonitorLine(
        float(time_s),
        int(database),
        client.decode(errors="replace"),
        tuple(_ESCAPE.sub(_unescape, word) for word in _WORD.findall(words)),
    )


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    return _ESCAPES.get(escape, escape)


class Monitor:
    """``async with ps.monitor() as lines: async for line in lines: …``."""

    def __init__(self, core: Callable[[], Core], route: Route | None) -> None:
        self._core = core
        self._route = route
        self._link: PrivateLink | None = None
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        #: lines that were lost because nobody took them
        self.dropped = 0

    async def __aenter__(self) -> Self:
        if self._link is not None:
            raise UsageError("this monitor is in use: make another with monitor()")
        core = self._core()
        if self._route is None:
            place = core.router.place_for(("PING",))
        else:
            await core.ready()
            place = place_of(self._route, core.router)
        self._limit = core.settings.pubsub_queue_len
        self._link = await core.links.take_in_time(place)
        self._link.on_private_push = self._on_push
        self._link.on_end = self._news.set
        try:
            await self._link.monitor()
        except BaseException:
            core.links.let_go(self._link)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._link is not None
        self._core().links.let_go(self._link)

    def _on_push(self, push: list[Any]) -> None:
        if len(self._lines) >= self._limit:
            self._lines.popleft()
            self.dropped += 1
        line = push[1]
        self._lines.append(line.encode(errors="surrogateescape") if isinstance(line, str) else line)
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MonitorLine:
        if self._link is None:
            raise UsageError("enter the monitor first: async with ps.monitor() as lines")
        while not self._lines:
            if not self._link.is_open:
                raise ConnectionLostError(f"the connection to {self._link.name} ended; monitor it again")
            self._news.clear()
            await self._news.wait()
        return parse_line(self._lines.popleft())
