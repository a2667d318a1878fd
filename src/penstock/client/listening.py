"""Tells events to whoever listens: callbacks at once, streams when they ask.

Rules: a listener that fails does not stop the others, nor the client. A stream that is not
read loses its oldest events, never grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from penstock.client.events import Event

log = logging.getLogger("penstock.client")

#: Events that wait for a reader.
_QUEUE_LEN: Final = 1_000


class Listeners:
    """Everybody who listens to one client."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Event], None]] = []
        self._streams: list[_Stream] = []

    def add(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back for every event; the answer ends that."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def stream(self) -> AsyncIterator[Event]:
        """Events from now on, until the client is closed."""
        stream = _Stream()
        self._streams.append(stream)
        return self._read(stream)

    async def _read(self, stream: _Stream) -> AsyncIterator[Event]:
        try:
            while (event := await stream.next()) is not None:
                yield event
        finally:
            if stream in self._streams:
                self._streams.remove(stream)

    def tell(self, event: Event) -> None:
        for callback in list(self._callbacks):
            try:
                callback(event)
            except Exception:
                log.exception("a listener cannot handle %r", event)
        for stream in self._streams:
            stream.put(event)

    def end(self) -> None:
        """No event follows."""
        for stream in self._streams:
            stream.end()


class _Stream:
    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_QUEUE_LEN)
        self._news = asyncio.Event()
        self._is_over = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        self._is_over = True
        self._news.set()

    async def next(self) -> Event | None:
        while not self._events:
            if self._is_over:
                return None
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()
