"""What a user opens: the client, with the facilities that are built on it.

    async with penstock.open("./shop.pen") as ps:
        await ps.stream("orders").write("eu", b"…")

Only names are joined here. The client knows nothing of facilities, and they nothing of one another.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from penstock.client.client import Client
from penstock.client.config import open_settings
from penstock.streams import Stream, StreamCommands
from penstock.streams.arguments import Name


class Penstock(Client):
    """A store, a server, or a cluster, and what it keeps. Make one with :func:`penstock.open`."""

    def stream(self, name: Name) -> Stream:
        """A log under this key; asking for it sends nothing."""
        return Stream(self, self._stream_commands, name)

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
