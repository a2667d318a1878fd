"""A node that archives, and is killed or stopped at a given point. Run as a program:

    python -m tests.unit.transactions.archive.crashing_node
        <url> <archive> <node> <point> <signal> <lock1_ms> <lock2_ms>

Points, in the order in which a batch passes them: ``handed`` (the store has given it), ``begun`` (the lock is
held, the number written), ``staged`` (a temporary file is there), ``verified``, ``renamed`` (before its
directory is synced), ``first day`` (one of two files is there), ``written``, ``acknowledged``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import PenstockError
from penstock.transactions.archive import ArchiveBatch, Archiver
from penstock.transactions.archive.parquet import ParquetArchive
from penstock.transactions.store import TransactionStore

POINTS = ("handed", "begun", "staged", "verified", "renamed", "first day", "written", "acknowledged")


class CrashingArchive(ParquetArchive):
    """Reaches points; at the chosen one its process gets the signal."""

    def __init__(self, root: str, reached: Callable[[str], None]) -> None:
        super().__init__(root)
        self._reached = reached

    def write(self, batch: ArchiveBatch) -> None:
        self._reached("handed")
        super().write(batch)
        self._reached("written")

    def _held(self, batch: ArchiveBatch) -> set[str]:
        self._reached("begun")
        return super()._held(batch)

    def _stage(self, staged: Path, content: Any) -> None:
        super()._stage(staged, content)
        self._reached("staged")

    def _verify(self, *arguments: Any) -> None:
        super()._verify(*arguments)
        self._reached("verified")

    def _publish(self, staged: Path, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(path)
        self._reached("renamed")
        staged.write_bytes(path.read_bytes())
        super()._publish(staged, path)
        self._reached("first day")


async def main(url: str, root: str, node: str, point: str, what: str, lock1_ms: str, lock2_ms: str) -> None:
    is_armed = True

    def reached(name: str) -> None:
        nonlocal is_armed
        if is_armed and name == point:
            is_armed = False
            # To this very thread: sent to the process, another may take it while this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.Signals[what])

    async with penstock.open(url) as ps:
        store = TransactionStore(ps)
        archiver = Archiver(
            store,
            CrashingArchive(root, reached),
            node=node,
            lock1_ms=int(lock1_ms),
            lock2_ms=int(lock2_ms),
        )
        while True:
            try:
                if await archiver.run_once():
                    reached("acknowledged")
                    return
            except PenstockError as error:
                # Whoever was away while others went on is told so; then it has nothing left to do.
                print(error, flush=True)  # noqa: T201 - the test reads it
                return
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
