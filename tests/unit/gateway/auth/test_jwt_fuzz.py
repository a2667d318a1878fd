"""Whatever a bearer is, verifying ends in claims or in AuthRejected."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.auth.decisions import AuthRejected
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier
from tests.unit.gateway.auth.signing import ISSUER, NOW_S, SECRET, b64, crooked, public_pem, sign

RULE = JwtRule(
    [ISSUER],
    ["a"],
    {
        "HS256": [SECRET],
        "RS256": [public_pem("rsa")],
        "PS256": [public_pem("rsa")],
        "ES256": [public_pem("p256")],
        "EdDSA": [public_pem("ed25519")],
    },
    {"room": ["lobby", "1", "true"]},
)
VERIFIER = JwtVerifier(cache_entries=16)
GOOD = sign({"iss": ISSUER, "aud": "a", "room": "lobby"})

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
claims = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.just(ISSUER) | values,
        "aud": st.just("a") | st.just(["a"]) | values,
        "room": st.sampled_from(["lobby", 1, True]) | values,
        "exp": values,
        "nbf": values,
        "iat": values,
        "jti": values,
        "more": values,
    },
)
algorithms = st.sampled_from(["HS256", "RS256", "PS256", "ES256", "EdDSA", "none"]) | st.text(max_size=5)


def passes(token: str, now_s: float = NOW_S) -> bool:
    VERIFIER.jti_of(token)
    try:
        said = VERIFIER.verify(token, [RULE], now_s)
    except AuthRejected:
        return False
    assert said["iss"] == ISSUER
    assert said["aud"] == "a" or "a" in said["aud"]
    assert said["room"] in ("lobby", 1, True)
    assert isinstance(said.get("jti", ""), str)
    return True


@given(st.text())
def test_any_text(text: str) -> None:
    assert not passes(text)


@given(st.binary(), st.binary(), st.binary())
def test_any_three_parts(header: bytes, body: bytes, signature: bytes) -> None:
    assert not passes(f"{b64(header)}.{b64(body)}.{b64(signature)}")


@settings(max_examples=300)
@given(algorithms, claims, st.binary(max_size=600))
def test_any_signature_of_any_algorithm(algorithm: str, said: dict[str, Any], signature: bytes) -> None:
    header = b64(json.dumps({"alg": algorithm}).encode("utf-8", "surrogatepass"))
    body = b64(json.dumps(said).encode("utf-8", "surrogatepass"))
    assert not passes(f"{header}.{body}.{b64(signature)}")


@settings(max_examples=500)
@given(claims, st.floats(0, 4e9))
def test_any_claims_that_are_well_signed(said: dict[str, Any], now_s: float) -> None:
    """These may pass; ``passes`` asserts that what passes is what the rule wants."""
    passes(crooked(json.dumps(said)), now_s)


@given(st.integers(0, len(GOOD) - 1), st.characters())
def test_any_change_of_a_character(at: int, character: str) -> None:
    assert passes(GOOD)
    changed = GOOD[:at] + character + GOOD[at + 1 :]
    assert passes(changed) == (changed == GOOD)
