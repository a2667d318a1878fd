"""Everything that routes need, made once for each worker: stores, rules, the gatekeeper, limits.

Values and references. Who makes it is ``assembly``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.channels import Channels
from penstock.front import Penstock
from penstock.gateway.access import Access
from penstock.gateway.config.channels import StreamRules
from penstock.gateway.config.model import GatewayConfig
from penstock.gateway.control import Control
from penstock.gateway.observing.metrics import Metrics
from penstock.gateway.policies import ChannelPolicies, Policy

if TYPE_CHECKING:
    from penstock.gateway.auth.revocation import Revocations
    from penstock.gateway.auth.tokens import TokenStore
    from penstock.gateway.hooks.service import WebhookService
    from penstock.gateway.transacting import TransactionService


@dataclass(slots=True)
class Life:
    """How far a worker is: it answers readiness before it can, and stops answering it first."""

    is_ready: bool = False
    is_stopping: bool = False


@dataclass(slots=True)
class Services:
    config: GatewayConfig
    #: the first storage: streams, pub/sub, transactions, tokens and webhooks live there
    store: Penstock
    #: all storages
    channels: Channels
    rules: ChannelPolicies
    stream_rules: StreamRules
    access: Access
    metrics: Metrics
    control: Control
    revocations: Revocations | None = None
    tokens: TokenStore | None = None
    webhooks: WebhookService | None = None
    #: None: they are not enabled
    transactions: TransactionService | None = None
    #: the number of this worker among those of its port, from 0
    worker: int = 0
    life: Life = field(default_factory=Life)
    #: long polls and followers that wait at this moment
    waiting: int = 0

    def wants_outbox(self, policy: Policy) -> bool:
        """Whether webhooks of the channel want to hear of its messages."""
        return bool(policy.webhooks) or (self.webhooks is not None and self.webhooks.wants(policy.channel))

    async def set_log_level(self, category: str, level: str) -> None:
        """On every worker."""
        await self.control.tell("log-level", {"category": category, "level": level})
