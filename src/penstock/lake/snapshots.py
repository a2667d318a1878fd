"""A table as it is now, read once for each version.

    snapshot = snapshots.newest()
    snapshot.version, snapshot.files, snapshot.progress("archive:store:0")

Rules: whether there is a newer version is asked of the file system, each time: two looks at names,
microseconds. A snapshot never changes. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.lake.delta import DeltaTable, translated
from penstock.lake.deltalog import LOG, DeltaLog
from penstock.lake.files import LakeFile, json_value, stats_text


class Snapshot:
    """One version of a table."""

    def __init__(self, delta: DeltaTable) -> None:
        self.delta = delta
        self.version = delta.version()
        self.partition_by = tuple(delta.metadata().partition_columns)
        self._adds: Any = pa.table(delta.get_add_actions())

    def progress(self, app: str) -> int | None:
        return self.delta.transaction_version(app)

    @cached_property
    def schema(self) -> Any:
        """``pyarrow.Schema``"""
        return pa.schema(self.delta.schema().to_arrow())

    @cached_property
    def paths(self) -> frozenset[str]:
        """Of its files, relative to the table. A commit needs no more, and tables may have thousands."""
        return frozenset(unquote(path) for path in self._adds.column("path").to_pylist())

    @cached_property
    def files(self) -> tuple[LakeFile, ...]:
        return tuple(_file(row) for row in self._adds.to_pylist())

    def __repr__(self) -> str:
        return f"<Snapshot version {self.version}, {self._adds.num_rows} files>"


class Snapshots:
    """The newest snapshot of one table."""

    def __init__(self, name: str, root: Path) -> None:
        self._name = name
        self._root = root
        self._log = DeltaLog(root)
        self._lock = Lock()
        #: the last that was read
        self.known: Snapshot | None = None
        self._changed_ns = -1

    def newest(self) -> Snapshot:
        with self._lock, translated(f"table {self._name} cannot be read"):
            known = self.known
            # The next version is there; or the log was cleaned beyond it while nobody looked.
            changed_ns = (self._root / LOG).stat().st_mtime_ns
            if known is not None and changed_ns == self._changed_ns and not self._log.has(known.version + 1):
                return known
            fresh = DeltaTable(str(self._root))
            if known is None or fresh.version() != known.version:
                self.known = known = Snapshot(fresh)
            self._changed_ns = changed_ns
            return known

    def at(self, version: int) -> Snapshot:
        """An older one, if its log is still there."""
        with translated(f"table {self._name} cannot be read as of version {version}"):
            return Snapshot(DeltaTable(str(self._root), version=version))

    def checkpoint(self) -> None:
        """One file that stands for the whole log so far."""
        with translated(f"table {self._name} has no new checkpoint of its log"):
            DeltaTable(str(self._root)).create_checkpoint()


def _file(row: Mapping[str, Any]) -> LakeFile:
    partition = {
        name: None if value is None else str(json_value(value))
        for name, value in (row.get("partition") or {}).items()
    }
    stats = stats_text(row["num_records"], *(_told(row.get(part)) for part in ("min", "max", "null_count")))
    return LakeFile(
        unquote(row["path"]),
        row["size_bytes"],
        row["num_records"] or 0,
        partition,
        stats,
        row["modification_time"],
    )


def _told(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: json_value(value) for name, value in (values or {}).items() if value is not None}
