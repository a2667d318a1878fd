"""What one worker tells all others, itself included: over pub/sub, kept nowhere.

    control.on("log-level", apply)
    await control.tell("log-level", {"category": "http", "level": "DEBUG"})

A worker that was away has missed what was said; whoever needs more than news keeps it in the store
and looks there on ``"gap"``, which every worker tells itself when it begins to listen and after a loss.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.client.pubsub import Message, Subscriber
from penstock.errors import ClosedError, PenstockError

_LOG = logging.getLogger("penstock.gateway.server")
_TOPIC: Final = "penstock.gateway"
_PAUSE_S: Final = 1.0

Heard: TypeAlias = Callable[[dict[str, Any]], None]


class _News(msgspec.Struct):
    kind: str
    fields: dict[str, Any]


class Control:
    """The line between the workers of one store."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard: dict[str, list[Heard]] = {}
        self._reader: asyncio.Task[None] | None = None

    def on(self, kind: str, heard: Heard) -> None:
        """Call back for news of this kind."""
        self._heard.setdefault(kind, []).append(heard)

    async def tell(self, kind: str, fields: dict[str, Any]) -> None:
        """Reaches every worker that listens, this one too."""
        await self._client.execute("PUBLISH", _TOPIC, msgspec.json.encode(_News(kind, fields)))

    def start(self) -> None:
        """Begin to listen; a store that is down is waited for."""
        self._reader = asyncio.get_running_loop().create_task(self._listen(), name="penstock gateway control")

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub() as subscriber:
                    await subscriber.subscribe(_TOPIC)
                    self._call("gap", {})
                    await self._read(subscriber)
            except ClosedError:
                return
            except PenstockError as error:
                _LOG.warning("cannot hear the other workers: %s", error)
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, subscriber: Subscriber) -> None:
        async for item in subscriber:
            if isinstance(item, Message):
                self._take(to_bytes(item.data))
            else:
                self._call("gap", {})

    def _take(self, text: bytes) -> None:
        try:
            news = msgspec.json.decode(text, type=_News)
        except msgspec.MsgspecError:
            _LOG.warning("somebody publishes on %s what is not news", _TOPIC)
            return
        self._call(news.kind, news.fields)

    def _call(self, kind: str, fields: dict[str, Any]) -> None:
        for heard in self._heard.get(kind, ()):
            try:
                heard(fields)
            except Exception:  # noqa: BLE001 - one listener must not make the worker deaf
                _LOG.exception("news of kind %s could not be taken", kind)
