"""What holds for a channel, as routes need it: the rules of the configuration with keys loaded.

Asked with every request, so answers are kept. Nothing here knows requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.gateway.auth.jwt import JwtRule
from penstock.gateway.auth.keys import KeyLike, VerifyingKey, load_key
from penstock.gateway.config.channels import ChannelRules, JwtPolicy, WebhookPolicy
from penstock.gateway.config.model import GatewayConfig

_KEPT: Final = 8_192


@dataclass(frozen=True, slots=True)
class Policy:
    """One channel."""

    channel: str
    expire_ms: int
    #: a JWT must pass all of them; none: everybody may
    jwt_rules: tuple[JwtRule, ...]
    #: those that the configuration names
    webhooks: tuple[WebhookPolicy, ...]


class ChannelPolicies:
    """The policies of one configuration."""

    def __init__(self, config: GatewayConfig) -> None:
        self._rules = ChannelRules(config)
        #: (algorithm, content) -> loaded once
        self._keys: dict[tuple[str, bytes], VerifyingKey] = {}
        #: None for a channel that no rule of the configuration matches; the name must be valid
        self.match = lru_cache(maxsize=_KEPT)(self._match)

    @property
    def max_leeway_s(self) -> int:
        return -(-self._rules.max_leeway_ms // 1_000)

    def _match(self, channel: str) -> Policy | None:
        found = self._rules.match(channel)
        if found is None:
            return None
        rules = tuple(self._rule(policy) for policy in found.jwt)
        return Policy(channel, found.expire_ms, rules, found.webhooks)

    def _rule(self, policy: JwtPolicy) -> JwtRule:
        keys: dict[str, list[KeyLike]] = {
            algorithm: [self._key(algorithm, file.content) for file in files]
            for algorithm, files in policy.keys.items()
        }
        return JwtRule(policy.issuers, policy.audiences, keys, policy.claims, policy.leeway_ms / 1_000)

    def _key(self, algorithm: str, content: bytes) -> VerifyingKey:
        key = self._keys.get((algorithm, content))
        if key is None:
            key = self._keys[algorithm, content] = load_key(algorithm, content)
        return key
