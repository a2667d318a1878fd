"""What holds for one channel: all entries of ``channels`` and ``webhooks`` that match its name, merged.

============  ================================================================
expire        the largest of the entries'
webhooks      all of them, templates filled in
jwt           all of them; a token must satisfy every one
groups        named groups of all entries; the first entry that has a name wins
============  ================================================================

The question is asked with every request, so answers are remembered: the last few thousand, misses
included. Equal questions get the same objects, which others may use as keys of caches of their own.

Rules: pure; an answer depends on the configuration and the name alone. A name that is no channel's is
never shown to an expression, which bounds both what an expression costs and what a template can become.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.gateway.config.keyfiles import Algorithm, KeyFile
from penstock.gateway.config.model import (
    ChannelConfig,
    GatewayConfig,
    JwtConfig,
    StreamRuleConfig,
    WebhookConfig,
    WebhookEndpointConfig,
)

_CHANNEL_ID: Final = re.compile(r"[0-9a-z][0-9a-z_-]{0,62}")
#: Longer names are matched by no rule for streams.
_MAX_STREAM_NAME_LEN: Final = 256
_CACHE_ENTRIES: Final = 8192
_ID_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class JwtPolicy:
    """One ``jwt`` block with its templates filled in. Compared by identity."""

    issuers: tuple[str, ...]
    audiences: tuple[str, ...]
    keys: Mapping[Algorithm, tuple[KeyFile, ...]]
    #: The claim must equal one of the texts.
    claims: Mapping[str, tuple[str, ...]]
    leeway_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class WebhookPolicy:
    """One webhook with its templates filled in.

    ``id`` stays the same across restarts and reordering of the file: it depends on the webhook's name,
    its method and the URL that is called.
    """

    id: str
    method: str
    url: str
    headers: Mapping[str, str]
    config: WebhookConfig

    @property
    def is_endpoint(self) -> bool:
        """From ``webhooks`` at the top of the file, not from ``channels[].webhooks``."""
        return isinstance(self.config, WebhookEndpointConfig)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelPolicy:
    channel: str
    expire_ms: int
    groups: Mapping[str, str]
    webhooks: tuple[WebhookPolicy, ...]
    jwt: tuple[JwtPolicy, ...]


class ChannelRules:
    """``channels`` and ``webhooks`` of a configuration, ready to be asked."""

    def __init__(self, config: GatewayConfig, *, cache_entries: int = _CACHE_ENTRIES) -> None:
        self._channels: Sequence[ChannelConfig] = config.channels
        self._endpoints: Sequence[WebhookEndpointConfig] = config.webhooks
        self._every_jwt = (config.transactions.jwt, *(each.jwt for each in config.channels))
        self._remembered = functools.lru_cache(maxsize=cache_entries)(self._merge)

    def match(self, channel: str) -> ChannelPolicy | None:
        """What holds for the channel; ``None`` if its name is not valid or no entry matches."""
        if _CHANNEL_ID.fullmatch(channel) is None:
            return None
        return self._remembered(channel)

    @property
    def max_leeway_ms(self) -> int:
        """The longest that a token can be accepted after it expired; 0 without ``jwt``."""
        return max((jwt.clock_skew_leeway_ms for jwt in self._every_jwt if jwt), default=0)

    def __repr__(self) -> str:
        remembered = self._remembered.cache_info().currsize
        return f"<ChannelRules entries={len(self._channels)} remembered={remembered}>"

    def _merge(self, channel: str) -> ChannelPolicy | None:
        matches = [
            (each, groups) for each in self._channels if (groups := _match(each.regex, channel)) is not None
        ]
        if not matches:
            return None
        merged: dict[str, str] = {}
        for _, groups in reversed(matches):
            merged |= groups
        return ChannelPolicy(
            channel=channel,
            expire_ms=max(each.expire_ms for each, _ in matches),
            groups=merged,
            webhooks=tuple(self._webhooks(channel, matches)),
            jwt=tuple(_jwt_policy(each.jwt, groups) for each, groups in matches if each.jwt is not None),
        )

    def _webhooks(
        self, channel: str, matches: Sequence[tuple[ChannelConfig, Mapping[str, str]]]
    ) -> Iterator[WebhookPolicy]:
        wanted: list[tuple[WebhookConfig, Mapping[str, str]]] = [
            (webhook, groups) for each, groups in matches for webhook in each.webhooks
        ]
        for endpoint in self._endpoints:
            found = _match(endpoint.regex, channel)
            if found is not None:
                wanted.append((endpoint, found))
        taken: dict[str, int] = {}
        for webhook, groups in wanted:
            yield _webhook_policy(webhook, groups, taken)


@dataclass(frozen=True, slots=True)
class StreamAccess:
    readable: bool
    writable: bool


class StreamRules:
    """``streams`` of a configuration: a right is given if any matching rule gives it."""

    def __init__(self, config: GatewayConfig, *, cache_entries: int = _CACHE_ENTRIES) -> None:
        self._rules: Sequence[StreamRuleConfig] = config.streams
        self._remembered = functools.lru_cache(maxsize=cache_entries)(self._merge)

    def match(self, stream: str) -> StreamAccess | None:
        """``None`` if no rule matches: to HTTP, there is no such stream."""
        return self._remembered(stream) if len(stream) <= _MAX_STREAM_NAME_LEN else None

    def _merge(self, stream: str) -> StreamAccess | None:
        rules = [rule for rule in self._rules if rule.regex.fullmatch(stream)]
        if not rules:
            return None
        return StreamAccess(any(rule.readable for rule in rules), any(rule.writable for rule in rules))


def _match(regex: re.Pattern[str], channel: str) -> dict[str, str] | None:
    """Named groups; one that took no part in the match is empty."""
    match = regex.fullmatch(channel)
    return None if match is None else match.groupdict(default="")


def _jwt_policy(jwt: JwtConfig, groups: Mapping[str, str]) -> JwtPolicy:
    claims = {name: tuple(text.render(groups) for text in texts) for name, texts in jwt.claims.items()}
    return JwtPolicy(jwt.iss, jwt.aud, jwt.keys, claims, jwt.clock_skew_leeway_ms)


def _webhook_policy(
    webhook: WebhookConfig, groups: Mapping[str, str], taken: dict[str, int]
) -> WebhookPolicy:
    url = webhook.url.render(groups)
    digest = hashlib.sha256(f"{webhook.method} {url}".encode()).hexdigest()[:_ID_DIGITS]
    if webhook.name is not None and not webhook.url.names:
        base = webhook.name
    else:
        base = f"{webhook.name or 'webhook'}-{digest}"
    # Two webhooks of one URL are two deliveries of each message, so they need two identities.
    taken[base] = taken.get(base, 0) + 1
    return WebhookPolicy(
        id=base if taken[base] == 1 else f"{base}-{taken[base]}",
        method=webhook.method,
        url=url,
        headers={name: text.render(groups) for name, text in webhook.headers.items()},
        config=webhook,
    )
