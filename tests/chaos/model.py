"""The words of the chaos program: a scene, crews with members, verdicts.

=========  ==============================================================================================
scene      one store with what is around it: an embedded directory, a server, a cluster
crew       one kind of work on it (streams, channels, pub/sub, transactions, the data pipeline)
member     one process of a crew; it keeps its name and its log over all its lives
weather    what happens to them: ``plan`` draws it from a seed, ``weather`` carries it out
verdict    what the judge of a crew found in the books, against what is in the store
=========  ==============================================================================================

The order is always the same: crews prepare, members live and die in the weather, then it is calm: members
that make new work are ended, the others go on until everything that was confirmed has arrived; all are
ended, and each crew is judged.

Rules: members write down what they try *before* they try it and what was confirmed *after* it was, in one
system call a line; nothing else is evidence. A crew knows nothing of the weather. Nothing here imports
pytest: many processes are started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import penstock

SceneKind = Literal["embedded", "redis", "cluster"]


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the work is done. Pickled into processes."""

    kind: SceneKind
    #: What members open. On servers it leads through what cuts and delays connections.
    url: str
    #: The same store, for the judge.
    calm_url: str
    #: Logs, archives, lakes: never on the disk that is filled.
    directory: Path
    #: Eight bytes, little-endian and signed: how many milliseconds the clocks of members are off.
    clock_file: Path

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def log_of(self, member: str) -> Path:
        return self.logs / f"{member}.log"

    def error_of(self, member: str) -> Path:
        """What ended a member that nobody has killed; none of them may exist in the end."""
        return self.logs / f"{member}.error"


class Running(Protocol):
    """A life of a member."""

    @property
    def pid(self) -> int: ...

    def is_alive(self) -> bool: ...

    def kill(self) -> None:
        """SIGKILL, with all its children; returns when it is gone."""


@dataclass(frozen=True, slots=True)
class Member:
    #: Unique in the scene, and the name of its log.
    name: str
    spawn: Callable[[Scene, int], Running]
    #: Makes new work, and is ended when it becomes calm.
    is_maker: bool = False
    #: How likely it is chosen beside the others; a Spark driver takes long to start.
    weight: float = 1.0
    #: A member that ends by itself when its store is away, and is replaced without a word.
    may_end: bool = False


@dataclass(slots=True)
class Verdict:
    """What the books say. ``wrong`` has one sentence for each broken promise."""

    crew: str
    #: What was counted: "messages confirmed" → 1,234
    counts: Mapping[str, int] = field(default_factory=dict)
    wrong: Sequence[str] = ()

    @property
    def checked(self) -> int:
        """How many operations were compared with what became of them."""
        return sum(self.counts.values())


class Crew(Protocol):
    """One kind of work: its processes, and the judge of their books."""

    @property
    def name(self) -> str: ...

    @property
    def members(self) -> Sequence[Member]: ...

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        """Before anybody lives: streams, groups, pipelines."""

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        """It is calm and the makers have ended: has everything that was confirmed arrived?"""

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        """All members have ended."""
