"""One page of a search through the files of an archive, newest first.

Days are gone through from the newest, files of a day from the one that reaches furthest. A file is left
unopened when a page is full of newer ones. Of a transaction that was replayed the last run alone is seen,
even if an earlier one matches: ends of files tell which were (``Footer.runs``), and all runs of one lie in
the same day.

Rules: work is bounded. After ``_MOST_FILES`` files a page ends with the day it is at, and may be short
although a cursor comes with it. Nothing here writes.
"""

from __future__ import annotations

import heapq
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc

from penstock.transactions.archive import naming
from penstock.transactions.archive.files import ArchiveFile, Files, external_key
from penstock.transactions.archive.sink import (
    ArchivedRecord,
    ArchivePage,
    ArchiveQuery,
    Position,
    cursor_at,
    position_of,
)

_MOST_FILES: Final = 2_000
_FAR_MS: Final = 2**63


class _Hit(NamedTuple):
    position: Position
    run: int
    batch: int
    file: ArchiveFile
    #: number of its row
    place: int


class Search:
    """The work of one page."""

    def __init__(self, files: Files, query: ArchiveQuery) -> None:
        self._files = files
        self._query = query
        self._before = query.before() or Position(_FAR_MS, "")
        self._since_ms = query.since_ms or 0
        self._until_ms = min(_FAR_MS if query.until_ms is None else query.until_ms, self._before.start_ms + 1)
        self._opened = 0
        columns = ("owner", "status", "pipeline", "external_id")
        self._wanted = {name: value for name in columns if (value := getattr(query, name)) is not None}

    def page(self) -> ArchivePage:
        hits: list[_Hit] = []
        limit = self._query.limit
        for start_ms, day in self._files.days():
            if start_ms >= self._until_ms:
                continue
            if start_ms + naming.DAY_MS <= self._since_ms:
                break
            hits += self._hits_of_day(day, limit + 1 - len(hits))
            if len(hits) > limit:
                return ArchivePage(self._records(hits[:limit]), cursor_at(hits[limit - 1].position))
            if self._opened >= _MOST_FILES:
                return ArchivePage(self._records(hits), cursor_at(Position(start_ms, "")))
        return ArchivePage(self._records(hits), None)

    def _hits_of_day(self, day: str, most: int) -> list[_Hit]:
        """The newest of a day, at most so many."""
        files = [file for file in self._files.of_day(day) if self._may_match(file)]
        runs = self._newest_runs(day)
        files.sort(key=_last_ms, reverse=True)
        best: dict[str, _Hit] = {}
        # The oldest of those that are among the newest: nothing older is of interest.
        floor = Position(-1, "")
        for file in files:
            if _last_ms(file) < floor.start_ms:
                break
            for hit in self._hits_of_file(file):
                tx = hit.position.id
                if hit.position < floor or hit.run < runs.get(tx, 0):
                    continue
                known = best.get(tx)
                if known is None or known[1:3] < hit[1:3]:
                    best[tx] = hit
            if len(best) >= most:
                newest = heapq.nlargest(most, best.values(), key=lambda hit: hit.position)
                best = {hit.position.id: hit for hit in newest}
                floor = newest[-1].position
        return sorted(best.values(), key=lambda hit: hit.position, reverse=True)

    def _may_match(self, file: ArchiveFile) -> bool:
        name = file.name
        return name is None or (name.first_ms < self._until_ms and name.last_ms >= self._since_ms)

    def _newest_runs(self, day: str) -> dict[str, int]:
        runs: dict[str, int] = {}
        for file in self._files.of_day(day):
            if file.name is None or file.name.run > 0:
                for tx, run in self._files.footer(file).runs.items():
                    runs[tx] = max(run, runs.get(tx, 0))
        return runs

    def _hits_of_file(self, file: ArchiveFile) -> list[_Hit]:
        self._opened += 1
        query = self._query
        if query.owner is not None and query.external_id is not None:
            footer = self._files.footer(file)
            if not footer.may_have_external(external_key(query.owner, query.external_id)):
                return []
        table = self._files.columns(file, ("id", "run", "batch", *self._wanted))
        mask: Any = None
        for name, value in self._wanted.items():
            found = pc.equal(table.column(name), value)
            mask = found if mask is None else pc.and_kleene(mask, found)
        places = range(table.num_rows)
        if mask is not None:
            matching = pc.indices_nonzero(mask)
            places, table = matching.to_pylist(), table.take(matching)
        rows = zip(places, *(table.column(name).to_pylist() for name in ("id", "run", "batch")), strict=True)
        hits = (_Hit(position_of(tx), run or 0, batch or 0, file, place) for place, tx, run, batch in rows)
        return [hit for hit in hits if self._is_in_time(hit.position)]

    def _is_in_time(self, position: Position) -> bool:
        return self._since_ms <= position.start_ms < self._until_ms and position < self._before

    def _records(self, hits: list[_Hit]) -> list[ArchivedRecord]:
        """Whole rows of hits, in their order."""
        by_file: dict[ArchiveFile, list[_Hit]] = {}
        for hit in hits:
            by_file.setdefault(hit.file, []).append(hit)
        records = {
            hit.position: record
            for file, here in by_file.items()
            for hit, record in zip(here, self._files.rows_at(file, [hit.place for hit in here]), strict=True)
        }
        return [records[hit.position] for hit in hits]


def _last_ms(file: ArchiveFile) -> int:
    return _FAR_MS if file.name is None else file.name.last_ms
