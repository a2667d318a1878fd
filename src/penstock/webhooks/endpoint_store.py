"""Endpoints that users define at run time, kept beside the queue.

Rules: a definition is a row of one hash, as JSON. What its owner defines is here; what happens to it is
state, which ``queue.py`` keeps and which outlives a changed definition. Secrets lie in the store as they are,
so whoever may read the store may sign.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.errors import ConfigError, StoreCorruptError, UsageError
from penstock.webhooks.addresses import AddressPolicy, check_url
from penstock.webhooks.endpoints import Endpoint
from penstock.webhooks.model import EndpointState
from penstock.webhooks.queue import WebhookQueue

MAX_ENDPOINTS: Final = 100_000

_DECODER: Final = msgspec.json.Decoder(Endpoint)


class EndpointStore:
    """The endpoints of one queue. Implements ``EndpointSource``."""

    def __init__(
        self,
        client: Client,
        queue: WebhookQueue,
        *,
        policy: AddressPolicy | None = None,
        max_endpoints: int = MAX_ENDPOINTS,
    ) -> None:
        """``policy`` is the one that workers send with; endpoints of users cannot widen it."""
        if max_endpoints < 1:
            raise ConfigError(f"max_endpoints must be at least 1, not {max_endpoints}")
        self._client = client
        self._queue = queue
        self._policy = policy or AddressPolicy()
        self._max_endpoints = max_endpoints
        self._key = queue.keys.endpoints

    async def put(self, endpoint: Endpoint) -> bool:
        """Define it, or define it anew; True if it is new."""
        if endpoint.allowed_networks:
            raise UsageError("allowed_networks must be empty: only configuration opens inner networks")
        check_url(endpoint.url, self._policy)
        # The bound is against floods; two callers at once may exceed it by one.
        is_full = await self._client.hlen(self._key) >= self._max_endpoints
        if is_full and not await self._client.hexists(self._key, endpoint.id):
            raise UsageError(f"{self._max_endpoints} endpoints are defined (max_endpoints): delete some")
        is_new = bool(await self._client.hset(self._key, {endpoint.id: msgspec.json.encode(endpoint)}))
        if not is_new:
            await self._queue.limit(endpoint)
        return is_new

    async def get(self, endpoint_id: str) -> Endpoint | None:
        packed: Any = await self._client.hget(self._key, endpoint_id)
        return None if packed is None else _decoded(endpoint_id, packed)

    async def list(self) -> list[Endpoint]:
        """All of them, by id."""
        found: dict[str, Endpoint] = {}
        async for name, packed in self._client.hscan_iter(self._key, count=500):
            found[name.decode()] = _decoded(name.decode(), packed)
        return [found[name] for name in sorted(found)]

    async def delete(self, endpoint_id: str) -> bool:
        """Forget it, and all that waits for it. What is being sent right now is not stopped."""
        is_gone = bool(await self._client.hdel(self._key, endpoint_id))
        # Also where the definition was gone already: an earlier call may have been cut off in between.
        await self._queue.purge(endpoint_id)
        return is_gone

    async def disable(self, endpoint_id: str, reason: str) -> bool:
        return await self._queue.disable(endpoint_id, reason)

    async def enable(self, endpoint_id: str) -> bool:
        return await self._queue.enable(endpoint_id)

    async def state(self, endpoint_id: str) -> EndpointState:
        return await self._queue.state(endpoint_id)


def _decoded(endpoint_id: str, packed: bytes) -> Endpoint:
    try:
        return _DECODER.decode(packed)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise StoreCorruptError(f"the endpoint {endpoint_id} does not decode: {error}") from error
