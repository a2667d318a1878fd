"""Loading: defaults, the DSPS file format, sources, and what is filled in."""

from __future__ import annotations

import io
import ipaddress
import pickle
import re
import sys
from pathlib import Path

import pytest

from penstock.client.targets import parse_url
from penstock.errors import ConfigError
from penstock.gateway.config import ChannelRules, GatewayConfig, load
from penstock.gateway.config.kinds import PRIVATE_NETWORKS
from penstock.gateway.config.model import OnMemoryStoreConfig, TracingConfig, WebhookRetryConfig
from tests.unit.gateway.config.conftest import LoadText

# A file as the DSPS server takes it, with every one of its blocks.
DSPS_FILE = r"""
storages:
  myRedis1:
    redis:
      singleNode: 'localhost:6379'
      db: 2
      timeout: {connect: 1s, read: 2s, write: 3}
      retry: {count: 0, interval: 250ms, intervalJitter: 0}
      connection: {max: 10, min: 1, maxIdleTime: 1m}
      disablePubSub: true
  myRedis2:
    redis:
      cluster: ['a:7000', 'b:7001']
      username: me
      password: 'p@ss/word'
      db: 1
http:
  port: 3099
  pathPrefix: /foo/bar/
  realIpHeader: 'X-Forwarded-For'
  trustedProxyRanges:
    - 192.168.0.0/16
  discloseAuthRejectionDetail: true
  defaultHeaders:
    pragma: ""
    X-Own: "yes"
  idleTimeout: 1h
  readTimeout: 11
  writeTimeout: 61s
  longPollingMaxTimeout: .5s
  gracefulShutdownTimeout: 0s
logging:
  category:
    auth: warn
    "*": INFO
  attributes:
    machineID: my-machine-id
telemetry:
  ot:
    tracing:
      enable: true
      sampling: 0.003
      batch: {maxQueueSize: 1024, timeout: 4s, batchSize: 256}
      attributes: {host.name: here, answer: 42}
    exporters:
      stdout: {enable: false, quantiles: [0.5]}
      gcp: {enableTrace: false, projectID: ""}
sentry:
  serverName: my-server
  environment: production
  tags: {my_tag: value}
  context: {my_context: value}
  sampleRate: 0.5
  ignoreErrors: ["something .+"]
  disableStacktrace: true
  hideRequestData: true
  flushTimeout: 14s
channels:
  - regex: 'chat-room-(?P<id>\d+)'
    expire: 15m
    webhooks:
      - method: POST
        url: 'http://localhost:3001/you-got-message/room/{{.channel.id}}'
        timeout: 29s
        connection: {max: 5, maxIdleTime: 2m}
        retry: {count: 0, interval: 1s, intervalMultiplier: 2, intervalJitter: 0s, force: true}
        headers:
          User-Agent: My server
          X-Chat-Room-ID: '{{.channel.id}}'
        maxRedirects: 3
      - url: 'http://localhost:3001/plain'
    jwt:
      iss: [https://issuer.example.com/issuer-url]
      aud: [https://my-service.example.com/]
      keys: {none: []}
      claims:
        chatroom: '{{.channel.id}}'
        role: ['admin', 'user']
      clockSkewLeeway: 4m
admin:
  auth:
    networks: [10.1.2.0/8]
    bearer: ['my-api-key']
"""


def test_no_configuration_at_all() -> None:
    config = load(None, environment={"HOME": "/root"})
    assert list(config.storages) == ["default"]
    assert isinstance(config.storages["default"].chosen, OnMemoryStoreConfig)
    policy = ChannelRules(config).match("anything-at-all")
    assert policy is not None
    assert (policy.expire_ms, policy.webhooks, policy.jwt) == (30 * 60_000, (), ())
    auth = config.admin.auth
    assert auth.networks == PRIVATE_NETWORKS
    assert auth.is_bearer_generated
    assert re.fullmatch("[0-9a-f]{32}", auth.bearer[0])
    assert load(None, environment={}).admin.auth.bearer != auth.bearer


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "{}", "http:\nchannels: []\nstorages: {}\nadmin: {auth: }"]
)
def test_an_empty_file_is_the_same_as_none(load_text: LoadText, text: str) -> None:
    fixed = {"PENSTOCK__ADMIN__AUTH__BEARER": "fixed"}
    assert load_text(text, fixed) == load(None, environment=fixed)


def test_defaults_of_the_dsps_format(load_text: LoadText) -> None:
    config = load_text("channels: [{regex: a, webhooks: [{url: http://x/}]}]")
    http = config.http
    assert (http.port, http.listen, http.base_path, http.real_ip_header) == (3000, "", "", "")
    assert http.trusted_proxy_ranges == PRIVATE_NETWORKS
    assert (http.idle_timeout_ms, http.read_timeout_ms, http.write_timeout_ms) == (5_400_000, 10_000, 60_000)
    assert (http.long_polling_max_timeout_ms, http.graceful_shutdown_timeout_ms) == (30_000, 5_000)
    assert http.response_headers["Cache-Control"] == "no-cache, no-store, max-age=0, must-revalidate"
    webhook = config.channels[0].webhooks[0]
    assert (webhook.method, webhook.timeout_ms, webhook.max_redirects) == ("PUT", 30_000, 10)
    assert webhook.retry_plan == WebhookRetryConfig(
        count=3, interval_ms=3_000, interval_multiplier=1.5, interval_jitter_ms=1_500, force=False
    )
    # Documented as 1 there, and 1 here.
    assert config.telemetry.effective_tracing == TracingConfig(enable=False, sampling=1.0)
    assert (config.quorum, config.quorum_size) == ("majority", 1)


def test_a_dsps_file(load_text: LoadText) -> None:
    config = load_text(DSPS_FILE)
    redis = config.storages["myRedis1"].redis
    assert redis is not None
    assert redis.target_url == "redis://localhost:6379/2"
    assert (redis.timeout.connect_ms, redis.timeout.read_ms, redis.timeout.write_ms) == (1_000, 2_000, 3_000)
    assert (redis.retry.count, redis.retry.interval_jitter_ms, redis.disable_pub_sub) == (0, 0, True)
    cluster = config.storages["myRedis2"].redis
    assert cluster is not None
    target = parse_url(cluster.target_url)
    assert (target.kind, target.username, target.password, target.db) == ("cluster", "me", "p@ss/word", 0)
    assert [str(address) for address in target.addresses] == ["a:7000", "b:7001"]

    assert (config.http.port, config.http.base_path) == (3099, "/foo/bar")
    assert (config.http.read_timeout_ms, config.http.long_polling_max_timeout_ms) == (11_000, 500)
    assert "pragma" not in {name.lower() for name in config.http.response_headers}
    assert config.http.response_headers["X-Own"] == "yes"
    assert config.http.response_headers["Expires"] == "0"
    assert config.logging.categories == {"auth": "WARN", "*": "INFO"}
    assert config.telemetry.effective_tracing.sampling == 0.003
    assert config.telemetry.effective_tracing.attributes == {"host.name": "here", "answer": 42}
    assert config.sentry.contexts == {"my_context": "value"}
    assert config.admin.auth.networks == (ipaddress.ip_network("10.0.0.0/8"),)
    assert config.admin.auth.bearer == ("my-api-key",)
    assert not config.admin.auth.is_bearer_generated

    channel = config.channels[0]
    assert channel.expire_ms == 15 * 60_000
    retry = channel.webhooks[0].retry
    assert retry is not None
    assert (retry.count, retry.interval_jitter_ms, retry.force) == (0, 0, True)
    assert channel.jwt is not None
    assert channel.jwt.keys == {"none": ()}
    assert channel.jwt.clock_skew_leeway_ms == 4 * 60_000
    assert [text.text for text in channel.jwt.claims["chatroom"]] == ["{{.channel.id}}"]


def test_spellings_that_were_only_documented(load_text: LoadText) -> None:
    config = load_text("storage: {a: {onmemory: {__disableJwt: true}}}\nsentry: {context: {a: 1}}")
    assert config.storages["a"].onmemory == OnMemoryStoreConfig(disable_jwt=True)
    assert config.sentry.contexts == {"a": 1}


@pytest.mark.parametrize(
    ("text", "size"),
    [("any", 1), ("majority", 2), ("all", 3), ("1", 1), ("3", 3)],
)
def test_quorum(load_text: LoadText, text: str, size: int) -> None:
    stores = "{a: {onmemory: {}}, b: {onmemory: {}}, c: {onmemory: {}}}"
    assert load_text(f"quorum: {text}\nstorages: {stores}").quorum_size == size


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("port: 80", ("", 80)),
        ("listen: ':81'", ("", 81)),
        ("{port: 80, listen: '127.0.0.1:82'}", ("127.0.0.1", 82)),
        ("listen: '[::1]:83'", ("::1", 83)),
    ],
)
def test_where_to_listen(load_text: LoadText, text: str, address: tuple[str, int]) -> None:
    body = text if text.startswith("{") else f"{{{text}}}"
    assert load_text(f"http: {body}").http.address == address


def test_head_and_body_take_the_read_timeout(load_text: LoadText) -> None:
    http = load_text("http: {readTimeout: 20s, bodyTimeout: 7s}").http
    assert (http.effective_header_timeout_ms, http.effective_body_timeout_ms) == (20_000, 7_000)


def test_webhooks_at_the_top_follow_the_standard(load_text: LoadText) -> None:
    config = load_text(
        "webhooks: [{regex: a, url: http://x/}, {regex: a, url: http://x/, retry: {count: 1}},"
        " {regex: a, url: http://x/, schedule: retry}]\n"
        "channels: [{regex: a, webhooks: [{url: http://x/, schedule: standard}]}]"
    )
    standard, own, default = config.webhooks
    assert standard.method == "POST"
    assert standard.retry_plan is None
    assert own.retry_plan == WebhookRetryConfig(count=1)
    assert default.retry_plan == WebhookRetryConfig()
    assert config.channels[0].webhooks[0].retry_plan is None


@pytest.mark.parametrize(
    ("webhook", "may"),
    [
        ("url: 'http://localhost/{{.channel.a}}'", True),
        ("url: 'http://{{.channel.a}}.example.com/'", False),
        ("url: 'http://{{.channel.a}}.example.com/', allowPrivateNetworks: true", True),
        ("url: 'http://localhost/', allowPrivateNetworks: false", False),
    ],
)
def test_a_template_for_the_host_keeps_private_networks_closed(
    load_text: LoadText, webhook: str, may: bool
) -> None:
    config = load_text(f"webhooks: [{{regex: '(?P<a>.+)', {webhook}}}]")
    assert config.webhooks[0].may_call_private_networks is may


def test_tokens_by_secret_and_by_digest_are_the_same(load_text: LoadText) -> None:
    digest = "5fd924625f6ab16a19cc9807c7c506ae1813490e4ba675f843d5a10e0baacdb8"
    config = load_text(
        "tokens:\n"
        "  - {name: a, secret: 'sixteen-letters!', scopes: [admin]}\n"
        f"  - {{name: b, sha256: '{digest.upper()}', scopes: [publish], channels: ['*']}}\n"
    )
    assert len({token.digest for token in config.tokens}) == 2
    assert config.tokens[1].digest.hex() == digest


def test_yaml_of_today(load_text: LoadText) -> None:
    config = load_text(
        "logging: {attributes: {a: no, b: 12:30, c: 2026-01-02, d: on}}\nhttp: {limits: {burst: 0x10}}"
    )
    assert config.logging.attributes == {"a": "no", "b": "12:30", "c": "2026-01-02", "d": "on"}
    assert config.http.limits.burst == 16


def test_anchors_and_merges(load_text: LoadText) -> None:
    config = load_text(
        "channels:\n  - &base {regex: a, expire: 1h}\n  - {<<: *base, regex: b}\n  - *base\n", {"X": "1"}
    )
    assert [(each.regex.pattern, each.expire_ms) for each in config.channels] == [
        ("a", 3_600_000),
        ("b", 3_600_000),
        ("a", 3_600_000),
    ]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfhttp: {port: 81}")))
    assert load("-", environment={}).http.port == 81


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'cannot read the configuration ".*missing\.yml": No such file'):
        load(tmp_path / "missing.yml", environment={})
    (tmp_path / "latin.yml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match=r"latin\.yml: is not UTF-8 at byte 3"):
        load(tmp_path / "latin.yml", environment={})


def test_a_configuration_travels_to_other_processes(load_text: LoadText) -> None:
    config = load_text(DSPS_FILE)
    copy: GatewayConfig = pickle.loads(pickle.dumps(config))
    assert copy == config


def test_nothing_secret_in_the_representation(load_text: LoadText) -> None:
    text = repr(
        load_text(
            "storages: {a: {redis: {url: 'redis://:hush-url@h'}},"
            " b: {redis: {singleNode: 'h:1', password: hush-pw}}}\n"
            "admin: {auth: {bearer: [hush-bearer]}}\nreceipts: {secret: hush-receipt-secret}\n"
            "tokens: [{name: t, secret: hush-token-secret, scopes: [admin]}]\n"
            "webhooks: [{regex: a, url: http://x/, secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]"
        )
    )
    assert "hush" not in text
    assert "whsec_" not in text
