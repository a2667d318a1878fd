"""Clients that wait in a command, on any backend."""

from __future__ import annotations

from typing import Any


def blocked(db: Any, *words: Any) -> Any:
    """A new client that waits in this command."""
    client = db.client()
    client.send(*words)
    assert client.nothing_arrives(), f"{words!r} did not wait"
    return client
