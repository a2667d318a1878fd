"""What a server can do, asked of itself. Whoever asks keeps the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import CommandError

if TYPE_CHECKING:
    from penstock.client.client import Client


async def has_command(client: Client, name: str) -> bool:
    """Whether the server has a command; no, if it must not be asked."""
    try:
        reply: Any = await client.execute("COMMAND", "INFO", name)
    except CommandError:  # an ACL may forbid to ask
        return False
    if not reply:
        return False
    # RESP3 servers may make it a map.
    return bool(next(iter(reply.values() if isinstance(reply, Mapping) else reply)))
