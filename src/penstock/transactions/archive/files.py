"""Parquet files of an archive directory: which there are, what their ends tell, rows of one.

A lookup goes from names (``naming.py``) to the end of a file, and from there to one group of rows. The end
has, beside what every Parquet file has, hashes of the ids and external ids in it (``IDS``,
``EXTERNAL_IDS``: sorted, 32 bits each, little-endian, base64), so that a file without the one that is
looked for is known as such without reading rows.

Rules: files of ours never change, so what was read of their ends is kept (bounded). Errors of the operating
system and of Arrow become ``StoreError`` here and in ``translated``. Any thread may call.

Nothing here writes to the directory.
"""

from __future__ import annotations

import base64
import errno
import os
import sys
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from penstock.clock import Clock, SystemClock
from penstock.errors import StoreCorruptError, StoreError, StoreFullError
from penstock.transactions.archive import naming
from penstock.transactions.archive.naming import FileName
from penstock.transactions.archive.schema import TRUTH, records_of
from penstock.transactions.archive.sink import ArchivedRecord

IDS: Final = "penstock.ids"
EXTERNAL_IDS: Final = "penstock.external_ids"
DIGEST: Final = "penstock.digest"
_MAX_FOOTERS: Final = 20_000
_MAX_LISTINGS: Final = 64
#: The time of a directory's last change is this coarse on some file systems: a younger one may change unseen.
_COARSE_NS: Final = 2_000_000_000


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of files, as errors of the store."""
    try:
        yield
    except pa.ArrowException as error:
        raise _corrupt(path, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(
                f"no room for the archive at {path}: free some, or move the archive"
            ) from error
        if error.errno is None:
            # Arrow says so when bytes make no sense.
            raise _corrupt(path, error) from error
        raise StoreError(f"the archive cannot use {path}: {os.strerror(error.errno)}") from error


def _corrupt(path: Path, error: Exception) -> StoreCorruptError:
    return StoreCorruptError(f"the archive's file {path} cannot be read, move it away or restore it: {error}")


def hash_of(text: str) -> int:
    return xxhash.xxh32_intdigest(text.encode("utf-8", "surrogatepass"))


def external_key(owner: str, external_id: str) -> str:
    return f"{owner} {external_id}"


def packed(texts: Iterable[str]) -> str:
    """Hashes for the end of a file."""
    hashes = sorted(hash_of(text) for text in texts)
    return base64.b64encode(b"".join(value.to_bytes(4, "little") for value in hashes)).decode("ascii")


def _unpacked(text: bytes | None) -> array[int] | None:
    if text is None:
        return None
    hashes = array("I", base64.b64decode(text))
    if sys.byteorder == "big":
        hashes.byteswap()
    return hashes


def _has(hashes: array[int] | None, text: str) -> bool:
    if hashes is None:
        return True
    wanted = hash_of(text)
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


class ArchiveFile(NamedTuple):
    path: Path
    #: None: somebody else wrote it
    name: FileName | None

    def may_have(self, partition: int, start_ms: int) -> bool:
        """Whether a transaction of this partition and start can be in it."""
        name = self.name
        return name is None or (name.partition == partition and name.first_ms <= start_ms <= name.last_ms)


class Footer(NamedTuple):
    """What is known of a file after its end was read."""

    #: first and last id of each group of rows, if it tells
    groups: list[tuple[str, str] | None]
    ids: array[int] | None
    external_ids: array[int] | None
    #: those that were replayed: id -> run
    runs: dict[str, int]

    def may_have(self, tx: str) -> bool:
        return _has(self.ids, tx)

    def may_have_external(self, key: str) -> bool:
        return _has(self.external_ids, key)

    def groups_with(self, tx: str) -> list[int]:
        return [
            number
            for number, bounds in enumerate(self.groups)
            if bounds is None or bounds[0] <= tx <= bounds[1]
        ]


class Files:
    """The files of one archive directory."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        self.root = root
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._footers: OrderedDict[Path, Footer] = OrderedDict()
        self._listings: OrderedDict[str, tuple[int, list[ArchiveFile]]] = OrderedDict()

    def days(self) -> list[tuple[int, str]]:
        """When each day began, and its directory; newest first."""
        with translated(self.root):
            names = [path.name for path in self.root.iterdir()] if self.root.is_dir() else []
        days = ((naming.day_start_ms(name), name) for name in names)
        return sorted(((start_ms, name) for start_ms, name in days if start_ms is not None), reverse=True)

    def of_day(self, day: str) -> list[ArchiveFile]:
        directory = self.root / day
        with translated(directory):
            try:
                changed_ns = directory.stat().st_mtime_ns
            except FileNotFoundError:
                return []
            with self._lock:
                known = self._listings.get(day)
                if known is not None and known[0] == changed_ns:
                    self._listings.move_to_end(day)
                    return known[1]
            files = [
                ArchiveFile(path, naming.parsed(path.name))
                for path in directory.iterdir()
                if path.name.endswith(naming.SUFFIX) and path.name[0] not in "._"
            ]
        if self._clock.now_us() * 1_000 - changed_ns > _COARSE_NS:
            with self._lock:
                self._listings[day] = (changed_ns, files)
                while len(self._listings) > _MAX_LISTINGS:
                    self._listings.popitem(last=False)
        return files

    def footer(self, file: ArchiveFile) -> Footer:
        with self._lock:
            known = self._footers.get(file.path)
            if known is not None:
                self._footers.move_to_end(file.path)
                return known
        with opened(file.path) as parquet:
            footer = _footer_of(parquet, has_runs=file.name is None or file.name.run > 0)
        if file.name is not None:
            with self._lock:
                self._footers[file.path] = footer
                while len(self._footers) > _MAX_FOOTERS:
                    self._footers.popitem(last=False)
        return footer

    def rows_of(self, file: ArchiveFile, tx: str) -> list[ArchivedRecord]:
        """Runs of one transaction in one file."""
        footer = self.footer(file)
        if not footer.may_have(tx) or not (groups := footer.groups_with(tx)):
            return []
        with opened(file.path) as parquet:
            found: list[ArchivedRecord] = []
            for group in groups:
                table = parquet.read_row_group(group, columns=list(TRUTH), use_threads=False)
                places = [place for place, id in enumerate(table.column("id").to_pylist()) if id == tx]
                found += records_of(table.take(places)) if places else []
        return found

    def rows_at(self, file: ArchiveFile, places: Sequence[int]) -> list[ArchivedRecord]:
        """Rows by their places in a file, in that order."""
        found: dict[int, ArchivedRecord] = {}
        with opened(file.path) as parquet:
            first = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                here = [place for place in places if first <= place < first + rows]
                if here:
                    table = parquet.read_row_group(group, columns=list(TRUTH), use_threads=False)
                    found.update(
                        zip(here, records_of(table.take([place - first for place in here])), strict=True)
                    )
                first += rows
        return [found[place] for place in places]

    def columns(self, file: ArchiveFile, names: Sequence[str]) -> Any:
        """Some columns of a whole file."""
        with opened(file.path) as parquet:
            return parquet.read(columns=list(names), use_threads=False)


@contextmanager
def opened(path: Path, *, is_checked: bool = False, metadata: Any = None) -> Iterator[Any]:
    """A Parquet file; ``is_checked`` compares checksums of what is read; ``metadata``: its end, if known."""
    with (
        translated(path),
        pq.ParquetFile(
            path, metadata=metadata, pre_buffer=False, page_checksum_verification=is_checked
        ) as parquet,
    ):
        yield parquet


def _footer_of(parquet: Any, *, has_runs: bool) -> Footer:
    metadata = parquet.metadata
    paths = [parquet.schema.column(place).path for place in range(len(parquet.schema))]
    if "id" not in paths:
        raise pa.ArrowInvalid("it has no column id")
    place = paths.index("id")
    told = metadata.metadata or {}
    runs: dict[str, int] = {}
    if has_runs:
        table = parquet.read(columns=["id", "run"], use_threads=False)
        pairs = zip(table.column("id").to_pylist(), table.column("run").to_pylist(), strict=True)
        runs = {tx: run for tx, run in pairs if run}
    return Footer(
        [bounds_of(metadata.row_group(group), place) for group in range(metadata.num_row_groups)],
        _unpacked(told.get(IDS.encode())),
        _unpacked(told.get(EXTERNAL_IDS.encode())),
        runs,
    )


def bounds_of(group: Any, place: int) -> tuple[Any, Any] | None:
    """Smallest and largest value of a column in a group of rows, if it tells."""
    statistics = group.column(place).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max
