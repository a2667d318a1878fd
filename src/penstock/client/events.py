"""What happens to a client between the calls: told to whoever listens, in order.

Facts only, one class each. An event is told after the state it speaks of was entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.client.transports.base import Arguments
from penstock.protocol.replies import Reply


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection to a server stands and carries commands."""

    server: str
    is_reconnection: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection was lost, or could not be made. The client tries again unless ``is_final``."""

    server: str
    error: Exception | None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """A cluster has other nodes or other slots, or a sentinel names another primary."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: slots that have another owner
    moved_slots: int = 0


@dataclass(frozen=True, slots=True)
class OrphanedReply:
    """A blocking command was answered after its caller had gone: what it took is in ``reply``."""

    server: str
    arguments: Arguments
    reply: Reply


@dataclass(frozen=True, slots=True)
class CacheFlushed:
    """The client-side cache was emptied: it could not be told of changes any more."""


Event: TypeAlias = Connected | Disconnected | TopologyChanged | OrphanedReply | CacheFlushed
