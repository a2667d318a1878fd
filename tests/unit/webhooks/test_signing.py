"""Signatures: what we sign others verify, what others sign we verify, and nothing else passes."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
import standardwebhooks

from penstock.clock import ManualClock, SystemClock
from penstock.errors import AuthenticationError, ConfigError, UsageError
from penstock.webhooks import signing

BODY = '{"type":"order.created","data":{"name":"Zoë"}}'.encode()
NOW_S = 1_700_000_000


def clock_at(seconds: int) -> ManualClock:
    return ManualClock(seconds * 1000)


def secret_of(size_bytes: int) -> str:
    return "whsec_" + base64.b64encode(bytes(range(size_bytes))).decode()


@pytest.mark.parametrize("size_bytes", [24, 32, 64])
def test_the_reference_library_accepts_our_signature(size_bytes: int) -> None:
    secret = signing.new_secret(size_bytes)
    headers = signing.signed_headers([secret], "msg_1", SystemClock().now_ms() // 1000, BODY)
    assert standardwebhooks.Webhook(secret).verify(BODY, headers)["type"] == "order.created"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(BODY + b" ", headers)


def test_we_accept_the_signature_of_the_reference_library() -> None:
    secret = signing.new_secret()
    at = datetime.fromtimestamp(NOW_S, tz=UTC)
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(NOW_S),
        "Webhook-Signature": standardwebhooks.Webhook(secret).sign("msg_1", at, BODY.decode()),
    }
    assert signing.verify([secret], headers, BODY, clock=clock_at(NOW_S)) == "msg_1"


def test_each_secret_of_a_rotation_fits() -> None:
    old, new, (private, public) = signing.new_secret(), signing.new_secret(), signing.new_key_pair()
    headers = signing.signed_headers([new, old, private], "msg_1", NOW_S, BODY)
    assert [part.partition(",")[0] for part in headers["webhook-signature"].split(" ")] == ["v1", "v1", "v1a"]
    for key in (old, new, public, private):
        assert signing.verify([key], headers, BODY, clock=clock_at(NOW_S)) == "msg_1"
    for key in (signing.new_secret(), signing.new_key_pair()[1]):
        with pytest.raises(AuthenticationError, match="fits"):
            signing.verify([key], headers, BODY, clock=clock_at(NOW_S))


@pytest.mark.parametrize("kind", ["v1", "v1a"])
@pytest.mark.parametrize("what", ["body", "id", "timestamp", "signature"])
def test_any_change_is_found(kind: str, what: str) -> None:
    key = signing.new_secret() if kind == "v1" else signing.new_key_pair()[0]
    headers = signing.signed_headers([key], "msg_1", NOW_S, BODY)
    body = BODY
    match what:
        case "body":
            body = BODY.replace(b"created", b"deleted")
        case "id":
            headers["webhook-id"] = "msg_2"
        case "timestamp":
            headers["webhook-timestamp"] = str(NOW_S + 1)
        case "signature":
            raw = bytearray(base64.b64decode(headers["webhook-signature"].partition(",")[2]))
            raw[0] ^= 1
            headers["webhook-signature"] = f"{kind}," + base64.b64encode(raw).decode()
    with pytest.raises(AuthenticationError, match="fits"):
        signing.verify([key], headers, body, clock=clock_at(NOW_S))


@pytest.mark.parametrize("off_s", [-301, 301])
def test_old_and_future_messages_are_refused(off_s: int) -> None:
    secret = signing.new_secret()
    headers = signing.signed_headers([secret], "msg_1", NOW_S, BODY)
    inside_s = off_s - off_s // abs(off_s)
    assert signing.verify([secret], headers, BODY, clock=clock_at(NOW_S + inside_s)) == "msg_1"
    with pytest.raises(AuthenticationError, match="300 s"):
        signing.verify([secret], headers, BODY, clock=clock_at(NOW_S + off_s))
    wide = signing.verify([secret], headers, BODY, clock=clock_at(NOW_S + off_s), tolerance_s=400)
    assert wide == "msg_1"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    secret = signing.new_secret()
    headers = signing.signed_headers([secret], "msg_1", NOW_S, BODY)
    del headers[name]
    with pytest.raises(AuthenticationError, match=name):
        signing.verify([secret], headers, BODY, clock=clock_at(NOW_S))


@pytest.mark.parametrize(
    "signature", ["", "v1", "v1,", "v1,%%%", "v2,AAAA", ",", " ", "v1,AAAA v1,BBBB", "v1a,AAAA", "v1 " * 5000]
)
def test_odd_signatures_are_refused(signature: str) -> None:
    headers = {
        "webhook-id": "msg_1", "webhook-timestamp": str(NOW_S), "webhook-signature": signature,
    }  # fmt: skip
    with pytest.raises(AuthenticationError):
        signing.verify(
            [signing.new_secret(), signing.new_key_pair()[1]], headers, BODY, clock=clock_at(NOW_S)
        )


@pytest.mark.parametrize("timestamp", ["soon", "1.5", "-5", "٣", "1e9", "9" * 30, " 1700000000"])
def test_odd_timestamps_are_refused(timestamp: str) -> None:
    headers = {"webhook-id": "m", "webhook-timestamp": timestamp, "webhook-signature": "v1,AAAA"}
    with pytest.raises(AuthenticationError, match="seconds"):
        signing.verify([signing.new_secret()], headers, BODY, clock=clock_at(NOW_S))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (secret_of(23), "24 to 64"),
        (secret_of(65), "24 to 64"),
        ("whsec_", "24 to 64"),
        ("whsec_!!!!", "base64"),
        ("whsec_" + "ä" * 40, "base64"),
        ("a passphrase of great length", "whsec_"),
        (base64.b64encode(bytes(32)).decode(), "whsec_"),
        ("whsk_" + base64.b64encode(bytes(31)).decode(), "32 or 64"),
        ("whsk_" + base64.b64encode(bytes(64)).decode(), "halves"),
        ("whpk_" + base64.b64encode(bytes(31)).decode(), "32 bytes"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        signing.parse_key(text)
    secret = text.rpartition("_")[2]
    assert not secret or secret not in str(refusal.value)
    assert "raw" not in repr(signing.parse_key(secret_of(24)))


def test_keys_in_their_other_forms() -> None:
    assert signing.parse_key(secret_of(25)) == signing.parse_key(secret_of(25).rstrip("="))
    private, public = signing.new_key_pair()
    halves = base64.b64decode(private[5:]) + base64.b64decode(public[5:])
    assert signing.public_key("whsk_" + base64.b64encode(halves).decode()) == public
    with pytest.raises(ConfigError, match="whsk_"):
        signing.public_key(public)
    with pytest.raises(ConfigError, match="whpk_"):
        signing.sign([public], "msg_1", NOW_S, BODY)


@pytest.mark.parametrize(
    ("event", "is_kept"),
    [
        ("msg_2f-7", True), ("a/b:c", True), ("x" * 256, True),
        ("a.b", False), ("a b", False), ("a,b", False), ("a\r\nx: y", False), ("ä", False),
        ("x" * 257, False),
    ],
)  # fmt: skip
def test_the_id_of_any_event_can_be_sent_and_signed(event: str, is_kept: bool) -> None:
    message_id = signing.webhook_id(event)
    assert (message_id == event) is is_kept
    assert message_id == signing.webhook_id(event)
    assert signing.sign([secret_of(24)], message_id, NOW_S, BODY)
    assert signing.webhook_id("a.b") != signing.webhook_id("a.c")


def test_a_dot_or_too_many_secrets_cannot_be_signed() -> None:
    with pytest.raises(UsageError, match="dot"):
        signing.sign([secret_of(24)], "a.1", NOW_S, BODY)
    for secrets in ([], [secret_of(24)] * 9):
        with pytest.raises(UsageError, match="1 to 8"):
            signing.sign(secrets, "a", NOW_S, BODY)
    assert "webhook-signature" not in signing.signed_headers([], "a", NOW_S, BODY)
