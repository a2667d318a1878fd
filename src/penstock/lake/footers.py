"""Ends of Parquet files of the table ``transactions``, and groups of rows that they lead to.

Two things are kept of a file, since it never changes:

========  =========================================================  =======================================
what      for                                                        how much
========  =========================================================  =======================================
bounds    which groups can have an id, and of which time they are    small: two ids a group; many files
end       reading a group without parsing the end of the file again  large: megabytes a file; limited
========  =========================================================  =======================================

Rules: both are forgotten when they are too many, the longest unused first. Any thread may call. Errors are
those of the archive (``transactions/archive/files.py``): one that a missing file caused means that vacuum
was here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from penstock.errors import UsageError
from penstock.transactions import keys
from penstock.transactions.archive.files import bounds_of, opened

#: Of ends as they lie on the disk; in memory they take about seven times as much.
MAX_END_BYTES: Final = 48 * 1_048_576
_MAX_BOUNDS: Final = 20_000
FAR_MS: Final = 2**63
#: Bounds of what does not tell its own: any id may be in it.
ANY: Final = ("", "\U0010ffff")


@dataclass(frozen=True, slots=True)
class Groups:
    """What is known of the groups of rows of one file."""

    #: first and last id of each
    ids: tuple[tuple[str, str], ...]
    #: how many of each
    rows: tuple[int, ...]

    def with_id(self, tx: str) -> list[int]:
        return [number for number, (low, high) in enumerate(self.ids) if low <= tx <= high]

    def span_ms(self, group: int) -> tuple[int, int]:
        """From when to when its transactions were started, as ids tell."""
        low, high = self.ids[group]
        try:
            # Ids sort by time inside a partition only.
            if keys.partition_of(low) == keys.partition_of(high):
                return keys.created_ms_of(low), keys.created_ms_of(high)
        except UsageError:
            pass
        return 0, FAR_MS


class Footers:
    """Ends of the files of one table."""

    def __init__(self, root: Path, *, max_end_bytes: int = MAX_END_BYTES) -> None:
        self._root = root
        self._max_end_bytes = max_end_bytes
        self._lock = Lock()
        self._groups: OrderedDict[str, Groups] = OrderedDict()
        self._ends: OrderedDict[str, Any] = OrderedDict()
        self._end_bytes = 0

    def groups(self, path: str) -> Groups:
        """``path`` is relative to the table."""
        with self._lock:
            if known := self._groups.get(path):
                self._groups.move_to_end(path)
                return known
        groups = _groups_in(self._end(path))
        with self._lock:
            self._groups[path] = groups
            while len(self._groups) > _MAX_BOUNDS:
                self._groups.popitem(last=False)
        return groups

    def read(self, path: str, groups: Sequence[int], columns: Sequence[str]) -> Any:
        """Some columns of some groups of rows, as a ``pyarrow.Table``."""
        with opened(self._root / path, metadata=self._end(path)) as parquet:
            return parquet.read_row_groups(list(groups), columns=list(columns), use_threads=False)

    def bounds(self, path: str, group: int, column: str) -> tuple[Any, Any] | None:
        """Smallest and largest value of a column in a group, if it tells."""
        metadata = self._end(path)
        return bounds_of(metadata.row_group(group), _place(metadata, column))

    def _end(self, path: str) -> Any:
        with self._lock:
            if (known := self._ends.get(path)) is not None:
                self._ends.move_to_end(path)
                return known
        with opened(self._root / path) as parquet:
            end = parquet.metadata
        with self._lock:
            if path not in self._ends:
                self._ends[path] = end
                self._end_bytes += end.serialized_size
            while self._end_bytes > self._max_end_bytes and len(self._ends) > 1:
                _, oldest = self._ends.popitem(last=False)
                self._end_bytes -= oldest.serialized_size
        return end


def _groups_in(metadata: Any) -> Groups:
    place = _place(metadata, "id")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return Groups(
        tuple(bounds_of(group, place) or ANY for group in groups), tuple(group.num_rows for group in groups)
    )


def _place(metadata: Any, column: str) -> int:
    for place in range(metadata.num_columns):
        if metadata.schema.column(place).path == column:
            return place
    raise pa.ArrowInvalid(f"it has no column {column}")
