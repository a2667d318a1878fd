"""Transactions for one worker of a gateway: the facility, who may be an owner, webhooks, replies.

Every worker delivers webhooks; the store decides who does which. Steps are run by ``penstock worker``.

Rules: a store that is away delays, and stops nothing for good. Nothing here knows requests.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.front import Penstock
from penstock.gateway.auth.jwt import JwtRule
from penstock.gateway.auth.keys import KeyLike, load_key
from penstock.gateway.config.model import GatewayConfig, JwtConfig, TransactionsConfig
from penstock.gateway.datp.converting import Converter
from penstock.lake import archives
from penstock.transactions import Transactions
from penstock.transactions.notifying import QUEUE, QUEUE_SETTINGS, TellingQueue, WebhookNotifier
from penstock.transactions.receivers import Receivers, ReceiverSettings
from penstock.webhooks import AddressPolicy, WorkerSettings
from penstock.webhooks.sending import HttpSender

_LOG = logging.getLogger("penstock.gateway.webhook-out")
#: What a killed worker was sending comes back after it.
_LEASE_MS: Final = 10_000
#: How long a stop waits for webhooks that are being sent; what is not done by then is sent again by others.
_STOP_S: Final = 3.0


class TransactionService:
    """What routes see of transactions."""

    def __init__(self, store: Penstock, config: GatewayConfig) -> None:
        settings = config.transactions
        policy = AddressPolicy(settings.webhooks.allowed_networks, settings.webhooks.https_only)
        directory = settings.archive_directory
        #: not that of the client: its starts are held to the addresses that this gateway may call
        self.facility = Transactions(
            store, archive=None if directory is None else archives.open(directory), webhook_policy=policy
        )
        #: a JWT must pass all of them; none: no JWT is asked for
        self.rules = _rules(settings.jwt)
        self.converter = Converter(settings.reply_converter)
        self.max_wait_ms = settings.max_wait_ms or config.http.long_polling_max_timeout_ms
        self.receivers = Receivers(store, _receiver_settings(settings), policy=policy)
        self._notifier: WebhookNotifier | None = None
        self._sender: HttpSender | None = None
        self._task: asyncio.Task[None] | None = None
        if settings.webhooks.enabled:
            self._sender = HttpSender(policy)
            self._notifier = WebhookNotifier(
                self.facility.store,
                TellingQueue(store, QUEUE, QUEUE_SETTINGS),
                self.receivers,
                converter=self.converter.data,
            )

    def start(self) -> None:
        """Begin to deliver, if this gateway does."""
        if self._notifier is not None:
            work = self._notifier.run(self._sender, WorkerSettings(lease_ms=_LEASE_MS))
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(work, name="penstock webhooks of transactions")

    def release(self) -> None:
        """End every wait: the worker stops."""
        self.facility.release()

    async def stop(self) -> None:
        if self._notifier is not None and self._task is not None:
            self._notifier.stop()
            done, _ = await asyncio.wait((self._task,), timeout=_STOP_S)
            if not done:
                _LOG.warning("webhooks of transactions are left to others: they did not end in %g s", _STOP_S)
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._sender is not None:
            await self._sender.close()
        await self.facility.close()


def _receiver_settings(settings: TransactionsConfig) -> ReceiverSettings:
    return ReceiverSettings(
        timeout_ms=settings.webhooks.timeout_ms, max_in_flight=settings.webhooks.max_in_flight
    )


def _rules(jwt: JwtConfig | None) -> tuple[JwtRule, ...]:
    if jwt is None:
        return ()
    keys: dict[str, list[KeyLike]] = {
        algorithm: [load_key(algorithm, file.content) for file in files]
        for algorithm, files in jwt.keys.items()
    }
    claims = {name: [text.render({}) for text in texts] for name, texts in jwt.claims.items()}
    return (JwtRule(jwt.iss, jwt.aud, keys, claims, jwt.clock_skew_leeway_ms / 1_000),)
