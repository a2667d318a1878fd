"""An endpoint by its id, wherever it was defined.

    webhooks.configured    hash: id of an endpoint -> a channel whose rules have it

Webhooks of the configuration may depend on the name of the channel, so that their endpoints exist only as
rules; the hash remembers one channel for each. A delivery whose rule was removed from the configuration has
no endpoint any more.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.gateway.config.channels import WebhookPolicy
from penstock.gateway.hooks.translation import endpoint_of
from penstock.gateway.policies import ChannelPolicies, Policy
from penstock.webhooks import Endpoint, EndpointStore

_KEY: Final = "webhooks.configured"
_KEPT: Final = 10_000


class Directory:
    """The endpoints of one worker. An ``EndpointSource``."""

    def __init__(self, client: Client, policies: ChannelPolicies, users: EndpointStore) -> None:
        self._client = client
        self._policies = policies
        self._users = users
        self._known: dict[str, Endpoint] = {}

    async def get(self, endpoint_id: str) -> Endpoint | None:
        known = self._known.get(endpoint_id)
        if known is not None:
            return known
        channel: Any = await self._client.execute("HGET", _KEY, endpoint_id)
        if channel is None:
            return await self._users.get(endpoint_id)
        policy = self._policies.match(to_bytes(channel).decode())
        for webhook in policy.webhooks if policy else ():
            if webhook.id == endpoint_id:
                return self._keep(webhook)
        return None

    async def configured_ids(self) -> list[str]:
        """Webhooks of the configuration that had a message; some may have been removed from it since."""
        found: Any = await self._client.execute("HKEYS", _KEY)
        return [to_bytes(each).decode() for each in found]

    async def configured(self, policy: Policy, webhook: WebhookPolicy) -> Endpoint:
        """The endpoint of a webhook of the configuration; whoever delivers will find it."""
        known = self._known.get(webhook.id)
        if known is not None:
            return known
        await self._client.execute("HSET", _KEY, webhook.id, policy.channel)
        return self._keep(webhook)

    def _keep(self, webhook: WebhookPolicy) -> Endpoint:
        if len(self._known) >= _KEPT:
            self._known.clear()
        endpoint = self._known[webhook.id] = endpoint_of(webhook)
        return endpoint
