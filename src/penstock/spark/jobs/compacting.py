"""One stream compacted: Spark finds what is superseded, the store drops it. ``compact`` tells why so.

    for dropped in compact(context, "profiles", options): …       # messages that went, call by call

Rules: what Spark sends to the driver is ranges, sorted; as many are in memory as one call takes. Who is asked
to stop ends after a call. A stream that is not there has nothing to compact.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as fn

from penstock.spark.positions import find_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.jobs.compact import CompactOptions
    from penstock.spark.jobs.job import JobContext

#: Ranges of one call.
_ITEMS: Final = 10_000
_SCHEMA: Final = "offset BIGINT, time TIMESTAMP, tag BINARY, message BINARY"


def compact(context: JobContext, stream: str, options: CompactOptions) -> Iterator[int]:
    """Drop what is superseded; how many messages went, call by call."""
    target = context.store.stream(stream)
    bounds = find_bounds(target)
    if bounds is None or bounds.first >= bounds.end:
        return
    now_ms = context.clock.now_ms()
    messages = (
        context.spark.read.format("penstock")
        .schema(_SCHEMA)
        .options(url=context.url, stream=stream, startingOffset="earliest", endingOffset=str(bounds.end))
        # What is evicted meanwhile need not be dropped.
        .option("failOnDataLoss", "false")
        .load()
        .where(fn.unix_millis("time") <= now_ms - options.min_lag_ms)
        .where(fn.octet_length("tag") > 0)
        .select("offset", "tag", "time", fn.isnull("message").alias("is_tombstone"))
    )
    ranges = iter(_ranges(superseded(messages, now_ms - options.tombstone_ms)).toLocalIterator())
    while not context.stopping.is_set() and (items := list(islice(ranges, _ITEMS))):
        yield target.drop(*((row.first, row.last) for row in items))


def superseded(messages: DataFrame, tombstones_before_ms: int) -> DataFrame:
    """Offsets that nobody needs who reads the newest message of each tag."""
    newest = messages.groupBy("tag").agg(fn.max("offset").alias("newest"), fn.count("*").alias("held"))
    is_over = fn.col("is_tombstone") & (fn.unix_millis("time") < tombstones_before_ms) & (fn.col("held") == 1)
    return (
        messages.join(newest, "tag").where((fn.col("offset") < fn.col("newest")) | is_over).select("offset")
    )


def _ranges(offsets: DataFrame) -> DataFrame:
    """Neighbours together, ascending."""
    ordered = offsets.repartitionByRange("offset").sortWithinPartitions("offset")
    return ordered.mapInArrow(_runs, "first BIGINT, last BIGINT").sort("first")


def _runs(batches: Iterator[Any]) -> Iterator[Any]:
    """Sorted offsets to (first, last) of those without a gap; runs may be cut where a batch ends."""
    for batch in batches:
        offsets = batch.column(0).to_numpy()
        if not len(offsets):
            continue
        cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
        firsts = offsets[np.concatenate(([0], cuts))]
        lasts = offsets[np.concatenate((cuts - 1, [len(offsets) - 1]))]
        yield pa.RecordBatch.from_arrays([pa.array(firsts), pa.array(lasts)], ["first", "last"])
