"""What lies beside a copy of a store, in ``manifest.json``: when it was made, how many keys it has, which
digest.

A directory with it is a backup. Without it, or with a digest that is not that of ``data.mdb``, nothing is
restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.engine.storage.layout import FORMAT_VERSION
from penstock.errors import StoreError, StoreFormatError
from penstock.version import __version__

MANIFEST_FILE: Final = "manifest.json"
_BLOCK_BYTES: Final = 1 << 20


class Manifest(msgspec.Struct, frozen=True):
    """Of one backup."""

    #: the Penstock that made it
    penstock: str
    #: of the bytes in ``data.mdb``
    store_format: int
    made_at: str
    #: keys by database
    keys: dict[str, int]
    bytes: int
    sha256: str


def new_manifest(file: Path, keys: dict[str, int], now_ms: int, sha256: str) -> Manifest:
    made_at = datetime.fromtimestamp(now_ms // 1_000, UTC).isoformat().replace("+00:00", "Z")
    return Manifest(__version__, FORMAT_VERSION, made_at, keys, file.stat().st_size, sha256)


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(data: bytes, where: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{where} is no manifest of a backup: {error}") from error
    if manifest.store_format > FORMAT_VERSION:
        raise StoreFormatError(
            f"{where} is of a newer Penstock ({manifest.penstock}, format {manifest.store_format};"
            f" this one reads {FORMAT_VERSION}); upgrade Penstock to use it"
        )
    return manifest


def find_manifest(directory: Path) -> Manifest | None:
    """None if the directory is no backup."""
    file = directory / MANIFEST_FILE
    return decode(file.read_bytes(), file) if file.is_file() else None


def digest_of(file: Path, on_progress: Callable[[str, int, int], None]) -> str:
    """SHA-256 of a file, in hex."""
    digest, done, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as data:
        while block := data.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            on_progress("checking", done, total)
    return digest.hexdigest()
