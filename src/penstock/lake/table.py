"""One table of a lake: a Delta table whose files Spark or Arrow wrote, and which delta-rs commits.

    files = table.written("orders-0-5000")             # what somebody has put under that name
    table.commit(files, progress={"messages:3f…:orders": 5000})
    table.progress("messages:3f…:orders")              # 5000

Rules:

1. What was not committed is seen by no reader, whatever lies in the directory.
2. A batch that comes again (a crash, two writers) is recognised by its progress and not committed twice.
3. A file never changes once it was committed. Names are used once: see ``files.unique_name``.
4. Any thread and any process may call; reading needs no lock.

Nothing here knows what a table is for (``tables.py``), or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.errors import LakeError
from penstock.lake import files as file_of
from penstock.lake.changes import Change, changes_of
from penstock.lake.committing import LOCK, LOCK_WAIT_MS, Commit, CommitResult, Committer
from penstock.lake.delta import DeltaTable, Schema, translated
from penstock.lake.deltalog import LOG
from penstock.lake.files import LakeFile, WrittenFile
from penstock.lake.snapshots import Snapshot, Snapshots
from penstock.lake.tables import TableSpec
from penstock.lake.vacuuming import Vacuum
from penstock.transactions.archive.disk import locked


class LakeTable:
    """One table; it must exist (``make``)."""

    def __init__(
        self,
        spec: TableSpec,
        root: Path,
        *,
        clock: Clock | None = None,
        taken: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``taken``: the version up to which tables made from this one have it; None if there are none."""
        self.spec = spec
        self.name = spec.name
        self.root = root
        #: pyarrow.Schema
        self.schema: Any = spec.schema
        self.partition_by = spec.partition_by
        self._clock = clock or SystemClock()
        self._taken = taken
        self._snapshots = Snapshots(spec.name, root)
        self._committer = Committer(spec.name, root, self._snapshots, self._clock)
        self._check_columns()

    def _check_columns(self) -> None:
        found = self.snapshot().schema
        for field in self.schema:
            if field.name not in found.names or not found.field(field.name).type.equals(field.type):
                raise LakeError(
                    f"table {self.name} at {self.root} has no column {field.name!r} of type {field.type}:"
                    " another version of Penstock made it"
                )

    # -------------------------------------------------------------------------------------- reading

    def version(self) -> int:
        """The newest version; 0 is the empty table."""
        return self.snapshot().version

    def progress(self, app: str) -> int | None:
        """How far an application has come; None if it never committed."""
        return self.snapshot().progress(app)

    def changes(self, after: int, upto: int | None = None) -> list[Change]:
        """Commits later than ``after`` that added rows, oldest first; rewrites are left out.

        ``after`` 0 is the beginning. If the log does not go back so far, the first change is the whole table.
        """
        newest = self.version()
        end = newest if upto is None else min(upto, newest)
        return changes_of(self.root, self.name, after, end, lambda version: sorted(self._at(version).paths))

    def files(self) -> list[LakeFile]:
        """What the table consists of now."""
        return list(self.snapshot().files)

    def paths(self) -> list[str]:
        """The same as absolute paths, for readers of Parquet; [] if the table is empty."""
        return [str(self.root / path) for path in sorted(self.snapshot().paths)]

    def dataset(self) -> Any:
        """A ``pyarrow.dataset.Dataset`` of the table as it is now."""
        snapshot = self.snapshot()
        with translated(f"table {self.name} cannot be read"):
            return snapshot.delta.to_pyarrow_dataset()

    def snapshot(self) -> Snapshot:
        """Version and files that belong together."""
        return self._snapshots.newest()

    def _at(self, version: int) -> Snapshot:
        newest = self.snapshot()
        return newest if newest.version == version else self._snapshots.at(version)

    # -------------------------------------------------------------------------------------- writing

    def data_directory(self, name: str) -> Path:
        """Where files are to be written that are committed later; it is not made here."""
        return self.root / file_of.DATA / file_of.check_name(name)

    def written(self, name: str) -> list[WrittenFile]:
        """What lies there now. Empty and broken files raise ``LakeError``; without rows they are left out."""
        return file_of.written(self.root, self.spec, name)

    def commit(
        self,
        files: Sequence[WrittenFile],
        *,
        progress: Mapping[str, int],
        removes: Sequence[str] = (),
        is_rewrite: bool = False,
        expected: Mapping[str, int | None] | None = None,
    ) -> CommitResult:
        """Files join the table, and ``removes`` leave it, together with the progress of applications.

        If all of the progress is reached already nothing is done (``is_new`` is False); if some is, that is
        an error. ``is_rewrite``: the rows are the same as before, ``changes`` leaves it out. ``expected``:
        how far applications must be now; an error if somebody else went on meanwhile.
        """
        return self._committer.commit(Commit(files, progress, removes, is_rewrite, expected or {}))

    def checkpoint_log(self) -> None:
        """One file that stands for the log so far, so that opening stays fast; commits do so now and then."""
        self._snapshots.checkpoint()

    def vacuum(self, *, older_than_ms: int, dry_run: bool = False) -> list[str]:
        """Remove files that no version of the last ``older_than_ms`` needs; which, relative to the table."""
        vacuum = Vacuum(
            self.name,
            self.root,
            self._snapshots,
            self._clock,
            older_than_ms=older_than_ms,
            taken=self._taken(),
        )
        return vacuum.run(dry_run=dry_run)

    def __repr__(self) -> str:
        known = self._snapshots.known
        state = "unread" if known is None else f"version {known.version}, {len(known.paths)} files"
        return f"<LakeTable {self.name} {state}>"


def exists(root: Path) -> bool:
    return (root / LOG).is_dir() and any((root / LOG).iterdir())


def make(spec: TableSpec, root: Path, clock: Clock) -> None:
    """An empty table, if there is none. Several may try at once."""
    with (
        translated(f"table {spec.name} cannot be made"),
        locked(root / LOCK, wait_ms=LOCK_WAIT_MS, clock=clock),
    ):
        if not exists(root):
            DeltaTable.create(
                str(root),
                Schema.from_arrow(spec.schema),
                name=spec.name,
                partition_by=list(spec.partition_by),
                configuration={
                    "delta.dataSkippingStatsColumns": ",".join(spec.stats),
                    # Both are done here, where it is known who still needs what.
                    "delta.enableExpiredLogCleanup": "false",
                    "delta.checkpointInterval": "1000000000",
                },
            )
