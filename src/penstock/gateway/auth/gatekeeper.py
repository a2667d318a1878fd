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
a look          anything             besides: administrators, and whoever observes: an API token that grants
                                     ``observe``, or a JWT that passes the rules of transactions and says so
==============  ===================  ==================================================================

A look is a request that changes nothing and is told no secret; whoever asks says which are (``access``).
Where the administration is open, whoever comes from its networks and shows nothing is an administrator.

Rules: a text that begins with ``pen_`` is an API token and nothing else; no JWT can begin so. An API token
that is shown must hold even where none is needed, and a JWT must not be revoked. One that observes is held to
its scopes even there, so that a viewer changes nothing. Revocation is asked after validation, every time. A
lookup that fails rejects. It must not know HTTP: neither headers (but for the form ``Bearer TOKEN``) nor
statuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError
from penstock.gateway.auth.decisions import (
    ALWAYS_ASKED,
    ANONYMOUS,
    Action,
    AuthRejected,
    Principal,
    Rejection,
    Resource,
    Standing,
)
from penstock.gateway.auth.grants import Grant, StaticTokens, digest_of, is_secret_of
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier
from penstock.gateway.auth.networks import PRIVATE_NETWORKS, Networks
from penstock.gateway.auth.owners import (
    ANYBODY,
    DEFAULT_OWNER,
    OPERATIONS,
    OWN_ACTIONS,
    Caller,
    jwt_caller,
    owner_name,
    scopes_in,
)
from penstock.gateway.auth.revocation import Revocations
from penstock.gateway.auth.tokens import TOKEN_PREFIX, TokenStore

_ADMINISTRATOR: Final = Principal("admin", "admin")
_TRANSACTIONS: Final = Resource("transaction")
#: What concerns channels and streams, and is open to everybody where no credential is needed.
_OPEN_ACTIONS: Final = frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.READ})
#: What is nothing but looking.
_LOOKING: Final = frozenset({Action.READ, Action.LOOK, Action.READ_PIPELINES})
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
        transaction_rules: Sequence[JwtRule] = (),
        clock: Clock | None = None,
    ) -> None:
        """Without ``revocations`` no JWT is ever revoked; without ``tokens`` no ``pen_`` token exists.

        Without ``transaction_rules`` no JWT observes.
        """
        self._admin_networks = admin.networks
        self._admin_digests = tuple(digest_of(bearer) for bearer in admin.bearers)
        self._verifier = verifier or JwtVerifier()
        self._revocations = revocations
        self._tokens = tokens
        self._static_tokens = static_tokens or StaticTokens()
        self._require_tokens = require_tokens
        self._transaction_rules = transaction_rules
        self._clock = clock or SystemClock()

    async def admit(
        self,
        bearer: str | None,
        address: str,
        action: Action,
        resource: Resource,
        rules: Sequence[JwtRule] = (),
        *,
        is_look: bool = False,
    ) -> Principal:
        """Who this is, if they may; ``rules`` are the JWT rules of the channel, all of them."""
        is_administration = action in ALWAYS_ASKED or resource.kind == "admin"
        held = await self._token_of(bearer) if is_look or not is_administration else None
        if is_look and (observer := await self._observer(bearer, address, held)) is not None:
            return observer
        if is_administration:
            return await self._admit_admin(bearer, address, resource)
        if held is not None:
            if rules or self._require_tokens or Action.OBSERVE in held.grant.scopes:
                _check_grant(held, action, resource)
            return _principal_of(held)
        if rules:
            return await self._admit_jwt(bearer, rules)
        if self._require_tokens:
            raise _no_token(bearer, "an API token is needed here")
        await self._refuse_revoked(None if bearer is None else self._verifier.jti_of(bearer))
        return ANONYMOUS

    async def admit_caller(
        self,
        bearer: str | None,
        address: str,
        action: Action,
        rules: Sequence[JwtRule] = (),
        *,
        is_look: bool = False,
    ) -> Caller:
        """Who asks about transactions, if they may do this. A token that is shown is held to its scopes."""
        administrator = self._administrator(bearer, address)
        if administrator is not None:
            return Caller(administrator, DEFAULT_OWNER, is_operator=True)
        held = await self._token_of(bearer)
        if held is not None:
            is_operator = bool({Action.OPERATE, Action.ADMIN} & self._scopes_of(held, address))
            is_observer = is_look and not is_operator and Action.OBSERVE in held.grant.scopes
            if not (is_operator or is_observer):
                _check_grant(held, action, _TRANSACTIONS)
            owner = held.grant.owner or owner_name(held.grant.name)
            return Caller(_principal_of(held), owner, is_operator, is_observer)
        if rules:
            return jwt_caller(await self._admit_jwt(bearer, rules), action, is_look)
        if self._require_tokens or action not in OWN_ACTIONS:
            raise _no_token(bearer, "a token is needed here")
        await self._refuse_revoked(None if bearer is None else self._verifier.jti_of(bearer))
        return ANYBODY

    async def standing(self, bearer: str | None, address: str) -> Standing:
        """Who this is and what they may do; raises if the credential is bad, or holds on channels alone."""
        is_open = not self._require_tokens
        everybody = _OPEN_ACTIONS if is_open else frozenset[Action]()
        administrator = self._administrator(bearer, address)
        if administrator is not None:
            return Standing(administrator, _spelt_out({Action.ADMIN}) | everybody)
        if bearer is None:
            own = OWN_ACTIONS if is_open and not self._transaction_rules else frozenset[Action]()
            return Standing(ANONYMOUS, everybody | own)
        held = await self._token_of(bearer)
        if held is not None:
            beyond = frozenset[Action]() if Action.OBSERVE in held.grant.scopes else everybody
            may = _spelt_out(self._scopes_of(held, address)) | beyond
            return Standing(_principal_of(held), may)
        if not self._transaction_rules:
            raise AuthRejected("the token is unknown here, or not for this address")
        principal = await self._admit_jwt(bearer, self._transaction_rules)
        scopes = scopes_in(principal.claims) or OWN_ACTIONS
        return Standing(principal, _spelt_out(scopes) | everybody)

    async def _observer(self, bearer: str | None, address: str, held: _Held | None) -> Principal | None:
        """Who may look at everything; None: they may not."""
        if held is not None:
            observes = {Action.OBSERVE, Action.ADMIN} & self._scopes_of(held, address)
            return _principal_of(held) if observes else None
        administrator = self._administrator(bearer, address)
        if administrator is not None or bearer is None or not self._transaction_rules:
            return administrator
        try:
            principal = await self._admit_jwt(bearer, self._transaction_rules)
        except AuthRejected as error:
            if error.kind is Rejection.UNAVAILABLE:
                raise
            return None  # it may be good for what is asked for
        return principal if Action.OBSERVE in scopes_in(principal.claims) else None

    def _administrator(self, bearer: str | None, address: str) -> Principal | None:
        """Who administrates, by bearer and network; None: they do not."""
        if bearer is None or not self._admin_networks.is_inside(address):
            return None
        # Every digest is compared, so that time does not tell which one was close.
        is_theirs = sum([is_secret_of(bearer, digest) for digest in self._admin_digests]) > 0
        return _ADMINISTRATOR if is_theirs else None

    def _scopes_of(self, held: _Held, address: str) -> frozenset[Action]:
        """Those that hold at this address."""
        scopes = held.grant.scopes
        return scopes if self._admin_networks.is_inside(address) else scopes - {Action.ADMIN}

    async def _admit_admin(self, bearer: str | None, address: str, resource: Resource) -> Principal:
        if not self._admin_networks.is_inside(address):
            raise AuthRejected("the address is not in a network of administrators", Rejection.FORBIDDEN)
        administrator = self._administrator(bearer, address)
        if administrator is not None:
            return administrator
        if bearer is None:
            raise _no_token(bearer, "an administrator's token is needed here")
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


def _spelt_out(scopes: Set[Action]) -> frozenset[Action]:
    """Scopes, and what they are good for besides."""
    may = frozenset(scopes)
    if Action.ADMIN in may:
        may |= OPERATIONS | {Action.OBSERVE}
    if Action.OPERATE in may:
        may |= OPERATIONS
    return may | _LOOKING if Action.OBSERVE in may else may


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
