"""``compact``: of each tag the newest message stays, in streams whose tags are too many for one process.

    jobs:
      compact: {every: 1h, streams: [profiles], min_lag: 1h, tombstone: 1d}

Spark looks at the messages up to a boundary (what was last when it began, and old enough) and finds

1. those that have a younger one of their tag at or below the boundary,
2. tombstones older than ``tombstone`` that are all that is left of their tag,

as ranges of offsets, which the store is told to drop (``TDROP``), some thousands a call.

Why it may be killed anywhere: a call is atomic, and what it drops has a younger message of its tag that no
call of this pass drops, or is a tombstone with nothing before it. So each prefix of the calls leaves a stream
that compacts to the same one, and the next pass finds the rest. Messages written meanwhile are above the
boundary and never touched; nor are empty tags, nor what is pending in a group (the store sees to that): its
tombstone waits for it.

Nothing here knows the lake.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import ConfigError
from penstock.spark.jobs.exported import check_patterns, streams_like
from penstock.spark.jobs.job import JobContext, JobReport

_DAY_MS: Final = 86_400_000


class CompactOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which streams, and what is left alone."""

    #: names or patterns
    streams: list[str]
    #: messages younger than this are not looked at
    min_lag_ms: int = 0
    #: how long tombstones stay
    tombstone_ms: int = _DAY_MS

    def __post_init__(self) -> None:
        check_patterns("streams", self.streams)
        for name in ("min_lag_ms", "tombstone_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, not {getattr(self, name)}")


class CompactJob:
    """Compacts streams of the store."""

    def __init__(self, options: CompactOptions) -> None:
        self.name = "compact"
        self.options = options

    def run_once(self, context: JobContext) -> JobReport:
        # Options can be read where Spark is not installed.
        from penstock.spark.jobs.compacting import compact

        started_ms = context.clock.now_ms()
        batches = rows = 0
        for name in streams_like(context.store, self.options.streams):
            for dropped in compact(context, name, self.options):
                batches, rows = batches + 1, rows + dropped
                context.report(stream=name, batches=batches, rows=rows)
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=batches,
            rows=rows,
        )

    def __repr__(self) -> str:
        return f"<CompactJob of {', '.join(self.options.streams)}>"
