"""A directory that many processes share. There is no server to be hurt; there is its disk."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.engine import Engine
from penstock.engine.check import check_store, find_leftovers
from penstock.version import __version__
from tests.chaos.model import SceneKind
from tests.chaos.plan import Event
from tests.chaos.scenes.base import Place

#: Faults that are told; the rest are probably of the same kind.
_MOST_TOLD: Final = 20


class EmbeddedPlace(Place):
    kind: SceneKind = "embedded"

    @property
    def store(self) -> Path:
        return self.disk.path / "store.pen"

    async def _open(self, stack: AsyncExitStack) -> None:
        url = f"embedded:{self.store}?durability=always"
        self.scene = self._scene(url, url)
        self.about = f"a directory, engine of Penstock {__version__}"
        if self.disk.is_small:
            self.kinds = frozenset({"disk-full"})

    async def carry_out(self, event: Event) -> bool:
        if event.kind != "disk-full":
            raise ValueError(f"an embedded store has no fault {event.kind!r}")
        await asyncio.to_thread(self.disk.fill)
        try:
            await asyncio.sleep(event.lasts_s)
        finally:
            await asyncio.to_thread(self.disk.free)
        return True

    async def calm(self) -> None:
        await asyncio.to_thread(self.disk.free)

    async def examine(self) -> list[str]:
        return await asyncio.to_thread(self._examine)

    def _examine(self) -> list[str]:
        """As ``penstock check`` does; and the dead must leave nothing that cannot be swept."""
        with Engine.open(self.store, durability="always") as engine:
            engine.duties.sweep_dead(0.0)
            return [*check_store(engine), *find_leftovers(engine)][:_MOST_TOLD]

    def save(self, target: Path) -> None:
        shutil.copytree(self.store, target / "store.pen", ignore=shutil.ignore_patterns("signals"))
