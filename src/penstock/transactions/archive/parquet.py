"""An archive of Parquet files in a directory. Every process that archives or reads has the same one.

    archive = ParquetArchive("/var/lib/shop/archive")
    archive.write(batch)

How a batch is written, and why each of its transactions is there exactly once:

1. The writer locks the file of its partition (flock). The kernel frees the lock of a process that dies.
2. The number of the batch goes into that file, unless a greater one is there: then this writer was away
   while others went on, perhaps with the same transactions, and is refused.
3. Those that were handed out before are looked up, of the same run: in the file of that earlier batch, then
   in the rest of the day. Nobody can be writing them now (1), nor later (2).
4. The others go into one file a day: to a temporary name, synced, read back and compared, renamed, and the
   directory is synced. Whoever dies on the way leaves a temporary file, which the next one overwrites.
5. ``write`` returns, and only now does the caller tell the store to forget them.

A crash between 4 and 5 makes the store hand them out again, with the number of that batch: see 3.

Rules: memory holds one batch. The directory must be on a file system with locks and atomic renames.
Nothing here knows the store that transactions come from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, StoreCorruptError, StoreError
from penstock.transactions import keys
from penstock.transactions.archive import naming
from penstock.transactions.archive.disk import locked, sync
from penstock.transactions.archive.files import (
    DIGEST,
    EXTERNAL_IDS,
    IDS,
    ArchiveFile,
    Files,
    external_key,
    opened,
    packed,
    translated,
)
from penstock.transactions.archive.naming import FileName
from penstock.transactions.archive.schema import SCHEMA, TRUTH, digest_of, records_of, table_of
from penstock.transactions.archive.searching import Search
from penstock.transactions.archive.sink import (
    ArchiveBatch,
    ArchivedRecord,
    ArchivePage,
    ArchiveQuery,
    newest_of,
)

#: A lookup reads one group; a scan likes them large.
_ROWS_PER_GROUP: Final = 256
_LOCK_WAIT_MS: Final = 10_000
_SOURCE: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")


class ParquetArchive:
    """The archive in one directory, which is made if there is none."""

    def __init__(
        self, root: str | Path, *, lock_wait_ms: int = _LOCK_WAIT_MS, clock: Clock | None = None
    ) -> None:
        """``lock_wait_ms``: how long another writer of the same partition is waited for."""
        if lock_wait_ms < 0:
            raise ConfigError(f"lock_wait_ms must be at least 0, not {lock_wait_ms}")
        self.root = Path(root)
        self._lock_wait_ms = lock_wait_ms
        self._clock = clock or SystemClock()
        self._files = Files(self.root, self._clock)

    # -------------------------------------------------------------------------------------- writing

    def write(self, batch: ArchiveBatch) -> None:
        with self._role(batch):
            held = self._held(batch)
            for day, records in _by_day(record for record in batch.records if record.id not in held).items():
                self._write_day(batch, day, sorted(records, key=lambda record: record.id))

    def newest_batch(self, source: str, partition: int) -> int:
        path = self._private(source, partition, "lock")
        with translated(path):
            return _number_in(path.read_bytes(), path) if path.exists() else 0

    @contextmanager
    def _role(self, batch: ArchiveBatch) -> Iterator[None]:
        """Alone with this partition, as long as no later batch was begun."""
        path = self._private(batch.source, batch.partition, "lock")
        with ExitStack() as held:
            with translated(path):
                descriptor = held.enter_context(locked(path, wait_ms=self._lock_wait_ms, clock=self._clock))
                newest = _number_in(os.pread(descriptor, 64, 0), path)
                if batch.number < newest:
                    raise StoreError(
                        f"batch {batch.number} of partition {batch.partition} is not archived:"
                        f" batch {newest} was begun meanwhile, by another node"
                    )
                os.pwrite(descriptor, b"%020d\n" % batch.number, 0)
                os.fsync(descriptor)
            yield

    def _held(self, batch: ArchiveBatch) -> set[str]:
        """Those that an earlier batch has put into the archive, of the same run."""
        held: set[str] = set()
        for day, records in _by_day(record for record in batch.records if record.id in batch.again).items():
            wanted = {record.id: record.run for record in records}
            earlier = {batch.again[tx] for tx in wanted}
            for file in sorted(self._files.of_day(day), key=lambda file: _nearness(file, earlier)):
                if not wanted:
                    break
                for tx in self._found_in(file, wanted):
                    del wanted[tx]
                    held.add(tx)
        return held

    def _found_in(self, file: ArchiveFile, wanted: dict[str, int]) -> list[str]:
        """Which of the wanted runs (id -> run) this file has."""
        starts = ((tx, keys.partition_of(tx), keys.created_ms_of(tx)) for tx in wanted)
        likely = {tx for tx, partition, start_ms in starts if file.may_have(partition, start_ms)}
        if likely:
            footer = self._files.footer(file)
            likely = {tx for tx in likely if footer.may_have(tx)}
        if not likely:
            return []
        table = self._files.columns(file, ("id", "run"))
        pairs = zip(table.column("id").to_pylist(), table.column("run").to_pylist(), strict=True)
        return [tx for tx, run in pairs if tx in likely and wanted[tx] == (run or 0)]

    def _write_day(self, batch: ArchiveBatch, day: str, records: list[ArchivedRecord]) -> None:
        digest = digest_of(records)
        starts_ms = [keys.created_ms_of(record.id) for record in records]
        name = FileName(
            batch.partition,
            batch.number,
            min(starts_ms),
            max(starts_ms),
            max(record.run for record in records),
            digest[:16],
        )
        staged = self._private(batch.source, batch.partition, "tmp")
        with translated(self.root / day):
            try:
                self._stage(staged, _encoded(records, digest))
                self._verify(staged, records, digest)
                self._publish(staged, self.root / day / str(name))
            except BaseException:
                # What went wrong first is the news; the next batch overwrites what cannot be removed.
                with suppress(OSError):
                    staged.unlink(missing_ok=True)
                raise

    def _stage(self, staged: Path, content: Any) -> None:
        with staged.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _verify(self, staged: Path, records: list[ArchivedRecord], digest: str) -> None:
        """What can be read from the disk is what was to be written."""
        with opened(staged, is_checked=True) as parquet:
            table = parquet.read(use_threads=False)
        if table.num_rows != len(records):
            raise StoreCorruptError(f"{staged} has {table.num_rows} rows, {len(records)} were written")
        found = records_of(table.select([name.partition(".")[0] for name in TRUTH]))
        if [record.id for record in found] != [record.id for record in records] or digest_of(found) != digest:
            raise StoreCorruptError(f"{staged} does not hold what was written: look after the disk")

    def _publish(self, staged: Path, path: Path) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(self.root)
        staged.replace(path)
        sync(path.parent)

    def _private(self, source: str, partition: int, kind: str) -> Path:
        if not _SOURCE.fullmatch(source):
            raise ConfigError(f"source must be 1 to 64 letters, digits, _ or -, not {source!r}")
        return self.root / naming.PRIVATE / f"p{partition}-{source}.{kind}"

    # -------------------------------------------------------------------------------------- reading

    def find(self, tx: str) -> ArchivedRecord | None:
        partition, start_ms = keys.partition_of(tx), keys.created_ms_of(tx)
        found = [
            record
            for file in self._files.of_day(naming.day_name(start_ms))
            if file.may_have(partition, start_ms)
            for record in self._files.rows_of(file, tx)
        ]
        return max(found, key=lambda record: (record.run, record.batch), default=None)

    def find_external(self, owner: str, external_id: str) -> ArchivedRecord | None:
        return newest_of(self.search, owner, external_id)

    def search(self, query: ArchiveQuery) -> ArchivePage:
        return Search(self._files, query).page()

    def __repr__(self) -> str:
        return f"<ParquetArchive {self.root}>"


def _by_day(records: Iterable[ArchivedRecord]) -> dict[str, list[ArchivedRecord]]:
    days: dict[str, list[ArchivedRecord]] = {}
    for record in records:
        days.setdefault(naming.day_name(keys.created_ms_of(record.id)), []).append(record)
    return days


def _nearness(file: ArchiveFile, earlier: set[int]) -> tuple[bool, int]:
    """Files of the batches in question come first, then the newest."""
    number = 0 if file.name is None else file.name.batch
    return (number not in earlier, -number)


def _number_in(content: bytes, path: Path) -> int:
    try:
        return int(content or b"0")
    except ValueError:
        raise StoreCorruptError(f"{path} must hold the number of a batch: write it, or 0") from None


def _encoded(records: list[ArchivedRecord], digest: str) -> Any:
    """The bytes of a file. Rows are sorted by id, which is by the time of their start."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("id"))],
    ) as writer:
        writer.write_table(table_of(records), row_group_size=_ROWS_PER_GROUP)
        external = (
            external_key(record.record.text(b"owner"), record.record.text(b"external_id"))
            for record in records
            if b"external_id" in record.fields
        )
        writer.add_key_value_metadata(
            {IDS: packed(record.id for record in records), EXTERNAL_IDS: packed(external), DIGEST: digest}
        )
    return sink.getvalue()
