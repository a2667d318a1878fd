"""From a file, the environment and overrides to a :class:`GatewayConfig`.

In this order, later ones win: defaults, the file (with ``${NAME}`` filled in), ``PENSTOCK__…`` variables,
overrides of the caller (command-line options).

Rules: either a whole configuration or one ``ConfigError`` with every problem, one a line. The process
environment is not looked at; it is handed in.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from penstock.configuration.problems import Problems
from penstock.configuration.sources import read_source
from penstock.configuration.variables import expand
from penstock.gateway.config.checks import CHECKS
from penstock.gateway.config.environment import overlay_environment, overlay_overrides
from penstock.gateway.config.model import AdminConfig, GatewayConfig
from penstock.gateway.config.reading import Reader

#: Where Sentry's address is expected to be; with a ``sentry`` block it means that Sentry is wanted.
_SENTRY_VARIABLE: Final = "SENTRY_DSN"
_BEARER_BYTES: Final = 16


def load(
    source: Path | Literal["-"] | None,
    *,
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> GatewayConfig:
    """The configuration in a file, in standard input (``"-"``) or of nothing but defaults (``None``).

    ``overrides`` maps keys by path (``{"http.port": 9000}``) to values; ``None`` as value is no override.
    """
    problems = Problems()
    tree = expand(read_source(source), environment, problems)
    tree = overlay_environment(GatewayConfig, tree, environment, problems)
    tree = overlay_overrides(GatewayConfig, tree, overrides or {}, problems)
    if isinstance(tree, dict) and "sentry" in tree and environment.get(_SENTRY_VARIABLE):
        problems.add("sentry", f"there is no Sentry exporter: remove the block or {_SENTRY_VARIABLE}")
    config = Reader(problems, CHECKS).read_model(GatewayConfig, tree)
    problems.raise_if_any()
    assert config is not None, "what cannot be read is a problem"
    return _with_bearer(config)


def _with_bearer(config: GatewayConfig) -> GatewayConfig:
    """Administration is never open: without a bearer in the file, one that nobody can guess."""
    auth = config.admin.auth
    if auth.bearer:
        return config
    made = dataclasses.replace(auth, bearer=(secrets.token_hex(_BEARER_BYTES),), is_bearer_generated=True)
    return dataclasses.replace(config, admin=AdminConfig(auth=made))
