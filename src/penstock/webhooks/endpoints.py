"""Where webhooks go: the definition of an endpoint, and where workers look definitions up.

An endpoint is defined by configuration (the caller hands it in) or by users (``endpoint_store.py`` keeps it).
What happens to it (disabled, spared, failing) is state, and is in the store for both kinds.

Rules: a definition is checked when it is made, so nothing wrong is ever queued; whether its address may be
called is asked again at each connection. Secrets appear in no ``repr``. ``allowed_networks`` opens inner
networks: it is for the operator, never to be filled from what a user sends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from penstock.errors import ConfigError
from penstock.webhooks import addresses
from penstock.webhooks.model import checked_headers
from penstock.webhooks.schedule import AnswerRules, Schedule
from penstock.webhooks.signing import MAX_SECRETS, parse_key

MAX_TIMEOUT_MS: Final = 300_000
METHODS: Final = ("POST", "PUT", "PATCH")

#: No space: rows of the store are ``<endpoint> <rest>``.
_ID: Final = re.compile(r"[!-~]{1,200}")
#: Text alone is checked when an endpoint is made; who may be called depends on who sends.
ANY_ADDRESS: Final = addresses.policy(["0.0.0.0/0", "::/0"])


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver."""

    id: str
    url: str
    method: str = "POST"
    #: ``whsec_…`` or ``whsk_…``, the newest first; each signs. Without any, nothing is signed
    secrets: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    #: of one attempt, all in all
    timeout_ms: int = 20_000
    schedule: Schedule = Schedule()
    rules: AnswerRules = AnswerRules()
    #: at a time, over all workers
    max_in_flight: int = 8
    #: deliveries that may wait for it; more are refused with ``BackpressureError``
    max_pending: int = 100_000
    #: such as ``10.1.0.0/16``: may be called although they are not public
    allowed_networks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ConfigError("id must be 1 to 200 visible ASCII characters without spaces")
        if self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if len(self.secrets) > MAX_SECRETS:
            raise ConfigError(f"secrets must be at most {MAX_SECRETS}, not {len(self.secrets)}")
        for secret in self.secrets:
            if parse_key(secret).is_public:
                raise ConfigError("secrets must not contain a whpk_ key: give the whsk_ key that signs")
        if not 1 <= self.timeout_ms <= MAX_TIMEOUT_MS:
            raise ConfigError(f"timeout_ms must be 1 to {MAX_TIMEOUT_MS}, not {self.timeout_ms}")
        for name in ("max_in_flight", "max_pending"):
            if not 1 <= getattr(self, name) <= 10_000_000:
                raise ConfigError(f"{name} must be 1 to 10000000, not {getattr(self, name)}")
        checked_headers(self.headers)
        addresses.policy(self.allowed_networks)
        addresses.check_url(self.url, ANY_ADDRESS)

    def __repr__(self) -> str:
        return f"<Endpoint {self.id} {self.method} {_without_query(self.url)} secrets={len(self.secrets)}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)


def _without_query(url: str) -> str:
    """Queries hold tokens often enough."""
    base, mark, _ = url.partition("?")
    return f"{base}?…" if mark else base


class EndpointSource(Protocol):
    """Who knows endpoints."""

    async def get(self, endpoint_id: str) -> Endpoint | None:
        """The endpoint of this id; None if there is none any more."""


class ConfiguredEndpoints:
    """Endpoints that configuration names; others are asked for at ``others``, if it is given."""

    def __init__(self, endpoints: Mapping[str, Endpoint], others: EndpointSource | None = None) -> None:
        for name, endpoint in endpoints.items():
            if name != endpoint.id:
                raise ConfigError(f"endpoints: {name!r} must be the id of its endpoint, not {endpoint.id!r}")
        self._endpoints = dict(endpoints)
        self._others = others

    async def get(self, endpoint_id: str) -> Endpoint | None:
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is None and self._others is not None:
            return await self._others.get(endpoint_id)
        return endpoint
