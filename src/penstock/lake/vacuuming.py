"""Removes what no reader needs any more: files of a table, and of its log.

A file goes when all of this is true:

1. It does not belong to the table now.
2. No commit within the horizon removed it: a reader that began before that commit may still be at it.
3. No table that is made from this one has yet to take it in.
4. Nobody wrote to it within the horizon: it is no batch that is about to be committed.

So a version that was the newest at any moment within the horizon stays whole. Of the log go versions before
the last checkpoint that is older than the horizon, unless 3 holds them.

Rules: what to remove is found without the lock of the table, and looked at once more under it. Whoever dies
on the way leaves the rest for the next time. What this module must not know: which jobs run, and when.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.clock import Clock
from penstock.errors import UsageError
from penstock.lake.committing import LOCK, LOCK_WAIT_MS
from penstock.lake.delta import translated
from penstock.lake.deltalog import LOG, DeltaLog, LoggedCommit
from penstock.lake.snapshots import Snapshots
from penstock.transactions.archive.disk import locked

#: Left in the log by a writer that died.
_STAGED: Final = ("*.tmp", "*#*")


class Vacuum:
    """The work of one call."""

    def __init__(
        self,
        name: str,
        root: Path,
        snapshots: Snapshots,
        clock: Clock,
        *,
        older_than_ms: int,
        taken: int | None,
    ) -> None:
        """``taken``: the version up to which tables made from this one have taken it in."""
        if older_than_ms < 0:
            raise UsageError(f"older_than_ms must be at least 0, not {older_than_ms}")
        self._name = name
        self._root = root
        self._snapshots = snapshots
        self._clock = clock
        self._log = DeltaLog(root)
        self._start_ms = clock.now_ms() - older_than_ms
        self._taken = taken

    def run(self, *, dry_run: bool) -> list[str]:
        """Files that were removed (or would be), relative to the table; files of the log are not named."""
        with translated(f"table {self._name} is not vacuumed"):
            commits = self._commits()
            needed = self._needed(commits)
            unneeded = [path for path in self._old_files() if path not in needed]
            if dry_run:
                return unneeded
            with locked(self._root / LOCK, wait_ms=LOCK_WAIT_MS, clock=self._clock):
                active = self._snapshots.newest().paths
                unneeded = [path for path in unneeded if path not in active]
                self._remove(unneeded)
                self._clean_log(commits)
        return unneeded

    # ---------------------------------------------------------------------------------------- files

    def _commits(self) -> list[tuple[LoggedCommit, int]]:
        """All that the log still has, and when they were made: by its writer or by the disk, the later."""
        found = [self._log.commit(version) for version in self._log.versions()]
        return [
            (commit, max(commit.at_ms, _changed_ms(self._log.file(commit.version))))
            for commit in found
            if commit is not None
        ]

    def _needed(self, commits: Iterable[tuple[LoggedCommit, int]]) -> set[str]:
        needed = set(self._snapshots.newest().paths)
        for commit, at_ms in commits:
            if at_ms >= self._start_ms:
                needed.update(commit.removed)
            if self._taken is not None and commit.version > self._taken:
                needed.update(commit.added)
        return needed

    def _old_files(self) -> Iterator[str]:
        """Everything below the table that nobody wrote to within the horizon; not the log, not the lock."""
        for directory, names, files in os.walk(self._root):
            here = Path(directory)
            if here == self._root:
                names[:] = [name for name in names if name != LOG]
                files = [name for name in files if name != LOCK]
            for path in (here / name for name in sorted(files)):
                with suppress(FileNotFoundError):
                    if _changed_ms(path) < self._start_ms:
                        yield path.relative_to(self._root).as_posix()

    def _remove(self, paths: Iterable[str]) -> None:
        emptied: set[Path] = set()
        for path in paths:
            (self._root / path).unlink(missing_ok=True)
            emptied.update(self._root / parent for parent in Path(path).parents if parent.parts)
        for directory in sorted(emptied, reverse=True):
            # Not empty: something in it is needed, or somebody writes there.
            with suppress(OSError):
                directory.rmdir()

    # ------------------------------------------------------------------------------------------ log

    def _clean_log(self, commits: Iterable[tuple[LoggedCommit, int]]) -> None:
        passed = [commit.version for commit, at_ms in commits if at_ms < self._start_ms]
        kept = [version for version in self._log.checkpoints() if passed and version <= passed[-1]]
        if kept:
            self._forget_before(kept[-1])
        for pattern in _STAGED:
            for path in self._log.path.glob(pattern):
                if _changed_ms(path) < self._start_ms:
                    path.unlink(missing_ok=True)

    def _forget_before(self, checkpoint: int) -> None:
        for version in self._log.versions():
            if version < checkpoint and (self._taken is None or version <= self._taken):
                self._log.file(version).unlink(missing_ok=True)
        for version in self._log.checkpoints():
            if version < checkpoint:
                for path in self._log.checkpoint_files(version):
                    path.unlink(missing_ok=True)


def _changed_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
