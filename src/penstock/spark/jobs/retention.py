"""``retention``: what is too old leaves the lake, and streams give up what the lake has.

    jobs:
      retention:
        every: 1h
        tables: {messages: 90d, transactions: 2y, stats_5s: 7d}
        streams: {orders: 7d}

Tables: rows are as old as their column says

====================  ===================================
messages              ``time``
transactions          ``ended``
steps                 ``tx_ended``
webhooks              ``ended``
statistics            ``window``
====================  ===================================

A file of which every row is too old leaves its table. One that has both kinds is first split by a rewrite,
which changes no rows; then its old half leaves. So ``changes`` never tells a row twice. What a table that is
made from this one has not taken in yet stays until it has.

Streams: messages older than that go (``TEVICT``), but never one that the lake has not got: the boundary is
the smaller of the two, and groups are asked as well (``ACKED``).

Rules: rows without a time stay. ``dry_run`` changes nothing and tells what would go. Files stay on the disk
until
``maintain`` removes them.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import ConfigError
from penstock.lake.alone import alone
from penstock.lake.tables import TABLES, derived_from
from penstock.spark.jobs.exported import TABLE, progress_app
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.positions import find_bounds, first_since

if TYPE_CHECKING:
    from penstock.lake.files import LakeFile
    from penstock.lake.table import LakeTable

#: By which column a table's rows are old.
_AGES: Final = {"messages": "time", "transactions": "ended", "steps": "tx_ended", "webhooks": "ended"}


class RetentionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long what is kept."""

    #: table -> age
    tables_ms: dict[str, int] = {}
    #: stream -> age
    streams_ms: dict[str, int] = {}
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in self.tables_ms:
            if name not in TABLES:
                raise ConfigError(f"tables must be of {', '.join(TABLES)}, not {name!r}")
        for kind, ages in (("tables", self.tables_ms), ("streams", self.streams_ms)):
            for name, age_ms in ages.items():
                if age_ms < 1:
                    raise ConfigError(f"{kind}.{name} must be more than 0, not {age_ms} ms")


class RetentionJob:
    """Removes what is too old."""

    def __init__(self, options: RetentionOptions) -> None:
        self.name = "retention"
        self.options = options

    def run_once(self, context: JobContext) -> JobReport:
        started_ms = context.clock.now_ms()
        gone: Counter[str] = Counter()
        for name, age_ms in self.options.tables_ms.items():
            if context.stopping.is_set():
                break
            gone[name] += self._thin_out(context, name, started_ms - age_ms)
            context.report(table=name, rows=gone.total())
        for name, age_ms in self.options.streams_ms.items():
            if context.stopping.is_set():
                break
            gone[f"stream {name}"] += self._evict(context, name, started_ms - age_ms)
            context.report(stream=name, rows=gone.total())
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=sum(count > 0 for count in gone.values()),
            rows=gone.total(),
            notes={name: count for name, count in gone.items() if count},
        )

    # --------------------------------------------------------------------------------------- tables

    def _thin_out(self, context: JobContext, name: str, before_ms: int) -> int:
        """Rows older than that leave a table; how many."""
        if name not in context.lake.names():
            return 0
        table = context.lake.table(name)
        before = dt.datetime.fromtimestamp(before_ms / 1_000, dt.UTC)
        with alone(context.lake, f"rewrite-{name}") as is_mine:
            if not is_mine or not _is_taken_in(context, table):
                return 0
            if self.options.dry_run:
                return sum(file.rows for file in table.files() if _is_older(file, name, before))
            self._split(context, table, before)
            old = [file for file in table.files() if _is_older(file, name, before)]
            if old:
                table.commit([], progress={}, removes=[file.path for file in old])
        return sum(file.rows for file in old)

    def _split(self, context: JobContext, table: LakeTable, before: dt.datetime) -> None:
        """Files that have old rows and others become two each."""
        from penstock.spark.jobs.rewriting import split

        column = age_column(table.name)
        mixed = [
            file
            for file in table.files()
            if (bounds := file.bounds(column)) and _moment(bounds[0]) < before <= _moment(bounds[1])
        ]
        if mixed:
            split(context.spark, table, mixed, column, before)

    # -------------------------------------------------------------------------------------- streams

    def _evict(self, context: JobContext, name: str, before_ms: int) -> int:
        """Messages older than that, and in the lake, leave a stream; how many."""
        from penstock.spark.stores import store_id

        stream = context.store.stream(name)
        bounds = find_bounds(stream)
        app = progress_app(store_id(context.store), name)
        have = context.lake.table(TABLE).progress(app) if TABLE in context.lake.names() else None
        if bounds is None or have is None:
            return 0
        upto = min(have, first_since(stream, bounds, before_ms)) - 1
        if upto < bounds.first:
            return 0
        return upto - bounds.first + 1 if self.options.dry_run else stream.evict(upto=upto, acked=True)

    def __repr__(self) -> str:
        return (
            f"<RetentionJob of {len(self.options.tables_ms)} tables, {len(self.options.streams_ms)} streams>"
        )


def age_column(table: str) -> str:
    """Which column tells how old a row is."""
    return _AGES.get(table, "window")


def _is_older(file: LakeFile, table: str, before: dt.datetime) -> bool:
    bounds = file.bounds(age_column(table))
    return bounds is not None and _moment(bounds[1]) < before and file.nulls(age_column(table)) == 0


def _moment(told: str) -> dt.datetime:
    return dt.datetime.fromisoformat(told)


def _is_taken_in(context: JobContext, table: LakeTable) -> bool:
    """Whether every table that is made from this one has all of it."""
    made = [spec for spec in derived_from(table.name) if spec.name in context.lake.names()]
    return all(not table.changes(context.lake.table(spec.name).progress(spec.app) or 0) for spec in made)
