"""The one door: bearer, address, action and resource go in, a ``Principal`` or ``AuthRejected`` comes out.

==============  ===================  ==================================================================
asked for       on                   who may
==============  ===================  ==================================================================
administration  anything             address inside the networks, and then: the administrators' bearer,
                                     or an API token that grants ``admin``
anything else   with JWT rules       a JWT that passes all rules and is not revoked, or an API token
                                     that grants the action on this name
                without, if tokens   an API token that grants the action on this name
                are required
                without              everybody, unless they show a credential that was revoked
transactions    of an owner          see ``owners``; who shows nothing where that is allowed has one, too
                anything else        an API token or a JWT that says so; the administrators' bearer
==============  ===================  ==================================================================

Rules: a text that begins with ``pen_`` is an API token and nothing else; no JWT can begin so. An API token
that is shown must hold even where none is needed, and a JWT must not be revoked. Revocation is asked after
validation, every time. A lookup that fails rejects. It must not know HTTP: neither headers (but for the form
``Bearer TOKEN``) nor statuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError
from penstock.gateway.auth.decisions import (
    ANONYMOUS,
    Action,
    AuthRejected,
    Principal,
    Rejection,
    Resource,
)
from penstock.gateway.auth.grants import Grant, StaticTokens, digest_of, is_secret_of
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier
from penstock.gateway.auth.networks import PRIVATE_NETWORKS, Networks
from penstock.gateway.auth.owners import (
    ANYBODY,
    DEFAULT_OWNER,
    OWN_ACTIONS,
    Caller,
    jwt_caller,
    owner_name,
)
from penstock.gateway.auth.revocation import Revocations
from penstock.gateway.auth.tokens import TOKEN_PREFIX, TokenStore

_TRANSACTIONS: Final = Resource("transaction")
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]+) *")


def bearer_of(authorization: str | None) -> str | None:
    """The token of an ``Authorization: Bearer TOKEN``; None if the header is absent or of another kind."""
    found = _BEARER.fullmatch(authorization or "")
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True, repr=False)
class AdminAccess:
    """Where administrators come from, and what they show. Without bearers only API tokens open."""

    networks: Networks = PRIVATE_NETWORKS
    bearers: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.bearers, str) or not all(self.bearers):
            raise ConfigError("bearers must be a list of texts, none of them empty")


class Gatekeeper:
    """Decides who may do what."""

    def __init__(
        self,
        *,
        admin: AdminAccess,
        verifier: JwtVerifier | None = None,
        revocations: Revocations | None = None,
        tokens: TokenStore | None = None,
        static_tokens: StaticTokens | None = None,
        require_tokens: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Without ``revocations`` no JWT is ever revoked; without ``tokens`` no ``pen_`` token exists."""
        self._admin_networks = admin.networks
        self._admin_digests = tuple(digest_of(bearer) for bearer in admin.bearers)
        self._verifier = verifier or JwtVerifier()
        self._revocations = revocations
        self._tokens = tokens
        self._static_tokens = static_tokens or StaticTokens()
        self._require_tokens = require_tokens
        self._clock = clock or SystemClock()

    async def admit(
        self,
        bearer: str | None,
        address: str,
        action: Action,
        resource: Resource,
        rules: Sequence[JwtRule] = (),
    ) -> Principal:
        """Who this is, if they may; ``rules`` are the JWT rules of the channel, all of them."""
        if action is Action.ADMIN or resource.kind == "admin":
            return await self._admit_admin(bearer, address, resource)
        held = await self._token_of(bearer)
        if held is not None:
            if rules or self._require_tokens:
                _check_grant(held, action, resource)
            return _principal_of(held)
        if rules:
            return await self._admit_jwt(bearer, rules)
        if self._require_tokens:
            raise _no_token(bearer, "an API token is needed here")
        await self._refuse_revoked(None if bearer is None else self._verifier.jti_of(bearer))
        return ANONYMOUS

    async def admit_caller(
        self, bearer: str | None, address: str, action: Action, rules: Sequence[JwtRule] = ()
    ) -> Caller:
        """Who asks about transactions, if they may do this. A token that is shown is held to its scopes."""
        is_inside = self._admin_networks.is_inside(address)
        if bearer is not None and is_inside and self._is_administrators(bearer):
            return Caller(Principal("admin", "admin"), DEFAULT_OWNER, is_operator=True)
        held = await self._token_of(bearer)
        if held is not None:
            scopes = held.grant.scopes
            is_operator = Action.OPERATE in scopes or (is_inside and Action.ADMIN in scopes)
            if not is_operator:
                _check_grant(held, action, _TRANSACTIONS)
            owner = held.grant.owner or owner_name(held.grant.name)
            return Caller(_principal_of(held), owner, is_operator)
        if rules:
            return jwt_caller(await self._admit_jwt(bearer, rules), action)
        if self._require_tokens or action not in OWN_ACTIONS:
            raise _no_token(bearer, "a token is needed here")
        await self._refuse_revoked(None if bearer is None else self._verifier.jti_of(bearer))
        return ANYBODY

    def _is_administrators(self, bearer: str) -> bool:
        # Every digest is compared, so that time does not tell which one was close.
        return sum([is_secret_of(bearer, digest) for digest in self._admin_digests]) > 0

    async def _admit_admin(self, bearer: str | None, address: str, resource: Resource) -> Principal:
        if not self._admin_networks.is_inside(address):
            raise AuthRejected("the address is not in a network of administrators", Rejection.FORBIDDEN)
        if bearer is None:
            raise _no_token(bearer, "an administrator's token is needed here")
        if self._is_administrators(bearer):
            return Principal("admin", "admin")
        held = await self._token_of(bearer)
        if held is None:
            raise AuthRejected("the token is not an administrator's")
        _check_grant(held, Action.ADMIN, resource)
        return _principal_of(held)

    async def _admit_jwt(self, bearer: str | None, rules: Sequence[JwtRule]) -> Principal:
        if bearer is None:
            raise _no_token(bearer, "a token is needed on this channel")
        claims = self._verifier.verify(bearer, rules, self._clock.now_us() / 1_000_000)
        await self._refuse_revoked(claims.get("jti"))
        return Principal("jwt", _name_in(claims), claims)

    async def _refuse_revoked(self, jti: str | None) -> None:
        if jti and self._revocations is not None and await self._revocations.is_revoked(jti):
            raise AuthRejected("the token has been revoked")

    async def _token_of(self, bearer: str | None) -> _Held | None:
        """The API token that a bearer is; None if it is none; raises if it is one that does not hold."""
        if bearer is None:
            return None
        static = self._static_tokens.find(bearer)
        if static is not None:
            return _Held(static, None)
        if not bearer.startswith(TOKEN_PREFIX):
            return None
        if self._tokens is None:
            raise AuthRejected("the API token is unknown, expired or revoked")
        token = await self._tokens.verify(bearer)
        return _Held(token.grant, token.id)


@dataclass(frozen=True, slots=True)
class _Held:
    """A token that somebody showed; tokens of the configuration have no id."""

    grant: Grant
    id: str | None


def _check_grant(held: _Held, action: Action, resource: Resource) -> None:
    if not held.grant.allows(action, resource):
        raise AuthRejected(
            f"the API token does not grant {action} on this {resource.kind}", Rejection.FORBIDDEN
        )


def _principal_of(held: _Held) -> Principal:
    claims = {"id": held.id, "scopes": tuple(sorted(held.grant.scopes))}
    return Principal("token", held.grant.name, claims)


def _name_in(claims: Mapping[str, Any]) -> str:
    """Whom a JWT is about, as well as it says."""
    for claim in ("sub", "jti", "iss"):
        name = claims.get(claim)
        if isinstance(name, str) and name:
            return name
    return "jwt"


def _no_token(bearer: str | None, reason: str) -> AuthRejected:
    return AuthRejected(reason, Rejection.MISSING if bearer is None else Rejection.INVALID)
