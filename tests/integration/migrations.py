"""Migrations for tests: run in this process, or in one that kills itself in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import penstock
from penstock.moving import Migration, Report
from penstock.moving.journal import Journal
from tests.forking import CONTEXT

LONG_S = 60.0


async def migrate(source: str, target: str, *, verify: bool = True, **options: Any) -> Report:
    """What ``penstock migrate`` does."""
    async with penstock.open(source) as one, penstock.open(target) as other:
        migration = Migration(one, other, source_url=source, **options)
        await migration.prepare()
        report = await migration.run()
        return await migration.verify() if verify else report


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _migrate_and_die(source: str, target: str, steps: int, dies_before_writing: bool) -> None:
    left = steps

    def count(_keys: int, _elements: int) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            _kill()

    if dies_before_writing:
        note = Journal.note

        async def note_and_count(self: Journal, page: Any) -> None:
            await note(self, page)
            count(0, 0)

        Journal.note = note_and_count  # type: ignore[method-assign]
        asyncio.run(migrate(source, target))
    else:
        asyncio.run(migrate(source, target, on_progress=count))


def kill_in_the_middle(source: str, target: str, steps: int, *, dies_before_writing: bool = False) -> None:
    """Run a migration in another process, which is killed after so many steps."""
    process = CONTEXT.Process(
        target=_migrate_and_die, args=(source, target, steps, dies_before_writing), daemon=True
    )
    process.start()
    process.join(LONG_S)
    assert process.exitcode == -signal.SIGKILL, "it came to its end before it was killed"
