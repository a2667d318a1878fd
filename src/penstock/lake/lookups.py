"""A transaction by its id, in milliseconds, among millions.

    lookup = TransactionLookup(lake.table("transactions")) lookup.find("tx-0-018c2f5a7b3…")               #
    the last run of it, every field and every entry of its trail

From an id to its row:

1. Is there a newer version of the table? Asked of the file system (``snapshots.py``).
2. Which files can have it: of ``data/by-id-<generation>/…<digit>/`` those whose digit is the last one of
   the root id, and all others (as they were archived); of both those whose first and last id enclose it, as
   Delta's log tells.
3. Which groups of rows of those can have it: ends of files tell, which are kept (``footers.py``).
4. Of such a group the ids are read, and if it is there, what makes up a record.

Rules: all runs of a transaction are looked at, the highest counts. A file that vacuum removed meanwhile
makes it start again, once. Any thread may call. Nothing here writes, or knows how files came to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StoreError
from penstock.lake.files import LakeFile
from penstock.lake.footers import ANY, MAX_END_BYTES, Footers
from penstock.lake.table import LakeTable
from penstock.transactions import keys
from penstock.transactions.archive.schema import TRUTH, records_of
from penstock.transactions.archive.sink import ArchivedRecord

T = TypeVar("T")
_BY_ID: Final = re.compile(r"data/by-id-[^/]*/(?:[^/=]*=)?([0-9a-f])/[^/]*")


class _Span(NamedTuple):
    low: str
    high: str
    path: str


class _Spans:
    """Some files of the table, by what they can have."""

    def __init__(self, files: Iterable[LakeFile]) -> None:
        self._by_digit: dict[str, list[_Span]] = {}
        self._others: list[_Span] = []
        for file in files:
            low, high = file.bounds("id") or ANY
            sorted_by = _BY_ID.fullmatch(file.path)
            here = self._others if sorted_by is None else self._by_digit.setdefault(sorted_by[1], [])
            here.append(_Span(low, high, file.path))

    def candidates(self, tx: str) -> Iterator[str]:
        """Paths of files that can have a transaction."""
        digit = keys.root_of(tx)[-1]
        for span in chain(self._by_digit.get(digit, ()), self._others):
            if span.low <= tx <= span.high:
                yield span.path


class _Index(NamedTuple):
    """Files of one version of the table."""

    version: int
    paths: list[str]
    all: _Spans
    #: those that can have a run above 0
    replayed: _Spans


class TransactionLookup:
    """Finds rows of the table ``transactions``."""

    def __init__(self, table: LakeTable, *, max_end_bytes: int = MAX_END_BYTES) -> None:
        """``max_end_bytes``: how much of ends of files is kept in memory."""
        self.table = table
        self.footers = Footers(table.root, max_end_bytes=max_end_bytes)
        self._index: _Index | None = None

    def find(self, tx: str) -> ArchivedRecord | None:
        """The last run of a transaction; None if the lake has none."""
        keys.partition_of(tx)
        found = self.steadily(
            lambda: [row for path in self._current().all.candidates(tx) for row in self._rows(path, tx)]
        )
        return max(found, key=lambda record: (record.run, record.batch), default=None)

    def runs(self, txs: Iterable[str], *, least: int = 0) -> dict[str, set[int]]:
        """Which runs of these, from ``least`` on, the lake has; without those of which it has none."""
        wanted = set(txs)
        return self.steadily(lambda: self._runs(wanted, least))

    def files(self) -> list[str]:
        """Paths of all files of the table, relative to it."""
        return self._current().paths

    def steadily(self, work: Callable[[], T]) -> T:
        """Work on the newest version; once more if a file of it was removed meanwhile."""
        try:
            return work()
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._index = None
            return work()

    def _current(self) -> _Index:
        snapshot = self.table.snapshot()
        index = self._index
        if index is None or index.version != snapshot.version:
            self._index = index = _index_of(snapshot.version, snapshot.files)
        return index

    def _rows(self, path: str, tx: str) -> list[ArchivedRecord]:
        """Runs of one transaction in one file."""
        found: list[ArchivedRecord] = []
        for group in self.footers.groups(path).with_id(tx):
            ids = self.footers.read(path, [group], ["id"]).column("id")
            places = pc.indices_nonzero(pc.equal(ids, tx))
            if len(places):
                found += records_of(self.footers.read(path, [group], TRUTH).take(places))
        return found

    def _runs(self, wanted: set[str], least: int) -> dict[str, set[int]]:
        index = self._current()
        spans = index.replayed if least else index.all
        places = {
            (path, group)
            for tx in wanted
            for path in spans.candidates(tx)
            for group in self.footers.groups(path).with_id(tx)
        }
        found: dict[str, set[int]] = {}
        asked = pa.array(wanted, pa.string())
        for path, group in sorted(places):
            table = self.footers.read(path, [group], ("id", "run"))
            here = table.filter(pc.is_in(table.column("id"), asked))
            for tx, run in zip(here.column("id").to_pylist(), here.column("run").to_pylist(), strict=True):
                if (run or 0) >= least:
                    found.setdefault(tx, set()).add(run or 0)
        return found

    def __repr__(self) -> str:
        return f"<TransactionLookup of {self.table!r}>"


def _index_of(version: int, files: Sequence[LakeFile]) -> _Index:
    replayed = [file for file in files if (runs := file.bounds("run")) is None or runs[1] > 0]
    return _Index(version, [file.path for file in files], _Spans(files), _Spans(replayed))
