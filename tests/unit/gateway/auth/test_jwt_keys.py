"""Keys that are refused when they are configured, so that no token can abuse them later."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from penstock.errors import ConfigError
from penstock.gateway.auth.keys import ALGORITHMS, load_key, load_keys
from tests.unit.gateway.auth.signing import SECRET, private_key, private_pem, public_der, public_pem, sign


def certificate(kind: str) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key(kind).public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .sign(private_key(kind), hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def without_armour(pem: bytes) -> bytes:
    return b"".join(line for line in pem.splitlines() if not line.startswith(b"-----"))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("kind", ["rsa", "p256", "ed25519"])
def test_what_is_public_is_never_a_secret(algorithm: str, kind: str) -> None:
    pem = public_pem(kind)
    spellings = [
        pem,
        b"\n  " + pem,
        pem.replace(b"\n", b"\r\n"),
        pem.partition(b"-----END")[0],
        without_armour(pem),
        public_der(kind),
        private_pem(kind),
    ]
    for spelling in spellings:
        with pytest.raises(ConfigError, match=f"keys.{algorithm}.*not a shared secret"):
            load_key(algorithm, spelling)


def test_other_wrappings_of_public_keys() -> None:
    pem = certificate("rsa")
    for spelling in (pem, base64.b64decode(without_armour(pem)), without_armour(pem)):
        with pytest.raises(ConfigError, match="not a shared secret"):
            load_key("HS256", spelling)
    for spelling in (b"ssh-rsa AAAAB3NzaC1yc2E=", json.dumps({"kty": "RSA", "n": "x", "e": "AQAB"})):
        with pytest.raises(ConfigError, match="not one for this algorithm"):
            load_key("HS256", spelling)


@pytest.mark.parametrize("empty", ["", b"", " \n"])
def test_empty_secrets(empty: str | bytes) -> None:
    with pytest.raises(ConfigError, match="secret is empty"):
        load_key("HS256", empty)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", SECRET),
        ("RS256", b""),
        ("RS256", public_pem("p256")),
        ("PS512", public_pem("ed25519")),
        ("ES256", public_pem("rsa")),
        ("ES256", public_pem("p384")),
        ("ES384", public_pem("p521")),
        ("ES512", public_pem("p256")),
        ("EdDSA", public_pem("p256")),
        ("RS256", public_pem("short-rsa")),
        ("RS256", private_pem("rsa")),
        ("EdDSA", private_pem("ed25519")),
        ("RS256", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
    ],
)
def test_keys_of_another_kind(algorithm: str, key: bytes) -> None:
    with pytest.raises(ConfigError, match=f"keys.{algorithm}: "):
        load_key(algorithm, key)


def test_a_certificate_gives_its_key() -> None:
    head, _, signature = sign({}, "RS256", private_key("rsa")).rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    assert load_key("RS256", certificate("rsa")).verifies(head.encode(), raw)
    assert not load_key("RS256", certificate("rsa")).verifies(head.encode() + b"x", raw)


def test_lists_of_keys() -> None:
    for keys, words in (
        ({"RS999": [SECRET]}, "'RS999' is no algorithm"),
        ({"ES256K": [SECRET]}, "no algorithm"),
        ({"HS256": []}, "keys.HS256 is empty"),
        ({"HS256": SECRET}, "must be a list"),
        ({"none": [SECRET]}, "keys.none must be an empty list"),
        ({"RS256": [load_key("PS256", public_pem("rsa"))]}, "loaded for PS256"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_keys(keys)  # type: ignore[arg-type]
    assert len(ALGORITHMS) == 14


def test_a_key_does_not_show_itself() -> None:
    assert repr(load_key("HS256", SECRET)) == "<VerifyingKey HS256>"
