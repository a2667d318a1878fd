"""Settings that CONFIG GET and CONFIG SET show.

``notify-keyspace-events`` belongs to the store (all processes must agree on it) and is
kept in its ``system`` table; everything else belongs to this process.
"""

from __future__ import annotations

from penstock.engine.storage.environment import Durability


class Config:
    def __init__(self, durability: Durability) -> None:
        self.durability = durability
        self.slowlog_threshold_ns = 10_000_000
        self.notify_classes: frozenset[str] = frozenset()
        self._shared: bytes | None = None

    def load_shared(self, stored: bytes | None) -> None:
        """Take over what another process set; ``stored`` is the row of the ``system`` table."""
        if stored == self._shared:
            return
        self._shared = stored
        self.notify_classes = frozenset((stored or b"").decode())
