"""Which endpoints of users want which channels: in the store, and in the memory of every worker.

    webhooks.channels    hash: id of an endpoint -> JSON list of patterns (globs) of channels

A change is told to all workers (``control``), and read again after a gap. Between the answer to whoever
changed it and the last worker's hearing of it lie milliseconds; a message published in between may go by the
old rules.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.errors import PenstockError
from penstock.gateway.control import Control

_LOG = logging.getLogger("penstock.gateway.webhook-out")
_KEY: Final = "webhooks.channels"
_NEWS: Final = "webhook-routes"
_RETRY_S: Final = 1.0


class HookRoutes:
    """The routes of one store."""

    def __init__(self, client: Client, control: Control) -> None:
        self._client = client
        self._control = control
        self._routes: dict[str, list[re.Pattern[str]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._is_stale = False
        #: the ids of endpoints that want a channel
        self.match = lru_cache(maxsize=8_192)(self._match)
        control.on(_NEWS, lambda _: self._read_soon())
        control.on("gap", lambda _: self._read_soon())

    async def put(self, endpoint_id: str, patterns: Sequence[str]) -> None:
        await self._client.execute("HSET", _KEY, endpoint_id, msgspec.json.encode(list(patterns)))
        await self.read()
        await self._control.tell(_NEWS, {})

    async def delete(self, endpoint_id: str) -> None:
        await self._client.execute("HDEL", _KEY, endpoint_id)
        await self.read()
        await self._control.tell(_NEWS, {})

    async def patterns(self, endpoint_id: str) -> list[str]:
        packed: Any = await self._client.execute("HGET", _KEY, endpoint_id)
        return [] if packed is None else msgspec.json.decode(packed, type=list[str])

    async def read(self) -> None:
        """Know what the store knows."""
        found: Any = await self._client.hgetall(_KEY)
        self._routes = {
            to_bytes(name).decode(): [
                re.compile(fnmatch.translate(pattern))
                for pattern in msgspec.json.decode(packed, type=list[str])
            ]
            for name, packed in found.items()
        }
        self.match.cache_clear()

    def _match(self, channel: str) -> tuple[str, ...]:
        return tuple(
            name for name, patterns in self._routes.items() if any(each.match(channel) for each in patterns)
        )

    def _read_soon(self) -> None:
        self._is_stale = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_until_fresh())

    async def _read_until_fresh(self) -> None:
        while self._is_stale:
            self._is_stale = False
            try:
                await self.read()
            except PenstockError as error:
                _LOG.warning("cannot read which channels webhooks want: %s", error)
                self._is_stale = True
                await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
