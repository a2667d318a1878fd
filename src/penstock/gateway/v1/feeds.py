"""What a follower of a subscription reads: batch after batch, ahead of what it acknowledged.

Rules
-----
1. A follower survives a store that is away: it waits, and goes on where it was.
2. Its credential is asked for again now and then: tokens expire, and are revoked.
3. It ends when its subscription is removed, its credential does not hold any more, or the worker stops.
4. It never spins: an answer that comes early and empty is followed by a pause.

Nothing here knows how messages are sent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.channels.model import Batch
from penstock.errors import PenstockError, ReceiptError, SubscriptionNotFoundError
from penstock.gateway.auth.decisions import Action
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Request
from penstock.gateway.policies import Policy
from penstock.gateway.services import Services
from penstock.gateway.v1.channel_requests import admit

_LOG = logging.getLogger("penstock.gateway")

#: How often a credential is looked at again.
CREDENTIAL_S: Final = 60.0
#: Pauses while a store is away: the first and the longest.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0

_UNAVAILABLE: Final = 503


class FeedEnded(Exception):  # noqa: N818 - an end is no error
    """Nothing will come any more. ``reason`` is for programs, ``detail`` for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Feed:
    """One follower of one subscription."""

    def __init__(
        self,
        services: Services,
        request: Request,
        policy: Policy,
        subscriber: str,
        *,
        authorization: str | None = None,
        credential_s: float = CREDENTIAL_S,
    ) -> None:
        self._services = services
        self._request = request
        self._policy = policy
        self._subscriber = subscriber
        self._credential_s = credential_s
        self._pause_s = _FIRST_PAUSE_S
        self._now_s = asyncio.get_running_loop().time
        self._asked_s = self._now_s()
        self.authorization = authorization
        #: the receipt of what was read last; None: read what is not acknowledged
        self.position: str | None = None

    # ------------------------------------------------------------------------- before the first byte

    async def open(self, *, is_made: bool, limit: int, acknowledged: str | None = None) -> Batch:
        """What there is now; raises as any request would.

        ``is_made``: make the subscription if needed. ``acknowledged``: a receipt, or what a client takes
        for one.
        """
        if is_made:
            await self._services.channels.create(
                self._policy.channel, self._subscriber, expire_ms=self._policy.expire_ms
            )
        if acknowledged:
            try:
                await self.ack(acknowledged)
            except ReceiptError:
                pass  # of another subscriber, or none at all: whoever repeats it for ever should get on
        return await self._fetch(limit, 0)

    # ------------------------------------------------------------------------- afterwards

    async def following(self, limit: int, timeout_ms: int) -> Batch:
        """The next messages; none when time is up, or when the store was away. FeedEnded at the end."""
        self._check_life()  # a channel that is never quiet must not keep its followers
        began_s = self._now_s()
        try:
            await self._check_credential()
            batch = await self._fetch(limit, timeout_ms)
        except PenstockError as error:
            await self._survive(error)
            batch = Batch()
        else:
            self._pause_s = _FIRST_PAUSE_S
            if not batch.messages and self._now_s() - began_s < timeout_ms / 2_000:
                await self._pause()
        if not batch.messages:
            self._check_life()
        return batch

    async def ack(self, receipt: str) -> bool:
        return await self._services.channels.ack(
            self._policy.channel, self._subscriber, receipt, expire_ms=self._policy.expire_ms
        )

    async def nack(self, receipt: str, delay_ms: int) -> bool:
        return await self._services.channels.nack(
            self._policy.channel, self._subscriber, receipt, delay_ms=delay_ms
        )

    async def idle(self) -> None:
        """In place of reading, while the client has enough. FeedEnded at the end."""
        try:
            await self._check_credential()
        except PenstockError as error:
            await self._survive(error)

    async def _check_credential(self) -> None:
        """Does nothing if it was asked lately."""
        if self._now_s() - self._asked_s >= self._credential_s:
            await self.show_credential(self.authorization)

    async def show_credential(self, authorization: str | None) -> None:
        """Go on with this one, if it is good."""
        await admit(self._services, self._request, Action.SUBSCRIBE, authorization)
        self.authorization = authorization
        self._asked_s = self._now_s()

    # ------------------------------------------------------------------------- inside

    def _check_life(self) -> None:
        if self._services.life.is_stopping:
            raise FeedEnded("shutdown", "the gateway stops; come again")

    async def _fetch(self, limit: int, timeout_ms: int) -> Batch:
        batch = await self._services.channels.fetch(
            self._policy.channel,
            self._subscriber,
            limit=limit,
            timeout_ms=timeout_ms,
            expire_ms=self._policy.expire_ms,
            after=self.position,
        )
        if batch.receipt is not None:
            self.position = batch.receipt
        return batch

    async def _survive(self, error: PenstockError) -> None:
        """Wait for better times if they may come."""
        if isinstance(error, SubscriptionNotFoundError):
            raise FeedEnded("subscription-removed", str(error)) from None
        if isinstance(error, ReceiptError):
            self.position = None  # the channel was made anew behind our back
        else:
            refusal = refusal_of(error)
            if refusal is not None and refusal.status in (401, 403):
                raise FeedEnded("unauthorized", refusal.detail) from None
            if refusal is None or refusal.status != _UNAVAILABLE:
                _LOG.error("a follower of channel %s met an error", self._policy.channel, exc_info=error)
                raise FeedEnded("failed", "something went wrong here; it was logged") from None
        await self._pause()

    async def _pause(self) -> None:
        if not self._services.life.is_stopping:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
