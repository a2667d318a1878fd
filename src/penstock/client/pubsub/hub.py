"""One for each client: makes subscribers, ends them all.

Subscribers share what they can: one link, one SUBSCRIBE for what several want. Each has a queue
of its own, so that a slow one costs the others nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from penstock.client.config import Settings
from penstock.client.events import Event, TopologyChanged
from penstock.client.pubsub.desk import Desk
from penstock.client.pubsub.inbox import Inbox
from penstock.client.pubsub.subscriber import Subscriber
from penstock.client.router.base import Router


class PubSub:
    """The subscribers of a client. Made within its event loop; connects with the first subscription."""

    def __init__(self, router: Router, settings: Settings, on_event: Callable[[Event], None]) -> None:
        self._settings = settings
        self._desk = Desk(router, settings, on_event)
        #: also those that want nothing yet: they may wait for an item all the same
        self._inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()

    def subscriber(self) -> Subscriber:
        """A stream of its own: ``async with pubsub.subscriber() as subscriber:``."""
        self._desk.check_usable()
        inbox = Inbox(self._settings.pubsub_queue_len, self._settings.pubsub_overflow)
        self._inboxes.add(inbox)
        return Subscriber(self._desk, inbox, self._settings)

    def on_topology(self, event: TopologyChanged) -> None:
        """Subscriptions leave servers that are not part of it any more."""
        self._desk.forget_servers(event.removed)

    async def close(self) -> None:
        """End every subscriber and every connection; nobody is left waiting. Idempotent."""
        for inbox in list(self._inboxes):
            inbox.close()
        self._desk.close()
        await self._desk.wait_rested()

    def statistics(self) -> dict[str, Any]:
        """Subscribers, what they wait to take and have lost, what they want, and the links."""
        inboxes = [inbox for inbox in self._inboxes if not inbox.is_closed]
        return {
            "subscribers": len(inboxes),
            "waiting": sum(map(len, inboxes)),
            "dropped": sum(inbox.dropped for inbox in inboxes),
            **self._desk.statistics(),
        }
