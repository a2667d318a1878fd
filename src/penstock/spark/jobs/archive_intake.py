"""Batches of ended transactions into the table ``transactions``: each run once, whoever died on the way.

    taken = Intake(spark, lake).take_in(batches)
    taken.safe                                     # these are in the lake: the store may forget them

How batches of several partitions are taken in together:

1. The partition of each batch is locked (``lake.alone``). If another process is at it, its batch is left
   out.
2. A batch whose number is not above the progress of its partition is refused: its writer was away while
   others went on, perhaps with the same transactions.
3. Those that were handed out before are looked up in the table: same id, same run. The number of that
   earlier batch does not tell: it may have been handed out by one that came after the one that wrote them.
4. Spark writes the others under a name that nobody else has; they are read back, and compared with what was
   handed out.
5. One commit makes them a part of the table, with the number of each batch as the progress of its partition,
   if that is still where it was.

Why once: a row joins the table under the lock of its partition (1), after it was looked up if it could be
there (3). It could be there unmarked only if a later batch had brought it, and then this one is refused (2).
A crash before 5 leaves files that no reader sees; after 5 the store hands them out again, and 3 finds them.

Nothing here knows the store that batches come from.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from penstock.errors import LakeError
from penstock.lake.alone import alone
from penstock.lake.archive import TABLE, archive_app
from penstock.lake.delta import translated
from penstock.lake.lookups import TransactionLookup
from penstock.spark.lake_writing import write
from penstock.transactions.archive.schema import TRUTH, digest_of, records_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.files import WrittenFile
    from penstock.lake.lake import Lake
    from penstock.transactions.archive.sink import ArchiveBatch, ArchivedRecord

logger = logging.getLogger(__name__)

#: Two tasks share a usual batch. Their files have different ids, so a lookup opens one.
_ROWS_PER_FILE: Final = 4_000
#: A lookup reads one group of rows; but small ones take longer to write, and are soon merged.
_GROUP_BYTES: Final = 4_194_304


@dataclass(slots=True)
class Taken:
    """What became of some batches."""

    #: all of these are in the table
    safe: list[ArchiveBatch] = field(default_factory=list)
    #: rows that joined it now
    rows: int = 0
    #: transactions that were there already
    held: int = 0
    #: batches that others have overtaken
    refused: int = 0
    #: batches whose partition another process is at
    busy: int = 0


class Intake:
    """Takes batches into one lake."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._table = lake.table(TABLE)
        self._lookup = TransactionLookup(self._table)

    def newest_batch(self, source: str, partition: int) -> int:
        """Number of the newest batch that the table has; 0 for none."""
        return self._table.progress(archive_app(source, partition)) or 0

    def take_in(self, batches: Sequence[ArchiveBatch]) -> Taken:
        """Put all of them into the table, at once."""
        taken = Taken()
        with ExitStack() as locks:
            mine = [batch for batch in batches if self._is_mine(batch, locks, taken)]
            held = self._held(mine)
            records = [record for batch in mine for record in batch.records if record.id not in held]
            if records:
                self._add(mine, sorted(records, key=lambda record: record.id))
        taken.safe, taken.rows, taken.held = mine, len(records), len(held)
        return taken

    # ------------------------------------------------------------------------------------ who may

    def _is_mine(self, batch: ArchiveBatch, locks: ExitStack, taken: Taken) -> bool:
        if not locks.enter_context(alone(self._lake, f"archive-{batch.source}-{batch.partition}")):
            taken.busy += 1
            return False
        newest = self.newest_batch(batch.source, batch.partition)
        if batch.number <= newest:
            logger.warning(
                "batch %d of partition %d is not archived: the lake has batch %d, of another node",
                batch.number, batch.partition, newest,
            )  # fmt: skip
            taken.refused += 1
            return False
        return True

    # ---------------------------------------------------------------------------- what is there

    def _held(self, batches: Sequence[ArchiveBatch]) -> set[str]:
        """Those that the table has, of the same run."""
        wanted = {
            record.id: record.run for batch in batches for record in batch.records if record.id in batch.again
        }
        runs = self._lookup.runs(wanted) if wanted else {}
        return {tx for tx, run in wanted.items() if run in runs.get(tx, ())}

    # ---------------------------------------------------------------------------------- writing

    def _add(self, batches: Sequence[ArchiveBatch], records: Sequence[ArchivedRecord]) -> None:
        progress = {archive_app(batch.source, batch.partition): batch.number for batch in batches}
        before = {app: self._table.progress(app) for app in progress}
        files = self._write(batches[0], records)
        self._verify(files, records)
        self._table.commit(files, progress=progress, expected=before)

    def _write(self, first: ArchiveBatch, records: Sequence[ArchivedRecord]) -> list[WrittenFile]:
        return write(
            self._spark.createDataFrame(table_of(records)),
            self._table,
            f"fresh-p{first.partition}-{first.number}",
            options={"parquet.block.size": str(_GROUP_BYTES)},
            files=-(-len(records) // _ROWS_PER_FILE),
        )

    def _verify(self, files: Sequence[WrittenFile], records: Sequence[ArchivedRecord]) -> None:
        """What can be read from the disk is what was handed out."""
        found = sorted(
            (record for file in files for record in _records_in(self._table.root / file.path)),
            key=lambda record: record.id,
        )
        if [record.id for record in found] != [record.id for record in records]:
            raise LakeError(
                f"table {TABLE}: {len(found)} rows were found of {len(records)} that were written,"
                " or others than these: nothing is committed, look after the disk"
            )
        if digest_of(found) != digest_of(records):
            raise LakeError(
                f"table {TABLE}: {files[0].path} does not hold what was written: nothing is committed,"
                " look after the disk"
            )


def _records_in(path: Path) -> list[ArchivedRecord]:
    with (
        translated(f"table {TABLE}: {path} cannot be read"),
        pq.ParquetFile(path, page_checksum_verification=True) as parquet,
    ):
        return records_of(parquet.read(columns=list(TRUTH)))
