"""Puts a gateway together from its configuration: storages, rules, the door, routes.

    async with open_services(config) as services:
        application = make_application(services)

Everything that is opened here is closed here, in the opposite order.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import penstock.front
from penstock.channels import Channels, ChannelStore
from penstock.channels.stores import STORE_BREAKER, ChannelStores
from penstock.front import Penstock
from penstock.gateway.access import Access
from penstock.gateway.app import Application
from penstock.gateway.auth.gatekeeper import AdminAccess, Gatekeeper
from penstock.gateway.auth.grants import Grant, StaticToken, StaticTokens, grant_of, scopes_of
from penstock.gateway.auth.networks import Networks
from penstock.gateway.auth.revocation import Revocations
from penstock.gateway.auth.tokens import TokenStore
from penstock.gateway.config.channels import StreamRules
from penstock.gateway.config.model import (
    BreakerConfig,
    EmbeddedStoreConfig,
    GatewayConfig,
    OnMemoryStoreConfig,
    RedisStoreConfig,
    StorageConfig,
    TokenConfig,
)
from penstock.gateway.console.serving import ConsoleRoutes
from penstock.gateway.control import Control
from penstock.gateway.datp.transactions import DatpRoutes
from penstock.gateway.dsps import answers
from penstock.gateway.dsps.operating import Operating
from penstock.gateway.dsps.polling import Polling
from penstock.gateway.hooks.service import WebhookService
from penstock.gateway.http.routing import Route
from penstock.gateway.limiting import RateLimiter
from penstock.gateway.measuring import MeasuredChannels
from penstock.gateway.observing.metrics import Metrics
from penstock.gateway.observing.tracing import Tracing
from penstock.gateway.policies import ChannelPolicies
from penstock.gateway.services import Services
from penstock.gateway.store_figures import StoreReader
from penstock.gateway.transacting import TransactionService
from penstock.gateway.v1.channel_events import ChannelEventRoutes
from penstock.gateway.v1.channels import ChannelRoutes
from penstock.gateway.v1.data_pipeline import DataPipelineRoutes
from penstock.gateway.v1.events import HEARTBEAT_MS
from penstock.gateway.v1.feeds import CREDENTIAL_S
from penstock.gateway.v1.health import HealthRoutes
from penstock.gateway.v1.hooks import HookRoutes
from penstock.gateway.v1.openapi import OpenApiRoutes
from penstock.gateway.v1.overview import OverviewRoutes
from penstock.gateway.v1.pipelines import PipelineRoutes
from penstock.gateway.v1.pubsub import PubSubRoutes
from penstock.gateway.v1.schedules import ScheduleRoutes
from penstock.gateway.v1.server import ServerRoutes
from penstock.gateway.v1.session import SessionRoutes
from penstock.gateway.v1.sockets import SocketRoutes
from penstock.gateway.v1.stream_groups import StreamGroupRoutes
from penstock.gateway.v1.streams import StreamRoutes
from penstock.gateway.v1.subscriptions import SubscriptionRoutes
from penstock.gateway.v1.tokens import TokenRoutes
from penstock.gateway.v1.transaction_control import TransactionControlRoutes
from penstock.gateway.v1.transaction_events import TransactionEventRoutes
from penstock.gateway.v1.transaction_operations import TransactionOperationRoutes
from penstock.gateway.v1.transactions import TransactionRoutes
from penstock.webhooks import BreakerPolicy


@asynccontextmanager
async def open_services(
    config: GatewayConfig, *, directory: Path | None = None, worker: int = 0
) -> AsyncGenerator[Services, None]:
    """Everything that routes need, for one worker. ``directory`` is shared by all workers of a port."""
    async with AsyncExitStack() as stack:
        clients = {name: await _open_store(stack, storage) for name, storage in config.storages.items()}
        secret = config.receipts.secret
        children = {
            name: ChannelStore(clients[name], name, secret.encode() if secret else None)
            for name in _names(config, "disable_pub_sub") or clients
        }
        metrics = Metrics(config.metrics.enabled, directory=directory, worker=worker)
        stack.callback(metrics.close)
        joined = _join(config, children)
        stack.push_async_callback(joined.close)
        channels = MeasuredChannels(joined, metrics) if metrics.enabled else joined
        store = next(iter(clients.values()))
        control = Control(store)
        control.start()
        stack.push_async_callback(control.stop)
        services = _services(config, clients, store, channels, control, metrics)
        services.worker = worker
        if services.webhooks is not None:
            services.webhooks.start()
            stack.push_async_callback(services.webhooks.stop)
        if services.transactions is not None:
            services.transactions.start()
            stack.push_async_callback(services.transactions.stop)
        yield services


def _join(config: GatewayConfig, children: dict[str, ChannelStore]) -> Channels:
    """One store needs nobody above it."""
    if len(children) == 1:
        return next(iter(children.values()))
    return ChannelStores(children, quorum=min(config.quorum_size, len(children)))


def _names(config: GatewayConfig, switch: Literal["disable_pub_sub", "disable_jwt"]) -> list[str]:
    """Storages that are not switched off for this."""
    return [name for name, storage in config.storages.items() if not getattr(storage.chosen, switch)]


async def _open_store(stack: AsyncExitStack, storage: StorageConfig) -> Penstock:
    match storage.chosen:
        case OnMemoryStoreConfig():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
            client = penstock.front.open(f"{folder}/store.pen", durability="relaxed")
        case EmbeddedStoreConfig() as embedded:
            client = penstock.front.open(embedded.directory, durability=embedded.durability)
        case RedisStoreConfig() as redis:
            client = penstock.front.open(
                redis.target_url,
                command_timeout_ms=redis.timeout.read_ms,
                connect_timeout_ms=redis.timeout.connect_ms,
            )
    # Not entered: a server that is down now may be up when it is asked.
    stack.push_async_callback(client.close)
    return client


def _services(
    config: GatewayConfig,
    clients: dict[str, Penstock],
    store: Penstock,
    channels: Channels,
    control: Control,
    metrics: Metrics,
) -> Services:
    revocations = _revocations(config, clients)
    tokens = TokenStore(store)
    transactions = TransactionService(store, config) if config.transactions.enabled else None
    admin = config.admin.auth
    gatekeeper = Gatekeeper(
        admin=AdminAccess(_networks(admin.networks), admin.bearer),
        revocations=revocations,
        tokens=tokens,
        static_tokens=_static_tokens(config),
        require_tokens=config.require_tokens,
        transaction_rules=() if transactions is None else transactions.rules,
    )
    limits = config.http.limits
    policies = ChannelPolicies(config)
    access = Access(
        gatekeeper,
        metrics,
        trusted_proxies=_networks(config.http.trusted_proxy_ranges),
        real_ip_header=config.http.real_ip_header,
        is_open=not config.require_tokens,
        requests=_limiter(limits.requests_per_second, config),
        publishes=_limiter(limits.publish_per_second, config),
    )
    return Services(
        config=config,
        store=store,
        channels=channels,
        rules=policies,
        stream_rules=StreamRules(config),
        access=access,
        metrics=metrics,
        control=control,
        revocations=revocations,
        tokens=tokens,
        webhooks=WebhookService(store, channels, policies, control, body_limit_bytes=limits.body_bytes),
        transactions=transactions,
    )


def _revocations(config: GatewayConfig, clients: dict[str, Penstock]) -> Revocations | None:
    """What a quorum took is seen by every lookup. None: no storage keeps them."""
    keepers = [clients[name] for name in _names(config, "disable_jwt")]
    if not keepers:
        return None
    needed = len(keepers) - min(config.quorum_size, len(keepers)) + 1
    return Revocations(*keepers, needed_answers=needed)


def _breaker(config: BreakerConfig) -> BreakerPolicy:
    return BreakerPolicy(
        failures=config.failures,
        open_ms=config.open_for_ms,
        max_open_ms=max(config.open_for_ms, STORE_BREAKER.max_open_ms),
    )


def _networks(networks: object) -> Networks:
    return Networks(str(network) for network in networks)  # type: ignore[attr-defined]


def _limiter(rate: float, config: GatewayConfig) -> RateLimiter | None:
    """Each worker counts for itself, so each gives its share."""
    if not rate:
        return None
    workers = config.http.workers
    return RateLimiter(rate / workers, max(1, config.http.limits.burst / workers))


def _static_tokens(config: GatewayConfig) -> StaticTokens:
    return StaticTokens(StaticToken(_grant(token), sha256=token.digest.hex()) for token in config.tokens)


def _grant(token: TokenConfig) -> Grant:
    owner = token.owner or ""
    if token.role is not None:
        return grant_of(token.role, token.name, owner)
    return Grant(token.name, scopes_of(token.scopes), token.channels, token.streams, owner)


def transaction_routes(
    services: Services, *, heartbeat_ms: int = HEARTBEAT_MS, credential_s: float = CREDENTIAL_S
) -> list[Route]:
    """All that concerns transactions; nothing if they are not enabled."""
    if services.transactions is None:
        return []
    return [
        *TransactionRoutes(services).routes(),
        *TransactionControlRoutes(services).routes(),
        *TransactionEventRoutes(services, heartbeat_ms=heartbeat_ms, credential_s=credential_s).routes(),
        *PipelineRoutes(services).routes(),
        *ScheduleRoutes(services).routes(),
        *TransactionOperationRoutes(services).routes(),
        *DatpRoutes(services).routes(),
    ]


def console_routes(
    services: Services, *, heartbeat_ms: int = HEARTBEAT_MS, credential_s: float = CREDENTIAL_S
) -> list[Route]:
    """What is looked at as a whole: the overview, the server, the data pipeline."""
    store = StoreReader(services.store)
    return [
        *OverviewRoutes(services, store, heartbeat_ms=heartbeat_ms, credential_s=credential_s).routes(),
        *ServerRoutes(services, store).routes(),
        *DataPipelineRoutes(services).routes(),
    ]


def make_application(services: Services) -> Application:
    """The routes of every API, and the application around them."""
    is_disclosing = services.config.http.disclose_auth_rejection_detail
    refuse = answers.refuse_disclosing if is_disclosing else answers.refuse
    routes: list[Route] = [
        *Polling(services).routes(refuse),
        *Operating(services).routes(),
        *ChannelRoutes(services).routes(),
        *SubscriptionRoutes(services).routes(),
        *ChannelEventRoutes(services).routes(),
        *StreamRoutes(services).routes(),
        *StreamGroupRoutes(services).routes(),
        *PubSubRoutes(services).routes(),
        *HookRoutes(services).routes(),
        *TokenRoutes(services).routes(),
        *SessionRoutes(services).routes(),
        *transaction_routes(services),
        *console_routes(services),
        *HealthRoutes(services).routes(),
    ]
    routes += OpenApiRoutes(routes, services.config).routes()
    routes += ConsoleRoutes().routes()
    return Application(
        services,
        routes,
        sockets=SocketRoutes(services),
        tracing=Tracing(services.config.telemetry.effective_tracing),
    )
