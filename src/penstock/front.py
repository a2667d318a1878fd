"""What a user opens: the client, with the facilities that are built on it.

    async with penstock.open("./shop.pen") as ps:
        await ps.stream("orders").write("eu", b"…")
        await ps.channel("room-7").publish("msg-1", {"text": "hi"})
        handle = await ps.transactions.start("checkout", {"cart": 42})

Only names are joined here. The client knows nothing of facilities, and they nothing of one another.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from penstock.channels import Channel, ChannelStore
from penstock.channels.model import EXPIRE_MS
from penstock.client.client import Client
from penstock.client.config import open_settings
from penstock.errors import UsageError
from penstock.streams import Stream, StreamCommands
from penstock.streams.arguments import Name

if TYPE_CHECKING:
    from penstock.transactions import Transactions
    from penstock.transactions.archive.sink import ArchiveSink


class Penstock(Client):
    """A store, a server, or a cluster, and what it keeps. Make one with :func:`penstock.open`."""

    def stream(self, name: Name) -> Stream:
        """A log under this key; asking for it sends nothing."""
        return Stream(self, self._stream_commands, name)

    def channel(self, name: str, *, expire_ms: int = EXPIRE_MS) -> Channel:
        """Durable pub/sub under this name; asking for it sends nothing. Messages live for ``expire_ms``."""
        return Channel(self._channels, name, expire_ms)

    async def channel_names(self) -> list[str]:
        """All channels that somebody used lately. Reads the whole keyspace: for people, not for programs."""
        return await self._channels.names()

    @cached_property
    def transactions(self) -> Transactions:
        """Pipelines of steps: start them, look at them, run workers."""
        return self._make_transactions()

    def with_archive(self, archive: ArchiveSink) -> Self:
        """Transactions that left the store are found there; to be said before they are first used."""
        if "transactions" in self.__dict__:
            raise UsageError("say with_archive() before transactions are used")
        self.__dict__["transactions"] = self._make_transactions(archive)
        return self

    def _make_transactions(self, archive: ArchiveSink | None = None) -> Transactions:
        # A third of what importing Penstock would take, and most programs do without.
        from penstock.delivering import StoreOutlet
        from penstock.transactions import Transactions

        outlet = StoreOutlet(self._stream_commands, self._channels)
        return Transactions(self, outlet=outlet, archive=archive)

    async def close(self) -> None:
        if "transactions" in self.__dict__:
            await self.transactions.close()
        if "_channels" in self.__dict__:
            await self._channels.close()
        await super().close()

    @cached_property
    def _channels(self) -> ChannelStore:
        return ChannelStore(self)

    @cached_property
    def _stream_commands(self) -> StreamCommands:
        return StreamCommands(self)


def open(url: str | os.PathLike[str], **settings: Any) -> Penstock:
    """A client of a directory, a server, Sentinel or a cluster; connects when entered or awaited.

    ``url`` is a path (``./shop.pen``) or one of ``redis://``, ``rediss://``, ``unix://``,
    ``redis-cluster://``, ``redis-sentinel://`` and their ``valkey`` names; the settings are
    those of :class:`penstock.client.config.Settings`.
    """
    return Penstock(*open_settings(url, **settings))
