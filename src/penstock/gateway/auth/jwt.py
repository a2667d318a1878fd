"""JSON Web Tokens against the rules of a channel: who issued them, for whom, until when, with which claims.

    rule = JwtRule(["https://issuer"], [], {"RS256": [pem]}, {"room": ["lobby"]}, leeway_s=300)
    claims = JwtVerifier().verify(token, [rule], now_s)

Rules
-----
J1  A rule lists its algorithms with their keys. The token's ``alg`` picks an entry of that list and nothing
    else; every key of the entry is tried.
J2  The signature is checked before anything that the token claims.
J3  All rules of a channel must pass.
J4  Whatever the text is, the outcome is claims or ``AuthRejected``.
J5  What passed is remembered under the hash of the token and the content of the rules, for as long as the
    token's own times allow. What did not pass is never remembered. Neither is revocation: others ask that.

It must not know stores, headers or channels.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import ConfigError, UsageError
from penstock.gateway.auth.compact import CompactToken, parse_compact
from penstock.gateway.auth.decisions import AuthRejected
from penstock.gateway.auth.keys import KeyLike, load_keys

DEFAULT_LEEWAY_S: Final = 300.0
MAX_TOKEN_BYTES: Final = 16 * 1024
#: Longer tokens are verified anew each time, so that the cache has a bound in bytes as well.
_MAX_CACHED_TOKEN_BYTES: Final = 4 * 1024
#: Times beyond this are no times; floats are exact up to here.
_MAX_TIME_S: Final = 2**53


class JwtRule:
    """What a token must be like. Immutable; rules with the same content have the same ``identity``."""

    __slots__ = ("audiences", "claims", "identity", "issuers", "keys", "leeway_s")

    def __init__(
        self,
        issuers: Collection[str],
        audiences: Collection[str],
        keys: Mapping[str, Sequence[KeyLike]],
        claims: Mapping[str, str | Sequence[str]] | None = None,
        leeway_s: float = DEFAULT_LEEWAY_S,
    ) -> None:
        if isinstance(issuers, str) or not issuers:
            raise ConfigError("issuers must be a list with at least one issuer")
        if isinstance(audiences, str):
            raise ConfigError("audiences must be a list, which may be empty")
        if not 0 <= leeway_s < _MAX_TIME_S:
            raise ConfigError(f"leeway_s must be a number of seconds from 0, not {leeway_s!r}")
        #: one of these must be the token's ``iss``
        self.issuers = frozenset(issuers)
        #: one of these must be in the token's ``aud``; empty: anything goes
        self.audiences = frozenset(audiences)
        self.keys = load_keys(keys)
        #: each claim must be one of the texts
        self.claims = {name: _expected(name, texts) for name, texts in (claims or {}).items()}
        self.leeway_s = leeway_s
        self.identity = self._identity()

    def _identity(self) -> bytes:
        content = (
            sorted(self.issuers),
            sorted(self.audiences),
            sorted((name, [key.digest.hex() for key in keys]) for name, keys in self.keys.items()),
            sorted((name, sorted(texts)) for name, texts in self.claims.items()),
            self.leeway_s,
        )
        return hashlib.sha256(json.dumps(content).encode()).digest()

    def __repr__(self) -> str:
        return f"<JwtRule {', '.join(sorted(self.issuers))}: {', '.join(sorted(self.keys))}>"


@dataclass(frozen=True, slots=True)
class _Passed:
    """Claims that were verified, and when they hold."""

    claims: Mapping[str, Any]
    from_s: float
    until_s: float


class JwtVerifier:
    """Checks tokens, and remembers those that passed."""

    def __init__(self, *, max_token_bytes: int = MAX_TOKEN_BYTES, cache_entries: int = 4096) -> None:
        self._max_token_bytes = max_token_bytes
        self._cache_entries = cache_entries
        #: the least recently used first
        self._passed: OrderedDict[tuple[bytes, ...], _Passed] = OrderedDict()
        self._hits = 0
        self._misses = 0

    def verify(self, token: str, rules: Sequence[JwtRule], now_s: float) -> Mapping[str, Any]:
        """The claims of a token that passes all rules at this time; raises ``AuthRejected`` otherwise."""
        if not rules:
            raise UsageError("rules is empty, and without a rule nothing would be verified: give one")
        key = self._cache_key(token, rules)
        known = self._passed.get(key) if key else None
        if known is not None and known.from_s <= now_s < known.until_s:
            self._hits += 1
            self._passed.move_to_end(key)
            return known.claims
        self._misses += 1
        self._passed.pop(key, None)
        parsed = parse_compact(token, self._max_token_bytes)
        for rule in rules:
            _check_signature(parsed, rule)
        passed = _check_claims(parsed.claims, rules, now_s)
        if key and self._cache_entries:
            self._passed[key] = passed
            if len(self._passed) > self._cache_entries:
                self._passed.popitem(last=False)
        return passed.claims

    def jti_of(self, token: str) -> str | None:
        """The ``jti`` that a token claims to have, unverified; None if there is none, or no token."""
        try:
            jti = parse_compact(token, self._max_token_bytes).claims.get("jti")
        except AuthRejected:
            return None
        return jti if isinstance(jti, str) and jti else None

    def statistics(self) -> dict[str, int]:
        """How much is remembered, and how often that helped."""
        return {"entries": len(self._passed), "hits": self._hits, "misses": self._misses}

    @staticmethod
    def _cache_key(token: str, rules: Sequence[JwtRule]) -> tuple[bytes, ...]:
        """Empty if the token is not to be remembered."""
        if len(token) > _MAX_CACHED_TOKEN_BYTES or not token.isascii():
            return ()
        return (hashlib.sha256(token.encode("ascii")).digest(), *(rule.identity for rule in rules))


def _expected(name: str, texts: str | Sequence[str]) -> frozenset[str]:
    expected = frozenset((texts,) if isinstance(texts, str) else texts)
    if not expected:
        raise ConfigError(f"claims.{name} is empty; give at least one text that it may be")
    return expected


def _check_signature(token: CompactToken, rule: JwtRule) -> None:
    keys = rule.keys.get(token.algorithm)
    if keys is None:
        raise AuthRejected(f"the token's algorithm is not one of {', '.join(sorted(rule.keys))}")
    if not any(key.verifies(token.signed, token.signature) for key in keys):
        raise AuthRejected(f"the token's signature is of none of the {token.algorithm} keys")


def _check_claims(claims: dict[str, Any], rules: Sequence[JwtRule], now_s: float) -> _Passed:
    expires_s = _time(claims, "exp")
    not_before_s = _time(claims, "nbf")
    issued_s = _time(claims, "iat")
    # All rules must pass, so of their leeways the smallest counts.
    leeway_s = min(rule.leeway_s for rule in rules)
    if expires_s is not None and now_s >= expires_s + leeway_s:
        raise AuthRejected("the token has expired")
    if not_before_s is not None and now_s < not_before_s - leeway_s:
        raise AuthRejected("the token is not valid yet")
    if issued_s is not None and now_s < issued_s - leeway_s:
        raise AuthRejected("the token was issued in the future")
    if not isinstance(claims.get("jti", ""), str):
        raise AuthRejected('the token\'s "jti" is not a text')
    for rule in rules:
        _check_rule(claims, rule)
    starts = [start_s - leeway_s for start_s in (not_before_s, issued_s) if start_s is not None]
    until_s = float("inf") if expires_s is None else expires_s + leeway_s
    return _Passed(MappingProxyType(claims), max(starts, default=float("-inf")), until_s)


def _check_rule(claims: dict[str, Any], rule: JwtRule) -> None:
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or issuer not in rule.issuers:
        raise AuthRejected('the token\'s "iss" is not an issuer that is accepted here')
    if rule.audiences and rule.audiences.isdisjoint(_audiences(claims)):
        raise AuthRejected('the token\'s "aud" is not an audience that is accepted here')
    for name, expected in rule.claims.items():
        if name not in claims:
            raise AuthRejected(f"the token has no claim {name!r}")
        text = claim_text(claims[name])
        if text is None or text not in expected:
            raise AuthRejected(f"the token's claim {name!r} is not what is needed here")


def _time(claims: dict[str, Any], name: str) -> int | float | None:
    """A time in seconds since 1970, None if the token has none. Only a number is a time."""
    if name not in claims:
        return None
    value = claims[name]
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -_MAX_TIME_S <= value <= _MAX_TIME_S
    ):
        raise AuthRejected(f'the token\'s "{name}" is not a time')
    return value


def _audiences(claims: dict[str, Any]) -> list[str]:
    audiences = claims.get("aud")
    if isinstance(audiences, str):
        return [audiences]
    if isinstance(audiences, list) and all(isinstance(audience, str) for audience in audiences):
        return audiences
    return []


def claim_text(value: Any) -> str | None:
    """A claim as configurations spell it: text as it is, numbers in plain decimals, true and false."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = format(Decimal(repr(value)), "f")
            return text.rstrip("0").rstrip(".") if "." in text else text
        case _:
            return None
