"""The archive of transactions as the facility wants it, out of a lake.

    ps.with_archive(LakeArchive(Lake.open("./lake")))

What the Spark job ``archive`` has written is found here, and what an ``Archiver`` of the facility writes
through here is in the same table: a lake can be filled without Spark. Both say how far they are by the same
progress, so that they exclude each other.

How a batch is written, and why each of its transactions is there exactly once:

1. The writer is alone with its partition of that store (``alone``), or refused. Progress of the partition
   tells the newest batch that is in the lake. An older one is refused: its writer was away while others
   went on, perhaps with the same transactions.
2. Those that were handed out before are looked up, of the same run.
3. The others go into one file, which is read back and compared, and committed with the number of the batch as
   progress, if progress is still where it was at 1.

Nothing here knows the store that transactions come from, or Spark.
"""

from __future__ import annotations

from typing import Final

import pyarrow.parquet as pq

from penstock.errors import StoreBusyError, StoreCorruptError, StoreError
from penstock.lake.alone import alone
from penstock.lake.delta import translated
from penstock.lake.files import WrittenFile, unique_name
from penstock.lake.lake import Lake
from penstock.lake.lookups import TransactionLookup
from penstock.lake.searching import LakeSearch
from penstock.transactions.archive.files import opened
from penstock.transactions.archive.schema import TRUTH, digest_of, records_of, table_of
from penstock.transactions.archive.sink import (
    ArchiveBatch,
    ArchivedRecord,
    ArchivePage,
    ArchiveQuery,
    newest_of,
)

TABLE: Final = "transactions"
#: A lookup reads one group.
_ROWS_PER_GROUP: Final = 1_024


def archive_app(source: str, partition: int) -> str:
    """By which Delta knows how far the archive of one partition of a store is."""
    return f"archive:{source}:{partition}"


class LakeArchive:
    """An ``ArchiveSink`` over the table ``transactions``."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = lake.table(TABLE)
        self.lookup = TransactionLookup(self.table)

    # -------------------------------------------------------------------------------------- writing

    def write(self, batch: ArchiveBatch) -> None:
        work = f"archive-{batch.source}-{batch.partition}"
        with alone(self.lake, work) as is_mine:
            if not is_mine:
                raise StoreBusyError(f"another process is at {work} of {self.lake.root}: it is tried again")
            self._write(batch)

    def _write(self, batch: ArchiveBatch) -> None:
        app = archive_app(batch.source, batch.partition)
        before = self.table.progress(app)
        self._refuse_late(batch, before or 0)
        held = self._held(batch)
        records = sorted((one for one in batch.records if one.id not in held), key=lambda one: one.id)
        name = unique_name(f"fresh-{batch.source}-{batch.partition}-{batch.number}")
        files = self._staged(name, records) if records else []
        result = self.table.commit(files, progress={app: batch.number}, expected={app: before})
        if not result.is_new:
            self._refuse_late(batch, self.newest_batch(batch.source, batch.partition))

    def _refuse_late(self, batch: ArchiveBatch, newest: int) -> None:
        if batch.number < newest:
            raise StoreError(
                f"batch {batch.number} of partition {batch.partition} is not archived:"
                f" batch {newest} was written meanwhile, by another node"
            )

    def _held(self, batch: ArchiveBatch) -> set[str]:
        """Those that an earlier batch has put into the lake, of the same run."""
        wanted = {record.id: record.run for record in batch.records if record.id in batch.again}
        runs = self.lookup.runs(wanted) if wanted else {}
        return {tx for tx, run in wanted.items() if run in runs.get(tx, ())}

    def _staged(self, name: str, records: list[ArchivedRecord]) -> list[WrittenFile]:
        """Files with these records; nobody sees them before they are committed."""
        directory = self.table.data_directory(name)
        path = directory / "part-00000.parquet"
        with translated(f"table {TABLE}: {name} is not written"):
            directory.mkdir(parents=True)
            pq.write_table(
                table_of(records).cast(self.table.schema),
                path,
                compression="zstd",
                row_group_size=_ROWS_PER_GROUP,
                write_page_checksum=True,
            )
        with opened(path, is_checked=True) as parquet:
            found = records_of(parquet.read(columns=list(TRUTH), use_threads=False))
        if digest_of(found) != digest_of(records):
            raise StoreCorruptError(f"{path} does not hold what was written: look after the disk")
        return self.table.written(name)

    def newest_batch(self, source: str, partition: int) -> int:
        return self.table.progress(archive_app(source, partition)) or 0

    # -------------------------------------------------------------------------------------- reading

    def find(self, tx: str) -> ArchivedRecord | None:
        return self.lookup.find(tx)

    def find_external(self, owner: str, external_id: str) -> ArchivedRecord | None:
        return newest_of(self.search, owner, external_id)

    def search(self, query: ArchiveQuery) -> ArchivePage:
        return self.lookup.steadily(lambda: LakeSearch(self.lookup, query).page())

    def __repr__(self) -> str:
        return f"<LakeArchive of {self.lake!r}>"
