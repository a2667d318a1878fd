"""What was added to a table, version by version: how incremental jobs learn what is new.

    for change in changes_of(table, after=17): …          # commits that added rows, oldest first

Rules:

1. A rewrite (compaction) adds no rows and is left out; a file that it removed meanwhile is still named, as
   long as vacuum has left it. So each row comes once.
2. Who has taken in nothing yet (``after`` is 0 or less) and finds that the log does not go back to the
   beginning gets the table whole, as one change.
3. Who is somewhere in between and finds that a version or a file is gone gets a ``LakeError``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LakeError
from penstock.lake.deltalog import DeltaLog


@dataclass(frozen=True, slots=True)
class Change:
    """A commit that added rows."""

    version: int
    #: relative to the table
    files: list[str]


def changes_of(
    root: Path, name: str, after: int, upto: int, files_at: Callable[[int], list[str]]
) -> list[Change]:
    """Of the table ``name`` in ``root``; ``files_at``: what a version consists of."""
    log = DeltaLog(root)
    first = max(after, 0) + 1
    found: list[Change] = []
    for version in range(first, upto + 1):
        commit = log.commit(version)
        gone = [] if commit is None else [path for path in commit.added if not (root / path).exists()]
        if commit is None or gone:
            if first == 1:
                return [Change(upto, files)] if (files := files_at(upto)) else []
            lost = gone[0] if gone else log.file(version).name
            raise LakeError(
                f"table {name}: what version {version} added is not known any more ({lost} is gone):"
                " start again from version 0, which gives the table whole, or vacuum later"
            )
        if commit.added:
            found.append(Change(version, list(commit.added)))
    return found
