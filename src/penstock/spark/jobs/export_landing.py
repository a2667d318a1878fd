"""Micro-batches of messages land in the table ``messages``: each once, and then the store is told.

    landing = Landing(context, store, plan, group="lake")
    df.writeStream.foreachBatch(landing)…
    landing.close()                          # the batch that is landing is waited for, later ones are ignored

How a batch lands:

1. Spark writes it, by stream and day, into files that nobody sees yet.
2. Their footers tell how far each stream comes with it. Less than what the lake has: the stream was made
   anew meanwhile, and nothing is committed.
3. One commit makes the files a part of the table, with the next offset of each stream as progress. It stands
   only if the lake is still where the batch begins: whoever else exports, or has restored the lake from a
   backup, makes it fail.
4. The group's cursor in the store moves up to there, so that nothing is evicted that the lake has not got.

A crash before 3 leaves files that vacuum removes; after 3 the next pass begins behind the batch, and sets
the cursor first. Offsets without a message (compacted away) are passed over with the next message, or at the
end of a query that has read all there was.

Nothing here knows which streams are wanted, or how long a query runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from penstock.errors import LakeError
from penstock.spark.jobs.exported import TABLE, begin_app, progress_app
from penstock.spark.lake_writing import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.files import WrittenFile
    from penstock.spark.jobs.export_plan import Plan
    from penstock.spark.jobs.job import JobContext


class Landing:
    """The end of one query, for ``foreachBatch``."""

    def __init__(self, context: JobContext, store: str, plan: Plan, *, group: str) -> None:
        """``store``: its id. ``group``: whose cursor tells the store how far the lake is; none if empty."""
        self._context = context
        self._store = store
        self._group = group
        self._table = context.lake.table(TABLE)
        #: stream -> the offset that the lake wants next
        self.next = {span.stream: span.begin for span in plan.spans}
        self._new = {span.stream for span in plan.spans if span.is_new}
        self.batches = 0
        self.rows = 0
        #: why a batch did not land: Spark tells it less well
        self.failure: Exception | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def __call__(self, df: DataFrame, batch: int) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                self._land(df, batch)
            except Exception as error:
                self.failure = error
                raise

    def close(self) -> None:
        """Wait for the batch that is landing; no other one does from now on."""
        with self._lock:
            self._is_closed = True

    def pass_over(self, ends: Mapping[str, int]) -> None:
        """Everything below these offsets has landed: what the lake wants next lies behind holes."""
        behind = {stream: end for stream, end in ends.items() if self.next[stream] < end}
        if behind:
            self._commit([], behind)

    def publish(self, streams: Iterable[str]) -> None:
        """Tell the store how far the lake has these."""
        if not self._group:
            return
        for stream in streams:
            at = self.next[stream]
            group = self._context.store.stream(stream).group(self._group)
            info = group.info()
            if info is None:
                group.create(at=at)
            elif info.cursor != at:
                group.configure(at=at)

    # ------------------------------------------------------------------------------ a batch

    def _land(self, df: DataFrame, batch: int) -> None:
        # By the calendar of UTC, whatever the session's zone is.
        rows = df.withColumn("day", F.to_date(F.to_utc_timestamp("time", F.current_timezone())))
        files = write(rows, self._table, f"export-{batch}", sort_by=("offset",))
        if files:
            self._commit(files, self._reached(files))
            self.batches += 1

    def _commit(self, files: Sequence[WrittenFile], reached: Mapping[str, int]) -> None:
        """Files that take each stream up to an offset."""
        progress: dict[str, int] = {}
        expected: dict[str, int | None] = {}
        for stream, end in reached.items():
            app = progress_app(self._store, stream)
            progress[app] = end
            expected[app] = None if stream in self._new else self.next[stream]
            if stream in self._new:
                progress[begin_app(self._store, stream)] = self.next[stream]
        result = self._table.commit(files, progress=progress, expected=expected)
        if not result.is_new:
            raise LakeError(f"table {TABLE}: another process has exported {', '.join(reached)}; begin again")
        self.next.update(reached)
        self._new.difference_update(reached)
        self.rows += result.rows
        self.publish(reached)

    def _reached(self, files: Iterable[WrittenFile]) -> Mapping[str, int]:
        """How far each stream comes with them: the offset after its last message."""
        reached: dict[str, int] = {}
        for file in files:
            stream, bounds = file.partition["stream"], file.bounds("offset")
            if stream is None or bounds is None:
                raise LakeError(f"table {TABLE}: {file.path} does not tell its stream and its offsets")
            if bounds[0] < self.next[stream]:
                raise LakeError(
                    f"table {TABLE}: offset {bounds[0]} of the stream {stream} is in the lake already:"
                    " it was deleted and made anew; begin again"
                )
            reached[stream] = max(reached.get(stream, 0), bounds[1] + 1)
        return reached
