"""Webhooks of the configuration as endpoints, and messages of channels as bodies.

============================  ============  ===============================================================
webhook                       body          type, and what is in it
============================  ============  ===============================================================
``channels[].webhooks``       DSPS's        ``dsps.channel.outgoing-webhook``: channelID, messageID, content
``webhooks`` and of users     Standard      ``channel.message``: timestamp, data (channel, id, content)
                              Webhooks
============================  ============  ===============================================================

Pure: values in, values out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from penstock.channels.model import Message
from penstock.gateway.config.channels import WebhookPolicy
from penstock.gateway.config.model import WebhookRetryConfig
from penstock.webhooks import AnswerRules, Endpoint, Schedule, growing

#: Answers after which the DSPS API tries no more.
_FINAL: Final = frozenset({401, 402, 403, 405, 406, 407, *range(411, 419), 426, 431, 451, 501})
_ALL_NETWORKS: Final = ("0.0.0.0/0", "::/0")
#: What jitter is a share of when there is no interval.
_LEAST_INTERVAL_MS: Final = 1


def endpoint_of(policy: WebhookPolicy) -> Endpoint:
    """The endpoint of a webhook that the configuration names."""
    config = policy.config
    retry = config.retry_plan
    return Endpoint(
        id=policy.id,
        url=policy.url,
        method=policy.method,
        secrets=config.secrets,
        headers=dict(policy.headers),
        timeout_ms=config.timeout_ms,
        schedule=Schedule() if retry is None else _schedule(retry),
        rules=AnswerRules() if retry is None or retry.force else AnswerRules(give_up=_FINAL),
        max_in_flight=min(config.connection.max, 64),
        allowed_networks=(
            _ALL_NETWORKS if config.may_call_private_networks else tuple(map(str, config.allowed_networks))
        ),
    )


def _schedule(retry: WebhookRetryConfig) -> Schedule:
    share = retry.interval_jitter_ms / max(retry.interval_ms, _LEAST_INTERVAL_MS)
    return growing(retry.count, retry.interval_ms, retry.interval_multiplier, min(share, 1.0))


def dsps_body(channel: str, message: Message) -> bytes:
    return b'{"channelID":"%b","content":%b,"messageID":"%b","type":"dsps.channel.outgoing-webhook"}' % (
        channel.encode(),
        message.raw,
        message.id.encode(),
    )


def standard_body(channel: str, message: Message, now_ms: int) -> bytes:
    time = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return b'{"type":"channel.message","timestamp":"%b","data":{"channel":"%b","id":"%b","content":%b}}' % (
        time.replace("+00:00", "Z").encode(),
        channel.encode(),
        message.id.encode(),
        message.raw,
    )
