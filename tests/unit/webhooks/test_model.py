"""Bodies, headers, definitions of endpoints, names of keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import ConfigError, StoreCorruptError, UsageError
from penstock.protocol.slots import key_slot
from penstock.webhooks.endpoints import ConfiguredEndpoints, Endpoint
from penstock.webhooks.keys import WebhookKeys, delivery_id
from penstock.webhooks.model import checked_headers, delivery_from, event_body
from penstock.webhooks.signing import new_key_pair, new_secret


def test_the_body_of_an_event_keeps_its_data_as_it_is() -> None:
    body = event_body("order.created", "2026-01-01T00:00:00Z", b'{"b": 1.0, "a": "\xc3\xa9"}')
    assert b'"data":{"b": 1.0, "a": "\xc3\xa9"}' in body
    assert list(json.loads(body)) == ["type", "timestamp", "data"]


@pytest.mark.parametrize("data", [b"", b"{", b'1,"admin":true', b"{}}", b"nope"])
def test_data_that_would_break_out_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="data_json"):
        event_body("order.created", "2026-01-01T00:00:00Z", data)


@pytest.mark.parametrize(
    "headers",
    [
        {"x\r\ny": "1"}, {"x": "1\r\nhost: y"}, {"x": "1\n"}, {"x": "a\0"}, {"": "1"}, {"x y": "1"},
        {"x:": "1"},
        {"x": "ä"}, {"Host": "inner"}, {"Content-Length": "0"}, {"Transfer-Encoding": "chunked"},
        {"webhook-id": "forged"}, {"WEBHOOK-SIGNATURE": "v1,x"}, {"X-A": "1", "x-a": "2"}, {"x": "a" * 4097},
        {f"x-{number}": "" for number in range(65)}, {"Connection": "upgrade"},
    ],
)  # fmt: skip
def test_headers_that_must_not_be_sent(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="headers"):
        checked_headers(headers)
    with pytest.raises(ConfigError, match="headers"):
        Endpoint(id="a", url="https://example.com", headers=headers)


def test_other_headers_are_kept() -> None:
    given = {"X-Tenant": " a b ", "Authorization": "Bearer x"}
    assert checked_headers(given) == {"x-tenant": "a b", "authorization": "Bearer x"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": ""}, "^id"), ({"id": "a b"}, "^id"), ({"id": "a\n"}, "^id"), ({"id": "x" * 201}, "^id"),
        ({"id": "ä"}, "^id"), ({"method": "GET"}, "^method"), ({"method": "post"}, "^method"),
        ({"url": "ftp://x"}, "^url"), ({"url": "http://u@x/"}, "^url"), ({"secrets": ("short",)}, "secret"),
        ({"secrets": (new_key_pair()[1],)}, "whpk_"), ({"secrets": (new_secret(),) * 9}, "secrets"),
        ({"timeout_ms": 0}, "timeout_ms"), ({"timeout_ms": 300_001}, "timeout_ms"),
        ({"max_in_flight": 0}, "max_in_flight"), ({"max_pending": 0}, "max_pending"),
        ({"allowed_networks": ("10.0.0.1/8",)}, "allowed_networks"),
    ],
)  # fmt: skip
def test_endpoints_that_make_no_sense(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Endpoint(**{"id": "a", "url": "https://example.com", **change})


def test_an_endpoint_does_not_tell_its_secrets() -> None:
    secret = new_secret()
    endpoint = Endpoint(
        id="a",
        url="https://example.com/x?token=hidden",
        secrets=(secret,),
        headers={"authorization": "hidden"},
    )
    for text in (
        repr(endpoint),
        str(endpoint),
        f"{endpoint}",
        str([endpoint]),
        str(list(endpoint.__rich_repr__())),
    ):
        assert secret not in text
        assert "hidden" not in text


async def test_configured_endpoints_come_first() -> None:
    a, other_a, b = (
        Endpoint(id=name, url=f"https://{host}.example")
        for name, host in (("a", "x"), ("a", "y"), ("b", "z"))
    )
    source = ConfiguredEndpoints({"a": a}, ConfiguredEndpoints({"a": other_a, "b": b}))
    assert [await source.get(name) for name in ("a", "b", "c")] == [a, b, None]
    with pytest.raises(ConfigError, match="endpoints"):
        ConfiguredEndpoints({"b": a})


def test_all_keys_of_a_queue_share_a_slot() -> None:
    keys = WebhookKeys("shop")
    assert len({key_slot(key.encode()) for key in (*keys.all, keys.endpoints)}) == 1
    assert len(set(keys.all)) == 10
    assert not set(keys.all) & set(WebhookKeys().all)
    assert WebhookKeys().topic == "webhooks.due"
    for name in ("", "a}b", "a b", "x" * 65):
        with pytest.raises(ConfigError, match="name"):
            WebhookKeys(name)


def test_the_id_of_a_delivery_tells_pairs_apart() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "b"), ("a", "b c"), ("ab", "c"), ("a", "bc")]
    assert len({delivery_id(*pair) for pair in pairs}) == len(pairs)
    assert delivery_id("a", "b") == delivery_id("a", "b")


def test_records_of_others_are_called_corrupt() -> None:
    for packed in (b"", b"\xc1", b"\x80", b"\x81\xa2id\x01"):
        with pytest.raises(StoreCorruptError):
            delivery_from(packed)
