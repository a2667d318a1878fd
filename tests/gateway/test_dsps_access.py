"""Who may use the DSPS API: JSON Web Tokens by key files, revocation, administrators, proxies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.gateway.conftest import Answer, Headers, Start, Worker, storage_at

SECRET = b"a secret of more than sixty-four bytes, for every kind of HMAC there is, and then some"
ADMIN = [("Authorization", "Bearer sesame")]
ADMIN_AUTH = {"auth": {"bearer": ["sesame"]}}

_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PRIVATE: dict[str, Any] = {
    **dict.fromkeys(("HS256", "HS384", "HS512"), SECRET),
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), _RSA),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def key_file(folder: Path, algorithm: str) -> str:
    key = _PRIVATE[algorithm]
    file = folder / f"{algorithm}.key"
    if isinstance(key, bytes):
        file.write_bytes(key)
    else:
        file.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(file)


def bearer(algorithm: str = "HS256", key: Any = None, **claims: Any) -> Headers:
    token = jwt.encode({"iss": "https://me", **claims}, key or _PRIVATE[algorithm], algorithm=algorithm)
    return [("Authorization", f"Bearer {token}")]


async def try_with(gateway: Worker, headers: Headers, channel: str = "room") -> Answer:
    return await gateway.ask("PUT", f"/channel/{channel}/message/m-1", b"1", headers)


@pytest.fixture
def start_here(starter: Start, request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """On an embedded store: for what no storage has a part in."""

    async def start(**settings: object) -> Worker:
        return await starter(
            **{"storages": {"default": storage_at("embedded", request, tmp_path)}, **settings}
        )

    return start


def rule(folder: Path, *algorithms: str, **settings: Any) -> dict[str, Any]:
    return {
        "iss": ["https://me"],
        "keys": {each: [key_file(folder, each)] for each in algorithms},
        **settings,
    }


# ----------------------------------------------------------------------------- signatures


async def test_every_algorithm(start_here: Start, tmp_path: Path) -> None:
    algorithms = list(_PRIVATE)
    gateway = await start_here(
        channels=[{"regex": each.lower(), "jwt": rule(tmp_path, each)} for each in algorithms]
    )
    for allowed in algorithms:
        for shown in algorithms:
            answer = await try_with(gateway, bearer(shown), allowed.lower())
            assert answer.status == (200 if shown == allowed else 403), (allowed, shown)


async def test_a_signature_of_another_key(start_here: Start, tmp_path: Path) -> None:
    gateway = await start_here(channels=[{"regex": ".+", "jwt": rule(tmp_path, "HS256", "RS256", "EdDSA")}])
    strangers = {
        "HS256": b"another secret of thirty-two bytes or more",
        "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }
    for algorithm, stranger in strangers.items():
        assert (await try_with(gateway, bearer(algorithm, stranger))).status == 403, algorithm
        assert (await try_with(gateway, bearer(algorithm))).status == 200, algorithm


async def test_a_public_key_is_no_secret(start_here: Start, tmp_path: Path) -> None:
    """Signing with HMAC under the public key of a channel that wants RSA."""
    gateway = await start_here(channels=[{"regex": ".+", "jwt": rule(tmp_path, "RS256")}])
    header = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT"}')
    payload = jwt.utils.base64url_encode(b'{"iss":"https://me"}')
    signer = jwt.get_algorithm_by_name("HS256")
    signature = signer.sign(header + b"." + payload, Path(key_file(tmp_path, "RS256")).read_bytes())
    token = b".".join([header, payload, jwt.utils.base64url_encode(signature)]).decode()
    assert (await try_with(gateway, [("Authorization", f"Bearer {token}")])).status == 403


async def test_unsigned_tokens_only_where_they_are_allowed(start_here: Start, tmp_path: Path) -> None:
    channels = [
        {"regex": "open", "jwt": {"iss": ["https://me"], "keys": {"none": []}}},
        {"regex": "room", "jwt": rule(tmp_path, "HS256")},
    ]
    gateway = await start_here(channels=channels)
    token = jwt.encode({"iss": "https://me"}, "", algorithm="none")
    headers = [("Authorization", f"Bearer {token}")]
    assert (await try_with(gateway, headers, "open")).status == 200
    assert (await try_with(gateway, headers, "room")).status == 403


async def test_all_keys_of_an_algorithm_are_tried(start_here: Start, tmp_path: Path) -> None:
    (tmp_path / "old.key").write_bytes(b"the secret of last year, still in use by somebody")
    keys = {"HS256": [str(tmp_path / "old.key"), key_file(tmp_path, "HS256")]}
    gateway = await start_here(channels=[{"regex": ".+", "jwt": {"iss": ["https://me"], "keys": keys}}])
    old = bearer("HS256", b"the secret of last year, still in use by somebody")
    assert (await try_with(gateway, old)).status == 200
    assert (await try_with(gateway, bearer("HS256"))).status == 200


# --------------------------------------------------------------------------------- claims


Claims = dict[str, Any]


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"aud": "events"}, 200),
        ({"aud": ["other", "events"]}, 200),
        ({"aud": "other"}, 403),
        ({"aud": []}, 403),
        ({}, 403),
        ({"aud": "events", "iss": "https://you"}, 403),
        ({"aud": "events", "iss": "https://me/"}, 403),
        ({"aud": "events", "iss": ["https://me"]}, 403),
        ({"aud": "events", "exp": lambda now: now - 9}, 200),
        ({"aud": "events", "exp": lambda now: now - 12}, 403),
        ({"aud": "events", "nbf": lambda now: now + 8}, 200),
        ({"aud": "events", "nbf": lambda now: now + 60}, 403),
        ({"aud": "events", "iat": lambda now: now + 60}, 403),
        ({"aud": "events", "exp": "tomorrow"}, 403),
    ],
)
async def test_issuer_audience_and_times(
    start_here: Start, tmp_path: Path, claims: Claims, status: int
) -> None:
    jwt_rule = rule(tmp_path, "HS256", aud=["events", "more"], clockSkewLeeway="10s")
    gateway = await start_here(channels=[{"regex": ".+", "jwt": jwt_rule}])
    now_s = int(time.time())
    filled = {name: value(now_s) if callable(value) else value for name, value in claims.items()}
    issuer = filled.pop("iss", "https://me")
    token = _encode({"iss": issuer, **filled})
    assert (await try_with(gateway, [("Authorization", f"Bearer {token}")])).status == status


def _encode(claims: Claims) -> str:
    """Also what PyJWT would refuse to sign."""
    return jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, algorithm="HS256", headers={"typ": "JWT"})


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"room": "17", "role": "member"}, 200),
        ({"room": 17, "role": "owner"}, 200),
        ({"room": 17.0, "role": "owner"}, 200),
        ({"room": "18", "role": "member"}, 403),
        ({"room": "17", "role": "guest"}, 403),
        ({"room": "17"}, 403),
        ({"room": ["17"], "role": "member"}, 403),
        ({"room": True, "role": "member"}, 403),
    ],
)
async def test_claims_by_template(start_here: Start, tmp_path: Path, claims: Claims, status: int) -> None:
    jwt_rule = rule(tmp_path, "HS256", claims={"room": "{{.channel.id}}", "role": ["member", "owner"]})
    gateway = await start_here(channels=[{"regex": r"room-(?P<id>\d+)", "jwt": jwt_rule}])
    assert (await try_with(gateway, bearer(**claims), "room-17")).status == status


async def test_rules_of_every_entry_that_matches_must_pass(start_here: Start, tmp_path: Path) -> None:
    channels = [
        {"regex": "room-.*", "jwt": rule(tmp_path, "HS256", claims={"a": "1"})},
        {"regex": ".*-7", "jwt": rule(tmp_path, "HS256", claims={"b": "2"})},
        {"regex": ".*"},
    ]
    gateway = await start_here(channels=channels)
    cases: list[tuple[str, Claims, int]] = [
        ("room-7", {"a": 1, "b": 2}, 200),
        ("room-7", {"a": 1}, 403),
        ("room-7", {"b": 2}, 403),
        ("room-8", {"a": 1}, 200),
        ("hall-7", {"b": 2}, 200),
        ("hall-7", {"a": 1}, 403),
    ]
    for channel, claims, status in cases:
        assert (await try_with(gateway, bearer(**claims), channel)).status == status, (channel, claims)
    assert (await try_with(gateway, [], "hall")).status == 200


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value.removeprefix("Bearer "),
        lambda value: "Basic " + value[7:],
        lambda value: value[:-6],
        lambda value: value + "A",
        lambda value: "Bearer",
        lambda value: "Bearer a.b.c",
        lambda value: "Bearer " + "x" * 20_000,
        lambda value: value.replace(".", "..", 1),
        lambda value: value.rpartition(".")[0] + ".",
    ],
)
async def test_what_is_no_token(start_here: Start, tmp_path: Path, spoil: Callable[[str], str]) -> None:
    gateway = await start_here(channels=[{"regex": ".+", "jwt": rule(tmp_path, "HS256")}])
    [(name, value)] = bearer()
    answer = await try_with(gateway, [(name, spoil(value))])
    assert (answer.status, answer.json) == (403, {"code": "dsps.auth.rejected", "error": "Unauthorized"})


# ------------------------------------------------------------------------------ revocation


async def revoke(gateway: Worker, jti: str, exp_s: int) -> Answer:
    return await gateway.ask("PUT", f"/admin/jwt/revoke?jti={jti}&exp={exp_s}", headers=ADMIN)


async def test_a_revoked_token_is_refused_at_once_by_another_worker(start: Start, tmp_path: Path) -> None:
    settings = {
        "channels": [{"regex": "room", "jwt": rule(tmp_path, "HS256")}, {"regex": "open"}],
        "admin": ADMIN_AUTH,
    }
    here, there = await start(**settings), await start(**settings)
    exp_s = int(time.time()) + 3_600
    good, bad = bearer(jti="good", exp=exp_s), bearer(jti="bad", exp=exp_s)
    for worker in (here, there):
        assert (await try_with(worker, bad)).status == 200, "it is known, and remembered"
    assert (await revoke(here, "bad", exp_s)).status == 200
    for worker in (there, here):
        answer = await try_with(worker, bad)
        assert (answer.status, answer.json["code"]) == (403, "dsps.auth.rejected")
        assert (await try_with(worker, bad, "open")).status == 403, "also where none is needed"
        assert (await try_with(worker, good)).status == 200


async def test_revoking_what_has_expired_does_nothing(start: Start, tmp_path: Path) -> None:
    jwt_rule = rule(tmp_path, "HS256", clockSkewLeeway="5m")
    gateway = await start(channels=[{"regex": ".+", "jwt": jwt_rule}], admin=ADMIN_AUTH)
    now_s = int(time.time())
    assert (await revoke(gateway, "old", now_s - 600)).status == 200
    assert (await try_with(gateway, bearer(jti="old"))).status == 200
    assert (await revoke(gateway, "old", now_s - 200)).status == 200, "within the leeway of a rule"
    assert (await try_with(gateway, bearer(jti="old"))).status == 403


# ------------------------------------------------------------------------ administrators


async def test_administrators_need_the_network_and_the_bearer(start_here: Start) -> None:
    for networks, headers, status in (
        (["127.0.0.0/8"], ADMIN, 200),
        (["127.0.0.0/8"], [], 403),
        (["127.0.0.0/8"], [("Authorization", "Bearer sesam")], 403),
        (["10.0.0.0/8"], ADMIN, 403),
        ([], ADMIN, 200),  # private networks
    ):
        gateway = await start_here(admin={"auth": {"networks": networks, "bearer": ["sesame", "other"]}})
        answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=4000000000", headers=headers)
        assert answer.status == status, (networks, headers)
        if status == 403:
            assert answer.body == b'{"error":""}\n'


async def test_any_of_several_bearers(start_here: Start) -> None:
    gateway = await start_here(admin={"auth": {"bearer": ["sesame", "other"]}})
    for text in ("sesame", "other"):
        headers = [("Authorization", f"Bearer {text}")]
        assert (await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=1", headers=headers)).status == 200


async def test_without_a_bearer_in_the_file_nobody_can_guess_it(start_here: Start) -> None:
    gateway = await start_here()
    for headers in ([], [("Authorization", "Bearer ")], [("Authorization", "Bearer None")]):
        answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=1", headers=headers)
        assert (answer.status, answer.body) == (403, b'{"error":""}\n')
    [made] = gateway.services.config.admin.auth.bearer
    headers = [("Authorization", f"Bearer {made}")]
    assert (await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=1", headers=headers)).status == 200


@pytest.mark.parametrize(
    ("header", "trusted", "sent", "status"),
    [
        # the peer is 127.0.0.1, administrators come from 203.0.113.0/24
        ("X-Forwarded-For", ["127.0.0.0/8"], [("X-Forwarded-For", "203.0.113.5")], 200),
        ("X-Forwarded-For", ["127.0.0.0/8"], [("x-forwarded-for", "8.8.8.8, 203.0.113.5")], 200),
        ("X-Forwarded-For", ["127.0.0.0/8"], [("X-Forwarded-For", "203.0.113.5, 8.8.8.8")], 403),
        ("X-Forwarded-For", ["127.0.0.0/8", "10.0.0.0/8"],
         [("X-Forwarded-For", "203.0.113.5, 10.0.0.1")], 200),
        ("X-Forwarded-For", ["10.0.0.0/8"], [("X-Forwarded-For", "203.0.113.5")], 403),
        ("X-Forwarded-For", ["127.0.0.0/8"], [("X-Forwarded-For", "203.0.113.5, nonsense")], 403),
        ("X-Forwarded-For", ["127.0.0.0/8"], [("X-Real-IP", "203.0.113.5")], 403),
        ("X-Forwarded-For", ["127.0.0.0/8"],
         [("X-Forwarded-For", "8.8.8.8"), ("X-Forwarded-For", "203.0.113.5")], 200),
        ("X-Real-IP", ["127.0.0.0/8"], [("X-Real-IP", "203.0.113.5")], 200),
        ("X-Real-IP", ["127.0.0.0/8"], [("X-Real-IP", "nonsense")], 403),
        ("Forwarded", ["127.0.0.0/8"],
         [("Forwarded", 'for=8.8.8.8, for="203.0.113.5:443";proto=https')], 200),
        ("Forwarded", ["127.0.0.0/8"], [("Forwarded", "for=203.0.113.5, for=8.8.8.8")], 403),
        ("", ["127.0.0.0/8"], [("X-Forwarded-For", "203.0.113.5")], 403),
    ],
)  # fmt: skip
async def test_addresses_behind_proxies(
    start_here: Start, header: str, trusted: list[str], sent: Headers, status: int
) -> None:
    gateway = await start_here(
        http={"realIpHeader": header, "trustedProxyRanges": trusted},
        admin={"auth": {"networks": ["203.0.113.0/24"], "bearer": ["sesame"]}},
    )
    answer = await gateway.ask("PUT", "/admin/jwt/revoke?jti=a&exp=1", headers=[*ADMIN, *sent])
    assert answer.status == status
