"""Webhooks for one worker: who wants what, forwarding, delivering.

Every worker forwards and delivers; the store decides who does which piece.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.channels import Channels
from penstock.front import Penstock
from penstock.gateway.control import Control
from penstock.gateway.hooks.directory import Directory
from penstock.gateway.hooks.forwarding import Forwarder
from penstock.gateway.hooks.routes import HookRoutes
from penstock.gateway.policies import ChannelPolicies
from penstock.webhooks import EndpointStore, QueueSettings, WebhookQueue, WebhookWorker, WorkerSettings
from penstock.webhooks.sending import HttpSender

_LOG = logging.getLogger("penstock.gateway.webhook-out")
_PAUSE_S: Final = 1.0
#: Renewed while a delivery is under way; what a killed worker held comes back after it.
_LEASE_MS: Final = 10_000
#: Escaping may make six characters of one; the rest of a body are its names.
_GROWTH: Final = 6
_ENVELOPE_BYTES: Final = 1_024


class WebhookService:
    """What routes and publishes see of webhooks."""

    def __init__(
        self,
        store: Penstock,
        channels: Channels,
        policies: ChannelPolicies,
        control: Control,
        *,
        body_limit_bytes: int,
    ) -> None:
        """``body_limit_bytes``: of the messages that clients may publish."""
        self.queue = WebhookQueue(
            store, settings=QueueSettings(max_body_bytes=body_limit_bytes * _GROWTH + _ENVELOPE_BYTES)
        )
        self.endpoints = EndpointStore(store, self.queue)
        self.routes = HookRoutes(store, control)
        self.directory = Directory(store, policies, self.endpoints)
        self._sender = HttpSender()
        self._worker = WebhookWorker(
            self.queue,
            self.directory,
            self._sender,
            WorkerSettings(lease_ms=_LEASE_MS),
            on_disabled=_tell_disabled,
        )
        self._forwarder = Forwarder(
            store, channels, policies, self.directory, self.routes, self.endpoints, self.queue
        )
        self._tasks: list[asyncio.Task[None]] = []

    def wants(self, channel: str) -> bool:
        """Whether an endpoint of a user wants messages of this channel."""
        return bool(self.routes.match(channel))

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(_for_ever(self._forwarder.run), name="penstock webhooks forwarder"),
            loop.create_task(_for_ever(self._worker.run), name="penstock webhooks worker"),
        ]

    async def stop(self) -> None:
        """Hand back what was not sent."""
        await self._worker.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.routes.close()
        await self._sender.close()


async def _for_ever(work: Callable[[], Awaitable[None]]) -> None:
    """Run it until it ends by itself; a fault of ours must not stop webhooks until the next restart."""
    while True:
        try:
            await work()
            return
        except Exception:  # noqa: BLE001 - whatever it was, the next one may go well
            _LOG.exception("webhooks stumbled and go on in a moment")
        await asyncio.sleep(_PAUSE_S)


def _tell_disabled(endpoint_id: str, reason: str) -> None:
    _LOG.warning("webhook %s is disabled: %s", endpoint_id, reason)
