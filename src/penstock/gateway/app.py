"""The ASGI application: finds the route, calls it, sends its answer, and turns every failure into one.

What happens to a request, in this order:

1. the path is taken apart (400 if it is not percent-encoded text; 404, 405 if nothing is there);
2. its address is found out, its rate counted (429);
3. its handler runs: credentials, values, work;
4. a refusal, or an error of ours that means one (``failures``), is worded by the API of the route;
5. default headers, CORS and compression are added, the answer leaves;
6. metrics and the access log hear of it.

Nothing here knows what the routes do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.gateway.access import is_look
from penstock.gateway.failures import refusal_of
from penstock.gateway.http.requests import Disconnected, Receive, Request, Scope, Send
from penstock.gateway.http.responses import Headers, Refusal, Response, Streaming
from penstock.gateway.http.routing import Answer, Route, Router
from penstock.gateway.observing.access_log import AccessLog
from penstock.gateway.observing.metrics import Metrics
from penstock.gateway.observing.tracing import Tracing
from penstock.gateway.services import Services
from penstock.gateway.shaping import Compression, Cors

_LOG = logging.getLogger("penstock.gateway")

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_NOT_FOUND = Response(404, b"404 page not found\n", (_TEXT, _NOSNIFF))


class WebSocketRoutes(Protocol):
    """What serves WebSockets; see ``v1.sockets``."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Application:
    """One worker's ASGI callable."""

    def __init__(
        self,
        services: Services,
        routes: Iterable[Route],
        *,
        sockets: WebSocketRoutes | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        http = services.config.http
        prefix = f"/{http.path_prefix.strip('/')}" if http.path_prefix else ""
        self._services = services
        self._router = Router(routes, prefix)
        self._metrics: Metrics = services.metrics
        #: None: nobody wants to know
        self.access_log: AccessLog | None = None
        self._tracing = tracing if tracing is not None and tracing.is_on else None
        self._sockets = sockets
        self._default_headers = tuple(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in http.response_headers.items()
        )
        self._body_limit_bytes = http.limits.body_bytes
        self._cors = Cors(http.cors) if http.cors.origins else None
        self._compression = Compression(http.compression)

    @property
    def routes(self) -> list[Route]:
        return self._router.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "websocket" if self._sockets is not None:
                await self._sockets.serve(scope, receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})
            case _:
                raise ValueError(f"the gateway speaks http and websocket, not {scope['type']}")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = perf_counter()
        request = Request(scope, receive, {}, self._body_limit_bytes)
        template, answer = await self._answer(request)
        status = 499 if answer is None else answer.status
        sent_bytes = 0
        try:
            if isinstance(answer, Response):
                sent_bytes = await self._send(request, answer, send)
            elif answer is not None:
                sent_bytes = await self._send_stream(request, answer, send)
        finally:
            duration_s = perf_counter() - started_s
            self._metrics.request(scope["method"], template, status, duration_s)
            if self.access_log is not None:
                self.access_log.write(request, status, duration_s, sent_bytes)

    # ------------------------------------------------------------------------- answers

    async def _answer(self, request: Request) -> tuple[str, Answer | None]:
        """The template of the route, and its answer; None if nobody is there to get it."""
        route: Route | None = None
        try:
            if self._cors is not None and (preflight := self._cors.preflight(request)):
                return "preflight", preflight
            routes, request.params = self._router.find(request.scope["raw_path"])
            route = routes.get(request.scope["method"])
            if route is None:
                return "none", _NOT_FOUND if not routes else _not_allowed(routes)
            request.is_look = is_look(route.method, route.template)
            self._services.access.identify(request)
            handling = route.handler(request)
            if self._tracing is not None:
                handling = self._tracing.call(request, route.template, handling)
            return route.template, await handling
        except Disconnected:
            return route.template if route else "none", None
        except Refusal as refusal:
            return _refused(route, refusal)
        except PenstockError as error:
            refusal_or_none = refusal_of(error)
            if refusal_or_none is None:
                return self._fault(request, route, error)
            return _refused(route, refusal_or_none)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one handler must not end the worker
            return self._fault(request, route, error)

    def _fault(self, request: Request, route: Route | None, error: Exception) -> tuple[str, Answer]:
        _LOG.error("%s %s failed", request.method, request.path, exc_info=error)
        return _refused(route, Refusal(500, "internal", "something went wrong here; it was logged"))

    # ------------------------------------------------------------------------- sending

    async def _send(self, request: Request, answer: Response, send: Send) -> int:
        body = answer.body
        headers: list[tuple[bytes, bytes]] = [*answer.headers, *self._common_headers(request, answer)]
        if len(body) >= self._compression.min_bytes and (
            squeezed := await self._compression.squeeze(request, body, headers)
        ):
            body = squeezed
        if answer.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body if request.scope["method"] != "HEAD" else b""})
        return len(body)

    async def _send_stream(self, request: Request, answer: Streaming, send: Send) -> int:
        headers = [*answer.headers, *self._common_headers(request, answer)]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        sending = asyncio.ensure_future(_pump(answer, send))
        watch = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait((sending, watch), return_when=asyncio.FIRST_COMPLETED)
            return sending.result() if sending.done() else 0
        finally:
            watch.cancel()
            sending.cancel()
            await asyncio.gather(sending, watch, return_exceptions=True)

    def _common_headers(self, request: Request, answer: Answer) -> Headers:
        if answer.headers and answer.headers[0] is _TEXT:
            return ()  # of no route
        if self._cors is None or request.scope["method"] == "OPTIONS":
            return self._default_headers  # a preflight says all itself; browsers refuse what is said twice
        return (*self._default_headers, *self._cors.headers(request))


async def _pump(answer: Streaming, send: Send) -> int:
    """Send as it comes; the generator behind it is closed whatever happens."""
    sent_bytes = 0
    try:
        async for chunk in answer.chunks:
            sent_bytes += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        close: Any = getattr(answer.chunks, "aclose", None)
        if close is not None:
            await close()
    return sent_bytes


def _refused(route: Route | None, refusal: Refusal) -> tuple[str, Response]:
    if route is None:
        text = refusal.detail.encode() + b"\n"
        return "none", Response(refusal.status, text, (_TEXT, _NOSNIFF, *refusal.headers))
    return route.template, route.refuse(refusal)


def _not_allowed(routes: Iterable[str]) -> Response:
    allowed = ", ".join(sorted({*routes, "OPTIONS"})).encode()
    return Response(405, b"Method Not Allowed\n", (_TEXT, _NOSNIFF, (b"allow", allowed)))
