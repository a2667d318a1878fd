"""The archive of transactions: where they go when they have ended, and how they are found there.

``open_archive`` gives the one in a directory of Parquet files, which needs ``penstock[archive]``; anything
that is an ``ArchiveSink`` does as well.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ConfigError
from penstock.transactions.archive.archiver import Archiver, ArchiverStatistics
from penstock.transactions.archive.reading import ArchiveReader, TransactionPage
from penstock.transactions.archive.sink import (
    ArchiveBatch,
    ArchivedRecord,
    ArchivePage,
    ArchiveQuery,
    ArchiveSink,
)

__all__ = [
    "ArchiveBatch",
    "ArchivePage",
    "ArchiveQuery",
    "ArchiveReader",
    "ArchiveSink",
    "ArchivedRecord",
    "Archiver",
    "ArchiverStatistics",
    "TransactionPage",
    "open_archive",
]


def open_archive(root: str | Path) -> ArchiveSink:
    """The archive in a directory; it is made with the first batch."""
    try:
        # Only who archives to files needs pyarrow.
        from penstock.transactions.archive.parquet import ParquetArchive
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise ConfigError(
            "an archive of Parquet files needs pyarrow: pip install 'penstock[archive]'"
        ) from None
    return ParquetArchive(root)
