"""What a link's state means to whoever observes the client."""

from __future__ import annotations

from penstock.client.events import Connected, Disconnected
from penstock.client.link import Link, LinkState
from penstock.client.router.base import Observer


def report_state(link: Link, observer: Observer) -> None:
    """Tell the observer that a link opened, was lost or ended."""
    if link.state is LinkState.OPEN:
        observer.on_event(Connected(link.name, is_reconnection=link.reconnections > 0))
    elif link.state is LinkState.WAITING:
        observer.on_event(Disconnected(link.name, link.last_error))
    elif link.state is LinkState.CLOSED:
        observer.on_event(Disconnected(link.name, link.last_error, is_final=True))
