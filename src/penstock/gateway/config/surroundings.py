"""The part of the model around channels: the HTTP server, who may call it, and what it tells about itself.

Rules as in :mod:`penstock.gateway.config.model`, from which these names are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.gateway.config.kinds import (
    HEADER_NAME,
    PRIVATE_NETWORKS,
    Between,
    Count,
    DurationMs,
    HeaderName,
    HeaderValue,
    LogLevel,
    Matching,
    Name,
    Network,
    NonEmptyText,
    PositiveCount,
    PositiveDurationMs,
    Rate,
    Ratio,
    ReadableFile,
    Regex,
    SecretText,
    setting,
)

#: Sent with every answer that a route gives.
DEFAULT_HEADERS: Final[Mapping[str, str]] = {
    "X-Frame-Options": "deny",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache, no-store, max-age=0, must-revalidate",
    "Pragma": "no-cache",
    "Expires": "0",
}

Scope: TypeAlias = Literal[
    "publish",
    "subscribe",
    "read",
    "admin",
    "observe",
    "transactions:start",
    "transactions:read",
    "transactions:control",
    "transactions:*",
    "pipelines:read",
    "pipelines:write",
]
#: What a token can be instead of a list of scopes.
Role: TypeAlias = Literal["viewer", "operator"]
#: Of what is found by its name.
NAMED_SCOPES: Final[frozenset[Scope]] = frozenset({"publish", "subscribe", "read"})
#: What owners of transactions are called.
OwnerName: TypeAlias = Annotated[
    str, Matching(r"[A-Za-z0-9_.@:/+-]{1,128}", "1 to 128 letters, digits or any of _ . @ : / + -")
]

# ---------------------------------------------------------------- http


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """No origins: browsers of other sites are not let in."""

    origins: tuple[NonEmptyText, ...] = ()
    headers: tuple[HeaderName, ...] = ("Authorization", "Content-Type")
    credentials: bool = False
    max_age_ms: DurationMs = 10 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    body_bytes: PositiveCount = 1024 * 1024
    headers_bytes: PositiveCount = 64 * 1024
    #: For each client; 0: no limit.
    requests_per_second: Rate = 0.0
    #: For each client, of messages published; 0: no limit.
    publish_per_second: Rate = 0.0
    #: What a client may do at once before the rates hold.
    burst: PositiveCount = 100
    connections: PositiveCount = 10_000
    #: Long polls that wait at the same time.
    idle_polls: PositiveCount = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionConfig:
    gzip: bool = True
    zstd: bool = True
    #: Smaller answers are sent as they are.
    min_bytes: Count = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    cert_file: Annotated[Path, ReadableFile()]
    key_file: Annotated[Path, ReadableFile()]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    port: Annotated[int, Between(0, 65535)] = 3000
    #: ``address:port`` or ``:port``; wins over ``port``.
    listen: str = ""
    path_prefix: Annotated[str, Matching(r"[^\s?#{}]*", "a path without '?' and '#'")] = ""
    #: Empty: the peer's own address.
    real_ip_header: Annotated[str, Matching(HEADER_NAME + "|", "the name of an HTTP header")] = ""
    trusted_proxy_ranges: tuple[Network, ...] = field(
        default=PRIVATE_NETWORKS, metadata=setting(empty_is_default=True)
    )
    disclose_auth_rejection_detail: bool = False
    #: The file's over ours; an empty value switches a header off.
    default_headers: Mapping[HeaderName, HeaderValue] = field(
        default_factory=lambda: dict(DEFAULT_HEADERS), metadata=setting(is_merged=True)
    )
    idle_timeout_ms: PositiveDurationMs = 90 * 60_000
    #: For a whole request; head and body may have limits of their own below it.
    read_timeout_ms: PositiveDurationMs = 10_000
    header_timeout_ms: PositiveDurationMs | None = None
    body_timeout_ms: PositiveDurationMs | None = None
    #: ``long_polling_max_timeout_ms`` comes on top.
    write_timeout_ms: PositiveDurationMs = 60_000
    long_polling_max_timeout_ms: PositiveDurationMs = 30_000
    graceful_shutdown_timeout_ms: DurationMs = 5_000
    #: Processes that serve the same address.
    workers: Annotated[int, Between(1, 1024)] = 1
    cors: CorsConfig = CorsConfig()
    limits: LimitsConfig = LimitsConfig()
    compression: CompressionConfig = CompressionConfig()
    tls: TlsConfig | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on; an empty host is every address of the machine."""
        if not self.listen:
            return "", self.port
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def base_path(self) -> str:
        """What every route starts with: empty, or ``/foo/bar``."""
        words = self.path_prefix.strip("/")
        return f"/{words}" if words else ""

    @property
    def response_headers(self) -> Mapping[str, str]:
        return {name: text for name, text in self.default_headers.items() if text}

    @property
    def effective_header_timeout_ms(self) -> int:
        return self.header_timeout_ms or self.read_timeout_ms

    @property
    def effective_body_timeout_ms(self) -> int:
        return self.body_timeout_ms or self.read_timeout_ms


# ---------------------------------------------------------------- who may call


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """A token that is not kept in a storage.

    Exactly one of ``secret`` and ``sha256`` is set, and exactly one of ``role`` and ``scopes``.
    """

    name: Name
    secret: SecretText | None = field(default=None, repr=False)
    #: Of the secret's UTF-8 bytes, as hexadecimal digits.
    sha256: Annotated[str, Matching(r"[0-9a-fA-F]{64}", "64 hexadecimal digits")] | None = None
    role: Role | None = None
    scopes: tuple[Scope, ...] = ()
    #: Globs.
    channels: tuple[NonEmptyText, ...] = ()
    streams: tuple[NonEmptyText, ...] = ()
    #: Whose transactions; unset: the token's name.
    owner: OwnerName | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256 of the secret."""
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        return hashlib.sha256((self.secret or "").encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAuthConfig:
    networks: tuple[Network, ...] = field(default=PRIVATE_NETWORKS, metadata=setting(empty_is_default=True))
    #: ``load`` fills in a random one where the file has none.
    bearer: tuple[Annotated[SecretText, Matching(r"(?s).+", "text that is not empty")], ...] = field(
        default=(), repr=False
    )
    is_bearer_generated: bool = field(default=False, compare=False, metadata=setting(is_internal=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    auth: AdminAuthConfig = AdminAuthConfig()


# ---------------------------------------------------------------- what it tells


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    format: Literal["json", "text"] = "json"
    #: Category to threshold; ``*`` is for all others.
    categories: Mapping[NonEmptyText, LogLevel] = field(
        default_factory=lambda: {"*": "INFO"}, metadata=setting("category", "categories", is_merged=True)
    )
    #: In every record.
    attributes: Mapping[NonEmptyText, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    enabled: bool = True
    path: Annotated[str, Matching(r"/[^\s?#]*", "a path that starts with a slash")] = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    max_queue_size: PositiveCount = 2048
    timeout_ms: PositiveDurationMs = 5_000
    batch_size: PositiveCount = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    enable: bool = field(default=False, metadata=setting(None, "enabled"))
    #: Share of traces that start here; one that a caller started is always continued.
    sampling: Ratio = 1.0
    batch: BatchConfig = BatchConfig()
    attributes: Mapping[NonEmptyText, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdoutExporterConfig:
    enable: bool = False
    quantiles: tuple[Ratio, ...] = field(default=(0.5, 0.9, 0.99), metadata=setting(empty_is_default=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpExporterConfig:
    enable_trace: bool = False
    project_id: str = field(default="", metadata=setting("projectID"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportersConfig:
    stdout: StdoutExporterConfig = StdoutExporterConfig()
    gcp: GcpExporterConfig = GcpExporterConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTelemetryConfig:
    tracing: TracingConfig | None = None
    exporters: ExportersConfig = ExportersConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    tracing: TracingConfig | None = None
    #: The DSPS spelling: ``ot.tracing`` instead of ``tracing``.
    ot: OpenTelemetryConfig = field(default=OpenTelemetryConfig(), metadata=setting(is_foreign=True))

    @property
    def effective_tracing(self) -> TracingConfig:
        return self.tracing or self.ot.tracing or TracingConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentryConfig:
    """Understood for files that have it; there is no Sentry exporter, so it cannot be switched on."""

    server_name: str = ""
    environment: str = ""
    tags: Mapping[NonEmptyText, str] = field(default_factory=dict)
    contexts: Mapping[NonEmptyText, Any] = field(default_factory=dict, metadata=setting(None, "context"))
    sample_rate: Ratio = 1.0
    ignore_errors: tuple[Regex, ...] = ()
    disable_stacktrace: bool = False
    hide_request_data: bool = False
    flush_timeout_ms: PositiveDurationMs = 15_000
