"""Who may do what: JSON Web Tokens, API tokens, revocation, networks, and the gatekeeper who joins them.

Values in, decisions out. Nothing here knows HTTP, configuration files or the rest of the gateway.
"""

from __future__ import annotations

from penstock.gateway.auth.decisions import (
    ANONYMOUS,
    Action,
    AuthRejected,
    Principal,
    Rejection,
    Resource,
)
from penstock.gateway.auth.gatekeeper import AdminAccess, Gatekeeper, bearer_of
from penstock.gateway.auth.grants import Grant, StaticToken, StaticTokens
from penstock.gateway.auth.jwt import JwtRule, JwtVerifier
from penstock.gateway.auth.networks import PRIVATE_NETWORKS, UNKNOWN_ADDRESS, Networks, client_address
from penstock.gateway.auth.revocation import RevocationOutcome, Revocations
from penstock.gateway.auth.tokens import ApiToken, NewToken, TokenPage, TokenStore

__all__ = [
    "ANONYMOUS",
    "PRIVATE_NETWORKS",
    "UNKNOWN_ADDRESS",
    "Action",
    "AdminAccess",
    "ApiToken",
    "AuthRejected",
    "Gatekeeper",
    "Grant",
    "JwtRule",
    "JwtVerifier",
    "Networks",
    "NewToken",
    "Principal",
    "Rejection",
    "Resource",
    "RevocationOutcome",
    "Revocations",
    "StaticToken",
    "StaticTokens",
    "TokenPage",
    "TokenStore",
    "bearer_of",
    "client_address",
]
