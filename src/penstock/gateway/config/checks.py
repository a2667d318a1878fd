"""What must hold within and between fields of the model, beyond their types; :data:`CHECKS` has all of it.

Each check names the fields it looks at and is called when those were read without problems, whatever became
of others: with the part of the model, its path, and where to complain.

Rules: whole sentences that name the key, what was found and what to do; no secrets. Nothing is opened
and nobody is called.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args
from urllib.parse import urlsplit

from penstock.client.targets import parse_url
from penstock.configuration.problems import Problems, child, show
from penstock.errors import ConfigError
from penstock.gateway.config.kinds import HEADER_VALUE
from penstock.gateway.config.model import (
    BatchConfig,
    CorsConfig,
    EmbeddedStoreConfig,
    GatewayConfig,
    GcpExporterConfig,
    HttpConfig,
    JwtConfig,
    ReceiptsConfig,
    RedisStoreConfig,
    StdoutExporterConfig,
    StorageConfig,
    TelemetryConfig,
    TokenConfig,
    WebhookConfig,
)
from penstock.gateway.config.reading import Check
from penstock.gateway.config.surroundings import NAMED_SCOPES, Role, Scope

#: Shorter ones can be guessed by trying.
_MIN_SECRET_LEN: Final = 16
#: Standard Webhooks: secrets of 24 to 64 bytes, private keys of 32 (seed) or 64 (with the public key).
_SIGNING_BYTES: Final[Mapping[str, tuple[int, int]]] = {"whsec_": (24, 64), "whsk_": (32, 64)}

_LISTEN: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/]*):(?P<port>[0-9]{1,5})", re.ASCII)
_MAX_PORT: Final = 65535
_ORIGIN: Final = re.compile(r"https?://[^\s/?#]+", re.IGNORECASE)


CHECKS: Final[dict[type[Any], list[Check]]] = {}

_Judge: TypeAlias = Callable[[Any, str, Problems], None]


def _check(model: type[Any], *fields: str) -> Callable[[_Judge], _Judge]:
    def register(judge: _Judge) -> _Judge:
        CHECKS.setdefault(model, []).append(Check(frozenset(fields), judge))
        return judge

    return register


# ---------------------------------------------------------------- storages


@_check(StorageConfig, "onmemory", "embedded", "redis")
def _check_storage(storage: StorageConfig, path: str, problems: Problems) -> None:
    kinds = ("onmemory", "embedded", "redis")
    given = [kind for kind in kinds if getattr(storage, kind) is not None]
    if not given:
        problems.add(path, f"must have one of {', '.join(kinds)}, as in onmemory: {{}}")
    elif len(given) > 1:
        problems.add(path, f"must have only one of {', '.join(kinds)}, not {' and '.join(given)}")


@_check(EmbeddedStoreConfig, "directory")
def _check_embedded(store: EmbeddedStoreConfig, path: str, problems: Problems) -> None:
    try:
        parse_url(Path(store.directory))
    except ConfigError as error:
        problems.add(child(path, "directory"), str(error))


@_check(RedisStoreConfig, "single_node", "cluster", "url", "username", "password", "db")
def _check_redis(store: RedisStoreConfig, path: str, problems: Problems) -> None:
    ways = {"singleNode": store.single_node, "cluster": store.cluster, "url": store.url}
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        problems.add(path, f"must have exactly one of {', '.join(ways)}, not {found}")
        return
    key = child(path, given[0])
    try:
        target = parse_url(store.target_url)
    except ConfigError as error:
        problems.add(key, str(error))
        return
    if store.url is None:
        return
    if target.kind == "embedded":
        problems.add(key, "names a directory: use embedded: {directory: …} for that")
    doubled = [name for name in ("username", "password", "db") if getattr(store, name)]
    for name in doubled:
        problems.add(child(path, name), "must stand in the url when there is one")


# ---------------------------------------------------------------- http


@_check(HttpConfig, "listen")
def _check_listen(http: HttpConfig, path: str, problems: Problems) -> None:
    match = _LISTEN.fullmatch(http.listen)
    if http.listen and (match is None or int(match["port"]) > _MAX_PORT):
        expected = "address:port or :port, as in 127.0.0.1:3000"
        problems.add(child(path, "listen"), f"must be {expected}, not {show(http.listen)}")


@_check(HttpConfig, "read_timeout_ms", "header_timeout_ms", "body_timeout_ms")
def _check_timeouts(http: HttpConfig, path: str, problems: Problems) -> None:
    for name in ("header", "body"):
        timeout_ms = getattr(http, f"{name}_timeout_ms")
        if timeout_ms is not None and timeout_ms > http.read_timeout_ms:
            problems.add(child(path, f"{name}Timeout"), "must not be longer than readTimeout")


@_check(CorsConfig, "origins", "credentials")
def _check_cors(cors: CorsConfig, path: str, problems: Problems) -> None:
    for at, origin in enumerate(cors.origins):
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            key = child(child(path, "origins"), at)
            problems.add(key, f'must be an origin such as https://example.com or "*", not {show(origin)}')
    if cors.credentials and "*" in cors.origins:
        problems.add(child(path, "credentials"), 'cannot be true while origins has "*": list the origins')


# ---------------------------------------------------------------- channels and webhooks


@_check(JwtConfig, "iss")
def _check_issuers(jwt: JwtConfig, path: str, problems: Problems) -> None:
    if not jwt.iss:
        problems.add(child(path, "iss"), "must list at least one issuer")


@_check(JwtConfig, "keys")
def _check_keys(jwt: JwtConfig, path: str, problems: Problems) -> None:
    if not jwt.keys:
        problems.add(child(path, "keys"), "must have at least one algorithm with its keys")
    for algorithm, files in jwt.keys.items():
        if not files and algorithm != "none":
            problems.add(child(child(path, "keys"), algorithm), "must list at least one key file")


@_check(WebhookConfig, "schedule", "retry")
def _check_schedule(webhook: WebhookConfig, path: str, problems: Problems) -> None:
    if webhook.schedule == "standard" and webhook.retry is not None:
        problems.add(child(path, "retry"), "has no meaning with schedule standard: remove one of them")


@_check(WebhookConfig, "url")
def _check_webhook_url(webhook: WebhookConfig, path: str, problems: Problems) -> None:
    # Names of channels have only characters that any part of a URL may have.
    url = webhook.url.render(dict.fromkeys(webhook.url.names, "1"))
    key = child(path, "url")
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or re.search(r"[\s\x00-\x1f\x7f]", url):
        problems.add(key, f"must be a URL that starts with http:// or https://, not {show(webhook.url.text)}")
    elif "@" in parts.netloc:
        problems.add(key, "must not hold a user name or password: use headers for that")


@_check(WebhookConfig, "headers")
def _check_headers(webhook: WebhookConfig, path: str, problems: Problems) -> None:
    for name, text in webhook.headers.items():
        if re.fullmatch(HEADER_VALUE, text.text) is None:
            problems.add(child(child(path, "headers"), name), "must not hold line ends or control characters")


@_check(WebhookConfig, "secrets")
def _check_signing_secrets(webhook: WebhookConfig, path: str, problems: Problems) -> None:
    for at, secret in enumerate(webhook.secrets):
        sentence = _judge_signing_secret(secret)
        if sentence:
            problems.add(child(child(path, "secrets"), at), sentence)


def _judge_signing_secret(secret: str) -> str:
    for prefix, (least, most) in _SIGNING_BYTES.items():
        if not secret.startswith(prefix):
            continue
        try:
            size = len(base64.b64decode(secret.removeprefix(prefix), validate=True))
        except (binascii.Error, ValueError):
            return f"must be Base64 after {prefix}"
        is_right = least <= size <= most if prefix == "whsec_" else size in (least, most)
        between = "to" if prefix == "whsec_" else "or"
        return (
            "" if is_right else f"must be {least} {between} {most} bytes as Base64 after {prefix}, not {size}"
        )
    return f"must start with {' or '.join(_SIGNING_BYTES)}"


# ---------------------------------------------------------------- who may call


@_check(TokenConfig, "secret", "sha256")
def _check_token(token: TokenConfig, path: str, problems: Problems) -> None:
    if (token.secret is None) is (token.sha256 is None):
        problems.add(path, "must have exactly one of secret and sha256")
    if token.secret is not None and len(token.secret) < _MIN_SECRET_LEN:
        problems.add(child(path, "secret"), f"must have at least {_MIN_SECRET_LEN} characters")


@_check(TokenConfig, "role", "scopes", "channels", "streams")
def _check_scopes(token: TokenConfig, path: str, problems: Problems) -> None:
    if token.role is not None:
        for name in ("scopes", "channels", "streams"):
            if getattr(token, name):
                problems.add(child(path, name), f"must be left out: the role {token.role} says it all")
    elif not token.scopes:
        problems.add(
            child(path, "scopes"),
            f"must list at least one of {', '.join(get_args(Scope))}; "
            f"or give a role instead: {', '.join(get_args(Role))}",
        )
    elif NAMED_SCOPES & set(token.scopes) and not (token.channels or token.streams):
        problems.add(path, 'must say where its scopes hold: add channels or streams, e.g. channels: ["*"]')


@_check(ReceiptsConfig, "secret")
def _check_receipts(receipts: ReceiptsConfig, path: str, problems: Problems) -> None:
    if receipts.secret is not None and len(receipts.secret) < _MIN_SECRET_LEN:
        problems.add(child(path, "secret"), f"must have at least {_MIN_SECRET_LEN} characters")


# ---------------------------------------------------------------- telemetry


@_check(TelemetryConfig, "tracing", "ot")
def _check_tracing(telemetry: TelemetryConfig, path: str, problems: Problems) -> None:
    if telemetry.tracing is not None and telemetry.ot.tracing is not None:
        key = child(child(path, "ot"), "tracing")
        problems.add(key, f"means the same as {child(path, 'tracing')}: remove one of them")


_EXPORTER_ADVICE: Final = (
    "set it to false, and let the OTEL_* variables choose the exporter of the installed SDK"
)


@_check(StdoutExporterConfig, "enable")
def _check_stdout(exporter: StdoutExporterConfig, path: str, problems: Problems) -> None:
    if exporter.enable:
        problems.add(child(path, "enable"), f"there is no stdout exporter: {_EXPORTER_ADVICE}")


@_check(GcpExporterConfig, "enable_trace")
def _check_gcp(exporter: GcpExporterConfig, path: str, problems: Problems) -> None:
    if exporter.enable_trace:
        problems.add(child(path, "enableTrace"), f"there is no gcp exporter: {_EXPORTER_ADVICE}")


@_check(BatchConfig, "batch_size", "max_queue_size")
def _check_batch(batch: BatchConfig, path: str, problems: Problems) -> None:
    if batch.batch_size > batch.max_queue_size:
        problems.add(child(path, "batchSize"), "must not be larger than maxQueueSize")


# ---------------------------------------------------------------- the file


@_check(GatewayConfig, "quorum", "storages")
def _check_quorum(config: GatewayConfig, path: str, problems: Problems) -> None:
    count = len(config.storages)
    if isinstance(config.quorum, int) and config.quorum > count:
        found = f"the number of storages, {count}, not {config.quorum}"
        problems.add(child(path, "quorum"), f"must be at most {found}")


@_check(GatewayConfig, "storages")
def _check_directories(config: GatewayConfig, path: str, problems: Problems) -> None:
    stores = [storage.embedded for storage in config.storages.values() if storage.embedded is not None]
    for directory in _twins(str(Path(store.directory).absolute()) for store in stores):
        problems.add(child(path, "storages"), f'two storages have the same directory "{directory}"')


@_check(GatewayConfig, "storages", "http")
def _check_workers(config: GatewayConfig, path: str, problems: Problems) -> None:
    private = next((name for name, storage in config.storages.items() if storage.onmemory is not None), None)
    if config.http.workers > 1 and private is not None:
        reason = f'each process would have its own storage "{private}"'
        problems.add(
            child(child(path, "http"), "workers"), f"must be 1 with onmemory, since {reason}: use embedded"
        )


@_check(GatewayConfig, "tokens")
def _check_token_names(config: GatewayConfig, path: str, problems: Problems) -> None:
    for name in _twins(token.name for token in config.tokens):
        problems.add(child(path, "tokens"), f'two tokens are named "{name}": give each a name of its own')


@_check(GatewayConfig, "webhooks", "channels")
def _check_webhook_names(config: GatewayConfig, path: str, problems: Problems) -> None:
    webhooks = [*config.webhooks, *(webhook for channel in config.channels for webhook in channel.webhooks)]
    for name in _twins(webhook.name for webhook in webhooks if webhook.name is not None):
        problems.add(child(path, "webhooks"), f'two webhooks are named "{name}": give each a name of its own')


@_check(GatewayConfig, "transactions", "http")
def _check_longest_wait(config: GatewayConfig, path: str, problems: Problems) -> None:
    most_ms = config.http.write_timeout_ms + config.http.long_polling_max_timeout_ms
    if (config.transactions.max_wait_ms or 0) > most_ms:
        key = child(child(path, "transactions"), "maxWait")
        problems.add(key, "must not be longer than http.writeTimeout and http.longPollingMaxTimeout together")


def _twins(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
