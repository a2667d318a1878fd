"""Opens the archive that a path has: a lake, or a directory of Parquet files.

    ps.with_archive(archives.open("./archive"))

For everybody who gets a path from a user. Only who opens a lake needs delta-rs (``penstock[lake]``).
"""

from __future__ import annotations

from pathlib import Path

from penstock.transactions.archive import ArchiveSink, open_archive


def open(root: str | Path) -> ArchiveSink:
    """A directory that holds no lake is one of Parquet files; that is made with the first batch."""
    if not (Path(root) / "_penstock" / "lake.json").is_file():
        return open_archive(root)
    from penstock.lake import Lake, LakeArchive

    return LakeArchive(Lake.open(root, create=False))
