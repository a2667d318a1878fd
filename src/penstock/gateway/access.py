"""Who asks, and whether they may: between a request and the gatekeeper.

Whoever observes may use every GET but those of ``_MORE_THAN_LOOKING``; this is the one place that says so.
Also the rates that a client is held to, and counting who is refused. Nothing here knows how that is worded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from penstock.gateway.auth.decisions import (
    ALWAYS_ASKED,
    ANONYMOUS,
    Action,
    AuthRejected,
    Principal,
    Resource,
    Standing,
)
from penstock.gateway.auth.gatekeeper import Gatekeeper, bearer_of
from penstock.gateway.auth.jwt import JwtRule
from penstock.gateway.auth.networks import Networks, client_address
from penstock.gateway.auth.owners import Caller
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, retry_after
from penstock.gateway.limiting import RateLimiter
from penstock.gateway.observing.metrics import Metrics

T = TypeVar("T")

#: GETs that do more than look: they move a subscription, or tell a secret.
_MORE_THAN_LOOKING: Final = frozenset(
    {
        "/channel/{channelID}/subscription/polling/{subscriberID}",
        "/v1/channels/{channel}/subscriptions/{subscriber}/messages",
        "/v1/channels/{channel}/subscriptions/{subscriber}/events",
        "/v1/transaction-webhook-secret",
    }
)


def is_look(method: str, template: str) -> bool:
    """Whether a route changes nothing and tells no secret, so that whoever observes may use it."""
    return method == "GET" and template not in _MORE_THAN_LOOKING


class Access:
    """The door of one worker."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        metrics: Metrics,
        *,
        trusted_proxies: Networks,
        real_ip_header: str,
        is_open: bool,
        requests: RateLimiter | None = None,
        publishes: RateLimiter | None = None,
    ) -> None:
        """``is_open``: without a credential and without rules nothing has to be asked."""
        self._gatekeeper = gatekeeper
        self._metrics = metrics
        self._trusted = trusted_proxies
        self._real_ip_header = real_ip_header
        self._is_open = is_open
        self._requests = requests
        self._publishes = publishes

    def identify(self, request: Request) -> None:
        """Find out where it comes from, and refuse who comes too often."""
        client = request.scope.get("client")
        peer = client[0] if client else None
        if self._real_ip_header:
            request.peer = client_address(peer, request.scope["headers"], self._trusted, self._real_ip_header)
        else:
            request.peer = peer or ""
        if self._requests is not None:
            self._spend(self._requests, request, 1, "requests")

    async def admit(
        self,
        request: Request,
        action: Action,
        resource: Resource,
        rules: Sequence[JwtRule] = (),
        authorization: str | None = None,
    ) -> Principal:
        """Who it is, if they may; AuthRejected if not."""
        if authorization is None:
            authorization = request.header(b"authorization")
        is_asked = action in ALWAYS_ASKED or resource.kind == "admin"
        if authorization is None and not rules and self._is_open and not is_asked:
            request.principal = ANONYMOUS
            return ANONYMOUS
        principal = await self._counting(
            self._gatekeeper.admit(
                bearer_of(authorization), request.peer, action, resource, rules, is_look=request.is_look
            )
        )
        request.principal = principal
        return principal

    async def admit_caller(self, request: Request, action: Action, rules: Sequence[JwtRule] = ()) -> Caller:
        """Who asks about transactions, if they may do this; AuthRejected if not."""
        bearer = bearer_of(request.header(b"authorization"))
        caller = await self._counting(
            self._gatekeeper.admit_caller(bearer, request.peer, action, rules, is_look=request.is_look)
        )
        request.principal = caller.principal
        return caller

    async def standing(self, request: Request) -> Standing:
        """Who it is and what they may do; AuthRejected if what they show is bad."""
        bearer = bearer_of(request.header(b"authorization"))
        standing = await self._counting(self._gatekeeper.standing(bearer, request.peer))
        request.principal = standing.principal
        return standing

    def count_publish(self, request: Request, messages: int) -> None:
        if self._publishes is not None:
            self._spend(self._publishes, request, messages, "publishes")

    async def _counting(self, decision: Awaitable[T]) -> T:
        try:
            return await decision
        except AuthRejected as error:
            self._metrics.auth_rejected(error.kind)
            raise

    def _spend(self, limiter: RateLimiter, request: Request, amount: int, limit: str) -> None:
        wait_s = limiter.spend(request.peer, amount)
        if wait_s > 0:
            self._metrics.rate_limited(limit)
            words = "too many requests; slow down"
            raise Refusal(429, "too-many-requests", words, headers=[retry_after(wait_s)])
