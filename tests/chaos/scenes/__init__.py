"""The kinds of places that a scene can be in, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.model import SceneKind
from tests.chaos.scenes.base import Place
from tests.chaos.scenes.cluster import ClusterPlace
from tests.chaos.scenes.embedded import EmbeddedPlace
from tests.chaos.scenes.redis import RedisPlace

__all__ = ["PLACES", "Place"]

PLACES: Final[Mapping[SceneKind, Callable[[Path], Place]]] = {
    "embedded": EmbeddedPlace,
    "redis": RedisPlace,
    "cluster": ClusterPlace,
}
