"""WebSockets: ``/v1/channels/{channel}/subscriptions/{subscriber}/socket``, subprotocol ``penstock.v1``.

What is said on them is in ``socket_frames``; here they are opened. A credential comes in one of three ways,
never in the URL, which ends up in logs:

1. the header ``Authorization``, from clients that can set one;
2. beside the subprotocol, as ``bearer.TOKEN``: what a browser can do;
3. as the first message, where neither came and one is needed.

Rules: what can be refused before the socket is open is refused as an HTTP answer, in the words of this API.
A page of another site opens no socket unless it shows a credential, or CORS allows it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from penstock.channels.model import Batch
from penstock.errors import PenstockError
from penstock.gateway.auth.decisions import Action, AuthRejected, Rejection
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Disconnected, Receive, Request, Scope, Send
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route, Router
from penstock.gateway.policies import Policy
from penstock.gateway.services import Services
from penstock.gateway.v1 import socket_frames as frames
from penstock.gateway.v1.channel_requests import (
    admit,
    flag,
    policy_of,
    refuse_other_sites,
    subscriber_of,
    window_of,
)
from penstock.gateway.v1.events import HEARTBEAT_MS
from penstock.gateway.v1.feeds import CREDENTIAL_S, Feed
from penstock.gateway.v1.problems import refuse
from penstock.gateway.v1.socket_frames import Closing
from penstock.gateway.v1.socket_session import Session, Wire
from penstock.gateway.v1.staying import Shutdown, check_room, place
from penstock.gateway.v1.subscriptions import SUBSCRIPTION

_LOG = logging.getLogger("penstock.gateway")

SUBPROTOCOL: Final = "penstock.v1"
_BEARER: Final = "bearer."
_FIRST_BATCH: Final = 64
_INTERNAL: Final = Refusal(500, "internal", "something went wrong here; it was logged")


class _Opening(NamedTuple):
    """A socket that may be opened."""

    policy: Policy
    subscriber: str
    window: int
    is_made: bool
    authorization: str | None
    #: whether a credential has to come first
    is_credential_missing: bool
    subprotocol: str | None


class SocketRoutes:
    """Serves the WebSockets of one worker."""

    def __init__(
        self,
        services: Services,
        *,
        heartbeat_ms: int = HEARTBEAT_MS,
        credential_s: float = CREDENTIAL_S,
        send_timeout_s: float = 30.0,
        auth_timeout_s: float = 10.0,
    ) -> None:
        self._services = services
        self._heartbeat_ms = heartbeat_ms
        self._credential_s = credential_s
        self._send_timeout_s = send_timeout_s
        self._auth_timeout_s = auth_timeout_s
        self._shutdown = Shutdown(services.life)
        route = Route("GET", SUBSCRIPTION + "/socket", _no_http, refuse)
        self._router = Router([route], services.config.http.base_path)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit_bytes = self._services.config.http.limits.body_bytes
        request = Request(scope, receive, {}, limit_bytes)
        wire = Wire(receive, send, limit_bytes=limit_bytes, send_timeout_s=self._send_timeout_s)
        await receive()  # the request to open it
        feed: Feed | None = None
        first = Batch()
        try:
            opening = await self._examine(request)
            if not opening.is_credential_missing:
                feed = self._feed(request, opening)
                first = await feed.open(is_made=opening.is_made, limit=min(_FIRST_BATCH, opening.window))
        except (Refusal, PenstockError) as error:
            await _refuse_socket(scope, send, _refusal(error))
            return
        with place(self._services, "socket"):
            try:
                await self._talk(request, opening, wire, feed, first)
            except Closing as closing:
                await wire.close(closing)
            except Disconnected:
                pass
            except Exception:  # noqa: BLE001 - a fault on one socket must not go further
                _LOG.exception("a socket of channel %s failed", opening.policy.channel)
                await wire.close(Closing(frames.FAULT, "internal: something went wrong here; it was logged"))

    # ------------------------------------------------------------------------- before it is open

    async def _examine(self, request: Request) -> _Opening:
        routes, request.params = self._router.find(request.scope["raw_path"])
        if not routes:
            raise Refusal(404, "not-found", "no WebSocket is served under this path")
        self._services.access.identify(request)
        policy = policy_of(self._services, request)
        offered = request.scope.get("subprotocols") or []
        authorization = _authorization(request, offered)
        is_missing = await self._is_credential_missing(request, authorization)
        if not is_missing:
            refuse_other_sites(self._services, request)
        if offered and SUBPROTOCOL not in offered:
            raise Refusal(400, "subprotocol-not-supported", f"offer the subprotocol {SUBPROTOCOL}")
        check_room(self._services)
        return _Opening(
            policy,
            subscriber_of(request),
            window_of(request),
            flag(request, "create"),
            authorization,
            is_missing,
            SUBPROTOCOL if offered else None,
        )

    async def _is_credential_missing(self, request: Request, authorization: str | None) -> bool:
        try:
            await admit(self._services, request, Action.SUBSCRIBE, authorization)
        except AuthRejected as error:
            if error.kind is not Rejection.MISSING:
                raise
            return True
        return False

    def _feed(self, request: Request, opening: _Opening) -> Feed:
        return Feed(
            self._services,
            request,
            opening.policy,
            opening.subscriber,
            authorization=opening.authorization,
            credential_s=self._credential_s,
        )

    # ------------------------------------------------------------------------- when it is open

    async def _talk(
        self, request: Request, opening: _Opening, wire: Wire, feed: Feed | None, first: Batch
    ) -> None:
        await wire.accept(opening.subprotocol)
        if feed is None:
            feed = self._feed(request, opening)
            first = await self._open_late(opening, wire, feed)
        session = Session(
            self._services,
            request,
            opening.policy,
            feed,
            wire,
            window=opening.window,
            heartbeat_ms=self._heartbeat_ms,
        )
        await session.run(first, self._shutdown)

    async def _open_late(self, opening: _Opening, wire: Wire, feed: Feed) -> Batch:
        """After the credential, which is the first message."""
        try:
            async with asyncio.timeout(self._auth_timeout_s):
                frame = await wire.take()
        except TimeoutError:
            raise Closing(frames.VIOLATION, "unauthorized: no credential came") from None
        if not isinstance(frame, frames.Auth):
            raise Closing(frames.VIOLATION, "unauthorized: the first message must be of type auth")
        try:
            await feed.show_credential(f"Bearer {frame.token}")
            first = await feed.open(is_made=opening.is_made, limit=min(_FIRST_BATCH, opening.window))
        except PenstockError as error:
            raise _closing(_refusal(error)) from None
        await wire.put(frames.AUTHENTICATED)
        return first


def _authorization(request: Request, offered: list[str]) -> str | None:
    for protocol in offered:
        if protocol.startswith(_BEARER):
            return f"Bearer {protocol.removeprefix(_BEARER)}"
    return request.header(b"authorization")


def _refusal(error: Refusal | PenstockError) -> Refusal:
    if isinstance(error, Refusal):
        return error
    refusal = refusal_of(error)
    if refusal is None:
        _LOG.error("a socket could not be opened", exc_info=error)
        return _INTERNAL
    return refusal


def _closing(refusal: Refusal) -> Closing:
    """How an open socket ends for what would have been this answer."""
    code = frames.VIOLATION
    if refusal.status >= 500:
        code = frames.LATER if refusal.status == 503 else frames.FAULT
    return Closing(code, f"{refusal.code}: {refusal.detail}")


async def _refuse_socket(scope: Scope, send: Send, refusal: Refusal) -> None:
    """As an HTTP answer, where the server can do that."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": frames.VIOLATION, "reason": refusal.code})
        return
    answer = refuse(refusal)
    start = {
        "type": "websocket.http.response.start",
        "status": answer.status,
        "headers": list(answer.headers),
    }
    await send(start)
    await send({"type": "websocket.http.response.body", "body": answer.body})


async def _no_http(request: Request) -> Response:
    raise Refusal(426, "upgrade-required", "this is a WebSocket", headers=[(b"upgrade", b"websocket")])
