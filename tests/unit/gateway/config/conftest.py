"""A configuration from text, and the problems in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.errors import ConfigError
from penstock.gateway.config import GatewayConfig, load

LoadText: TypeAlias = Callable[..., GatewayConfig]
ProblemsOf: TypeAlias = Callable[..., list[str]]


@pytest.fixture
def load_text(tmp_path: Path) -> LoadText:
    def load_it(
        text: str,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> GatewayConfig:
        file = tmp_path / "gateway.yml"
        file.write_text(text)
        return load(file, environment=environment or {}, overrides=overrides)

    return load_it


@pytest.fixture
def problems_of(load_text: LoadText) -> ProblemsOf:
    def problems(text: str, environment: Mapping[str, str] | None = None, **overrides: object) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, environment, overrides)
        return str(caught.value).split("\n")

    return problems
