"""``maintain``: small files of the lake are merged, transactions sorted for lookups, old files removed.

    jobs:
      maintain: {every: 10m, older_than: 7d}

For each table, one after the other: pieces are merged as ``merging`` says and ``rewriting`` does, then the
log gets a checkpoint, then files go that left the table longer than ``older_than`` ago.

Rules: one process works on a table (``lake.alone``). A table that fails does not stop the others. What a
reader may still be at, or a writer be about to commit, stays for ``older_than``.

Nothing here knows where rows come from.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import ConfigError, LakeError
from penstock.lake.alone import alone
from penstock.lake.tables import TABLES
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.jobs.merging import MergeRule, Piece, chosen, layout_of, pieces_of

if TYPE_CHECKING:
    from penstock.lake.table import LakeTable

logger = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_WEEK_MS: Final = 7 * 24 * _HOUR_MS


class MaintainOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the lake is kept in order."""

    #: only these tables; all, if none is named
    tables: list[str] = []
    #: so many pieces of about the same size become one
    fan_in: int = 8
    #: files of this size are left as they are
    file_bytes: int = 134_217_728
    #: files that left their table so long ago are removed
    older_than_ms: int = _WEEK_MS

    def __post_init__(self) -> None:
        for name in self.tables:
            if name not in TABLES:
                raise ConfigError(f"tables must be of {', '.join(TABLES)}, not {name!r}")
        if not 2 <= self.fan_in <= 1_000:
            raise ConfigError(f"fan_in must be 2 to 1000, not {self.fan_in}")
        if self.file_bytes < 1:
            raise ConfigError(f"file_bytes must be at least 1, not {self.file_bytes}")
        if self.older_than_ms < _HOUR_MS:
            raise ConfigError(
                f"older_than_ms must be at least {_HOUR_MS} (an hour), not {self.older_than_ms}:"
                " somebody may read, or be about to commit, what is younger"
            )


class MaintainJob:
    """Keeps the tables of a lake in order."""

    def __init__(self, options: MaintainOptions | None = None) -> None:
        self.name = "maintain"
        self.options = options or MaintainOptions()
        self._rule = MergeRule(self.options.fan_in, self.options.file_bytes)

    def run_once(self, context: JobContext) -> JobReport:
        started_ms = context.clock.now_ms()
        counts: Counter[str] = Counter()
        failure: LakeError | None = None
        for name in context.lake.names():
            if context.stopping.is_set():
                break
            if self.options.tables and name not in self.options.tables:
                continue
            try:
                self._maintain(context, context.lake.table(name), counts)
            except LakeError as error:
                logger.warning("%s is not in order: %s", name, error)
                failure = failure or error
        if failure is not None:
            raise failure
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=counts.pop("merges", 0),
            rows=counts.pop("rows", 0),
            notes={name: count for name, count in counts.items() if count},
        )

    def _maintain(self, context: JobContext, table: LakeTable, counts: Counter[str]) -> None:
        with alone(context.lake, f"rewrite-{table.name}") as is_mine:
            if not is_mine:
                counts["busy"] += 1
                return
            version = table.version()
            self._merge(context, table, counts)
            if table.version() != version:
                table.checkpoint_log()
            counts["removed"] += len(table.vacuum(older_than_ms=self.options.older_than_ms))

    def _merge(self, context: JobContext, table: LakeTable, counts: Counter[str]) -> None:
        # Options can be read where Spark is not installed.
        from penstock.spark.jobs.rewriting import rewrite

        while not context.stopping.is_set() and (pieces := self._next(table)):
            files = rewrite(context.spark, table, pieces, self._rule)
            counts.update(
                merges=1,
                rows=sum(piece.rows for piece in pieces),
                merged=sum(len(piece.files) for piece in pieces),
                written=len(files),
            )
            context.report(table=table.name, merges=counts["merges"], rows=counts["rows"])

    def _next(self, table: LakeTable) -> list[Piece]:
        """What is to be merged; [] if nothing is."""
        layout = layout_of(table.name)
        found = (chosen(pieces, layout, self._rule) for pieces in pieces_of(table.files()))
        return next((pieces for pieces in found if pieces), [])

    def __repr__(self) -> str:
        return f"<MaintainJob of {', '.join(self.options.tables) or 'all tables'}>"
