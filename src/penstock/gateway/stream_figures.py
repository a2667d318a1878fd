"""Figures of streams for a list of them: what is there, what it takes, how fast it grows.

Rules: one command a stream. A rate is what was appended since this worker looked last, and None at first.
What is no stream (any more) is left out. Nothing here knows HTTP, nor who may see which stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.errors import CommandError
from penstock.front import Penstock
from penstock.gateway.rates import Rates

#: Refusals about the key itself: it is gone, or holds something else.
_NO_STREAM: Final = frozenset({"ERR", "WRONGTYPE"})


class StreamFigures(msgspec.Struct, kw_only=True):
    """A stream in numbers; an empty one has ``first`` behind ``last``."""

    name: str
    messages: int
    #: what they take where they are stored
    bytes: int
    first: int
    last: int
    #: appends in a second
    rate: float | None
    groups: int
    #: when the last message was written; null if there is none
    last_ms: int | None


class StreamFigureReader:
    """Reads figures for one worker."""

    def __init__(self, store: Penstock) -> None:
        self._store = store
        self._rates = Rates()

    async def read(self, names: Iterable[str]) -> list[StreamFigures]:
        """In the order of the names."""
        found = await asyncio.gather(*map(self._read, names))
        return [figures for figures in found if figures is not None]

    async def _read(self, name: str) -> StreamFigures | None:
        try:
            info = await self._store.stream(name).info()
        except CommandError as error:
            if error.code not in _NO_STREAM:
                raise
            return None
        return StreamFigures(
            name=name,
            messages=info.length,
            bytes=info.bytes,
            first=info.first,
            last=info.last,
            rate=self._rates.look(name, info.last),
            groups=info.groups,
            last_ms=info.last_ms or None,
        )
