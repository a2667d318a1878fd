"""A store made of a backup: copied, compared with its digest, read from its first to its last row, and only
then named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from penstock.engine.storage.copying import DATA_FILE, LOCK_FILE, has_store, is_open
from penstock.errors import StoreCorruptError, StoreError, UsageError
from penstock.server.keeping.archive import SUFFIX, is_archive, unpack
from penstock.server.keeping.examining import OnProgress, be_quiet, run_child
from penstock.server.keeping.manifest import MANIFEST_FILE, Manifest, digest_of, find_manifest
from penstock.server.keeping.staging import create, staged

_BLOCK_BYTES: Final = 1 << 20


def restore(source: Path, store: Path, on_progress: OnProgress = be_quiet) -> Manifest:
    """Make the directory ``store`` of a backup, a directory or an archive; answers what is in it."""
    _check_source(source)
    _check_store(store)
    with staged(store) as place:
        if source.is_dir():
            manifest = find_manifest(source)
            sha256 = _copy(source / DATA_FILE, place.path / DATA_FILE, on_progress)
        else:
            unpack(source, place.path, on_progress)
            manifest = find_manifest(place.path)
            (place.path / MANIFEST_FILE).unlink()
            sha256 = digest_of(place.path / DATA_FILE, on_progress)
        assert manifest is not None, "_check_source and unpack have seen to it"
        if sha256 != manifest.sha256:
            raise StoreCorruptError(
                f"{source} is damaged or was changed since it was made: use another backup"
            )
        findings = run_child(["check", str(place.path)], on_progress, lock=place.lock)
        if findings.faults:
            fault = findings.faults[0]
            raise StoreCorruptError(f"{source} has faults ({fault.rule}: {fault.text}): use another backup")
        (place.path / LOCK_FILE).unlink(missing_ok=True)
        place.publish()
    return manifest


def _check_source(source: Path) -> None:
    if not source.exists():
        raise StoreError(f"{source} does not exist: name a backup, a directory or a {SUFFIX}")
    if source.is_dir():
        if not has_store(source) or find_manifest(source) is None:
            raise StoreError(f"{source} is no backup: it lacks {MANIFEST_FILE} or {DATA_FILE}")
    elif not is_archive(source):
        raise StoreError(f"{source} is no backup: name a directory or a {SUFFIX}")


def _check_store(store: Path) -> None:
    if not store.exists() or (store.is_dir() and not any(store.iterdir())):
        return
    if store.is_dir() and is_open(store):
        raise UsageError(
            f"{store} is a store that is open: choose another directory, or stop who uses it first"
        )
    raise UsageError(f"{store} exists: choose another directory, or move it away first")


def _copy(source: Path, target: Path, on_progress: OnProgress) -> str:
    """Answers the digest of what was copied."""
    digest, done, total = hashlib.sha256(), 0, source.stat().st_size
    with source.open("rb") as data, create(target) as copy:
        while block := data.read(_BLOCK_BYTES):
            digest.update(block)
            copy.write(block)
            done += len(block)
            on_progress("copying", done, total)
    return digest.hexdigest()
