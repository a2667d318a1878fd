"""Tokens against rules: what passes, and every trick that must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import ConfigError, UsageError
from penstock.gateway.auth.decisions import AuthRejected, Rejection
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier, claim_text
from tests.unit.gateway.auth.signing import (
    ISSUER,
    NOW_S,
    OTHER_SECRET,
    SECRET,
    b64,
    crooked,
    private_key,
    public_pem,
    sign,
)

SIGNERS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "rsa"),
    "ES256": "p256",
    "ES384": "p384",
    "ES512": "p521",
}


def rule(**changes: Any) -> JwtRule:
    settings: dict[str, Any] = {
        "issuers": [ISSUER],
        "audiences": [],
        "keys": {"HS256": [SECRET]},
        "leeway_s": 10,
    }
    return JwtRule(**(settings | changes))


def verify(token: str, *rules: JwtRule, now_s: float = NOW_S) -> Any:
    return JwtVerifier().verify(token, rules or [rule()], now_s)


def claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, **more}


# ------------------------------------------------------------------------- what passes


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_secrets(algorithm: str) -> None:
    keyed = rule(keys={algorithm: [SECRET]})
    assert verify(sign(claims(a=1), algorithm), keyed) == claims(a=1)
    with pytest.raises(AuthRejected, match="signature"):
        verify(sign(claims(), algorithm, OTHER_SECRET), keyed)


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_key_pairs(algorithm: str) -> None:
    kind = SIGNERS[algorithm]
    keyed = rule(keys={algorithm: [public_pem(kind)]})
    assert verify(sign(claims(), algorithm, private_key(kind)), keyed) == claims()
    with pytest.raises(AuthRejected, match="signature"):
        verify(sign(claims(), algorithm, private_key(kind, 1)), keyed)


@pytest.mark.parametrize("kind", ["ed25519", "ed448"])
def test_edwards_curves(kind: str) -> None:
    keyed = rule(keys={"EdDSA": [public_pem(kind)]})
    assert verify(sign(claims(), "EdDSA", private_key(kind)), keyed) == claims()
    with pytest.raises(AuthRejected, match="signature"):
        verify(sign(claims(), "EdDSA", private_key(kind, 1)), keyed)


def test_every_key_of_the_algorithm_is_tried() -> None:
    keyed = rule(keys={"HS256": [OTHER_SECRET, SECRET], "RS256": [public_pem("rsa", 1), public_pem("rsa")]})
    assert verify(sign(claims()), keyed)
    assert verify(sign(claims(), "RS256", private_key("rsa")), keyed)


def test_all_rules_must_pass() -> None:
    lobby, staff = rule(claims={"room": "lobby"}), rule(claims={"role": "staff"})
    assert verify(sign(claims(room="lobby", role="staff")), lobby, staff)
    with pytest.raises(AuthRejected, match="role"):
        verify(sign(claims(room="lobby")), lobby, staff)
    with pytest.raises(AuthRejected, match="room"):
        verify(sign(claims(role="staff")), lobby, staff)
    with pytest.raises(AuthRejected, match="signature"):
        verify(sign(claims(room="lobby")), lobby, rule(keys={"HS256": [OTHER_SECRET]}))


def test_without_rules_nothing_is_verified() -> None:
    with pytest.raises(UsageError):
        JwtVerifier().verify(sign(claims()), [], NOW_S)


# ---------------------------------------------------------------------------- algorithms


def unsigned(algorithm: str = "none") -> str:
    return f"{b64(json.dumps({'alg': algorithm}).encode())}.{b64(json.dumps(claims()).encode())}."


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS255", "hs256", "ES256K", "dir"])
def test_unsigned_and_unknown_algorithms(algorithm: str) -> None:
    with pytest.raises(AuthRejected, match="algorithm is not one of HS256"):
        verify(unsigned(algorithm))


def test_unsigned_where_it_was_asked_for() -> None:
    open_to_all = rule(keys={"none": []})
    assert verify(unsigned(), open_to_all) == claims()
    with pytest.raises(AuthRejected, match="signature"):
        verify(unsigned() + b64(b"x"), open_to_all)
    with pytest.raises(AuthRejected, match="algorithm"):
        verify(unsigned("None"), open_to_all)
    with pytest.raises(AuthRejected, match="algorithm"):
        verify(sign(claims()), open_to_all)


def test_a_public_key_does_not_become_a_secret() -> None:
    """The classic: sign with HMAC, the public key as the secret, and say HS256."""
    pem = public_pem("rsa")
    for spelling in (pem, pem.strip(), pem.decode().replace("\n", "\r\n").encode()):
        forged = crooked(claims(), secret=spelling)
        with pytest.raises(AuthRejected, match="algorithm is not one of RS256"):
            verify(forged, rule(keys={"RS256": [pem]}))
        with pytest.raises(AuthRejected, match="signature"):
            verify(forged, rule(keys={"RS256": [pem], "HS256": [SECRET]}))


def test_an_algorithm_is_not_another_one() -> None:
    pem = public_pem("rsa")
    with pytest.raises(AuthRejected, match="algorithm"):
        verify(sign(claims(), "PS256", private_key("rsa")), rule(keys={"RS256": [pem]}))
    signed = sign(claims(), "PS256", private_key("rsa")).split(".")
    renamed = ".".join([b64(b'{"alg":"RS256"}'), *signed[1:]])
    with pytest.raises(AuthRejected, match="signature"):
        verify(renamed, rule(keys={"RS256": [pem]}))


@pytest.mark.parametrize("name", ["kid", "jku", "jwk", "x5u", "x5c", "typ", "cty"])
def test_other_headers_choose_nothing(name: str) -> None:
    """Whatever a token says of its key, it is checked with ours."""
    for value in (
        "../../dev/null",
        "https://evil.example/keys",
        {"kty": "oct", "k": b64(OTHER_SECRET)},
        None,
    ):
        header = {"alg": "HS256", name: value}
        assert verify(crooked(claims(), header)) == claims()
        with pytest.raises(AuthRejected, match="signature"):
            verify(crooked(claims(), header, OTHER_SECRET))


@pytest.mark.parametrize("critical", [["b64"], [], None, "exp"])
def test_extensions_are_refused(critical: Any) -> None:
    with pytest.raises(AuthRejected, match="extensions"):
        verify(crooked(claims(), {"alg": "HS256", "crit": critical, "b64": False}))


# ------------------------------------------------------------------------------ spelling

GOOD = crooked(claims())
HEADER, BODY, SIGNATURE = GOOD.split(".")


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "ä.ö.ü",
        "\ud800.\ud800.\ud800",
        "\x00",
        HEADER,
        f"{HEADER}.{BODY}",
        f"{HEADER}.{BODY}.",  # empty signature
        f"{HEADER}.{BODY}.{SIGNATURE}.",
        f"{HEADER}.{BODY}.{SIGNATURE}.{SIGNATURE}",
        f"{HEADER}..{SIGNATURE}",
        f".{BODY}.{SIGNATURE}",
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}=",
        f"{HEADER}=.{BODY}.{SIGNATURE}",
        f"{HEADER}.{BODY}.{SIGNATURE[:-1]}",
        f"{HEADER}.{BODY}.{SIGNATURE[:-1]}+",
        f"{HEADER}.{BODY}.{SIGNATURE}A",
        f"{HEADER}.{BODY}!.{SIGNATURE}",
        f"{HEADER}.{BODY}.{SIGNATURE[::-1]}",
        f"Bearer {GOOD}",
    ],
)
def test_misspelt(token: str) -> None:
    verify(GOOD)
    with pytest.raises(AuthRejected):
        verify(token)


def test_one_spelling_of_a_signature() -> None:
    """The last character of 32 bytes has two bits to spare; only zeros are accepted there."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(SIGNATURE[-1])
    assert last % 4 == 0
    with pytest.raises(AuthRejected, match="base64url"):
        verify(f"{HEADER}.{BODY}.{SIGNATURE[:-1]}{alphabet[last + 1]}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"{",
        b"{}{}",
        b'\xef\xbb\xbf{"iss":"%s"}' % ISSUER.encode(),
        json.dumps(claims()).encode("utf-16"),
        json.dumps(claims()).encode("utf-32"),
        b'{"iss":"%s","x":"\xff"}' % ISSUER.encode(),
        b'{"iss":"%s","x":"\\ud800"}' % ISSUER.encode(),
        b'{"iss":"%s","\\udfff":1}' % ISSUER.encode(),
        b'{"iss":"%s","x":[["\\ud800"]]}' % ISSUER.encode(),
        b'{"iss":"evil","iss":"%s"}' % ISSUER.encode(),
        b'{"iss":"%s","iss":"%s"}' % (ISSUER.encode(), ISSUER.encode()),
        b'{"iss":"%s","x":{"a":1,"a":2}}' % ISSUER.encode(),
        b'{"iss":"%s","x":NaN}' % ISSUER.encode(),
        b'{"iss":"%s","x":-Infinity}' % ISSUER.encode(),
        b'{"iss":"%s","x":1e999}' % ISSUER.encode(),
        b'{"iss":"%s","x":%s}' % (ISSUER.encode(), b"9" * 5_000),
        b'{"iss":"%s","x":%s}' % (ISSUER.encode(), b"[" * 40 + b"]" * 40),
        b'{"iss":"%s","x":%s}' % (ISSUER.encode(), b"[" * 5_000 + b"]" * 5_000),
        b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    ],
)
def test_bodies_that_are_not_claims(body: bytes) -> None:
    with pytest.raises(AuthRejected, match="claims"):
        verify(crooked(body))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b'{"alg":null}',
        b'{"alg":["HS256"]}',
        b'{"alg":{"HS256":1}}',
        b'{"alg":"none","alg":"HS256"}',
        b'{"alg":"HS256","alg":"none"}',
        b"[" * 5_000,
    ],
)
def test_headers_that_are_none(header: bytes) -> None:
    with pytest.raises(AuthRejected, match="header"):
        verify(crooked(claims(), header))


def test_huge_tokens() -> None:
    with pytest.raises(AuthRejected, match="longer than 16384 bytes"):
        verify(sign(claims(x="x" * 1_000_000)))
    with pytest.raises(AuthRejected, match="longer"):
        verify("." * 1_000_000)
    assert verify(sign(claims(x="x" * 10_000)))
    assert JwtVerifier(max_token_bytes=2_000_000).verify(sign(claims(x="x" * 1_000_000)), [rule()], NOW_S)


def test_unicode() -> None:
    expected = rule(issuers=["https://bücher.example/🦫"], claims={"räum": "flöz"})
    said = {"iss": "https://bücher.example/🦫", "räum": "flöz"}
    assert verify(sign(said), expected) == said
    assert verify(crooked(json.dumps(said, ensure_ascii=False)), expected) == said
    with pytest.raises(AuthRejected):  # the same to the eye, other code points
        verify(sign(said | {"räum": "flo\u0308z"}), expected)


# --------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("said", "now_s", "passes"),
    [
        ({"exp": NOW_S}, NOW_S + 9.99, True),
        ({"exp": NOW_S}, NOW_S + 10, False),
        ({"exp": NOW_S + 0.5}, NOW_S + 10, True),
        ({"exp": NOW_S + 0.5}, NOW_S + 10.5, False),
        ({"exp": 0}, NOW_S, False),
        ({"exp": -1}, NOW_S, False),
        ({"exp": 2**53}, NOW_S, True),
        ({"nbf": NOW_S}, NOW_S - 10, True),
        ({"nbf": NOW_S}, NOW_S - 10.01, False),
        ({"nbf": NOW_S + 3600}, NOW_S, False),
        ({"iat": NOW_S}, NOW_S - 10, True),
        ({"iat": NOW_S}, NOW_S - 10.01, False),
        ({"iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 1}, NOW_S, True),
        ({}, NOW_S, True),
    ],
)
def test_times(said: dict[str, Any], now_s: float, passes: bool) -> None:
    token = sign(claims(**said))
    if passes:
        assert verify(token, now_s=now_s)
    else:
        with pytest.raises(AuthRejected, match=r"expired|not valid yet|future"):
            verify(token, now_s=now_s)


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    [
        "null",
        "true",
        "false",
        '"1700000000"',
        '""',
        "[]",
        "{}",
        "[1700000000]",
        str(2**53 + 1),
        "1e300",
        "9" * 400,
    ],
)
def test_only_numbers_are_times(name: str, value: str) -> None:
    with pytest.raises(AuthRejected, match=f'"{name}" is not a time'):
        verify(crooked(f'{{"iss":"{ISSUER}","{name}":{value}}}'))


def test_the_smallest_leeway_counts() -> None:
    token = sign(claims(exp=NOW_S))
    assert verify(token, rule(leeway_s=300), now_s=NOW_S + 100)
    with pytest.raises(AuthRejected, match="expired"):
        verify(token, rule(leeway_s=300), rule(leeway_s=0), now_s=NOW_S + 100)


# -------------------------------------------------------------------------------- claims


@pytest.mark.parametrize("issuer", [None, "", [ISSUER], {"x": ISSUER}, ISSUER + "/", ISSUER.upper(), 1, True])
def test_issuers_are_exact(issuer: Any) -> None:
    with pytest.raises(AuthRejected, match="iss"):
        verify(sign({"a": 1}) if issuer is None else crooked({"iss": issuer}))


def test_one_of_several_issuers() -> None:
    assert verify(sign({"iss": "b"}), rule(issuers=["a", "b"]))


@pytest.mark.parametrize(
    ("audience", "passes"),
    [
        ("a", True),
        (["a"], True),
        (["x", "b"], True),
        ("x", False),
        (["x"], False),
        ([], False),
        (None, False),
        ("ab", False),
        ({"a": 1}, False),
        (["a", 1], False),
        ([["a"]], False),
        (1, False),
    ],
)
def test_audiences(audience: Any, passes: bool) -> None:
    token = crooked(claims(aud=audience))
    if passes:
        assert verify(token, rule(audiences=["a", "b"]))
    else:
        with pytest.raises(AuthRejected, match="aud"):
            verify(token, rule(audiences=["a", "b"]))
    assert verify(token, rule())  # nobody asked


def test_an_audience_that_is_missing() -> None:
    with pytest.raises(AuthRejected, match="aud"):
        verify(sign(claims()), rule(audiences=["a"]))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('"lobby"', "lobby"),
        ('""', ""),
        ("1", "1"),
        ("-12", "-12"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
        ("1e22", "1" + "0" * 22),
        ("1e-7", "0.0000001"),
        ("12345678901234567890", "12345678901234567890"),
        ("true", "true"),
        ("false", "false"),
        ("null", None),
        ("[]", None),
        ('["lobby"]', None),
        ("{}", None),
    ],
)
def test_claims_as_text(said: str, text: str | None) -> None:
    assert claim_text(json.loads(said)) == text
    token = crooked(f'{{"iss":"{ISSUER}","c":{said}}}')
    if text is not None:
        assert verify(token, rule(claims={"c": ["something else", text]}))
    for other in ("None", "True", "False", "[]", "{}", "null", "1e3", "1.0", "x"):
        with pytest.raises(AuthRejected, match="'c'"):
            verify(token, rule(claims={"c": other}))


def test_a_claim_that_is_missing() -> None:
    with pytest.raises(AuthRejected, match="no claim 'room'"):
        verify(sign(claims()), rule(claims={"room": ""}))


@pytest.mark.parametrize("jti", [1, None, True, ["x"], {}])
def test_a_jti_is_text(jti: Any) -> None:
    """What cannot be revoked by its name must not pass."""
    with pytest.raises(AuthRejected, match="jti"):
        verify(crooked(claims(jti=jti)))


def test_jti_unverified() -> None:
    jti_of = JwtVerifier().jti_of
    assert jti_of(crooked({"jti": "t1"}, secret=b"whoever")) == "t1"
    assert jti_of(sign({"jti": ""})) is None
    assert jti_of(crooked({"jti": 5})) is None
    assert jti_of(sign({})) is None
    for text in ("", "opaque", "a.b.c", "pen_x_y", "ü.ü.ü", "." * 100_000):
        assert jti_of(text) is None


def test_a_refusal_tells_no_secret() -> None:
    with pytest.raises(AuthRejected) as refused:
        verify(sign(claims(), key=OTHER_SECRET))
    assert refused.value.kind is Rejection.INVALID
    assert str(refused.value) == refused.value.reason
    assert SECRET.decode() not in refused.value.reason
    assert SECRET.decode() not in repr(rule())


# --------------------------------------------------------------------------------- cache


def test_what_passed_is_remembered_until_it_expires() -> None:
    verifier, ours = JwtVerifier(), [rule()]
    token = sign(claims(exp=NOW_S + 60, nbf=NOW_S))
    first = verifier.verify(token, ours, NOW_S)
    assert verifier.verify(token, ours, NOW_S + 1) is first
    assert verifier.statistics() == {"entries": 1, "hits": 1, "misses": 1}
    with pytest.raises(AuthRejected, match="expired"):
        verifier.verify(token, ours, NOW_S + 70)
    assert verifier.statistics()["entries"] == 0
    assert verifier.verify(token, ours, NOW_S)
    with pytest.raises(AuthRejected, match="not valid yet"):  # a clock that was set back
        verifier.verify(token, ours, NOW_S - 11)


def test_rules_of_other_content_are_other_rules() -> None:
    verifier = JwtVerifier()
    token = sign(claims(room="lobby", aud="a"))
    assert verifier.verify(token, [rule(claims={"room": "lobby"})], NOW_S)
    assert verifier.verify(token, [rule(claims={"room": ["lobby"]})], NOW_S)
    assert verifier.statistics()["hits"] == 1
    for stricter in (
        rule(claims={"room": "attic"}),
        rule(audiences=["b"]),
        rule(issuers=["else"]),
        rule(keys={"HS256": [OTHER_SECRET]}),
        rule(keys={"HS384": [SECRET]}),
    ):
        with pytest.raises(AuthRejected):
            verifier.verify(token, [stricter], NOW_S)
        with pytest.raises(AuthRejected):
            verifier.verify(token, [rule(claims={"room": "lobby"}), stricter], NOW_S)


def test_what_did_not_pass_is_not_remembered() -> None:
    verifier = JwtVerifier()
    for _ in range(3):
        with pytest.raises(AuthRejected):
            verifier.verify(sign(claims(), key=OTHER_SECRET), [rule()], NOW_S)
    assert verifier.statistics() == {"entries": 0, "hits": 0, "misses": 3}


def test_the_cache_is_bounded() -> None:
    verifier, ours = JwtVerifier(cache_entries=2), [rule()]
    tokens = [sign(claims(n=number)) for number in range(3)]
    for token in (tokens[0], tokens[1], tokens[0], tokens[2]):  # 1 is the least recently used
        verifier.verify(token, ours, NOW_S)
    assert verifier.statistics() == {"entries": 2, "hits": 1, "misses": 3}
    verifier.verify(tokens[0], ours, NOW_S)
    assert verifier.statistics()["hits"] == 2
    verifier.verify(tokens[1], ours, NOW_S)
    assert verifier.statistics()["misses"] == 4


def test_long_tokens_are_not_kept() -> None:
    verifier = JwtVerifier()
    for _ in range(2):
        verifier.verify(sign(claims(x="x" * 5_000)), [rule()], NOW_S)
    assert verifier.statistics() == {"entries": 0, "hits": 0, "misses": 2}


def test_what_is_remembered_cannot_be_changed() -> None:
    said = JwtVerifier().verify(sign(claims()), [rule()], NOW_S)
    with pytest.raises(TypeError):
        said["iss"] = "me"  # type: ignore[index]


# --------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuers": []}, "issuers"),
        ({"issuers": ISSUER}, "issuers"),
        ({"audiences": "a"}, "audiences"),
        ({"leeway_s": -1}, "leeway_s"),
        ({"leeway_s": float("nan")}, "leeway_s"),
        ({"leeway_s": float("inf")}, "leeway_s"),
        ({"claims": {"room": []}}, "claims.room"),
        ({"keys": {}}, "keys"),
    ],
)
def test_rules_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rule(**changes)
