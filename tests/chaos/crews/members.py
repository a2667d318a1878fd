"""How members of crews are made and live: processes of ``tests.crash.lives`` under the clock of the scene.

    member("channels", "p0", channel_workers.publish, is_maker=True, pause_s=0.05)

The name of a member, and of its log, is that of its crew and its own. Its role knows it by its own only.
Must not import pytest: many of them are started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.chaos import clocks
from tests.chaos.model import Member, Running, Scene
from tests.chaos.processes import Forked
from tests.crash import lives
from tests.crash.lives import Role

#: What a role is told beside its store; asked for when a life begins.
Extra = Callable[[Scene], Mapping[str, str]]


def member(
    crew: str,
    name: str,
    role: Role,
    *,
    pause_s: float,
    is_maker: bool = False,
    weight: float = 1.0,
    extra: Extra = lambda scene: {},
) -> Member:
    """``pause_s``: between two calls. ``role`` must be a function of a module: it is sent to a process."""
    spawn = partial(_spawn, role, f"{crew}-{name}", pause_s, extra)
    return Member(f"{crew}-{name}", spawn, is_maker=is_maker, weight=weight)


def _spawn(role: Role, name: str, pause_s: float, extra: Extra, scene: Scene, seed: int) -> Running:
    told = {"pause_s": str(pause_s), **extra(scene)}
    return Forked(live, role, scene, name, seed, told)


def live(role: Role, scene: Scene, name: str, seed: int, extra: Mapping[str, str]) -> None:
    """The whole life of a member."""
    clocks.install(scene.clock_file)
    lives.live(role, scene.url, scene.log_of(name), seed, extra, name=name.partition("-")[2])
