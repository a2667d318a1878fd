"""A backup: a copy of one moment of a store that others go on using, checked before it gets its name.

1. Another process copies the store as it is now, and reads the copy from its first to its last row.
2. The digest of the copy and what it holds are written beside it (``manifest``).
3. Everything is synced, and renamed: there is a whole backup of that name, or none.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock, SystemClock
from penstock.engine.storage.copying import DATA_FILE, LOCK_FILE, has_store, is_open
from penstock.errors import StoreCorruptError, StoreError, UsageError
from penstock.server.keeping.archive import SUFFIX, is_archive, pack
from penstock.server.keeping.examining import Findings, OnProgress, be_quiet, no_store, run_child
from penstock.server.keeping.manifest import (
    MANIFEST_FILE,
    Manifest,
    digest_of,
    encode,
    find_manifest,
    new_manifest,
)
from penstock.server.keeping.staging import staged


class Backup(NamedTuple):
    """What was made."""

    manifest: Manifest
    #: the directory, if there is one
    directory: Path | None
    #: the archive, if one was asked for
    archive: Path | None


def backup(
    store: Path,
    directory: Path | None,
    archive: Path | None = None,
    *,
    replaces: bool = False,
    on_progress: OnProgress = be_quiet,
    clock: Clock | None = None,
) -> Backup:
    """Copy a store into a directory, an archive, or both. ``replaces``: older ones of these names go."""
    if not has_store(store):
        raise StoreError(no_store(store))
    if directory is None and archive is None:
        raise UsageError("say where to: a directory, --archive FILE.tar.zst, or both")
    if archive is not None:
        _check_archive(archive, replaces)
    if directory is not None:
        _check_directory(directory, replaces)
    # Without a directory of its own the copy lies where the archive comes to, as long as it is packed.
    final = directory if directory is not None else _unpacked(archive)
    with staged(final) as place:
        words = ["copy", str(store), str(place.path)]
        findings = run_child(words, on_progress, place.path / DATA_FILE, place.lock)
        if findings.faults:
            raise StoreCorruptError(_damaged(store, findings))
        _forget_openings(place.path)
        data = place.path / DATA_FILE
        now_ms = (clock or SystemClock()).now_ms()
        manifest = new_manifest(data, findings.keys, now_ms, digest_of(data, on_progress))
        (place.path / MANIFEST_FILE).write_bytes(encode(manifest))
        if archive is not None:
            pack(place.path, archive, on_progress)
        if directory is not None:
            place.publish()
    return Backup(manifest, directory, archive)


def _check_archive(archive: Path, replaces: bool) -> None:
    if not is_archive(archive):
        raise UsageError(f"the archive must end in {SUFFIX}, not be called {archive.name}")
    if archive.exists() and not replaces:
        raise UsageError(f"{archive} exists: choose another name, or say --force to replace it")


def _check_directory(directory: Path, replaces: bool) -> None:
    if not directory.exists():
        return
    if not directory.is_dir() or find_manifest(directory) is None:
        raise UsageError(f"{directory} exists and is no backup: choose another name")
    if not replaces:
        raise UsageError(f"{directory} exists: choose another name, or say --force to replace it")
    if is_open(directory):
        raise UsageError(f"{directory} is open as a store: close it, or choose another name")


def _unpacked(archive: Path | None) -> Path:
    assert archive is not None
    return archive.with_name(archive.name.removesuffix(SUFFIX) + ".unpacked")


def _damaged(store: Path, findings: Findings) -> str:
    first = findings.faults[0]
    more = f", and {len(findings.faults) - 1} more" if len(findings.faults) > 1 else ""
    return (
        f"{store} has faults, so it was not backed up ({first.rule}: {first.text}{more}):"
        f" `penstock check {store}` tells all of them"
    )


def _forget_openings(directory: Path) -> None:
    """What opening it left: a backup is nobody's open store."""
    (directory / LOCK_FILE).unlink(missing_ok=True)
