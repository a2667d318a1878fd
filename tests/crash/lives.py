"""The life of a process that uses a store until it is killed: what it is given, and how it holds out.

    live(publish, url, log, seed, {"pause_s": "0.05"})       # the whole life; never returns

Rules: a process keeps its name and its log over all its lives. While its store is away it waits and asks
again, as a program does that must not give up. What ends it otherwise stands beside its log, in a file
``.error``. Knows nothing of what processes do. Must not import pytest: many of them are started.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import penstock
from penstock.client.resending import is_outage
from penstock.errors import PenstockError, StoreCorruptError, StoreFormatError
from penstock.loops import loop_factory
from tests.crash.stream_workers import StreamLog

_PAUSE_S = 0.05


class Life:
    """What a role is given."""

    def __init__(
        self,
        ps: penstock.Penstock,
        diary: StreamLog,
        chance: random.Random,
        extra: Mapping[str, str],
        name: str = "",
    ) -> None:
        self.ps = ps
        self.diary = diary
        self.chance = chance
        self.extra = extra
        self.name = name or diary.path.stem

    async def pause(self, usual_s: float = 0.0) -> None:
        """Between two calls: as long as the storm wants (``pause_s``), else as is usual here."""
        await asyncio.sleep(float(self.extra.get("pause_s", usual_s)))


Role: TypeAlias = Callable[[Life], Awaitable[None]]


def may_pass(error: PenstockError) -> bool:
    """Whether the same call may work later. A store that is damaged stays so."""
    return is_outage(error) and not isinstance(error, StoreCorruptError | StoreFormatError)


async def persistently(call: Callable[[], Awaitable[Any]]) -> Any:
    """As a program does that must not give up while a server is away."""
    return (await repeatedly(call))[0]


async def repeatedly(call: Callable[[], Awaitable[Any]]) -> tuple[Any, int]:
    """The same, and how often it was tried: all but the last may have happened, too."""
    attempts = 0
    while True:
        attempts += 1
        try:
            return await call(), attempts
        except PenstockError as error:
            if not may_pass(error):
                raise
            await asyncio.sleep(_PAUSE_S)


def live(
    role: Role, url: str, log: str | Path, seed: int, extra: Mapping[str, str] | None = None, name: str = ""
) -> None:
    """The whole life of a process. What goes wrong stands beside its log."""
    path = Path(log)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_live(role, url, path, seed, extra or {}, name))
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc())
        raise


async def _live(role: Role, url: str, log: Path, seed: int, extra: Mapping[str, str], name: str) -> None:
    async with await persistently(lambda: penstock.open(url).connect()) as ps:
        await role(Life(ps, StreamLog(log), random.Random(seed), extra, name))
