"""The directory of a lake.

    <root>/_penstock/lake.json                id of the lake, version of the layout
    <root>/<table>/_delta_log/                Delta's log, written by delta-rs only
    <root>/<table>/_penstock.lock             who commits
    <root>/<table>/data/<name>/…/*.parquet    files that somebody wrote; they count once they are committed
    <root>/_checkpoints/<job>/                Spark's checkpoints

``lake.json`` is ``{"id": "<16 hex digits>", "layout": 1}``.

Rules: the directory is shared by everybody who writes or reads, on a file system with locks and hard links
(a local disk, NFS); object stores are not supported. Who finds another layout stops.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, LakeError, StoreFormatError, UsageError
from penstock.lake import table as tables_at
from penstock.lake.delta import translated
from penstock.lake.table import LakeTable
from penstock.lake.tables import TABLES, TableSpec, derived_from
from penstock.transactions.archive.disk import sync

LAYOUT: Final = 1
PRIVATE: Final = "_penstock"
CHECKPOINTS: Final = "_checkpoints"
_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
#: delta-rs decodes them in paths, Spark expands them.
_BAD_IN_PATHS: Final = frozenset("%*?[]{}\\")


class _About(msgspec.Struct, frozen=True):
    id: str
    layout: int


def is_lake(root: str | Path) -> bool:
    return _about(Path(root)).is_file()


class Lake:
    """The tables in one directory."""

    def __init__(self, root: Path, id: str, clock: Clock) -> None:
        self.root = root
        #: made with the lake
        self.id = id
        self._clock = clock
        self._lock = Lock()
        self._tables: dict[str, LakeTable] = {}

    @classmethod
    def open(cls, root: str | Path, *, create: bool = True, clock: Clock | None = None) -> Lake:
        """The lake at ``root``; it is made if there is none, unless ``create`` is False."""
        path = Path(root).absolute()
        if bad := sorted(_BAD_IN_PATHS & set(str(path))):
            raise ConfigError(f"the path of a lake must be without {' '.join(bad)}, not {str(path)!r}")
        if not is_lake(path):
            if not create:
                raise ConfigError(f"there is no lake at {path}: give the directory of one")
            _make(path)
        return cls(path, _read(path).id, clock or SystemClock())

    def table(self, name: str) -> LakeTable:
        """One of the tables of ``tables.py``; made at first use."""
        spec = TABLES.get(name)
        if spec is None:
            raise UsageError(f"a lake has no table {name!r}: there are {', '.join(TABLES)}")
        with self._lock:
            if name not in self._tables:
                root = self.root / name
                if not tables_at.exists(root):
                    tables_at.make(spec, root, self._clock)
                self._tables[name] = LakeTable(
                    spec, root, clock=self._clock, taken=lambda: self._taken_from(name)
                )
            return self._tables[name]

    def names(self) -> list[str]:
        """Tables that exist."""
        return [name for name in TABLES if tables_at.exists(self.root / name)]

    def checkpoint(self, job: str) -> Path:
        """Where a job has Spark's checkpoints; it is not made here."""
        if not _JOB.fullmatch(job):
            raise UsageError(f"job must be 1 to 100 letters, digits or any of _ . -, not {job!r}")
        return self.root / CHECKPOINTS / job

    def _taken_from(self, name: str) -> int | None:
        """Up to which version of a table every table that is made from it has come."""
        made = [self._progress_of(spec) for spec in derived_from(name)]
        return min((version for version in made if version is not None), default=None)

    def _progress_of(self, spec: TableSpec) -> int | None:
        """None: there is no such table, or it has not begun; then it begins with the table whole."""
        if not tables_at.exists(self.root / spec.name):
            return None
        return self.table(spec.name).progress(spec.app)

    def __repr__(self) -> str:
        return f"<Lake {self.id} at {self.root}: {', '.join(self.names()) or 'empty'}>"


def _about(root: Path) -> Path:
    return root / PRIVATE / "lake.json"


def _read(root: Path) -> _About:
    path = _about(root)
    with translated(f"{path} cannot be read"):
        content = path.read_bytes()
    try:
        about = msgspec.json.decode(content, type=_About)
    except msgspec.DecodeError as error:
        raise LakeError(f"{path} must tell the id and the layout of a lake: {error}") from error
    if about.layout != LAYOUT:
        raise StoreFormatError(
            f"the lake at {root} has layout {about.layout}, this version of Penstock reads {LAYOUT}"
        )
    return about


def _make(root: Path) -> None:
    """Whoever is first names the lake."""
    with translated(f"no lake can be made at {root}"):
        if root.is_dir() and any(path.name != PRIVATE for path in root.iterdir()):
            raise ConfigError(f"{root} has files and is no lake: give an empty directory, or a new one")
        path = _about(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f"lake.{secrets.token_hex(4)}.tmp")
        staged.write_bytes(msgspec.json.encode(_About(secrets.token_hex(8), LAYOUT)))
        try:
            sync(staged)
            os.link(staged, path)
        except FileExistsError:
            return
        finally:
            staged.unlink()
        sync(path.parent)
        sync(root)
