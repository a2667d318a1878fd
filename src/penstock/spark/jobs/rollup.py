"""``rollup``: statistics in windows of 5 seconds, a minute and ten minutes, for as long as the lake is kept.

    jobs:
      rollup: {every: 1m, lateness: 10m, streams: [orders], event_time: $.ts}

From transactions that reached the lake (``stats_5s``, ``stats_60s``, ``stats_600s``), by pipeline, node group
and owner, and of all:

=============  ==================================  ========================================================
column         an event is                         its window is that of
=============  ==================================  ========================================================
queued         a transaction was made              ``created``
started        … was begun                         the start of its first step, else ``taken``
retries        a step was tried once more          the end of that attempt
success, …     a run ended so                      ``ended``; latency is from ``created`` to there
late           any of these that came when its     … ``lateness`` before the newest window of the table
               window was thought to be over
=============  ==================================  ========================================================

Rows are sums of what one commit brought: add up the rows of a key (``rollup_counting.stats`` does). So
nothing is ever too late: an event that comes late is counted in its window all the same, and in ``late``.

From live streams (``stream_stats_…``, see ``rollup_streams``): messages and bytes, with Spark's watermark.

Rules: each commit of ``transactions`` is taken in once by each table (``derive.take_in``). What a run of a
transaction repeats of the runs before it is not counted again. Nothing here knows how rows come to the lake.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import ConfigError
from penstock.lake.alone import alone
from penstock.spark.jobs.job import JobContext, JobReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.table import LakeTable

#: seconds of a window -> the end of its tables' names
LEVELS: Final = {5: "5s", 60: "60s", 600: "600s"}
_MINUTE_MS: Final = 60_000


class RollupOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is counted, and how long is waited for what comes late."""

    #: whether transactions are counted
    transactions: bool = True
    #: live streams whose messages are counted
    streams: list[str] = []
    #: what is older than the newest by this is late; of streams it is not counted
    lateness_ms: int = 10 * _MINUTE_MS
    #: where a message of a stream (JSON) has its time, ``$.ts``; else when it was written counts
    event_time: str | None = None
    #: messages of one batch
    max_messages_per_batch: int = 1_000_000

    def __post_init__(self) -> None:
        if self.lateness_ms < 0:
            raise ConfigError(f"lateness_ms must be at least 0, not {self.lateness_ms}")
        if self.event_time is not None and not self.event_time.startswith("$"):
            raise ConfigError(f"event_time must be a JSON path like $.ts, not {self.event_time!r}")
        if self.max_messages_per_batch < 1:
            raise ConfigError(f"max_messages_per_batch must be at least 1, not {self.max_messages_per_batch}")


class RollupJob:
    """Keeps the statistics of a lake in step with it."""

    def __init__(self, options: RollupOptions | None = None) -> None:
        self.name = "rollup"
        self.options = options or RollupOptions()

    def run_once(self, context: JobContext) -> JobReport:
        # Options can be read where Spark is not installed.
        from penstock.spark.jobs.derive import take_in
        from penstock.spark.jobs.rollup_streams import count_streams

        started_ms = context.clock.now_ms()
        rows = batches = 0
        notes: dict[str, int | str] = {}
        for seconds, level in LEVELS.items() if self.options.transactions else ():
            name = f"stats_{level}"
            with alone(context.lake, f"derive-{name}") as is_mine:
                make = partial(self._counted, context.lake.table(name), seconds)
                new = take_in(context, name, make) if is_mine and not context.stopping.is_set() else 0
            rows, batches = rows + new, batches + (new > 0)
            context.report(rows=rows, batches=batches)
        if self.options.streams and not context.stopping.is_set():
            counted = count_streams(context, self.options)
            rows, batches = rows + counted.rows, batches + counted.batches
            notes |= {"dropped": counted.dropped} if counted.dropped else {}
        return JobReport(
            job=self.name,
            started_ms=started_ms,
            ended_ms=context.clock.now_ms(),
            batches=batches,
            rows=rows,
            notes=notes,
        )

    def _counted(self, table: LakeTable, seconds: int, transactions: DataFrame) -> DataFrame:
        from penstock.spark.jobs.rollup_counting import counted

        newest = newest_window(table)
        closed = None if newest is None else newest - dt.timedelta(milliseconds=self.options.lateness_ms)
        return counted(transactions, seconds, closed)

    def __repr__(self) -> str:
        return f"<RollupJob of transactions and {len(self.options.streams)} streams>"


def newest_window(table: LakeTable) -> dt.datetime | None:
    """Where the newest window of a table begins, as its files tell; None if it is empty."""
    ends = (file.bounds("window") for file in table.files())
    return max((dt.datetime.fromisoformat(end[1]) for end in ends if end is not None), default=None)
