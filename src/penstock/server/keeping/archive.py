"""A backup as one file: a tar of ``manifest.json`` and ``data.mdb`` under Zstandard, as ``tar --zstd``
reads and writes it.

It is written under a name beside the final one and moved there when it is on disk.
"""

from __future__ import annotations

import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from penstock.engine.storage.copying import DATA_FILE, sync_file
from penstock.errors import StoreCorruptError
from penstock.server.keeping.examining import OnProgress
from penstock.server.keeping.manifest import MANIFEST_FILE
from penstock.server.keeping.staging import create, disk_error, partial_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SUFFIX: Final = ".tar.zst"
_LEVEL: Final = 3
_BLOCK_BYTES: Final = 1 << 20


def is_archive(path: Path) -> bool:
    return path.name.endswith(SUFFIX)


def pack(directory: Path, archive: Path, on_progress: OnProgress) -> None:
    """Write the two files of a backup into an archive, which then has its name at once."""
    partial = partial_of(archive.absolute())
    try:
        partial.unlink(missing_ok=True)  # of a process that was killed
        with (
            create(partial) as file,
            zstd.open(file, "wb", level=_LEVEL) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            for name in (MANIFEST_FILE, DATA_FILE):
                member = tar.gettarinfo(directory / name, name)
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                with (directory / name).open("rb") as data:
                    tar.addfile(member, _Watched(data, member.size, on_progress))
        sync_file(partial)
        partial.rename(archive)
        sync_file(archive.absolute().parent)
    except OSError as error:
        raise disk_error(error, archive.absolute().parent) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def unpack(archive: Path, directory: Path, on_progress: OnProgress) -> None:
    """Take the two files of a backup out of an archive, and nothing else."""
    found = set()
    try:
        with zstd.open(archive, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
            for member in tar:
                if member.name not in (MANIFEST_FILE, DATA_FILE) or not member.isfile():
                    continue
                source = tar.extractfile(member)
                assert source is not None
                with create(directory / member.name) as file:
                    _copy(source, file, member.size, on_progress)
                found.add(member.name)
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise StoreCorruptError(f"{archive} is damaged or is no {SUFFIX} of a backup ({error})") from error
    if len(found) < 2:
        raise StoreCorruptError(
            f"{archive} has no {MANIFEST_FILE} and {DATA_FILE}: it is no backup of a store"
        )


def _copy(source: IO[bytes], file: IO[bytes], total: int, on_progress: OnProgress) -> None:
    done = 0
    while block := source.read(_BLOCK_BYTES):
        file.write(block)
        done += len(block)
        on_progress("unpacking", done, total)


class _Watched:
    """A file that tells how far it was read."""

    def __init__(self, file: IO[bytes], total: int, on_progress: OnProgress) -> None:
        self._file = file
        self._total = total
        self._done = 0
        self._on_progress = on_progress

    def read(self, size: int = -1) -> Any:
        block = self._file.read(size)
        self._done += len(block)
        self._on_progress("packing", self._done, self._total)
        return block
