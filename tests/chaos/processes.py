"""The lives of members: they are started, killed, stopped, replaced; and who ends by itself is noted.

    async with Fleet(scene, members, seed=7) as fleet:
        await fleet.kill("writer-1")          # and it lives again
        with fleet.stopped("writer-1"): …     # SIGSTOP, SIGCONT
        await fleet.retire(makers)            # for good

Rules: a member has one life at a time. The seed of a life follows from the seed of the run, its name and its
number. A member that ends although nobody has killed it is replaced, and unless it ``may_end`` that is a
failure, with what it left in its ``.error`` file. A process that leads a group (a session of its own) is
stopped with its group. Knows nothing of what members do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from tests.chaos.model import Member, Running, Scene
from tests.chaos.plan import seed_of_life
from tests.forking import CONTEXT

#: A killed process is gone after this, however busy the machine.
HANGS_S: Final = 120.0
_LOOK_S: Final = 0.1
#: A member that ends at once would be started again and again.
_PAUSE_AFTER_AN_END_S: Final = 0.5
#: Failures with their words; more of them say nothing new.
_MOST_WORDS: Final = 5


class Forked:
    """A life that is a fork of a process that has imported everything already (``tests.forking``)."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        self._process = CONTEXT.Process(target=_live, args=(target, args), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: Final = self._process.pid

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(HANGS_S)
        assert self._process.exitcode is not None, f"process {self.pid} was killed and does not end"


def _live(target: Callable[..., None], args: tuple[Any, ...]) -> None:
    # In this weather every lost connection is logged; that is not what anybody wants to read.
    logging.getLogger().addHandler(logging.NullHandler())
    target(*args)


class Fleet:
    """All members of a scene."""

    def __init__(self, scene: Scene, members: Sequence[Member], seed: int) -> None:
        self._scene = scene
        self._members = {member.name: member for member in members}
        if len(self._members) < len(members):
            raise ValueError(f"members of a scene need names of their own: {[m.name for m in members]}")
        self._seed = seed
        self._lives: dict[str, Running] = {}
        self._lives_begun: Counter[str] = Counter()
        self._retired: set[str] = set()
        self._watch: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()
        #: Ends that nobody has caused, by member; those that may be are among them.
        self.ends: Counter[str] = Counter()
        self._failures: list[str] = []

    def __repr__(self) -> str:
        return f"<Fleet {len(self._lives)} alive of {len(self._members)}, {self.ends.total()} ended alone>"

    @property
    def failures(self) -> list[str]:
        """A text for each end that must not have been, with the last words of the process."""
        return [*self._failures, *self._words()]

    @property
    def lives(self) -> int:
        """How many processes there have been."""
        return self._lives_begun.total()

    async def __aenter__(self) -> Self:
        try:
            for name in self._members:
                await self._begin(name)
        except BaseException:
            await self.end()
            raise
        self._watch = asyncio.create_task(self._look_after_them())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Kill all. Harmless when repeated."""
        self._is_over.set()
        try:
            if self._watch is not None:
                await self._watch  # not cancelled: it may be about to start somebody
        finally:
            await self.retire(self._members)

    async def kill(self, name: str) -> bool:
        """End this life and begin the next. False if there is none at this moment."""
        life = self._lives.pop(name, None)
        if life is None:
            return False
        await asyncio.to_thread(life.kill)
        await self._begin(name)
        return True

    async def retire(self, names: Iterable[str]) -> None:
        """Kill these members for good."""
        names = list(names)
        self._retired.update(names)
        lives = [self._lives.pop(name) for name in names if name in self._lives]
        await asyncio.gather(*(asyncio.to_thread(life.kill) for life in lives))

    @contextmanager
    def stopped(self, name: str) -> Iterator[bool]:
        """Time stands still for a member. False if it does not live at this moment."""
        life = self._lives.get(name)
        if life is None or not life.is_alive():
            yield False
            return
        _signal(life, signal.SIGSTOP)
        try:
            yield True
        finally:
            # A life that was killed meanwhile is not in the book any more; its number may be another's.
            if self._lives.get(name) is life:
                _signal(life, signal.SIGCONT)

    async def _begin(self, name: str) -> None:
        """Unless it is retired."""
        if name in self._retired:
            return
        seed = seed_of_life(self._seed, name, self._lives_begun[name])
        self._lives_begun[name] += 1
        birth = asyncio.ensure_future(asyncio.to_thread(self._members[name].spawn, self._scene, seed))
        try:
            await asyncio.shield(birth)
        finally:
            # Also if nobody waits any more: a process that is not in the book would never be ended.
            self._lives[name] = await birth
        if name in self._retired:
            await self.retire([name])

    async def _look_after_them(self) -> None:
        while not await self._is_over_within(_LOOK_S):
            ended = {name: life for name, life in self._lives.items() if not life.is_alive()}
            for name, life in ended.items():
                if self._lives.get(name) is not life:
                    continue  # the weather was quicker
                del self._lives[name]
                self._note_end(name)
                await asyncio.to_thread(life.kill)  # the rest of its group, if it has left one
            if ended and await self._is_over_within(_PAUSE_AFTER_AN_END_S):
                return
            for name in ended:
                await self._begin(name)

    async def _is_over_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), seconds)
        return self._is_over.is_set()

    def _note_end(self, name: str) -> None:
        self.ends[name] += 1
        if not self._members[name].may_end and not self._scene.error_of(name).exists():
            self._failures.append(f"{name} ended by itself and left no word")

    def _words(self) -> list[str]:
        files = sorted(self._scene.logs.glob("*.error"))
        words = [f"{path.stem} ended by itself:\n{path.read_text().strip()}" for path in files]
        return [*words[:_MOST_WORDS], *(word.partition("\n")[0] for word in words[_MOST_WORDS:])]


def _signal(life: Running, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if os.getpgid(life.pid) == life.pid:
            os.killpg(life.pid, number)
        else:
            os.kill(life.pid, number)
