"""A configuration as YAML: every key with its value, defaults included.

Secrets are ``"***"`` unless asked for; with them, the text loads to an equal configuration. What may hold a
secret without being one as a whole (a store's URL, a header of a webhook) is masked in part.

Rules: the mirror of :mod:`penstock.gateway.config.reading`; a kind that one knows, the other knows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from penstock.client.targets import parse_url
from penstock.configuration.durations import format_duration
from penstock.configuration.variables import escape
from penstock.configuration.yamltext import format_yaml
from penstock.gateway.config.keyfiles import KeyFile
from penstock.gateway.config.kinds import MASK, Duration, Secret
from penstock.gateway.config.model import GatewayConfig
from penstock.gateway.config.reading import keys_of, unwrap
from penstock.gateway.config.templates import Template

_SECRET_HEADER: Final = re.compile(r"auth|cookie|key|password|secret|signature|token", re.IGNORECASE)


def dump(config: GatewayConfig, *, with_secrets: bool = False) -> str:
    """YAML with every key that has a value."""
    return format_yaml(_Writer(with_secrets).write(GatewayConfig, config))


@dataclasses.dataclass(frozen=True, slots=True)
class _Writer:
    with_secrets: bool

    def write(self, kind: Any, value: Any) -> Any:
        bare, notes = unwrap(kind)
        secret = next((note for note in notes if isinstance(note, Secret)), None)
        if secret is not None:
            return self._secret(value, secret)
        if any(isinstance(note, Duration) for note in notes):
            return format_duration(value)
        if isinstance(value, tuple):
            return [self.write(get_args(bare)[0], item) for item in value]
        if isinstance(value, Mapping) and get_origin(bare) is not None:
            return self._mapping(get_args(bare)[1], value)
        return self._single(value)

    def _single(self, value: Any) -> Any:
        if isinstance(value, Template):
            return escape(value.text)
        if isinstance(value, KeyFile):
            return {"file": escape(str(value.file)), "encoding": value.encoding}
        if isinstance(value, re.Pattern):
            return escape(value.pattern)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._class(value)
        return _plain(value)

    def _class(self, value: Any) -> dict[str, Any]:
        tree = {}
        model: type = type(value)
        for key in keys_of(model):
            part = getattr(value, key.name)
            is_left_out = part is None or (key.spelling.is_foreign and part == key.default())
            if not is_left_out:
                tree[key.key] = self.write(key.kind, part)
        return tree

    def _mapping(self, kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: MASK
            if not self.with_secrets and isinstance(part, Template) and _SECRET_HEADER.search(name)
            else self.write(kind, part)
            for name, part in value.items()
        }

    def _secret(self, value: str, kind: Secret) -> str:
        if self.with_secrets:
            return escape(value)
        if kind.is_url:
            return parse_url(value).redacted
        return MASK if value else ""


def _plain(value: Any) -> Any:
    """What YAML has a form for itself; networks and paths are text."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return escape(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return escape(str(value)) if isinstance(value, Path) else str(value)
