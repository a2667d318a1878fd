"""One page of a search through the transactions of a lake, newest first.

Groups of rows are gone through from the one that reaches furthest; ids tell of which time they are. A group
is left unread when a page is full of newer ones, or when its bounds say that nothing in it matches. Of a
transaction that was replayed the last run alone is seen, even if an earlier one matches.

Rules: work is bounded. After ``_MOST_GROUPS`` groups a page ends where it is, and may be short although a
cursor comes with it. Nothing here writes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.footers import FAR_MS, Groups
from penstock.lake.lookups import TransactionLookup
from penstock.transactions.archive.schema import TRUTH, records_of
from penstock.transactions.archive.sink import (
    ArchivedRecord,
    ArchivePage,
    ArchiveQuery,
    Position,
    cursor_at,
    position_of,
)

_MOST_GROUPS: Final = 20_000
#: Neighbours that are read at once by a search that most rows do not match.
_TOGETHER: Final = 32
_COLUMNS: Final = ("owner", "status", "pipeline", "external_id")


class _Part(NamedTuple):
    """Some groups of rows of a file."""

    last_ms: int
    path: str
    groups: tuple[int, ...]


class _Hit(NamedTuple):
    position: Position
    run: int
    batch: int
    path: str
    group: int
    #: number of its row in the group
    place: int


class LakeSearch:
    """The work of one page."""

    def __init__(self, lookup: TransactionLookup, query: ArchiveQuery) -> None:
        self._lookup = lookup
        self._footers = lookup.footers
        self._limit = query.limit
        self._before = query.before() or Position(FAR_MS, "")
        self._since_ms = query.since_ms or 0
        self._until_ms = min(FAR_MS if query.until_ms is None else query.until_ms, self._before.start_ms + 1)
        self._wanted = {name: value for name in _COLUMNS if (value := getattr(query, name)) is not None}
        #: id -> the last run; no more than a page, and one that tells whether there is another
        self._hits: dict[str, _Hit] = {}
        #: the oldest of them when they are so many: nothing older is of interest
        self._floor = Position(-1, "")

    def page(self) -> ArchivePage:
        opened = 0
        for part in sorted(self._parts(), reverse=True):
            if part.last_ms < self._floor.start_ms:
                break
            if opened >= _MOST_GROUPS and part.last_ms + 1 < self._before.start_ms:
                return self._cut(part.last_ms)
            opened += len(part.groups)
            self._keep(self._hits_of(part))
        hits = self._newest()
        has_more = len(hits) > self._limit
        hits = hits[: self._limit]
        return ArchivePage(self._records(hits), cursor_at(hits[-1].position) if has_more else None)

    def _cut(self, last_ms: int) -> ArchivePage:
        """A page that ends here: what is newer than all that was not looked at."""
        seen = [hit for hit in self._newest() if hit.position.start_ms > last_ms]
        return ArchivePage(self._records(seen[: self._limit]), cursor_at(Position(last_ms + 1, "")))

    def _keep(self, hits: Iterable[_Hit]) -> None:
        for hit in hits:
            known = self._hits.get(hit.position.id)
            if known is None or known[1:3] < hit[1:3]:
                self._hits[hit.position.id] = hit
        newest = self._newest()
        if len(newest) > self._limit:
            self._hits = {hit.position.id: hit for hit in newest}
            self._floor = newest[-1].position

    def _newest(self) -> list[_Hit]:
        return heapq.nlargest(self._limit + 1, self._hits.values(), key=lambda hit: hit.position)

    # ---------------------------------------------------------------------------------------- parts

    def _parts(self) -> Iterator[_Part]:
        for path in self._lookup.files():
            known = self._footers.groups(path)
            spans = {group: known.span_ms(group) for group in range(len(known.ids))}
            groups = [
                group
                for group, (first_ms, last_ms) in spans.items()
                if first_ms < self._until_ms and last_ms >= self._since_ms
            ]
            size = _TOGETHER if self._wanted else 1
            for place in range(0, len(groups), size):
                some = groups[place : place + size]
                yield _Part(max(spans[group][1] for group in some), path, tuple(some))

    def _may_match(self, path: str, group: int) -> bool:
        for name, value in self._wanted.items():
            bounds = self._footers.bounds(path, group, name)
            if bounds is not None and not bounds[0] <= value <= bounds[1]:
                return False
        return True

    def _hits_of(self, part: _Part) -> list[_Hit]:
        groups = [group for group in part.groups if self._may_match(part.path, group)]
        places = self._matching(part.path, groups)
        if not len(places):
            return []
        table = self._footers.read(part.path, groups, ("id", "run", "batch")).take(places)
        where = _Rows(self._footers.groups(part.path), groups)
        columns = (table.column(name).to_pylist() for name in ("id", "run", "batch"))
        hits = [
            _Hit(position, run or 0, batch or 0, part.path, *where.located(number))
            for number, tx, run, batch in zip(places.to_pylist(), *columns, strict=True)
            if self._is_in_time(position := position_of(tx))
        ]
        return self._last_runs(hits) if self._wanted else hits

    def _matching(self, path: str, groups: Sequence[int]) -> Any:
        """Numbers of rows that match, counted over these groups."""
        if not groups:
            return ()
        if not self._wanted:
            known = self._footers.groups(path)
            return pa.array(range(sum(known.rows[group] for group in groups)), pa.int64())
        table = self._footers.read(path, groups, list(self._wanted))
        mask: Any = None
        for name, value in self._wanted.items():
            found = pc.equal(table.column(name), value)
            mask = found if mask is None else pc.and_kleene(mask, found)
        return pc.indices_nonzero(mask)

    def _is_in_time(self, position: Position) -> bool:
        return self._since_ms <= position.start_ms < self._until_ms and self._floor <= position < self._before

    def _last_runs(self, hits: list[_Hit]) -> list[_Hit]:
        """Without those of which a later run is there, which perhaps does not match.

        A search for everything finds that run itself: it has the same position.
        """
        replayed = self._lookup.runs((hit.position.id for hit in hits), least=1)
        return [hit for hit in hits if max(replayed.get(hit.position.id, ()), default=0) <= hit.run]

    # -------------------------------------------------------------------------------------- records

    def _records(self, hits: Sequence[_Hit]) -> list[ArchivedRecord]:
        """Whole rows of hits, in their order."""
        by_group: dict[tuple[str, int], list[_Hit]] = {}
        for hit in hits:
            by_group.setdefault((hit.path, hit.group), []).append(hit)
        records: dict[Position, ArchivedRecord] = {}
        for (path, group), here in by_group.items():
            table = self._footers.read(path, [group], TRUTH).take([hit.place for hit in here])
            records.update(zip((hit.position for hit in here), records_of(table), strict=True))
        return [records[hit.position] for hit in hits]


class _Rows:
    """Rows that are counted over some groups of a file."""

    def __init__(self, known: Groups, groups: Sequence[int]) -> None:
        self._groups = groups
        #: number of the first row of each
        self._firsts = list(accumulate((known.rows[group] for group in groups), initial=0))

    def located(self, number: int) -> tuple[int, int]:
        """Group of a row, and its place in it."""
        at = bisect_right(self._firsts, number) - 1
        return self._groups[at], number - self._firsts[at]
