"""The gateway's configuration: one YAML file, the environment over it, frozen values out of it.

==================  ==================================================================
``loading``         :func:`load`: file, environment and overrides to a configuration
``dumping``         :func:`dump`: a configuration to YAML, secrets masked
``model``           :class:`GatewayConfig` and its parts: every key, type and default
``surroundings``    the model's half for HTTP, tokens, logs and telemetry
``channels``        :class:`ChannelRules`: what holds for one channel; :class:`StreamRules`
``kinds``           kinds of values, as annotations of the model
``reading``         the walk from plain values to the model; ``scalars`` single values
``checks``          what must hold between fields
``environment``     ``PENSTOCK__…``
``templates``       ``{{.channel.NAME}}``; ``keyfiles`` keys of tokens
``describing``      every key as a row of the reference
==================  ==================================================================

YAML, ``${NAME}``, durations and problems are :mod:`penstock.configuration`'s.

Rules: knows nothing of the rest of the gateway but the list of private networks (``auth.networks``).
Everything wrong is one ``ConfigError``.
"""

from __future__ import annotations

from penstock.configuration.durations import format_duration, parse_duration_ms
from penstock.gateway.config.channels import (
    ChannelPolicy,
    ChannelRules,
    JwtPolicy,
    StreamAccess,
    StreamRules,
    WebhookPolicy,
)
from penstock.gateway.config.dumping import dump
from penstock.gateway.config.loading import load
from penstock.gateway.config.model import GatewayConfig

__all__ = [
    "ChannelPolicy",
    "ChannelRules",
    "GatewayConfig",
    "JwtPolicy",
    "StreamAccess",
    "StreamRules",
    "WebhookPolicy",
    "dump",
    "format_duration",
    "load",
    "parse_duration_ms",
]
