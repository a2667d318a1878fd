"""Reads that see every write that was acknowledged before them.

Revoked must mean revoked on every worker at once, however the client was opened: a replica may lag, and a
client's cache knows of a change a moment late. Both are passed by if the client has them.
"""

from __future__ import annotations

from penstock.client.client import Client
from penstock.client.routes import ByKey
from penstock.errors import ProtocolError


async def read_fresh(client: Client, key: str) -> bytes | None:
    """The string under a key, from the server that owns the key."""
    settings = client.settings
    if settings.read_from == "primary" and not settings.client_cache_entries:
        return await client.get(key)
    reply = await client.execute("GET", key, route=ByKey(key))
    if reply is None or isinstance(reply, bytes):
        return reply
    raise ProtocolError(f"the reply to 'GET' has an unknown shape: {reply!r:.120}")
