"""What the gateway can be told, as frozen values: every key, its type and its default.

A key of the file is its field in camelCase; durations lose their unit (``read_timeout_ms`` is
``readTimeout: 10s``). Storages, channels and what happens on them are in this file; what surrounds
them is in :mod:`penstock.gateway.config.surroundings` and is imported here, so that everything can be
taken from this module.

Rules: values and what follows from them alone; no reading of files, no environment. What must hold
between fields is in :mod:`penstock.gateway.config.checks`. Must not know who uses a setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeAlias
from urllib.parse import quote

from penstock.gateway.config.keyfiles import Algorithm, KeyFile
from penstock.gateway.config.kinds import (
    Between,
    Count,
    DurationMs,
    HeaderName,
    Matching,
    Name,
    Network,
    NonEmptyText,
    OneOrMany,
    PositiveCount,
    PositiveDurationMs,
    Regex,
    Secret,
    SecretText,
    setting,
)
from penstock.gateway.config.surroundings import (
    AdminAuthConfig,
    AdminConfig,
    BatchConfig,
    CompressionConfig,
    CorsConfig,
    ExportersConfig,
    GcpExporterConfig,
    HttpConfig,
    LimitsConfig,
    LoggingConfig,
    MetricsConfig,
    OpenTelemetryConfig,
    SentryConfig,
    StdoutExporterConfig,
    TelemetryConfig,
    TlsConfig,
    TokenConfig,
    TracingConfig,
)
from penstock.gateway.config.templates import Template

__all__ = [
    "AdminAuthConfig",
    "AdminConfig",
    "BatchConfig",
    "BreakerConfig",
    "ChannelConfig",
    "CompressionConfig",
    "CorsConfig",
    "EmbeddedStoreConfig",
    "ExportersConfig",
    "GatewayConfig",
    "GcpExporterConfig",
    "HttpConfig",
    "JwtConfig",
    "LimitsConfig",
    "LoggingConfig",
    "MetricsConfig",
    "OnMemoryStoreConfig",
    "OpenTelemetryConfig",
    "PubSubConfig",
    "ReceiptsConfig",
    "RedisConnectionConfig",
    "RedisRetryConfig",
    "RedisStoreConfig",
    "RedisTimeoutConfig",
    "SentryConfig",
    "StdoutExporterConfig",
    "StorageConfig",
    "StreamRuleConfig",
    "TelemetryConfig",
    "TlsConfig",
    "TokenConfig",
    "TracingConfig",
    "TransactionWebhooksConfig",
    "TransactionsConfig",
    "WebhookConfig",
    "WebhookConnectionConfig",
    "WebhookEndpointConfig",
    "WebhookRetryConfig",
]

DEFAULT_EXPIRE_MS: Final = 30 * 60 * 1000

# ---------------------------------------------------------------- storages


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMemoryStoreConfig:
    """An embedded store in a temporary directory, gone with the process."""

    disable_pub_sub: bool = field(default=False, metadata=setting(None, "__disablePubSub"))
    disable_jwt: bool = field(default=False, metadata=setting(None, "__disableJwt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStoreConfig:
    directory: NonEmptyText
    durability: Literal["always", "relaxed"] = "always"
    disable_pub_sub: bool = False
    disable_jwt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTimeoutConfig:
    connect_ms: PositiveDurationMs = 5_000
    read_ms: PositiveDurationMs = 5_000
    write_ms: PositiveDurationMs = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRetryConfig:
    #: Attempts after the first; 0: none.
    count: Count = 3
    interval_ms: DurationMs = 500
    interval_jitter_ms: DurationMs = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConnectionConfig:
    """Understood for files that have it; one connection a server carries all commands."""

    max: PositiveCount | None = None
    min: Count | None = None
    max_idle_time_ms: PositiveDurationMs = 5 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStoreConfig:
    """Exactly one of ``single_node``, ``cluster`` and ``url`` is set."""

    single_node: str | None = None
    cluster: tuple[str, ...] = ()
    url: Annotated[str, Secret(is_url=True)] | None = field(default=None, repr=False)
    username: str = ""
    password: SecretText = field(default="", repr=False)
    db: Count = 0
    script_reload_interval_ms: PositiveDurationMs = 5 * 60_000
    timeout: RedisTimeoutConfig = RedisTimeoutConfig()
    retry: RedisRetryConfig = RedisRetryConfig()
    connection: RedisConnectionConfig = RedisConnectionConfig()
    disable_pub_sub: bool = False
    disable_jwt: bool = False

    @property
    def target_url(self) -> str:
        """What ``penstock.open`` takes; with the password."""
        if self.url is not None:
            return self.url
        login = ""
        if self.username or self.password:
            login = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}@"
        if self.cluster:
            return f"redis-cluster://{login}{','.join(self.cluster)}"
        return f"redis://{login}{self.single_node}/{self.db}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Exactly one is set."""

    onmemory: OnMemoryStoreConfig | None = None
    embedded: EmbeddedStoreConfig | None = None
    redis: RedisStoreConfig | None = None

    @property
    def chosen(self) -> OnMemoryStoreConfig | EmbeddedStoreConfig | RedisStoreConfig:
        chosen = self.onmemory or self.embedded or self.redis
        assert chosen is not None, "checked at load"
        return chosen


#: How many storages must confirm a write: a rule or a number.
Quorum: TypeAlias = Literal["any", "majority", "all"] | PositiveCount


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When a storage that fails is left alone, and for how long."""

    failures: PositiveCount = 1
    open_for_ms: PositiveDurationMs = 1_000


# ---------------------------------------------------------------- webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConnectionConfig:
    max: PositiveCount = 1024
    max_idle_time_ms: PositiveDurationMs = 3 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRetryConfig:
    """Wait before retry n (from 1): interval × multiplier^(n-1) ± jitter."""

    count: Count = 3
    interval_ms: DurationMs = 3_000
    interval_multiplier: Annotated[float, Between(1.0, 1000.0)] = 1.5
    interval_jitter_ms: DurationMs = 1_500
    #: Retry whatever the answer was.
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """One of ``channels[].webhooks``. Templates see the named groups of the channel's regex."""

    #: Without ``schedule`` and ``retry``: True, Standard Webhooks' schedule; False, ``WebhookRetryConfig()``.
    IS_STANDARD_BY_DEFAULT: ClassVar[bool] = False

    url: Template
    name: Name | None = None
    method: Literal["PUT", "POST"] = "PUT"
    headers: Mapping[HeaderName, Template] = field(default_factory=dict)
    secrets: tuple[SecretText, ...] = field(default=(), repr=False)
    timeout_ms: PositiveDurationMs = 30_000
    connection: WebhookConnectionConfig = WebhookConnectionConfig()
    retry: WebhookRetryConfig | None = None
    schedule: Literal["retry", "standard"] | None = None
    #: Understood for files that have it; redirections are never followed.
    max_redirects: Count = 10
    #: None: only if no template decides about the host.
    allow_private_networks: bool | None = None
    allowed_networks: tuple[Network, ...] = ()

    @property
    def retry_plan(self) -> WebhookRetryConfig | None:
        """``None``: the schedule of Standard Webhooks."""
        is_standard = self.IS_STANDARD_BY_DEFAULT if self.schedule is None else self.schedule == "standard"
        return self.retry or (None if is_standard else WebhookRetryConfig())

    @property
    def may_call_private_networks(self) -> bool:
        """The operator wrote the host himself, unless a template fills it in."""
        if self.allow_private_networks is not None:
            return self.allow_private_networks
        return not self.url.has_name_before("/", after="://")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpointConfig(WebhookConfig):
    """One of the ``webhooks`` at the top of the file: an endpoint of every channel that matches."""

    IS_STANDARD_BY_DEFAULT: ClassVar[bool] = True

    regex: Regex
    method: Literal["PUT", "POST"] = "POST"


# ---------------------------------------------------------------- channels and streams


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtConfig:
    iss: tuple[NonEmptyText, ...]
    aud: tuple[NonEmptyText, ...] = ()
    keys: Mapping[Algorithm, tuple[KeyFile, ...]]
    #: A token's claim must equal one of the texts.
    claims: Mapping[NonEmptyText, Annotated[tuple[Template, ...], OneOrMany()]] = field(default_factory=dict)
    clock_skew_leeway_ms: DurationMs = 5 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    regex: Regex
    expire_ms: PositiveDurationMs = DEFAULT_EXPIRE_MS
    webhooks: tuple[WebhookConfig, ...] = ()
    jwt: JwtConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRuleConfig:
    """Which streams HTTP may touch; a stream that no rule matches is not reachable."""

    regex: Regex
    readable: bool = True
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubConfig:
    enabled: bool = False


# ---------------------------------------------------------------- transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionWebhooksConfig:
    """Webhooks that a start of a transaction names: how this gateway delivers them."""

    #: Whether this gateway delivers; others, or workers, may.
    enabled: bool = True
    timeout_ms: PositiveDurationMs = 20_000
    #: Calls of one receiver at the same time.
    max_in_flight: Annotated[int, Between(1, 1024)] = 8
    https_only: bool = False
    #: Networks that may be called although they are not public.
    allowed_networks: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsConfig:
    """Transactions over HTTP."""

    enabled: bool = True
    #: Who brings a token that passes is an owner; unset: API tokens, or nobody is asked.
    jwt: JwtConfig | None = None
    #: Where transactions are found that left the store.
    archive_directory: NonEmptyText | None = None
    #: The longest that a request waits for an end; unset: ``http.long_polling_max_timeout_ms``.
    max_wait_ms: PositiveDurationMs | None = None
    #: ``module:function`` that words the replies of the DATP API and the data of webhooks.
    reply_converter: (
        Annotated[
            str, Matching(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "module:function, as in shop.replies:convert")
        ]
        | None
    ) = None
    webhooks: TransactionWebhooksConfig = TransactionWebhooksConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptsConfig:
    """``secret`` signs acknowledgement handles; every gateway of the same storages needs the same one."""

    secret: SecretText | None = field(default=None, repr=False)


# ---------------------------------------------------------------- the file


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    storages: Mapping[NonEmptyText, StorageConfig] = field(
        default_factory=lambda: {"default": StorageConfig(onmemory=OnMemoryStoreConfig())},
        metadata=setting(None, "storage", empty_is_default=True),
    )
    quorum: Quorum = "majority"
    breaker: BreakerConfig = BreakerConfig()
    http: HttpConfig = field(default_factory=HttpConfig)
    channels: tuple[ChannelConfig, ...] = field(
        default_factory=lambda: (ChannelConfig(regex=re.compile(".+")),),
        metadata=setting(empty_is_default=True),
    )
    webhooks: tuple[WebhookEndpointConfig, ...] = ()
    streams: tuple[StreamRuleConfig, ...] = ()
    pubsub: PubSubConfig = PubSubConfig()
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    #: The lake whose tables are shown; unset: the archive if it is one, or that of the jobs of this machine.
    lake: NonEmptyText | None = None
    receipts: ReceiptsConfig = ReceiptsConfig()
    tokens: tuple[TokenConfig, ...] = ()
    #: Nobody without a token or a JWT, also on channels without ``jwt``.
    require_tokens: bool = False
    admin: AdminConfig = field(default_factory=AdminConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    sentry: SentryConfig = field(default_factory=SentryConfig, metadata=setting(is_foreign=True))

    @property
    def quorum_size(self) -> int:
        """How many of the storages must confirm a write."""
        if isinstance(self.quorum, int):
            return self.quorum
        count = len(self.storages)
        return {"any": 1, "majority": count // 2 + 1, "all": count}[self.quorum]
