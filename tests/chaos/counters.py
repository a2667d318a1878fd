"""The smallest crew there can be, for the tests of this program: counters that only go up.

Two makers count (INCR), a copier copies what they have come to. A counter must be at least as high as it was
confirmed, and no higher than it was tried; it settles when the copies are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

import penstock
from penstock.errors import PenstockError
from tests.chaos.crews.members import member
from tests.chaos.model import Member, Scene, Verdict
from tests.crash.lives import Life, may_pass, persistently
from tests.crash.stream_workers import read_lines

NAME: Final = "counters"
MAKERS: Final = ("c0", "c1")
_PAUSE_S: Final = 0.005


class Counters:
    """``is_careless``: the copier ends by itself at once, as it must not."""

    name = NAME

    def __init__(self, *, is_careless: bool = False) -> None:
        copier = fail if is_careless else copy
        self.members: Sequence[Member] = [
            *(member(NAME, name, count, pause_s=_PAUSE_S, is_maker=True) for name in MAKERS),
            member(NAME, "copier", copier, pause_s=_PAUSE_S, weight=0.5),
        ]

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        for name in MAKERS:
            await ps.set(name, b"0")

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        return all([await ps.get(name) == await ps.get(f"{name} copied") for name in MAKERS])

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        wrong, confirmed = [], 0
        for name in MAKERS:
            lines = Counter(word for [word] in read_lines(scene.log_of(f"{NAME}-{name}")))
            found = int(await ps.get(name) or 0)
            confirmed += lines["ok"]
            if not lines["ok"] <= found <= lines["try"]:
                wrong.append(f"{name} is {found}; {lines['ok']} were confirmed, {lines['try']} tried")
        return Verdict(NAME, {"counts confirmed": confirmed}, wrong)


async def count(life: Life) -> None:
    while True:
        life.diary.write("try")
        try:
            await life.ps.incr(life.name)
        except PenstockError as error:
            if not may_pass(error):
                raise
        else:
            life.diary.write("ok")
        await life.pause()


async def copy(life: Life) -> None:
    while True:
        for name in MAKERS:
            value = await persistently(partial(life.ps.get, name))
            await persistently(partial(life.ps.set, f"{name} copied", value))
        await life.pause()


async def fail(life: Life) -> None:
    raise RuntimeError("a careless member")
