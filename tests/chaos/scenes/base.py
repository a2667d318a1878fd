"""A place: one store with what can be done to it. The three kinds are beside this file.

    async with RedisPlace(directory) as place:
        await place.carry_out(event)      # when it returns, the fault is over
        await place.calm()                # everything runs, nothing is in the way

Rules: a place offers in ``kinds`` what it can do on this machine, and says in ``notes`` what it cannot. It
never hurts members, and knows nothing of crews. After ``calm`` nothing that was confirmed may be missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from tests.chaos.clocks import set_shift
from tests.chaos.disk import Disk
from tests.chaos.model import Scene, SceneKind
from tests.chaos.plan import Event, Kind


class Place(ABC):
    """``scene``, ``kinds`` and ``nodes`` are there once it is entered."""

    kind: SceneKind
    scene: Scene

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kinds: frozenset[Kind] = frozenset()
        self.nodes: Sequence[str] = ()
        #: What this machine does not allow, a sentence each.
        self.notes: list[str] = []
        self.disk = Disk(directory / "disk")
        #: What the store runs on, and in which version.
        self.about = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            (self.directory / "logs").mkdir(parents=True)
            set_shift(self.clock_file, 0)
            stack.enter_context(self.disk)
            if not self.disk.is_small:
                self.notes.append(f"the disk was never full: {self.disk.why_not}")
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def clock_file(self) -> Path:
        return self.directory / "clock"

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Start what is needed, and fill in what is offered. ``stack`` ends it."""

    @abstractmethod
    async def carry_out(self, event: Event) -> bool:
        """One fault, from its beginning to its end. False if it could not be."""

    @abstractmethod
    async def calm(self) -> None:
        """Whatever had been: all is well, and stays so."""

    async def examine(self) -> list[str]:
        """What is wrong with the store itself, now that nobody uses it."""
        return []

    @abstractmethod
    def save(self, target: Path) -> None:
        """Copy what the store has on its disk: the disk goes with the place."""

    def _scene(self, url: str, calm_url: str) -> Scene:
        return Scene(self.kind, url, calm_url, self.directory, self.clock_file)
