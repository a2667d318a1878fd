"""Webhooks for administrators: define them, look after them, see what was delivered, send it again.

=======  ==============================================  ========================================
method   path                                            answer
=======  ==============================================  ========================================
POST     ``/v1/webhooks``                                201, with its secret, this once
GET      the same                                        200, by id, by pages
GET      ``/v1/webhooks/{webhook}``                      200, definition and state
PUT      the same                                        200, the definition is this now
DELETE   the same                                        204
POST     ``…/enable`` ``/disable`` ``/rotate-secret``    200
POST     ``…/test``                                      202, the delivery
GET      ``…/deliveries`` ``…/waiting``                  200, attempts; what waits
POST     ``…/replay-failed``                             200, how many
GET      ``/v1/deliveries/{delivery}``                   200
POST     ``/v1/deliveries/{delivery}/replay``            202
=======  ==============================================  ========================================

Rules: only administrators; who observes may look. No secret is shown to either but the new one. Webhooks of
the configuration can be looked at, disabled and replayed, not changed. What the queue and its workers do is
known to ``penstock.webhooks`` alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from penstock.clock import SystemClock
from penstock.errors import ConfigError, UsageError
from penstock.gateway.auth.decisions import Action, Resource
from penstock.gateway.http.requests import Request
from penstock.gateway.http.responses import Refusal, Response
from penstock.gateway.http.routing import Route
from penstock.gateway.observing.timestamps import Timestamps
from penstock.gateway.services import Services
from penstock.gateway.v1 import hook_documents as documents
from penstock.gateway.v1.bodies import read_optional_json
from penstock.gateway.v1.channel_requests import flag, next_link, page_of
from penstock.gateway.v1.hook_documents import MASK
from penstock.gateway.v1.problems import answer, refuse
from penstock.gateway.v1.reading import DEFAULT_PAGE, MAX_PAGE, cursor, read_json, to_cursor, whole_number
from penstock.webhooks import Delivery, Endpoint, Schedule, event_body, new_secret
from penstock.webhooks.model import checked_headers

WEBHOOKS: Final = "/v1/webhooks"
WEBHOOK: Final = WEBHOOKS + "/{webhook}"
DELIVERY: Final = "/v1/deliveries/{delivery}"

_ADMIN: Final = Resource("admin")
#: The newest signs, and the one before it, until receivers have changed.
_SECRETS: Final = 2


class HookRoutes:
    """The handlers of one worker."""

    def __init__(self, services: Services) -> None:
        assert services.webhooks is not None, "these routes need webhooks"
        self._services = services
        self._hooks = services.webhooks
        self._clock = SystemClock()

    def routes(self) -> list[Route]:
        table = (
            ("POST", WEBHOOKS, self.create, documents.CREATE),
            ("GET", WEBHOOKS, self.list, documents.LIST),
            ("GET", WEBHOOK, self.look, documents.LOOK),
            ("PUT", WEBHOOK, self.replace, documents.REPLACE),
            ("DELETE", WEBHOOK, self.delete, documents.DELETE),
            ("POST", WEBHOOK + "/enable", self.enable, documents.ENABLE),
            ("POST", WEBHOOK + "/disable", self.disable, documents.DISABLE),
            ("POST", WEBHOOK + "/rotate-secret", self.rotate, documents.ROTATE),
            ("POST", WEBHOOK + "/test", self.test, documents.TEST),
            ("GET", WEBHOOK + "/deliveries", self.attempts, documents.ATTEMPTS),
            ("GET", WEBHOOK + "/waiting", self.waiting, documents.WAITING),
            ("POST", WEBHOOK + "/replay-failed", self.replay_failed, documents.REPLAY_FAILED),
            ("GET", DELIVERY, self.delivery, documents.DELIVERY),
            ("POST", DELIVERY + "/replay", self.replay, documents.REPLAY),
        )
        return [Route(method, path, handler, refuse, doc) for method, path, handler, doc in table]

    # ------------------------------------------------------------------------- definitions

    async def create(self, request: Request) -> Response:
        await self._admit(request)
        definition = await read_json(request, documents.WebhookDefinition)
        secret = new_secret()
        with _config_refusals():
            endpoint = _endpoint(f"wh_{secrets.token_hex(12)}", definition, (secret,), definition.headers)
            await self._hooks.endpoints.put(endpoint)
        # Channels last: an endpoint that wants none is harmless, channels without one are not.
        await self._hooks.routes.put(endpoint.id, definition.channels)
        made = documents.NewWebhook(await self._state(endpoint, definition.channels), secret)
        return answer(made, 201, [_location(request, b"/v1/webhooks", endpoint.id)])

    async def list(self, request: Request) -> Response:
        await self._admit(request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        found = {endpoint.id: endpoint for endpoint in await self._hooks.endpoints.list()}
        configured = await self._hooks.directory.configured_ids() if flag(request, "configured") else []
        page, last = page_of(sorted({*found, *configured}), cursor(request, str, ""), limit)
        following = None if last is None else to_cursor(last)
        webhooks = []
        for name in page:
            endpoint = found.get(name) or await self._hooks.directory.get(name)
            if endpoint is not None:
                patterns = await self._hooks.routes.patterns(name)
                webhooks.append(documents.WebhookSummary(name, endpoint.url, patterns, name not in found))
        headers = [next_link(request, following)] if following else ()
        return answer(documents.WebhookPage(webhooks, following), headers=headers)

    async def look(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        return answer(await self._state(endpoint, await self._hooks.routes.patterns(endpoint.id)))

    async def replace(self, request: Request) -> Response:
        before = await self._own_endpoint(request)
        definition = await read_json(request, documents.WebhookDefinition)
        headers = {
            name: before.headers.get(name.lower(), value) if value == MASK else value
            for name, value in definition.headers.items()
        }
        with _config_refusals():
            endpoint = _endpoint(before.id, definition, before.secrets, headers)
            await self._hooks.endpoints.put(endpoint)
        await self._hooks.routes.put(endpoint.id, definition.channels)
        return answer(await self._state(endpoint, definition.channels))

    async def delete(self, request: Request) -> Response:
        endpoint = await self._own_endpoint(request)
        await self._hooks.routes.delete(endpoint.id)
        await self._hooks.endpoints.delete(endpoint.id)
        return Response(204, b"", ())

    async def rotate(self, request: Request) -> Response:
        before = await self._own_endpoint(request)
        secret = new_secret()
        kept = (secret, *before.secrets)[:_SECRETS]
        await self._hooks.endpoints.put(msgspec.structs.replace(before, secrets=kept))
        return answer(documents.NewSecret(secret))

    # ------------------------------------------------------------------------- looking after

    async def enable(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        return answer(documents.Changed(await self._hooks.queue.enable(endpoint.id)))

    async def disable(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        wish = await read_optional_json(request, documents.Disabling)
        return answer(documents.Changed(await self._hooks.queue.disable(endpoint.id, wish.reason)))

    async def test(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        now = Timestamps().text(self._clock.now_ms())
        body = event_body("webhook.test", now, msgspec.json.encode({"webhook": endpoint.id}))
        event_id = f"test/{secrets.token_hex(12)}"
        put = await self._hooks.queue.put(endpoint, event_id, body, {"content-type": "application/json"})
        made = _location(request, b"/v1/deliveries", put.delivery.id)
        return answer(_shown(put.delivery), 202, [made])

    async def attempts(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        place = cursor(request, int, 0) or None
        page = await self._hooks.queue.log(endpoint.id, cursor=place, limit=limit)
        following = None if page.next_cursor is None else to_cursor(page.next_cursor)
        headers = [next_link(request, following)] if following else ()
        return answer(documents.AttemptPage(page.entries, following), headers=headers)

    async def waiting(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        limit = whole_number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        place = cursor(request, str, "") or None
        page = await self._hooks.queue.pending(endpoint.id, cursor=place, limit=limit)
        following = None if page.next_cursor is None else to_cursor(page.next_cursor)
        headers = [next_link(request, following)] if following else ()
        deliveries = [_shown(each) for each in page.deliveries]
        return answer(documents.WaitingPage(deliveries, following), headers=headers)

    async def replay_failed(self, request: Request) -> Response:
        endpoint = await self._endpoint(request)
        wish = await read_optional_json(request, documents.ReplayWish)
        return answer(documents.Replayed(await self._hooks.queue.replay_failed(endpoint, wish.since_ms)))

    async def delivery(self, request: Request) -> Response:
        await self._admit(request)
        name = request.params["delivery"]
        delivery = await self._hooks.queue.get(name)
        if delivery is None:
            raise _no_delivery(name)
        payload = await self._hooks.queue.payload(name)
        return answer(_shown(delivery, None if payload is None else payload.body.decode("utf-8", "replace")))

    async def replay(self, request: Request) -> Response:
        await self._admit(request)
        name = request.params["delivery"]
        try:
            delivery = await self._hooks.queue.replay(name)
        except UsageError as error:
            raise Refusal(409, "delivery-under-way", str(error)) from None
        if delivery is None:
            raise _no_delivery(name)
        return answer(_shown(delivery), 202)

    # ------------------------------------------------------------------------- inside

    async def _admit(self, request: Request) -> None:
        await self._services.access.admit(request, Action.ADMIN, _ADMIN)

    async def _endpoint(self, request: Request) -> Endpoint:
        """Of users or of the configuration."""
        await self._admit(request)
        name = request.params["webhook"]
        endpoint = await self._hooks.directory.get(name)
        if endpoint is None:
            raise Refusal(404, "webhook-not-found", f"there is no webhook {name!r}")
        return endpoint

    async def _own_endpoint(self, request: Request) -> Endpoint:
        """One that was made here."""
        found = await self._endpoint(request)
        own = await self._hooks.endpoints.get(found.id)
        if own is None:
            raise Refusal(
                409, "webhook-configured", "the gateway's configuration defines it; change it there"
            )
        return own

    async def _state(self, endpoint: Endpoint, channels: Sequence[str]) -> documents.Webhook:
        schedule = documents.RetrySchedule([*endpoint.schedule.delays_ms], endpoint.schedule.jitter)
        return documents.Webhook(
            id=endpoint.id,
            url=endpoint.url,
            channels=[*channels],
            method=endpoint.method,
            headers=dict.fromkeys(endpoint.headers, MASK),
            timeout_ms=endpoint.timeout_ms,
            schedule=schedule,
            max_in_flight=endpoint.max_in_flight,
            secrets=len(endpoint.secrets),
            is_configured=await self._hooks.endpoints.get(endpoint.id) is None,
            state=await self._hooks.queue.state(endpoint.id),
        )


def _endpoint(
    name: str, definition: documents.WebhookDefinition, keys: tuple[str, ...], headers: Mapping[str, str]
) -> Endpoint:
    wished = definition.schedule
    return Endpoint(
        id=name,
        url=definition.url,
        method=definition.method,
        secrets=keys,
        headers=checked_headers(headers),
        timeout_ms=definition.timeout_ms,
        schedule=Schedule() if wished is None else Schedule(tuple(wished.delays_ms), wished.jitter),
        max_in_flight=definition.max_in_flight,
    )


@contextmanager
def _config_refusals() -> Iterator[None]:
    """A definition that makes no sense is its sender's fault here."""
    try:
        yield
    except ConfigError as error:
        raise Refusal(400, "invalid-webhook", str(error)) from None


def _shown(delivery: Delivery, body: str | None = None) -> documents.WebhookDelivery:
    return documents.WebhookDelivery(
        id=delivery.id,
        webhook=delivery.endpoint,
        event=delivery.event,
        status=delivery.status,
        attempts=delivery.attempts,
        created_ms=delivery.created_ms,
        due_ms=delivery.due_ms,
        finished_ms=delivery.finished_ms,
        replays=delivery.replays,
        code=delivery.code,
        error=delivery.error,
        reason=delivery.reason,
        body=body,
    )


def _no_delivery(name: str) -> Refusal:
    return Refusal(404, "delivery-not-found", f"there is no delivery {name!r} (any more)")


def _location(request: Request, below: bytes, name: str) -> tuple[bytes, bytes]:
    path: bytes = request.scope["raw_path"]
    return b"location", path[: path.find(b"/v1/")] + below + b"/" + name.encode()
