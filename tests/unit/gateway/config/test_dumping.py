"""Dumps load to the same configuration; without being asked, they show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.configuration.yamltext import format_yaml, parse_yaml
from penstock.gateway.config import dump, load
from tests.unit.gateway.config.conftest import LoadText
from tests.unit.gateway.config.test_loading import DSPS_FILE

ODD_FILE = r"""
storages: {"1e3": {redis: {url: "redis://me:hush-url@h/1"}}, "no": {embedded: {directory: "a: b # c"}}}
quorum: 1
http: {defaultHeaders: {Expires: "", X-A: "$${HOME}"}, readTimeout: 1.0005}
channels:
  - regex: '(?P<a>[0-9]{1,3}$${)|(?P<b>.+)'
    webhooks: [{url: 'https://h/{{ .channel.a }}', headers: {Authorization: 'hush {{.channel.b}}', X-B: '1'}}]
    jwt: {iss: ["null"], keys: {HS256: [KEYFILE]}, claims: {a: "true", b: ["1e3", "0o7", "~"]}}
webhooks: [{regex: '.', url: 'http://h/', secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw], schedule: retry}]
tokens: [{name: t, secret: "hush: $${hush} hush", scopes: [read], streams: ["*"]}]
admin: {auth: {bearer: ["hush-0123"], networks: [fc00::/8]}}
receipts: {secret: hush-hush-hush-hush}
telemetry: {tracing: {attributes: {a: [1, 2.5, null, {b: "yes"}]}}}
logging: {attributes: {a: "", b: " x ", c: "é\n"}}
"""


@pytest.mark.parametrize("text", ["", DSPS_FILE, ODD_FILE], ids=["nothing", "dsps", "odd"])
def test_with_secrets_it_loads_to_the_same(load_text: LoadText, tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_bytes(b"hush-key")
    config = load_text(text.replace("KEYFILE", str(tmp_path / "key")))
    again = load_text(dump(config, with_secrets=True), {"HOME": "/root", "SENTRY_DSN": ""})
    assert again == config
    assert dump(again, with_secrets=True) == dump(config, with_secrets=True)


def test_without_secrets(load_text: LoadText, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"hush-key")
    text = dump(load_text(ODD_FILE.replace("KEYFILE", str(tmp_path / "key"))))
    assert "hush" not in text
    assert "whsec_" not in text
    tree = yaml.safe_load(text)
    assert tree["storages"]["1e3"]["redis"]["url"] == "redis://me:***@h:6379/1"
    assert tree["storages"]["1e3"]["redis"]["password"] == ""
    assert tree["channels"][0]["webhooks"][0]["headers"] == {"Authorization": "***", "X-B": "1"}
    assert tree["admin"]["auth"]["bearer"] == ["***"]
    assert tree["http"]["readTimeout"] == "1s1ms"


def test_the_random_bearer_is_a_secret(load_text: LoadText) -> None:
    config = load(None, environment={})
    assert config.admin.auth.bearer[0] not in dump(config)
    assert config.admin.auth.bearer[0] in dump(config, with_secrets=True)


def test_a_secret_that_looks_like_a_url_is_masked_as_a_whole(load_text: LoadText) -> None:
    text = dump(load_text("admin: {auth: {bearer: ['redis://hush', 'hush://x']}}"))
    assert "hush" not in text


def test_a_dump_without_sentry_does_not_ask_for_it(load_text: LoadText) -> None:
    assert "sentry" not in dump(load_text(""))
    assert "sentry" in dump(load_text("sentry: {environment: x}"))


@given(st.text() | st.floats(allow_nan=False) | st.integers() | st.booleans() | st.none())
def test_every_scalar_comes_back_as_it_was(value: object) -> None:
    again = parse_yaml(format_yaml({"a": value}), "test")["a"]
    assert again == value
    assert type(again) is type(value)
