"""One commit: files join a table and leave it, with the progress of those who wrote them, or not at all.

How a commit is made exactly once:

1. The writer locks ``<table>/_penstock.lock`` (flock), so that writers of ours come one after the other.
2. It looks at the table as it is now. All of its progress reached: somebody, perhaps itself before a crash,
   has committed this, and nothing is done. Some of it reached: its batch is no batch of this table, an
   error. Somebody went on from where this batch begins (``expected``): an error as well.
3. What it adds must lie there whole and not belong to the table yet; what it removes must belong to it still.
   delta-rs does not ask, and a file that two rewrites remove would be there twice.
4. Files, and the directories that name them, are synced to the disk.
5. delta-rs writes the next version of the log, if nobody else has: a link that fails if the name exists.
   Another program that committed in between (it knows nothing of our lock) sends us back to 2.
6. The log is synced. A checkpoint of the log is made now and then; if it fails, the commit stands.

A crash before 5 leaves files that no reader sees and vacuum removes; after 5 everything is there.

Nothing here knows who commits, or why.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.errors import LakeError, UsageError
from penstock.lake.delta import (
    AddAction,
    CommitFailedError,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    translated,
)
from penstock.lake.deltalog import LOG, MARK, DeltaLog
from penstock.lake.files import WrittenFile
from penstock.transactions.archive.disk import locked, sync

if TYPE_CHECKING:
    from penstock.lake.snapshots import Snapshot, Snapshots

logger = logging.getLogger(__name__)

LOCK: Final = "_penstock.lock"
LOCK_WAIT_MS: Final = 60_000
#: Versions between two checkpoints of the log: who opens a table reads at most so many small files.
CHECKPOINT_EVERY: Final = 50
#: Programs that are not ours and commit at the same time.
_ATTEMPTS: Final = 20
#: delta-rs tries once, so that what was checked is still true; checkpoints are made here, log files stay.
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


@dataclass(frozen=True, slots=True)
class CommitResult:
    #: of the table: with this commit, or as it was found
    version: int
    #: False: somebody had committed this progress before, and nothing was done
    is_new: bool
    files: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """What is to be committed."""

    files: Sequence[WrittenFile]
    #: application -> how far it is with this commit
    progress: Mapping[str, int]
    removes: Sequence[str] = ()
    is_rewrite: bool = False
    #: application -> how far it must be now (None: it never committed): what follows was worked on
    expected: Mapping[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.files and not self.removes and not self.progress:
            raise UsageError("a commit must have files, removes, or progress: there is nothing to do")
        for app, version in self.progress.items():
            if version < 0:
                raise UsageError(f"progress of {app!r} must be at least 0, not {version}")

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def __str__(self) -> str:
        """For errors: what was not committed."""
        batch = ", ".join(f"{app}={version}" for app, version in self.progress.items())
        return f"{len(self.files)} files{f' of {batch}' if batch else ''}"


class Committer:
    """Commits to one table."""

    def __init__(self, name: str, root: Path, snapshots: Snapshots, clock: Clock) -> None:
        self._name = name
        self._root = root
        self._snapshots = snapshots
        self._clock = clock
        self._log = DeltaLog(root)

    def commit(self, commit: Commit) -> CommitResult:
        what = f"table {self._name}: {commit} not committed"
        with ExitStack() as held:
            with translated(what):
                held.enter_context(locked(self._root / LOCK, wait_ms=LOCK_WAIT_MS, clock=self._clock))
            result = self._tried(commit, what)
        if result.is_new and result.version % CHECKPOINT_EVERY == 0:
            self._checkpoint()
        return result

    def _tried(self, commit: Commit, what: str) -> CommitResult:
        for _ in range(_ATTEMPTS):
            snapshot = self._snapshots.newest()
            if self._is_reached(commit, snapshot, what):
                return CommitResult(snapshot.version, is_new=False)
            self._check(commit, snapshot, what)
            with translated(what):
                self._sync(commit)
                if self._is_written(commit, snapshot):
                    sync(self._log.file(snapshot.version + 1))
                    sync(self._root / LOG)
                    return CommitResult(snapshot.version + 1, True, len(commit.files), commit.rows)
        raise LakeError(f"{what}: other programs committed {_ATTEMPTS} times meanwhile, try again later")

    def _is_reached(self, commit: Commit, snapshot: Snapshot, what: str) -> bool:
        found = {app: snapshot.progress(app) for app in commit.progress}
        reached = [
            app for app, version in found.items() if version is not None and version >= commit.progress[app]
        ]
        if reached and len(reached) < len(found):
            app = reached[0]
            raise LakeError(
                f"{what}: {app} is at {found[app]} already, and others of this batch are not;"
                " batches must be cut the same way when they are tried again"
            )
        return bool(reached)

    def _check(self, commit: Commit, snapshot: Snapshot, what: str) -> None:
        for app, begin in commit.expected.items():
            if (at := snapshot.progress(app)) != begin:
                raise LakeError(
                    f"{what}: {app} is at {at}, this began at {begin}; somebody else went on, begin again"
                )
        for file in commit.files:
            path = self._root / file.path
            with translated(what):
                size_bytes = path.stat().st_size
            if size_bytes != file.size_bytes:
                raise LakeError(
                    f"{what}: {path} has {size_bytes} bytes, it was written with {file.size_bytes}"
                )
            if file.path in snapshot.paths:
                raise LakeError(f"{what}: {file.path} belongs to the table already")
        for lost in (path for path in commit.removes if path not in snapshot.paths):
            raise LakeError(
                f"{what}: {lost} does not belong to the table any more, somebody else rewrote it; begin again"
            )

    def _sync(self, commit: Commit) -> None:
        for file in commit.files:
            sync(self._root / file.path)
        for directory in sorted({parent for file in commit.files for parent in Path(file.path).parents}):
            sync(self._root / directory)

    def _is_written(self, commit: Commit, snapshot: Snapshot) -> bool:
        """The next version of the log. False: somebody else has written it."""
        mark = secrets.token_hex(8)
        try:
            snapshot.delta.create_write_transaction(
                self._actions(commit),
                "append",
                snapshot.delta.schema(),
                partition_by=list(snapshot.partition_by),
                commit_properties=CommitProperties(
                    custom_metadata={MARK: mark},
                    max_commit_retries=0,
                    app_transactions=[Transaction(app, version) for app, version in commit.progress.items()],
                ),
                post_commithook_properties=_HOOKS,
            )
        except CommitFailedError:
            if not self._log.has(snapshot.version + 1):
                raise
            return self._is_ours(snapshot.version + 1, mark)
        except Exception:
            # Whatever went wrong, it may have gone wrong after the version was written.
            if not self._is_ours(snapshot.version + 1, mark):
                raise
        return True

    def _is_ours(self, version: int, mark: str) -> bool:
        found = self._log.commit(version)
        return found is not None and found.mark == mark

    def _actions(self, commit: Commit) -> list[AddAction | RemoveAction]:
        now_ms = self._clock.now_ms()
        is_change = not commit.is_rewrite
        adds = (
            AddAction(file.path, file.size_bytes, file.partition, now_ms, is_change, file.stats)
            for file in commit.files
        )
        return [*adds, *(RemoveAction(path, is_change, now_ms) for path in commit.removes)]

    def _checkpoint(self) -> None:
        try:
            self._snapshots.checkpoint()
        except LakeError as error:
            logger.warning("the commit stands, a later one makes the checkpoint: %s", error)
