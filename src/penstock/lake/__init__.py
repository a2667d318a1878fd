"""The lake: Delta tables in a directory, of what the live system has done, for any program that reads Delta.

    lake = Lake.open("./lake")
    lake.table("transactions").dataset()                    # pyarrow, DuckDB, Polars: no Spark
    lake.table("messages").changes(after=17)                # what came since, for incremental jobs

==============  ==========================================================================================
module          role
==============  ==========================================================================================
``lake``        the directory: its id, its tables, checkpoints of jobs
``tables``      the table of tables: columns, partitions, where each comes from
``table``       one table: what it has, progress of its writers
``snapshots``   a table as it is now, read once for each version
``files``       Parquet files of a table, and what Delta wants to know of them
``committing``  one commit: files, progress of applications, all or nothing
``alone``       one process at a piece of work
``changes``     what was added, version by version
``vacuuming``   removes what no reader needs any more
``lookups``     a transaction by its id, in milliseconds; ``footers``: ends of files that lead there
``searching``   transactions newest first, page by page
``sampling``    some of the newest rows of any table, for people; ``plain``: their values as JSON has them
``archive``     the archive of transactions as the facility wants it, out of a lake
``archives``    opens what a path has: a lake, or a directory of Parquet files
``deltalog``    Delta's log as files
``delta``       the border to delta-rs; the only module that imports it
==============  ==========================================================================================

The lake is a directory that everybody who writes or reads it has in common: a local disk, or NFS with
locks. Object stores are not supported.

This room knows Arrow and Delta, never Spark: who only reads needs ``penstock[lake]`` and no Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.lake.archive import LakeArchive
    from penstock.lake.changes import Change
    from penstock.lake.committing import CommitResult
    from penstock.lake.files import LakeFile, WrittenFile
    from penstock.lake.lake import Lake
    from penstock.lake.lookups import TransactionLookup
    from penstock.lake.table import LakeTable

__all__ = [
    "Change",
    "CommitResult",
    "Lake",
    "LakeArchive",
    "LakeFile",
    "LakeTable",
    "TransactionLookup",
    "WrittenFile",
]

_HOMES: Final = {
    "Change": "changes",
    "CommitResult": "committing",
    "Lake": "lake",
    "LakeArchive": "archive",
    "LakeFile": "files",
    "LakeTable": "table",
    "TransactionLookup": "lookups",
    "WrittenFile": "files",
}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: ``archives`` must work where delta-rs is not installed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.delta")  # says in one sentence what is missing
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
